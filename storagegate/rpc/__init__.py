"""The gRPC room: a server and a client whose handlers run in the reactor thread."""
