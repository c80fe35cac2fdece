"""Middleware of gRPC applications."""
