"""Tests of the framework."""
