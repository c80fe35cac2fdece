"""
Bytes as text that URLs and command lines carry unchanged.

It is Base64 for URLs without padding, except that a hyphen at the beginning is a dot: aws-cli and
other programs take the value after it for an option.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode


def encodeName(data: bytes) -> str:
    """Encode bytes."""
    return normalName(urlsafe_b64encode(data).rstrip(b"=").decode())


def decodeName(text: str) -> bytes:
    """
    Decode a text of L{encodeName}. Base64 has several encodings of some bytes, so a caller that
    accepts only one compares it with L{normalName} of the text.

    @raise ValueError: The text is not Base64.
    """
    text = text.replace(".", "-", 1) if text.startswith(".") else text
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def normalName(text: str) -> str:
    """Return a text as L{encodeName} writes it: those of earlier releases may have the hyphen."""
    return f".{text[1:]}" if text.startswith("-") else text
