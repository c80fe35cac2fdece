"""The public interoperability cases of gRPC, for clients that others have written."""
