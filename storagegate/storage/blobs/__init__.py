"""Immutable bytes by id, as files."""
