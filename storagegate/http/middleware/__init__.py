"""The built-in middleware of the framework."""
