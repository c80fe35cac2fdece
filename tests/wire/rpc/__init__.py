"""The gRPC room over real sockets, with clients that others have written."""
