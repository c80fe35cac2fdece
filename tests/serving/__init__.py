"""Tests of programs that serve, and of their workers."""
