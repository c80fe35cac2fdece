"""The encryption that a request names."""

from typing import Final

from attrs import field, frozen

SSE_S3: Final = "AES256"
"""Encryption with keys of the store, whose use is not visible to clients."""

SSE_KMS: Final = "aws:kms"
"""Encryption with a named master key."""

SSE_C: Final = "SSE-C"
"""Encryption with a key that the client sends with each request. The store never keeps it."""


@frozen
class CustomerKey:
    """
    A key that a client sent.

    @ivar key: 32 bytes.
    @ivar md5: Base64 of the MD5 of C{key}, as the client sent it.
    """

    key: bytes = field(repr=False)
    md5: str


@frozen
class RequestedEncryption:
    """
    The encryption that a write names, or that is the default of a bucket.

    @ivar kind: L{SSE_S3}, L{SSE_KMS} or L{SSE_C}.
    @ivar keyId: With L{SSE_KMS}, the name of a master key or an ARN that ends in one, as the client
        gave it; empty for the default key.
    @ivar context: With L{SSE_KMS}, Base64 of a JSON object of texts, as the client gave it; empty
        for none.
    @ivar bucketKeyEnabled: The value that a client reads back; L{None} if it named none.
    @ivar customerKey: With L{SSE_C}, the key.
    """

    kind: str
    keyId: str = ""
    context: str = ""
    bucketKeyEnabled: bool | None = None
    customerKey: CustomerKey | None = None
