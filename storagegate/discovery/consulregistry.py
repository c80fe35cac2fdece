"""
Entries in Consul: services of an agent, each with a check that lives on signs
(U{https://developer.hashicorp.com/consul/api-docs/agent/service})::

    PUT /v1/agent/service/register          {"ID", "Name", ..., "Check": {"TTL": "15s"}}
    PUT /v1/agent/check/pass/CHECK          404, or from older agents 500: it is not known
    PUT /v1/agent/service/deregister/ID
"""

from typing import Any
from urllib.parse import quote

from storagegate.discovery.consul import META_TLS, ConsulAPI
from storagegate.discovery.entries import Entry
from storagegate.discovery.provideroptions import ConsulOptions
from storagegate.discovery.reading import asJSON
from storagegate.discovery.sourceerror import Refused, SourceError

_FORGET_SECONDS = 60
"""After so long without a sign of life an entry is taken away; Consul allows no less."""


class ConsulRegistry:
    """Tells an agent."""

    def __init__(
        self, reactor: Any, options: ConsulOptions, entries: list[Entry], ttlSeconds: int
    ) -> None:
        self._api = ConsulAPI(reactor, options)
        self._entries = entries
        self._ttl = ttlSeconds
        self._told: set[str] = set()

    async def tell(self) -> None:
        """Tell of all entries, or that they still are."""
        for entry in self._entries:
            if entry.id not in self._told or not await self._passes(entry):
                self._told.discard(entry.id)
                await self._register(entry)
                self._told.add(entry.id)

    async def leave(self) -> None:
        """Take all entries away, each for itself."""
        failed: SourceError | None = None
        for entry in self._entries:
            try:
                await self._put(f"service/deregister/{quote(entry.id, safe='')}")
            except SourceError as error:
                # Who is not known any more need not be taken away.
                if not isinstance(error, Refused) or error.status != 404:
                    failed = error
        if failed is not None:
            raise failed

    async def _passes(self, entry: Entry) -> bool:
        """Give a sign of life; tell whether the agent knows what of."""
        path = f"/v1/agent/check/pass/{quote(_check(entry), safe='')}"
        answer = await self._api.ask("PUT", path, isLocal=True)
        if answer.status not in (200, 404, 500):
            raise Refused("Consul's check/pass", answer.status)
        return answer.status == 200

    async def _register(self, entry: Entry) -> None:
        message = {
            "ID": entry.id,
            "Name": entry.service,
            "Address": entry.host,
            "Port": entry.port,
            "Tags": entry.tags,
            "Meta": {META_TLS: "true"} if entry.tls else {},
            "Weights": {"Passing": entry.weight, "Warning": 1},
            "Check": {
                "CheckID": _check(entry),
                "Name": "storagegate",
                "TTL": f"{self._ttl}s",
                "Status": "passing",
                "DeregisterCriticalServiceAfter": f"{max(_FORGET_SECONDS, 4 * self._ttl)}s",
            },
        }
        await self._put("service/register", asJSON(message))

    async def _put(self, path: str, body: bytes | None = None) -> None:
        answer = await self._api.ask("PUT", f"/v1/agent/{path}", body=body, isLocal=True)
        if answer.status != 200:
            raise Refused(f"Consul's {path}", answer.status)


def _check(entry: Entry) -> str:
    return f"service:{entry.id}"
