"""Health: `doctor` finds faults, and their remedies; `status` shows the present state."""
