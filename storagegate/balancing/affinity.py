"""
Calls that belong together go to one instance.

A key, such as that of a session, goes to the instance that the hash of both puts first (rendezvous
hashing): every process chooses the same one without asking another, and when an instance goes, only
its own keys move. The share of an instance is that of its weight.

A cookie names an instance by a signature alone: whoever has it learns no address, and nobody can
make one up.
"""

import hmac
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b, sha256
from math import log

from storagegate.balancing.strategies import C

PINS = 10_000
"""Connections whose instance is remembered: as many as a listener of WebSockets has."""

_SCALE = 2.0**64

_TOKEN_LENGTH = 32
"""Hexadecimal digits of a signature: 128 bits."""


def chooseFor(key: str, candidates: Sequence[C]) -> C:
    """Choose the instance of a key, one of at least one."""
    whole = key.encode("utf-8", "surrogatepass")

    def score(candidate: C) -> float:
        digest = blake2b(candidate.id.encode(), key=_short(whole), digest_size=8).digest()
        # Never 0, and never 1, whose logarithms have no use here.
        drawn = (int.from_bytes(digest, "big") + 0.5) / _SCALE
        return -candidate.weight / log(drawn) if drawn < 1 else float("inf")

    return max(candidates, key=score)


def _short(key: bytes) -> bytes:
    """Give a key that the hash takes, which is one of 64 bytes at most."""
    return key if 0 < len(key) <= 64 else sha256(key).digest()


class Pins:
    """Where the calls of each connection go, for as many as L{PINS}."""

    def __init__(self, limit: int = PINS) -> None:
        self._limit = limit
        self._ids: OrderedDict[str, str] = OrderedDict()

    def choose(self, key: str, candidates: Sequence[C]) -> C:
        """Choose the instance that a key had before, or if it is not there another one for good."""
        known = self._ids.get(key)
        for each in candidates:
            if each.id == known:
                self._ids.move_to_end(key)
                return each
        chosen = chooseFor(key, candidates)
        self._ids[key] = chosen.id
        self._ids.move_to_end(key)
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)
        return chosen


class Signer:
    """Makes the values of one service's cookies."""

    def __init__(self, secret: bytes, service: str) -> None:
        """
        @param secret: What all processes have that take each other's cookies.
        """
        self._secret = secret
        self._service = service
        self.cookie = f"storagegate-{blake2b(service.encode(), digest_size=4).hexdigest()}"

    def sign(self, id: str) -> str:
        """Give the value that names an instance."""
        named = f"{self._service}\0{id}".encode()
        return hmac.new(self._secret, named, sha256).hexdigest()[:_TOKEN_LENGTH]

    def find(self, value: str, candidates: Sequence[C]) -> C | None:
        """Give the instance that a cookie names, C{None} if it is no longer among these."""
        given = value.encode("utf-8", "surrogatepass")
        found = None
        for each in candidates:
            if hmac.compare_digest(self.sign(each.id).encode(), given):
                found = each
        return found
