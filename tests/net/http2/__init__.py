"""HTTP/2 on the wire."""
