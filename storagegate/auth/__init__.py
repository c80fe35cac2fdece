"""Tokens, their providers, and the keys that verify them."""
