"""Tokens that were good a moment ago: to check one again costs more than most calls do."""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from storagegate.core.tokens import unverified

MAX_CHECKED = 1024
"""Tokens of one provider; each costs about 200 bytes, and nobody gets in without a good one."""


class CheckedTokens:
    """
    Remembers which tokens were good, by their digests: the tokens themselves are kept nowhere.

    To find one takes a tenth of the time of checking it.
    """

    def __init__(self, leeway: float, now: Callable[[], float] = time.time) -> None:
        """
        @param leeway: How long after its end a token is good, in seconds.
        @param now: Gives seconds since 1970.
        """
        self._leeway = leeway
        self._now = now
        self._checked: dict[bytes, tuple[Any, float]] = {}

    def claims(self, token: str, key: Any, check: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """
        Give the claims of a token, which are the caller's own.

        @param key: What it is checked with; what was good with another one is not.
        @param check: Gives them, or raises.
        """
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._checked.get(digest)
        if known is not None and known[0] is key and self._now() < known[1]:
            return dict(unverified(token, 1))
        claims = check()
        self._checked.pop(digest, None)
        if len(self._checked) >= MAX_CHECKED:
            del self._checked[next(iter(self._checked))]
        self._checked[digest] = (key, int(claims["exp"]) + self._leeway)
        return claims
