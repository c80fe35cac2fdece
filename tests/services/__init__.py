"""Tests of the reference services."""
