"""Clients of the daemon's own listeners, one module per wire."""
