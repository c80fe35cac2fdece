"""The options of TLS for gRPC."""

import os
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import OptionError, makeOptions, readWord


def _path(value: Any) -> str:
    if isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        if isinstance(path, str) and path and "\0" not in path:
            return path
    raise ValueError("is the path of a file")


def _clientAuth(value: Any) -> str:
    if value == "optional":
        raise ValueError(
            'is "none" or "require": to ask for a certificate without insisting on one is more '
            "than grpcio can do"
        )
    return readWord(value, ("none", "require"))


@frozen(kw_only=True)
class TLSOptions:
    """
    The options under C{tls}; the files are PEM.

    @ivar cert: The path of the server's certificate, followed by those between it and the root.
    @ivar key: The path of its key, without a password.
    @ivar ca: The path of the certificates that vouch for clients.
    @ivar clientAuth: C{"require"} refuses clients without a certificate that C{ca} vouches for;
        C{"none"} asks for none. The default is to require one if there is C{ca}.
    """

    cert: str = field(converter=_path)
    key: str = field(converter=_path)
    ca: str | None = field(default=None, converter=optional(_path))
    clientAuth: str | None = field(default=None, converter=optional(_clientAuth))

    def __attrs_post_init__(self) -> None:
        if self.clientAuth == "require" and self.ca is None:
            raise OptionError('the option tls.clientAuth "require" needs tls.ca')

    @property
    def requiresClient(self) -> bool:
        """Tell whether a client needs a certificate."""
        return self.ca is not None and self.clientAuth != "none"


def readTLS(value: Any) -> TLSOptions | None:
    """
    Read the option C{tls}: a mapping with its parts, or C{None} or C{False} for none.

    @raise ValueError: If it is neither, or a part is wrong.
    """
    if value is None or value is False:
        return None
    if isinstance(value, TLSOptions):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of options, or None")
    return makeOptions(TLSOptions, value, "tls.")
