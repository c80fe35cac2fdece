"""Who signed a request: signature versions 2 and 4, and access keys in headers."""
