"""The script with real processes."""
