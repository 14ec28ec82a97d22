"""Health: `doctor` says what is wrong and what to do, `status` what is going on."""
