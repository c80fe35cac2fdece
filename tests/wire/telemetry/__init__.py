"""Tests of tracing with real processes."""
