"""Authentication of requests: signature versions 2 and 4, and access keys in headers."""
