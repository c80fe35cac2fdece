"""
Instances that etcd knows: keys C{PREFIX/SERVICE/ID} whose values are JSON::

    {"host": "10.0.0.7", "port": 8080, "weight": 2, "tls": true}

They are listed once, with the revision of that list; from the next revision on they are watched. A
watch that fails for whatever reason, above all because its revision has been compacted away, begins
with a list again.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from storagegate.discovery.etcdapi import EtcdAPI, Header, encoded
from storagegate.discovery.instances import MAX_INSTANCES, Instance
from storagegate.discovery.provideroptions import EtcdOptions
from storagegate.discovery.reading import boundedWeight, readEach, readMessage
from storagegate.discovery.sourceerror import SourceError
from storagegate.discovery.watched import Publish

_LIFE_SECONDS = 60.0
"""Of a watch; the next one goes on where it has ended."""


class _Pair(msgspec.Struct):
    key: bytes
    value: bytes = b""


class _Range(msgspec.Struct):
    header: Header
    kvs: list[_Pair] = []
    more: bool = False


class _Event(msgspec.Struct):
    kv: _Pair
    type: str = "PUT"


class _News(msgspec.Struct):
    header: Header
    created: bool = False
    canceled: bool = False
    reason: str = msgspec.field(name="cancel_reason", default="")
    compacted: int = msgspec.field(name="compact_revision", default=0)
    events: list[_Event] = []


class _Line(msgspec.Struct):
    result: _News | None = None


class _Value(msgspec.Struct):
    host: str
    port: int
    weight: int = 1
    tls: bool = False


class EtcdWatch:
    """Follows one service."""

    def __init__(
        self,
        reactor: Any,
        options: EtcdOptions,
        service: str,
        publish: Publish,
        life: float = _LIFE_SECONDS,
    ) -> None:
        """
        @param life: How many seconds a stream is followed at most.
        """
        self._life = life
        self._api = EtcdAPI(reactor, options)
        # All keys that begin with "PREFIX/SERVICE/": up to the one after the slash.
        base = f"{options.prefix}/{service}"
        self._keys = {"key": encoded(f"{base}/"), "range_end": encoded(f"{base}0")}
        self._publish = publish
        self._values: dict[bytes, bytes] = {}
        self._cluster = 0
        self._revision: int | None = None

    async def step(self) -> float:
        """List what there is, or, after that, watch what becomes of it."""
        revision, self._revision = self._revision, None
        if revision is None:
            self._revision = await self._list()
        else:
            self._revision = await self._watch(revision)
        return 0.0

    async def _list(self) -> int:
        message = {**self._keys, "limit": MAX_INSTANCES + 1}
        found = await self._api.call("/v3/kv/range", message, _Range)
        if found.header.revision <= 0:
            raise SourceError("etcd answers without a revision")
        if found.more:
            raise SourceError(f"etcd knows more than {MAX_INSTANCES} instances")
        self._cluster = found.header.cluster
        self._values = {pair.key: pair.value for pair in found.kvs}
        self._tell()
        return found.header.revision

    async def _watch(self, revision: int) -> int:
        watching = _Watching(revision)

        def taken(line: bytes) -> None:
            news = readMessage(line, _Line, lax=True).result
            if news is None:
                raise SourceError("etcd ends the watch with an error")
            if news.header.cluster != self._cluster:
                raise SourceError("etcd is another cluster than it was")
            if watching.take(news):
                self._apply(news.events)

        message = {"create_request": {**self._keys, "start_revision": str(revision + 1)}}
        await self._api.follow("/v3/watch", message, taken, self._life)
        if not watching.isCreated:
            raise SourceError("etcd ends the watch before it has begun")
        return watching.revision

    def _apply(self, events: Iterable[_Event]) -> None:
        for event in events:
            if event.type == "DELETE":
                self._values.pop(event.kv.key, None)
            else:
                self._values[event.kv.key] = event.kv.value
        self._tell()

    def _tell(self) -> None:
        self._publish(*readEach(self._values.values(), _instances))


class _Watching:
    """How far a watch has come."""

    def __init__(self, revision: int) -> None:
        self.revision = revision
        self.isCreated = False

    def take(self, news: _News) -> bool:
        """
        Take note of a message.

        @return: Whether it brings events.
        @raise SourceError: If the watch cannot go on.
        """
        if news.canceled:
            reason = "its revision is compacted" if news.compacted else news.reason
            raise SourceError(f"etcd cancels the watch: {reason}")
        if news.created:
            self.isCreated = True
            if news.header.revision < self.revision:
                # A store from a backup: it would be silent until it is as old as this one was.
                raise SourceError("etcd has gone back to an earlier revision")
            return False
        if news.header.revision > self.revision:
            self.revision = news.header.revision
        return bool(news.events)


def _instances(value: bytes) -> Iterable[Instance]:
    found = readMessage(value, _Value)
    weight = boundedWeight(found.weight)
    return [Instance(found.host, found.port, weight, tls=found.tls or None)]
