"""
Instances in Consul, found by blocking queries
(U{https://developer.hashicorp.com/consul/api-docs/features/blocking})::

    GET /v1/health/service/NAME?passing=true              -> entries, X-Consul-Index: 7
    GET /v1/health/service/NAME?passing=true&index=7&wait=60000ms
        -> the same after a change, or when the wait ends

Registered entries are services of an agent, each with a TTL check that must be renewed
(U{https://developer.hashicorp.com/consul/api-docs/agent/service})::

    PUT /v1/agent/service/register          {"ID", "Name", ..., "Check": {"TTL": "15s"}}
    PUT /v1/agent/check/pass/CHECK          404, or from older agents 500: unknown
    PUT /v1/agent/service/deregister/ID
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from attrs import define, field

from storagegate.core.options import parseDecimal
from storagegate.net.http.client import ClientResponse, HTTPClient, HTTPStatusError
from storagegate.net.http.clientconnection import HTTPClientError
from storagegate.upstream.options import ConsulOptions, Entry, Instance
from storagegate.upstream.provider import (
    Publish,
    SourceError,
    boundedWeight,
    readEach,
    readMessage,
    readSecret,
)

_MAX_INDEX = 2**64 - 1

# Consul adds up to a sixteenth to the wait, so that not all clients return at the same time.
_JITTER = 1 + 1 / 16

# A server that returns the same index immediately does not block, so it is polled.
_POLL_SECONDS = 1.0

META_TLS = "tls"
"""The metadata key of a service; its value C{true} means that the service speaks TLS."""


class _Weights(msgspec.Struct, rename="pascal"):
    passing: int = 1


class _Service(msgspec.Struct, rename="pascal"):
    port: int
    address: str = ""
    weights: _Weights | None = None
    meta: dict[str, str] | None = None


class _Node(msgspec.Struct, rename="pascal"):
    address: str = ""


class _Entry(msgspec.Struct, rename="pascal"):
    service: _Service
    node: _Node | None = None


class ConsulAPI:
    """The HTTP API of an agent."""

    def __init__(self, reactor: Any, options: ConsulOptions) -> None:
        self._client = HTTPClient(reactor, options.address, options.tls)
        self._options = options

    async def request(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        wait: float = 0.0,
        isLocal: bool = False,
    ) -> ClientResponse:
        """
        Send a request.

        @param wait: The time that the agent may wait before it responds, in seconds.
        @param isLocal: Whether the request concerns the agent itself, not a data center.
        @raise HTTPClientError: If there is no response in time.
        @raise SourceError: If the token cannot be read.
        """
        options = self._options
        parameters = [*query]
        if options.datacenter is not None and not isLocal:
            parameters.append(("dc", options.datacenter))
        if options.namespace is not None:
            parameters.append(("ns", options.namespace))
        headers = {} if body is None else {"Content-Type": "application/json"}
        if options.tokenFile is not None:
            headers["X-Consul-Token"] = readSecret(options.tokenFile)
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        seconds = wait * _JITTER + options.timeoutMs / 1000
        return await self._client.request(method, target, headers, body, seconds)


class ConsulWatch:
    """Follows one service with blocking queries."""

    def __init__(
        self, reactor: Any, options: ConsulOptions, service: str, publish: Publish
    ) -> None:
        self._api = ConsulAPI(reactor, options)
        self._options = options
        self._path = f"/v1/health/service/{quote(service, safe='')}"
        self._publish = publish
        self._seconds = reactor.seconds
        self._index = 0

    async def step(self) -> float:
        """Query once; without an index the response comes immediately."""
        index, self._index = self._index, 0
        wait = self._options.waitMs / 1000 if index else 0.0
        query = [("passing", "true"), *(("tag", tag) for tag in self._options.tags)]
        if index:
            query += [("index", str(index)), ("wait", f"{self._options.waitMs}ms")]
        began = self._seconds()
        response = await self._api.request("GET", self._path, query, wait=wait)
        if response.status != 200:
            raise HTTPStatusError(f"Consul's {self._path}", response.status)
        try:
            found = parseDecimal(response.field("X-Consul-Index"), _MAX_INDEX)
        except ValueError:
            found = 0
        if found == 0:
            # Consul always sends an index.
            raise SourceError("the response has no index")
        self._publish(*readEach(readMessage(response.body, list[msgspec.Raw]), _instances))
        # A smaller index comes from another history; the old index means nothing there.
        self._index = found if found >= index else 0
        spared = wait / 2 - (self._seconds() - began)
        return _POLL_SECONDS if found == index and spared > 0 else 0.0


def _instances(raw: msgspec.Raw) -> Iterable[Instance]:
    entry = readMessage(bytes(raw), _Entry)
    service = entry.service
    # A service without its own address has the address of its node.
    host = service.address or (entry.node.address if entry.node is not None else "")
    weight = service.weights.passing if service.weights is not None else 1
    # Other values do not mean no: the options may enable TLS.
    tls = True if (service.meta or {}).get(META_TLS) == "true" else None
    return [Instance(host, service.port, boundedWeight(weight), tls=tls)]


_FORGET_SECONDS = 60
"""Time without a renewal after which an entry is removed, in seconds: Consul's minimum."""


@define(eq=False)
class ConsulRegistry:
    """Registers entries with an agent."""

    _api: ConsulAPI
    _entries: list[Entry]
    _ttl: int
    _known: set[str] = field(factory=set)

    async def register(self) -> None:
        """Register all entries, or renew them."""
        for entry in self._entries:
            if entry.id not in self._known or not await self._renew(entry):
                self._known.discard(entry.id)
                await self._register(entry)
                self._known.add(entry.id)

    async def deregister(self) -> None:
        """Remove all entries, even if some removals fail."""
        failed: Exception | None = None
        for entry in self._entries:
            try:
                await self._put(f"service/deregister/{quote(entry.id, safe='')}")
            except (SourceError, HTTPClientError) as error:
                # An unknown entry need not be removed.
                if not isinstance(error, HTTPStatusError) or error.status != 404:
                    failed = error
        if failed is not None:
            raise failed

    async def _renew(self, entry: Entry) -> bool:
        """Renew an entry; return whether the agent knows it."""
        path = f"/v1/agent/check/pass/{quote(_check(entry), safe='')}"
        response = await self._api.request("PUT", path, isLocal=True)
        if response.status not in (200, 404, 500):
            raise HTTPStatusError("Consul's check/pass", response.status)
        return response.status == 200

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
        await self._put("service/register", msgspec.json.encode(message))

    async def _put(self, path: str, body: bytes | None = None) -> None:
        response = await self._api.request("PUT", f"/v1/agent/{path}", body=body, isLocal=True)
        if response.status != 200:
            raise HTTPStatusError(f"Consul's {path}", response.status)


def _check(entry: Entry) -> str:
    return f"service:{entry.id}"
