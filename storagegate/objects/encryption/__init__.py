"""Encryption of objects: kinds, keys, and the sealed form of their bytes."""
