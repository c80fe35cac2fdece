"""
Entries in etcd: keys C{PREFIX/SERVICE/ID} that live as long as a lease, which is kept alive::

    /v3/lease/grant {"TTL"} -> {"ID"}     /v3/kv/put {"key", "value", "lease"}
    /v3/lease/keepalive {"ID"} -> {"result": {"TTL"}}, without it the lease is over
    /v3/lease/revoke {"ID"}               takes the keys away with the lease
"""

from typing import Any

import msgspec

from storagegate.discovery.entries import Entry
from storagegate.discovery.etcdapi import EtcdAPI, encoded
from storagegate.discovery.provideroptions import EtcdOptions
from storagegate.discovery.reading import asJSON
from storagegate.discovery.sourceerror import SourceError


class _Lease(msgspec.Struct):
    id: int = msgspec.field(name="ID")
    ttl: int = msgspec.field(name="TTL", default=0)


class _Kept(msgspec.Struct):
    result: _Lease


class _Anything(msgspec.Struct):
    pass


class EtcdRegistry:
    """Tells a cluster."""

    def __init__(
        self, reactor: Any, options: EtcdOptions, entries: list[Entry], ttlSeconds: int
    ) -> None:
        self._api = EtcdAPI(reactor, options)
        self._prefix = options.prefix
        self._entries = entries
        self._ttl = ttlSeconds
        self._lease: int | None = None
        self._isPut = False

    async def tell(self) -> None:
        """Tell of all entries, or that they still are."""
        if self._lease is not None and not await self._isAlive(self._lease):
            self._lease = None
        if self._lease is None:
            self._isPut = False
            granted = await self._api.call("/v3/lease/grant", {"TTL": str(self._ttl)}, _Lease)
            if granted.id == 0:
                raise SourceError("etcd grants no lease")
            self._lease = granted.id
        if not self._isPut:
            for entry in self._entries:
                await self._put(entry, self._lease)
            self._isPut = True

    async def leave(self) -> None:
        """Take all entries away."""
        if self._lease is not None:
            await self._api.call("/v3/lease/revoke", {"ID": str(self._lease)}, _Anything)

    async def _isAlive(self, lease: int) -> bool:
        kept = await self._api.call("/v3/lease/keepalive", {"ID": str(lease)}, _Kept)
        return kept.result.ttl > 0

    async def _put(self, entry: Entry, lease: int) -> None:
        value = {
            "host": entry.host,
            "port": entry.port,
            "weight": entry.weight,
            "tls": entry.tls,
            "tags": entry.tags,
        }
        message = {
            "key": encoded(f"{self._prefix}/{entry.service}/{entry.id}"),
            "value": encoded(asJSON(value).decode()),
            "lease": str(lease),
        }
        await self._api.call("/v3/kv/put", message, _Anything)
