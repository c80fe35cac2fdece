"""HTTP/1.1: the channel, its parser, its requests, and the client."""
