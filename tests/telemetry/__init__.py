"""Tests of what traces calls."""
