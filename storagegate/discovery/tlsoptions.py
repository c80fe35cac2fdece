"""The options of TLS: whom we believe, and who we are."""

from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import OptionError, readFlag
from storagegate.discovery.instances import readHost


def readFile(value: Any) -> str:
    """Read the name of a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is the name of a file")
    return value


@frozen(kw_only=True)
class TLSOptions:
    """
    How an C{https} address is believed.

    @ivar caFile: Certificates of whom to believe, PEM; without it those that the system believes.
    @ivar certFile: Our own certificate with its chain, PEM, for a server that asks for one.
    @ivar keyFile: Its key, PEM.
    """

    caFile: str | None = field(default=None, converter=optional(readFile))
    certFile: str | None = field(default=None, converter=optional(readFile))
    keyFile: str | None = field(default=None, converter=optional(readFile))


@frozen(kw_only=True)
class InstanceTLSOptions(TLSOptions):
    """
    How instances are spoken to over TLS: if this table is there at all, all of them are.

    @ivar caFile: Certificates of whom to believe, PEM; without it those that the system believes.
    @ivar certFile: Our own certificate with its chain, PEM, for instances that ask for one.
    @ivar keyFile: Its key, PEM, without a password.
    @ivar serverName: The name that their certificates have; without it the host of each instance.
    @ivar verify: Whether certificates are checked; C{false} lets anybody on the way read and
        change everything.
    """

    serverName: str | None = field(default=None, converter=optional(readHost))
    verify: bool = field(default=True, converter=readFlag)


def checkPair(tls: TLSOptions | None, table: str) -> None:
    """
    Check that a certificate has its key.

    @param table: The name of the options.
    @raise OptionError: If one of them is alone.
    """
    if tls is not None and (tls.certFile is None) != (tls.keyFile is None):
        raise OptionError(f"the options {table}.certFile and keyFile are given together")
