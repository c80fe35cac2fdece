"""Signing keys of signature version 4, derived once a day and key and then remembered."""

import hmac
from secrets import token_hex

TERMINATOR = "aws4_request"

KEY_LIMIT = 4096
"""Keys remembered: one a secret and day, at about 300 bytes each."""


class SigningKeys:
    """
    Derive signing keys and remember them; not for use from several threads.

    Deriving takes 5 microseconds, the rest of a request's check 9.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str, str], bytes] = {}
        # An unknown access key is checked against this, so that its answer takes the time of any
        # other wrong signature.
        self._decoy = token_hex(20)

    def find(self, secret: str | None, date: str, region: str, service: str) -> bytes:
        """
        Give the key for a scope.

        @param secret: The secret key; L{None} for an access key that is not known.
        @param date: C{YYYYMMDD}.
        """
        scope = (self._decoy if secret is None else secret, date, region, service)
        key = self._keys.get(scope)
        if key is None:
            if len(self._keys) >= KEY_LIMIT:
                del self._keys[next(iter(self._keys))]
            key = self._keys[scope] = deriveSigningKey(*scope)
        return key


def deriveSigningKey(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive the key that signs for one day, region and service."""
    key = b"AWS4" + secret.encode()
    for part in (date, region, service, TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def sign(signingKey: bytes, stringToSign: bytes) -> str:
    """Sign a string: 64 lower-case hexadecimal digits."""
    return hmac.digest(signingKey, stringToSign, "sha256").hex()


def sameSignature(left: str, right: str) -> bool:
    """Compare two signatures in constant time, whatever characters a client put into its own."""
    return hmac.compare_digest(left.encode(), right.encode())
