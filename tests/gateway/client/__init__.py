"""The client of a gateway."""
