"""The header fields that carry a key pair in plain text, over HTTPS or from the same machine."""

ACCESS_HEADER = b"x-storage-access-key"
SECRET_HEADER = b"x-storage-secret-key"
