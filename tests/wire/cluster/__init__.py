"""Stores over several machines."""
