"""
Instances in etcd: keys C{PREFIX/SERVICE/ID} whose values are JSON::

    {"host": "10.0.0.7", "port": 8080, "weight": 2, "tls": true}

The keys are listed once, with the revision of the list, and watched from the next revision on.
After a failed watch, usually because its revision has been compacted, they are listed again.

The JSON gateway of etcd's API (U{https://etcd.io/docs/latest/dev-guide/api_grpc_gateway/}): every
call POSTs a message, bytes are base64, large numbers are text; the response of a stream has one
message a line, wrapped in C{{"result": ...}} or C{{"error": ...}}.

Registered entries are keys C{PREFIX/SERVICE/ID} attached to a lease, which is kept alive::

    /v3/lease/grant {"TTL"} -> {"ID"}     /v3/kv/put {"key", "value", "lease"}
    /v3/lease/keepalive {"ID"} -> {"result": {"TTL"}}, without it the lease expires
    /v3/lease/revoke {"ID"}               removes the keys with the lease
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec
from attrs import define

from storagegate.net.http.client import HTTPClient, HTTPStatusError
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.upstream.options import MAX_INSTANCES, Entry, EtcdOptions, Instance
from storagegate.upstream.provider import (
    Publish,
    SourceError,
    boundedWeight,
    readEach,
    readMessage,
    readSecret,
)

T = TypeVar("T")
R = TypeVar("R")


class ResponseHeader(msgspec.Struct):
    """
    The header of responses.

    @ivar cluster: The id of the cluster.
    @ivar revision: The revision; 0 if it is omitted.
    """

    cluster: int = msgspec.field(name="cluster_id")
    revision: int = 0


class _Token(msgspec.Struct):
    token: str


class _Error(msgspec.Struct):
    error: str | None = None


def encoded(text: str) -> str:
    """Encode text for a field of bytes: base64."""
    return b64encode(text.encode()).decode("ascii")


class EtcdAPI:
    """The API of a cluster: calls go to one member until it fails, then to the next one."""

    def __init__(self, reactor: Any, options: EtcdOptions) -> None:
        self._members = [HTTPClient(reactor, each, options.tls) for each in options.addresses]
        self._member = 0
        self.options = options
        self._seconds = options.timeoutMs / 1000
        self._token: str | None = None

    async def call(self, path: str, message: Any, kind: type[T]) -> T:
        """
        Call the API.

        @param path: The path of the method below the address of the member.
        @param message: The message, which C{msgspec} encodes.
        @raise HTTPClientError: If there is no response in time.
        @raise SourceError: If the response has another type.
        """
        return await self._withMember(lambda: self._call(path, message, kind))

    async def follow(
        self, path: str, message: Any, onLine: Callable[[bytes], None], maxSeconds: float
    ) -> None:
        """
        Read the lines of a stream.

        @param path: The path of the method below the address of the member.
        @param message: The message, which C{msgspec} encodes.
        @param onLine: Called with each line; its exceptions end the stream.
        @param maxSeconds: Limit of the time that the stream is read.
        @raise HTTPClientError: If the stream does not start, or breaks off.
        """
        body = msgspec.json.encode(message)

        def send() -> Awaitable[None]:
            member = self._members[self._member]
            return member.stream(
                "POST", path, self._headers(), onLine, body, self._seconds, maxSeconds
            )

        await self._withMember(send)

    async def _withMember(self, send: Callable[[], Awaitable[R]]) -> R:
        try:
            if self._token is None and self.options.username is not None:
                password = readSecret(self.options.passwordFile or "")
                message = {"name": self.options.username, "password": password}
                path = "/v3/auth/authenticate"
                self._token = (await self._call(path, message, _Token)).token
            return await send()
        except (SourceError, HTTPClientError):
            # Another member may respond, and the token may have expired.
            self._token = None
            self._member = (self._member + 1) % len(self._members)
            raise

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = self._token
        return headers

    async def _call(self, path: str, message: Any, kind: type[T]) -> T:
        member, body = self._members[self._member], msgspec.json.encode(message)
        response = await member.request("POST", path, self._headers(), body, self._seconds)
        if response.status != 200:
            problem = readMessage(response.body, _Error, default=_Error()).error or ""
            raise HTTPStatusError(f"etcd's {path}", response.status, problem)
        return readMessage(response.body, kind, lax=True)


_LIFE_SECONDS = 60.0
"""The duration of a watch; the next watch continues from its end."""


class _Pair(msgspec.Struct):
    key: bytes
    value: bytes = b""
    revision: int = msgspec.field(name="mod_revision", default=0)


class _Range(msgspec.Struct):
    header: ResponseHeader
    kvs: list[_Pair] = []
    more: bool = False


class _KeyEvent(msgspec.Struct):
    kv: _Pair
    type: str = "PUT"


class _News(msgspec.Struct):
    header: ResponseHeader
    created: bool = False
    canceled: bool = False
    reason: str = msgspec.field(name="cancel_reason", default="")
    compacted: int = msgspec.field(name="compact_revision", default=0)
    events: list[_KeyEvent] = []


class _Line(msgspec.Struct):
    result: _News | None = None


class _Value(msgspec.Struct):
    host: str
    port: int
    weight: int = 1
    tls: bool = False


class EtcdWatch:
    """Follows one service with a list and watches."""

    def __init__(
        self,
        reactor: Any,
        options: EtcdOptions,
        service: str,
        publish: Publish,
        life: float = _LIFE_SECONDS,
    ) -> None:
        """
        @param life: The duration of a watch in seconds.
        """
        self._life = life
        self._api = EtcdAPI(reactor, options)
        # All keys that begin with "PREFIX/SERVICE/": up to the character after the slash.
        base = f"{options.prefix}/{service}"
        self._keys = {"key": encoded(f"{base}/"), "range_end": encoded(f"{base}0")}
        self._publish = publish
        self._values: dict[bytes, bytes] = {}
        self._cluster = 0
        self._revision: int | None = None

    async def step(self) -> float:
        """List the keys, or watch their changes if they are listed."""
        revision, self._revision = self._revision, None
        self._revision = await (self._list() if revision is None else self._watch(revision))
        return 0.0

    async def _list(self) -> int:
        message = {**self._keys, "limit": MAX_INSTANCES + 1}
        found = await self._api.call("/v3/kv/range", message, _Range)
        if found.header.revision <= 0:
            raise SourceError("the response of etcd has no revision")
        if found.more:
            raise SourceError(f"etcd has more than {MAX_INSTANCES} instances")
        self._cluster = found.header.cluster
        self._values = {pair.key: pair.value for pair in found.kvs}
        self._publishValues()
        return found.header.revision

    async def _watch(self, revision: int) -> int:
        """Watch from a revision on; return the last revision that was seen."""
        isCreated = False

        def onLine(line: bytes) -> None:
            nonlocal revision, isCreated
            news = readMessage(line, _Line, lax=True).result
            if news is None:
                raise SourceError("etcd ended the watch with an error")
            if news.header.cluster != self._cluster:
                raise SourceError("the etcd cluster is a different one")
            if news.canceled:
                reason = "its revision is compacted" if news.compacted else news.reason
                raise SourceError(f"etcd cancelled the watch: {reason}")
            if news.created:
                isCreated = True
                if news.header.revision < revision:
                    # A restored backup: the watch would be silent until its revision is as high.
                    raise SourceError("etcd returned to an earlier revision")
                return
            if news.events:
                # The header has the revision of the store, which later batches lead up to.
                revision = max(revision, news.events[-1].kv.revision)
                self._apply(news.events)
            else:
                revision = max(revision, news.header.revision)

        message = {"create_request": {**self._keys, "start_revision": str(revision + 1)}}
        await self._api.follow("/v3/watch", message, onLine, self._life)
        if not isCreated:
            raise SourceError("etcd ended the watch before it began")
        return revision

    def _apply(self, events: Iterable[_KeyEvent]) -> None:
        for event in events:
            if event.type == "DELETE":
                self._values.pop(event.kv.key, None)
            else:
                self._values[event.kv.key] = event.kv.value
        self._publishValues()

    def _publishValues(self) -> None:
        self._publish(*readEach(self._values.values(), _instances))


def _instances(value: bytes) -> Iterable[Instance]:
    found = readMessage(value, _Value)
    weight = boundedWeight(found.weight)
    return [Instance(found.host, found.port, weight, tls=found.tls or None)]


class _Lease(msgspec.Struct):
    id: int = msgspec.field(name="ID")
    ttl: int = msgspec.field(name="TTL", default=0)


class _KeepAlive(msgspec.Struct):
    result: _Lease


class _Ignored(msgspec.Struct):
    pass


@define(eq=False)
class EtcdRegistry:
    """Registers entries with a cluster."""

    _api: EtcdAPI
    _entries: list[Entry]
    _ttl: int
    _lease: int | None = None
    _isPut: bool = False

    async def register(self) -> None:
        """Register all entries, or renew their lease."""
        if self._lease is not None:
            message = {"ID": str(self._lease)}
            kept = await self._api.call("/v3/lease/keepalive", message, _KeepAlive)
            if kept.result.ttl <= 0:
                self._lease = None
        if self._lease is None:
            self._isPut = False
            granted = await self._api.call("/v3/lease/grant", {"TTL": str(self._ttl)}, _Lease)
            if granted.id == 0:
                raise SourceError("etcd granted no lease")
            self._lease = granted.id
        if not self._isPut:
            for entry in self._entries:
                await self._put(entry, self._lease)
            self._isPut = True

    async def deregister(self) -> None:
        """Remove all entries with their lease."""
        if self._lease is not None:
            await self._api.call("/v3/lease/revoke", {"ID": str(self._lease)}, _Ignored)

    async def _put(self, entry: Entry, lease: int) -> None:
        value = {
            "host": entry.host,
            "port": entry.port,
            "weight": entry.weight,
            "tls": entry.tls,
            "tags": entry.tags,
        }
        message = {
            "key": encoded(f"{self._api.options.prefix}/{entry.service}/{entry.id}"),
            "value": b64encode(msgspec.json.encode(value)).decode("ascii"),
            "lease": str(lease),
        }
        await self._api.call("/v3/kv/put", message, _Ignored)
