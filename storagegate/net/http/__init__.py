"""HTTP/1.1 on the wire: messages, and the client."""
