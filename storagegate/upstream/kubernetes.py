"""
Instances in Kubernetes: the EndpointSlices of a Service
(U{https://kubernetes.io/docs/reference/using-api/api-concepts/})::

    GET /apis/discovery.k8s.io/v1/namespaces/NAMESPACE/endpointslices?labelSelector=
        kubernetes.io/service-name=NAME                    -> a list, resourceVersion "7"
    GET the same&watch=true&resourceVersion=7&allowWatchBookmarks=true
        -> {"type": "MODIFIED", "object": {...}}           one line for each change

After a failed watch the slices are listed again. An expired version (410 Gone) is not a failure: it
also occurs in healthy clusters.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from attrs import evolve

from storagegate.core.addresses import SCHEMES
from storagegate.net.http.client import HTTPClient, HTTPStatusError
from storagegate.upstream.options import SERVICE_ACCOUNT, Instance, KubernetesOptions, ownCluster
from storagegate.upstream.provider import Publish, SourceError, readEach, readMessage, readSecret

_LIFE_SECONDS = 240
"""The duration of a watch; the API ends it, and the next watch continues from its end."""

# Extra time in which the API ends a watch.
_LATE_SECONDS = 10

_GONE_SECONDS = 1.0
"""The pause before the next list: lists are expensive for the API."""

_GONE = 410


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion", default="")
    name: str = ""


class _Conditions(msgspec.Struct):
    ready: bool | None = None


class _Endpoint(msgspec.Struct):
    addresses: list[str]
    conditions: _Conditions | None = None


class _Port(msgspec.Struct):
    name: str | None = None
    port: int | None = None
    protocol: str | None = msgspec.field(name="appProtocol", default=None)

    @property
    def isSecure(self) -> bool:
        """Return whether the port is for HTTPS, by its protocol, else by its name."""
        return (self.protocol or self.name or "").lower() == "https"


class _Slice(msgspec.Struct):
    metadata: _Metadata
    kind: str = msgspec.field(name="addressType", default="")
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _List(msgspec.Struct):
    kind: str
    metadata: _Metadata
    items: list[msgspec.Raw] | None


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: _Metadata


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Gone(SourceError):
    """The version of a watch has expired."""


class KubernetesWatch:
    """Follows one service with a list and watches."""

    def __init__(
        self, reactor: Any, options: KubernetesOptions, service: str, publish: Publish
    ) -> None:
        tls = options.tls
        if options.address is None and tls.caFile is None:
            # Pods have the CA certificate of their cluster's API.
            tls = evolve(tls, caFile=f"{SERVICE_ACCOUNT}/ca.crt")
        self._client = HTTPClient(reactor, options.address or ownCluster(), tls)
        self._options = options
        self._selector = f"kubernetes.io/service-name={service}"
        self._publish = publish
        self._slices: dict[str, msgspec.Raw] = {}
        self._version: str | None = None

    async def step(self) -> float:
        """List the slices, or watch their changes if they are listed."""
        version, self._version = self._version, None
        try:
            self._version = await (self._list() if version is None else self._watch(version))
        except _Gone:
            return _GONE_SECONDS
        return 0.0

    def _path(self, **query: str) -> str:
        namespace = self._options.namespace or readSecret(f"{SERVICE_ACCOUNT}/namespace")
        encoded = urlencode({"labelSelector": self._selector, **query})
        path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace, safe='')}/endpointslices"
        return f"{path}?{encoded}"

    def _headers(self) -> dict[str, str]:
        file = self._options.tokenFile
        if file is None and self._options.address is None:
            file = f"{SERVICE_ACCOUNT}/token"
        # Read at each use: a pod's token is replaced every hour.
        return {} if file is None else {"Authorization": f"Bearer {readSecret(file)}"}

    async def _list(self) -> str:
        seconds = self._options.timeoutMs / 1000
        response = await self._client.request("GET", self._path(), self._headers(), seconds=seconds)
        if response.status != 200:
            problem = readMessage(response.body, _Status, default=_Status())
            raise HTTPStatusError("Kubernetes", response.status, problem.message)
        found = readMessage(response.body, _List)
        if found.kind != "EndpointSliceList" or not found.metadata.version:
            raise SourceError("the response of Kubernetes is not a list")
        self._slices = {_named(raw): raw for raw in found.items or ()}
        self._publishSlices()
        return found.metadata.version

    async def _watch(self, version: str) -> str:
        reached = [version]

        def onLine(line: bytes) -> None:
            event = readMessage(line, _WatchEvent)
            if event.type == "ERROR":
                status = readMessage(bytes(event.object), _Status)
                if status.code == _GONE:
                    raise _Gone
                raise HTTPStatusError("Kubernetes' watch", status.code, status.message)
            self._apply(event)
            reached[0] = readMessage(bytes(event.object), _Bookmark).metadata.version or reached[0]

        path = self._path(
            watch="true",
            resourceVersion=version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(_LIFE_SECONDS),
        )
        seconds = self._options.timeoutMs / 1000
        life = _LIFE_SECONDS + _LATE_SECONDS
        try:
            await self._client.stream(
                "GET", path, self._headers(), onLine, seconds=seconds, maxSeconds=life
            )
        except HTTPStatusError as error:
            if error.status == _GONE:
                raise _Gone from None
            raise
        return reached[0]

    def _apply(self, event: _WatchEvent) -> None:
        if event.type in ("ADDED", "MODIFIED"):
            self._slices[_named(event.object)] = msgspec.Raw(bytes(event.object))
        elif event.type == "DELETED":
            self._slices.pop(_named(event.object), None)
        elif event.type != "BOOKMARK":
            raise SourceError(f"Kubernetes sent the event {event.type}")
        if event.type != "BOOKMARK":
            self._publishSlices()

    def _publishSlices(self) -> None:
        def instances(raw: msgspec.Raw) -> Iterable[Instance]:
            return _instances(readMessage(bytes(raw), _Slice), self._options.portName)

        found, problem = readEach(self._slices.values(), instances)
        # In a dual-stack cluster a pod has an address of each family, but it is one instance.
        ipv4 = [each for each in found if ":" not in each.host]
        self._publish(ipv4 or found, problem)


def _named(raw: msgspec.Raw) -> str:
    name = readMessage(bytes(raw), _Bookmark).metadata.name
    if not name:
        raise SourceError("Kubernetes sent a slice without a name")
    return name


def _instances(found: _Slice, portName: str | None) -> Iterable[Instance]:
    if found.kind not in ("IPv4", "IPv6"):
        return
    port = _port(found.ports or [], portName)
    for endpoint in found.endpoints or ():
        # An unknown condition counts as ready.
        isReady = endpoint.conditions is None or endpoint.conditions.ready is not False
        if isReady and port is not None and port.port is not None and endpoint.addresses:
            # The other addresses of the list are not used. A port may use TLS even if its name does
            # not say so.
            yield Instance(endpoint.addresses[0], port.port, tls=port.isSecure or None)


def _port(ports: list[_Port], name: str | None) -> _Port | None:
    if name is None and len(ports) == 1:
        return ports[0]
    names = SCHEMES if name is None else (name,)
    return next((each for wanted in names for each in ports if each.name == wanted), None)
