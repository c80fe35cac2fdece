"""Clients of the daemon's own listeners, one module a wire."""
