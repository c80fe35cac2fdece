"""Tests of what helps while an application is written."""
