"""
Fetches documents of an issuer of tokens, from nowhere else and never more than fits::

    https://host[:port]/path        anywhere that is allowed
    http://localhost[:port]/path    this machine: also 127.0.0.0/8 and [::1]

An issuer's document names another address, and a name may lead anywhere: so what counts is the
address that is connected to, not how it was written. No redirection is followed.
"""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import (
    IAddress,
    IHostnameResolver,
    IHostResolution,
    IReactorPluggableNameResolver,
    IResolutionReceiver,
    IStreamClientEndpoint,
)
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.client import URI, Agent, BrowserLikePolicyForHTTPS, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IPolicyForHTTPS
from zope.interface import implementer

MAX_DOCUMENT_BYTES = 256 * 1024
"""Of an answer with its head: a hundred keys with certificates have half of it."""

TIMEOUT_SECONDS = 10.0
"""For one document: calls wait for it, and an issuer that takes longer is down."""

CONNECT_SECONDS = 5.0

Address = IPv4Address | IPv6Address

# Where clouds tell machines their secrets, besides the link-local 169.254.169.254: of AWS over
# IPv6, Alibaba, Oracle and Azure.
_METADATA = frozenset(
    map(ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)

# RFC 6052: an IPv4 address in IPv6's clothes.
_NAT64 = IPv6Network("64:ff9b::/96")

_URL = re.compile(
    r"(https?)://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?"
    r"(/[!-~]{0,2000})?"
)


class FetchError(Exception):
    """A document cannot be had, or not be used; the text says why."""


class NotFetched(FetchError):
    """
    A server has answered, and not with the document.

    @ivar status: What with.
    """

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answers with {status}")
        self.status = status


@frozen
class DocumentURL:
    """
    Where a document is.

    @ivar text: As it was written.
    @ivar host: A name or an address, without brackets, in lower case.
    """

    text: str
    scheme: str
    host: str


def readURL(value: Any) -> DocumentURL:
    """
    Read an address that documents may be fetched from.

    @raise ValueError: If it is none.
    """
    match = _URL.fullmatch(value) if isinstance(value, str) else None
    if match is None or "#" in value or "\\" in value or int(match[3] or 1) > 65535:
        raise ValueError("is an https URL")
    url = DocumentURL(value, match[1], match[2].strip("[]").lower())
    if url.scheme == "http" and not _namesLoopback(url.host):
        raise ValueError("is an https URL; http is for this machine alone")
    return url


def addressAllowed(text: str, url: DocumentURL, trusted: frozenset[str]) -> bool:
    """
    Tell whether a document may be fetched from an address that the URL's host has led to.

    @param trusted: The hosts that the configuration names: those may be in a private network.
    """
    address = _bare(ip_address(text.partition("%")[0]))
    if url.host in trusted and _asAddress(url.host) == address:
        return True
    if url.scheme == "http":
        return address.is_loopback
    if address.is_link_local or address.is_unspecified or address.is_multicast:
        return False
    if address in _METADATA:
        return False
    return url.host in trusted or address.is_global


def _bare(address: Address) -> Address:
    """Take off what an IPv4 address may be wrapped in."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(address.packed[-4:])
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _asAddress(host: str) -> Address | None:
    try:
        return _bare(ip_address(host))
    except ValueError:
        return None


def _namesLoopback(host: str) -> bool:
    address = _asAddress(host)
    return host == "localhost" if address is None else address.is_loopback


@implementer(IResolutionReceiver)
class _AllowedAddresses:
    """Hands on the addresses that may be connected to."""

    def __init__(self, receiver: Any, url: DocumentURL, trusted: frozenset[str]) -> None:
        self._receiver = receiver
        self._url = url
        self._trusted = trusted

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        self._receiver.resolutionBegan(resolutionInProgress)

    def addressResolved(self, address: IAddress) -> None:
        text: Any = getattr(address, "host", None)
        if text is not None and addressAllowed(text, self._url, self._trusted):
            self._receiver.addressResolved(address)

    def resolutionComplete(self) -> None:
        self._receiver.resolutionComplete()


@implementer(IReactorPluggableNameResolver, IHostnameResolver)
class _GuardedReactor:
    """A reactor whose names lead to allowed addresses only, for one document."""

    def __init__(self, reactor: Any, url: DocumentURL, trusted: frozenset[str]) -> None:
        self._reactor = reactor
        self._url = url
        self._trusted = trusted
        self.nameResolver = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        raise NotImplementedError

    def resolveHostName(
        self, resolutionReceiver: IResolutionReceiver, *arguments: Any, **more: Any
    ) -> IHostResolution:
        receiver = _AllowedAddresses(resolutionReceiver, self._url, self._trusted)
        resolution: IHostResolution = self._reactor.nameResolver.resolveHostName(
            receiver, *arguments, **more
        )
        return resolution


class _Bounded(ProtocolWrapper):
    """Drops a connection that brings more than a document: heads and trailers count, too."""

    _left = MAX_DOCUMENT_BYTES

    def dataReceived(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self.transport.abortConnection()  # type: ignore[union-attr]
        else:
            super().dataReceived(data)


@implementer(IStreamClientEndpoint)
class _BoundedEndpoint:
    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint

    def connect(self, protocolFactory: Any) -> Deferred[Any]:
        factory = WrappingFactory(protocolFactory)
        factory.noisy = False
        factory.protocol = _Bounded
        connected: Deferred[Any] = self._endpoint.connect(factory)
        return connected.addCallback(lambda wrapper: wrapper.wrappedProtocol)


@implementer(IAgentEndpointFactory)
class DocumentFetcher:
    """
    Fetches documents.

    It uses Twisted's own agent, for it asks for no content coding: what is inflated is bounded by
    nobody.
    """

    def __init__(
        self, reactor: Any, trusted: frozenset[str], policy: IPolicyForHTTPS | None = None
    ) -> None:
        """
        @param trusted: The hosts that the configuration names.
        @param policy: Checks certificates; C{None} as browsers do.
        """
        self._reactor = reactor
        self._trusted = trusted
        self._policy = policy or BrowserLikePolicyForHTTPS()
        self._agent = Agent.usingEndpointFactory(reactor, self)

    def endpointForURI(self, uri: URI) -> Any:
        """Give what connects to the host of a URL, if that is allowed."""
        url = readURL(uri.toBytes().decode("ascii"))
        endpoint: Any = HostnameEndpoint(
            _GuardedReactor(self._reactor, url, self._trusted), uri.host, uri.port, CONNECT_SECONDS
        )
        if url.scheme == "https":
            creator: Any = self._policy.creatorForNetloc(uri.host, uri.port)
            endpoint = wrapClientTLS(creator, endpoint)
        return _BoundedEndpoint(endpoint)

    def fetch(self, url: DocumentURL) -> Deferred[bytes]:
        """
        Fetch a document.

        @return: Fails with L{NotFetched} if the answer is another one.
        """
        fetched = Deferred.fromCoroutine(self._fetch(url))
        return fetched.addTimeout(TIMEOUT_SECONDS, self._reactor)

    async def _fetch(self, url: DocumentURL) -> bytes:
        headers = Headers({b"Accept": [b"application/json"], b"User-Agent": [b"storagegate"]})
        response = await self._agent.request(b"GET", url.text.encode("ascii"), headers)
        body: bytes = await readBody(response)
        if response.code != 200:
            raise NotFetched(url.text, response.code)
        return body
