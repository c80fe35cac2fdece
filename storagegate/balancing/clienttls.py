"""What the connections to instances of a service are secured with: its files, and TLS by name."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import CertificateOptions
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.discovery.tls import (
    TLSFileError,
    checkFiles,
    loadMaterial,
    loadOwn,
    makeCreator,
    stamp,
)
from storagegate.discovery.tlsoptions import InstanceTLSOptions

MAX_NAMES = 64
"""Names of one service whose TLS is kept ready: each has its own copy of whom to believe, which is
a megabyte and five milliseconds where that is all that the system believes."""

_PROTOCOLS = [b"http/1.1"]

_log = Logger()


class ClientTLS:
    """
    The TLS of one service.

    The files are looked at with each new connection, and read again when they have changed; while
    they cannot be used, what was read before holds.
    """

    def __init__(self, service: str, options: InstanceTLSOptions) -> None:
        self._table = f"services.{service}.tls"
        self._options = options
        self._creators: OrderedDict[str, Any] = OrderedDict()
        self._material: Mapping[str, Any] | None = None
        self._stamp: Mapping[str, Any] = {}

    def check(self) -> None:
        """
        Read the files.

        @raise OptionError: If one of them cannot be used.
        """
        checkFiles(self._options, self._table)
        self._refresh()

    def creator(self, name: str) -> Any:
        """
        Give what makes the TLS of a connection.

        @param name: Whom the other end must prove to be.
        @return: An C{IOpenSSLClientConnectionCreator}.
        @raise TLSFileError: If there are files that could never be used.
        @raise UnicodeError: If the name can be none.
        """
        material = self._refresh()
        if name in self._creators:
            self._creators.move_to_end(name)
            return self._creators[name]
        creator = self._make(name, material)
        self._creators[name] = creator
        if len(self._creators) > MAX_NAMES:
            self._creators.popitem(last=False)
        return creator

    def _make(self, name: str, material: Mapping[str, Any]) -> Any:
        if self._options.verify:
            return makeCreator(name, material, _PROTOCOLS)
        # No address is ever sent as a name (RFC 6066, section 3).
        isAddress = isIPAddress(name) or isIPv6Address(name)
        options = CertificateOptions(acceptableProtocols=_PROTOCOLS, **material)
        return _Unverified(options, None if isAddress else name.encode("ascii"))

    def _refresh(self) -> Mapping[str, Any]:
        """Read the files, unless they are as they were."""
        found = stamp(self._options)
        if self._material is not None and found == self._stamp:
            return self._material
        try:
            material = self._read()
        except TLSFileError as error:
            if self._material is None:
                raise
            _log.error(
                "the option {table}.{error}; what it was before holds",
                table=self._table,
                error=error,
            )
        else:
            self._material = material
            self._creators.clear()
        # Also of those that cannot be used: nobody is told again before they change.
        self._stamp = found
        return self._material or {}

    def _read(self) -> Mapping[str, Any]:
        return loadMaterial(self._options) if self._options.verify else loadOwn(self._options)


@implementer(IOpenSSLClientConnectionCreator)
@frozen
class _Unverified:
    """Makes connections with whomever, and says whom they are meant for."""

    options: Any
    name: bytes | None

    def clientConnectionForTLS(self, tlsProtocol: Any) -> Any:
        """Make the TLS of a connection."""
        connection = self.options.clientConnectionForTLS(tlsProtocol)
        if self.name is not None:
            connection.set_tlsext_host_name(self.name)
        return connection
