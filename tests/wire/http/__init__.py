"""Tests of applications on real listeners."""
