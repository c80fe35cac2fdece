"""The gRPC server: unary calls and streams, beside other servers of gRPC."""
