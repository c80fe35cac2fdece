"""Tokens, providers and the keys that verify them."""
