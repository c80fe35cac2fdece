"""Tests of programs that serve in real processes."""
