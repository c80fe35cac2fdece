"""
The JSON form of etcd's API (U{https://etcd.io/docs/latest/dev-guide/api_grpc_gateway/}): every call
is a POST of a message, bytes are base64, large numbers are text; a stream answers with a message a
line, wrapped in C{{"result": ...}} or C{{"error": ...}}.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from storagegate.discovery.httpsource import HTTPSource
from storagegate.discovery.provideroptions import EtcdOptions
from storagegate.discovery.reading import asJSON, readMessage, readSecret
from storagegate.discovery.sourceerror import Refused, SourceError

T = TypeVar("T")
R = TypeVar("R")


class Header(msgspec.Struct):
    """
    What stands in front of answers.

    @ivar cluster: Which history the revision belongs to.
    @ivar revision: 0 where it is left out.
    """

    cluster: int = msgspec.field(name="cluster_id")
    revision: int = 0


class _Token(msgspec.Struct):
    token: str


class _Error(msgspec.Struct):
    error: str | None = None


def encoded(text: str) -> str:
    """Write text as a field of bytes."""
    return b64encode(text.encode()).decode("ascii")


class EtcdAPI:
    """
    Asks the members of a cluster: one of them, until it fails, then the next.
    """

    def __init__(self, reactor: Any, options: EtcdOptions) -> None:
        self._members = [HTTPSource(reactor, each, options.tls) for each in options.addresses]
        self._member = 0
        self._options = options
        self._seconds = options.timeoutMs / 1000
        self._token: str | None = None

    async def call(self, path: str, message: Any, kind: type[T]) -> T:
        """
        Ask for something.

        @raise SourceError: If there is no answer, or another one.
        """
        return await self._trying(lambda: self._call(path, message, kind))

    async def follow(
        self, path: str, message: Any, taken: Callable[[bytes], None], life: float
    ) -> None:
        """
        Take the lines of a stream.

        @param life: How many seconds at most.
        @raise SourceError: If there is none, or it breaks off.
        """
        await self._trying(lambda: self._follow(path, message, taken, life))

    async def _trying(self, ask: Callable[[], Awaitable[R]]) -> R:
        try:
            if self._token is None and self._options.username is not None:
                self._token = await self._authenticate(self._options.username)
            return await ask()
        except SourceError:
            # Whatever it was: another member may know better, and the token may be too old.
            self._token = None
            self._member = (self._member + 1) % len(self._members)
            raise

    async def _authenticate(self, username: str) -> str:
        password = readSecret(self._options.passwordFile or "")
        message = {"name": username, "password": password}
        return (await self._call("/v3/auth/authenticate", message, _Token)).token

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = self._token
        return headers

    async def _call(self, path: str, message: Any, kind: type[T]) -> T:
        member = self._members[self._member]
        answer = await member.ask("POST", path, self._headers(), asJSON(message), self._seconds)
        if answer.status != 200:
            raise Refused(f"etcd's {path}", answer.status, _errorText(answer.body))
        return readMessage(answer.body, kind, lax=True)

    async def _follow(
        self, path: str, message: Any, taken: Callable[[bytes], None], life: float
    ) -> None:
        member = self._members[self._member]
        body = asJSON(message)
        await member.follow("POST", path, self._headers(), taken, body, self._seconds, life)


def _errorText(body: bytes) -> str:
    try:
        return readMessage(body, _Error).error or ""
    except SourceError:
        return ""
