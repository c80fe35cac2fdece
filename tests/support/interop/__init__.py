"""The public interoperability cases of gRPC, for third-party clients."""
