"""Catalogs: what is stored, under which name, in one transaction at a time."""
