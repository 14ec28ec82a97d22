"""What tests of more than one folder use."""
