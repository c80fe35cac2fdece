"""Tests of the built-in middleware."""
