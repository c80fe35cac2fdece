"""The options of TLS: whom we believe, and who we are."""

import re
from typing import Any

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.abstract import isIPAddress, isIPv6Address

from storagegate.core.optionvalues import OptionError, readFlag

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

_NAME = re.compile(rf"{_LABEL}(\.{_LABEL}){{0,126}}")


def readFile(value: Any) -> str:
    """Read the name of a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is the name of a file")
    return value


def _serverName(value: Any) -> str:
    # Certificates have no other names than those of the Domain Name System (RFC 9525, section 2).
    isText = isinstance(value, str)
    if not isText or not (_NAME.fullmatch(value) or isIPAddress(value) or isIPv6Address(value)):
        raise ValueError("is a name or an address, as certificates have it")
    return str(value)


@frozen(kw_only=True)
class TLSOptions:
    """
    How an C{https} address is believed.

    @ivar caFile: Certificates of whom to believe, PEM; without it those that the system believes.
    @ivar certFile: Our own certificate with its chain, PEM, for a server that asks for one.
    @ivar keyFile: Its key, PEM, without a password.
    @ivar serverName: The name that the server's certificate has; without it the host of the
        address.
    """

    caFile: str | None = field(default=None, converter=optional(readFile))
    certFile: str | None = field(default=None, converter=optional(readFile))
    keyFile: str | None = field(default=None, converter=optional(readFile))
    serverName: str | None = field(default=None, converter=optional(_serverName))


@frozen(kw_only=True)
class InstanceTLSOptions(TLSOptions):
    """
    How instances are spoken to over TLS: if this table is there, all are that say nothing else.

    @ivar caFile: Certificates of whom to believe, PEM; without it those that the system believes.
    @ivar certFile: Our own certificate with its chain, PEM, for instances that ask for one.
    @ivar keyFile: Its key, PEM, without a password.
    @ivar serverName: The name that their certificates have; without it the host of each instance,
        and by DNS the name that was asked for.
    @ivar verify: Whether certificates are checked; C{false} lets anybody on the way read and
        change everything.
    """

    verify: bool = field(default=True, converter=readFlag)


def checkPair(tls: TLSOptions | None, table: str) -> None:
    """
    Check that a certificate has its key.

    @param table: The name of the options.
    @raise OptionError: If one of them is alone.
    """
    if tls is not None and (tls.certFile is None) != (tls.keyFile is None):
        raise OptionError(f"the options {table}.certFile and keyFile are given together")
