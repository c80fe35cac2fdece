"""Tests of the gRPC room."""
