"""The built-in middleware of gRPC applications."""
