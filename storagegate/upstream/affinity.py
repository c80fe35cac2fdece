"""
Affinity: related calls go to one instance, as configured by L{RoutingOptions}.

The key of an HTTP call is its session, else its cookie; the key of a WebSocket call is its
connection. Rendezvous hashing maps a key to an instance: every process chooses the same one, and
when an instance goes away, only its keys move. The share of an instance is its weight.

A cookie names an instance by a signature, which reveals no address and cannot be forged. The
signing key is in C{DATA/affinity-secret}, mode 0600, so that cookies stay valid in all workers and
after a restart. An attacker with this key can only choose an instance.
"""

import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b, sha256
from math import log

from attrs import fields

from storagegate.core.context import RequestContext
from storagegate.net.http.cookies import parseCookies, serializeCookie
from storagegate.upstream.cluster import CallSlot, Choose
from storagegate.upstream.options import GRPCRouting, HTTPRouting, RoutingOptions, WebSocketRouting
from storagegate.upstream.strategies import STRATEGIES, C, Strategy

PINS = 10_000
"""Limit of the connections with a remembered instance: as many as a WebSocket listener accepts."""

_SCALE = 2.0**64

# The longest key of BLAKE2b, in bytes.
_MAX_HASH_KEY = 64

AFFINITY_FILE = "affinity-secret"

SECRET_BYTES = 32
"""Length of the key that signs cookies, in bytes: the size of the digest."""

_TOKEN_LENGTH = 32
"""Length of a signature in hexadecimal digits: 128 bits."""


def chooseFor(key: str, candidates: Sequence[C]) -> C:
    """
    Choose the instance of a key by rendezvous hashing.

    @param key: Any text; if it is empty or longer than a BLAKE2b key, it is hashed first.
    @param candidates: At least one instance.
    """
    hashKey = key.encode("utf-8", "surrogatepass")
    if not 0 < len(hashKey) <= _MAX_HASH_KEY:
        hashKey = sha256(hashKey).digest()

    def score(candidate: C) -> float:
        digest = blake2b(candidate.id.encode(), key=hashKey, digest_size=8).digest()
        # Neither 0 nor 1, whose logarithms cannot be used here.
        drawn = (int.from_bytes(digest, "big") + 0.5) / _SCALE
        return -candidate.weight / log(drawn) if drawn < 1 else float("inf")

    return max(candidates, key=score)


class Pins:
    """
    The instances of the L{PINS} most recently used connections.

    @param limit: The most connections to remember; the least recently used is evicted.
    """

    def __init__(self, limit: int = PINS) -> None:
        self._limit = limit
        self._ids: OrderedDict[str, str] = OrderedDict()

    def choose(self, key: str, candidates: Sequence[C]) -> C:
        """
        Return the instance of a key; choose one if it has none, or its instance is gone.

        @param key: Identifies the connection.
        @param candidates: At least one instance.
        """
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


class CookieSigner:
    """Signs the cookies of one service."""

    def __init__(self, secret: bytes, service: str) -> None:
        """
        @param secret: The key, the same in all processes.
        @param service: The name of the service; it is part of the signed text and of the cookie's
            name.
        """
        self._secret = secret
        self._service = service
        self.cookie = f"storagegate-{blake2b(service.encode(), digest_size=4).hexdigest()}"

    def sign(self, id: str) -> str:
        """Return the value of the cookie for an instance."""
        named = f"{self._service}\0{id}".encode()
        return hmac.new(self._secret, named, sha256).hexdigest()[:_TOKEN_LENGTH]

    def find(self, value: str, candidates: Sequence[C]) -> C | None:
        """
        Return the instance that a cookie names; C{None} if it is not a candidate.

        @param candidates: The instances that may be called; each comparison takes constant time.
        """
        given = value.encode("utf-8", "surrogatepass")
        found = None
        for each in candidates:
            if hmac.compare_digest(self.sign(each.id).encode(), given):
                found = each
        return found


_DEFAULT = "default"


def makeStrategies(strategy: str, routing: RoutingOptions) -> dict[str, Strategy]:
    """
    Make the strategies of a service, each with its own state.

    @param strategy: The name of the default strategy, for calls without a strategy in C{routing}.
    """
    strategies = {_DEFAULT: STRATEGIES[strategy]()}
    for each in fields(RoutingOptions):
        group = getattr(routing, each.name)
        if isinstance(group, GRPCRouting) and group.load_balancing is not None:
            strategies[each.name] = STRATEGIES[group.load_balancing]()
    return strategies


class AffinitySelector:
    """Chooses strategies and instances for the calls of one service."""

    def __init__(
        self,
        routing: RoutingOptions,
        makeSigner: Callable[[], CookieSigner],
        strategies: Mapping[str, Strategy],
    ) -> None:
        """
        @param makeSigner: Makes the signer of cookies; called at the first use.
        @param strategies: The result of L{makeStrategies}.
        """
        self._routing = routing
        self._header = routing.http.session_header.lower()
        self._pins = Pins()
        self._signer = cache(makeSigner)
        self._strategies = strategies

    def strategy(self, context: RequestContext) -> str:
        """Return the name of the strategy of a call."""
        return context.protocol if context.protocol in self._strategies else _DEFAULT

    def _isSticky(self, context: RequestContext) -> bool:
        """Return whether sessions are sticky on the call's transport."""
        group = getattr(self._routing, context.protocol, None)
        return isinstance(group, HTTPRouting) and group.sticky_sessions

    def choose(self, context: RequestContext) -> Choose | None:
        """Return the function that chooses for a call with affinity; else C{None}."""
        group = getattr(self._routing, context.protocol, None)
        if isinstance(group, WebSocketRouting) and group.connection_affinity:
            return partial(self._pins.choose, context.client.id)
        if not self._isSticky(context):
            return None
        session = context.headers.get(self._header)
        if session:
            return partial(chooseFor, session)
        named = self._cookie(context)
        if named is None:
            return None

        # A cookie of an instance that is gone binds to none.
        return partial(self._signer().find, named)

    def chosen(self, context: RequestContext, slot: CallSlot) -> None:
        """Set the cookie that names the call's instance, unless the client has it already."""
        if not self._isSticky(context) or context.headers.get(self._header):
            return
        value = self._signer().sign(slot.member.id)
        if value == self._cookie(context):
            context.metadata.pop("setCookie", None)
            return
        context.metadata["setCookie"] = serializeCookie(
            self._signer().cookie, value, httpOnly=True, sameSite="lax"
        )

    def _cookie(self, context: RequestContext) -> str | None:
        cookies = context.headers.get("cookie")
        return None if cookies is None else parseCookies(cookies).get(self._signer().cookie)


def loadSecret(directory: str) -> bytes:
    """
    Read the key from a data directory; create it if it is missing. Blocks.

    @raise OSError: If it can be neither read nor created.
    """
    path = os.path.join(directory, AFFINITY_FILE)
    if not os.path.exists(path):
        draft = f"{path}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
            # If several workers start at the same time, the first one creates it for all.
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    with open(path, "rb") as file:
        found = file.read(SECRET_BYTES)
    if len(found) < SECRET_BYTES:
        raise OSError(f"{path}: too short; remove it")
    return found
