"""An app whose fields were renamed."""
