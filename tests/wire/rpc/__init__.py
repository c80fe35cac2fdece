"""The gRPC room, with clients on the wire."""
