"""HTTP/2 (RFC 9113): the connection, its streams, and the compression of header fields."""
