"""The middleware that comes with the framework."""
