"""Documents of settings."""
