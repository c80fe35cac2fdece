"""What a client is told of its server: where it is, how far to trust it, and its options."""

import os
import ssl
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from storagegate import __version__
from storagegate.core.optionvalues import OptionError, changeOptions
from storagegate.core.smallfiles import readPEM
from storagegate.rpc.options import GRPCOptions

_OPTIONS = (
    "compression",
    "keepaliveTimeMs",
    "keepaliveTimeoutMs",
    "maxReceiveMessageLength",
    "maxSendMessageLength",
)

# The numbers that grpcio has for them.
_ALGORITHMS = {"deflate": 1, "gzip": 2}

# Where systems keep the authorities that they trust, the one that OpenSSL was built with first.
_SYSTEM_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

_CREDENTIALS = (
    '"insecure" (in the clear, for development), "tls" (the authorities that the system trusts), '
    'or a mapping of "ca", "cert", "key" and "serverName"'
)


@frozen
class ClientTLS:
    """
    How a client knows its server, and is known; all PEM.

    @ivar roots: The authorities that may vouch for the server; C{None} for grpcio's own list.
    @ivar key: The client's key.
    @ivar chain: Its certificate.
    @ivar serverName: The name that the server's certificate has to have, if not the address.
    """

    roots: bytes | None = None
    key: bytes | None = None
    chain: bytes | None = None
    serverName: str | None = None


def readAddress(address: Any) -> str:
    """
    Give an address in gRPC's own form.

    @param address: C{"host:port"}, C{"[::1]:port"} or C{"unix:path"}.
    @raise ValueError: If it is none.
    """
    problem = f'the address of a gRPC server is "host:port" or "unix:path", not {address!r:.80}'
    if not isinstance(address, str):
        raise ValueError(problem)
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path:
            raise ValueError(problem)
        return f"unix:{path}"
    host, _, port = address.rpartition(":")
    isBracketed = host.startswith("[") and host.endswith("]")
    isPort = port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536
    if not host or not isPort or (":" in host and not isBracketed) or "/" in host:
        raise ValueError(problem)
    return f"dns:///{host}:{port}"


def readCredentials(credentials: Any) -> ClientTLS | None:
    """
    Read how to speak to a server.

    Certificates and keys are paths, or the PEM bytes themselves.

    @return: C{None} to speak in the clear.
    @raise ValueError: If it is no way that there is, or a file cannot be used.
    """
    if credentials == "insecure":
        return None
    if credentials == "tls":
        return ClientTLS(roots=_systemRoots())
    if not isinstance(credentials, Mapping):
        raise ValueError(f"credentials are {_CREDENTIALS}, not {credentials!r:.80}")
    for key in credentials:
        if key not in ("ca", "cert", "key", "serverName"):
            raise ValueError(f"credentials have no {key!r:.80}; they are {_CREDENTIALS}")
    given = {key: value for key, value in credentials.items() if value is not None}
    if ("cert" in given) != ("key" in given):
        raise ValueError("credentials.cert and credentials.key go together")
    serverName = given.get("serverName")
    if serverName is not None and not (isinstance(serverName, str) and serverName):
        raise ValueError("credentials.serverName is the name in the server's certificate")
    roots = _certificates("ca", given["ca"]) if "ca" in given else _systemRoots()
    if "cert" not in given:
        return ClientTLS(roots=roots, serverName=serverName)
    chain, key = _certificates("cert", given["cert"]), _key(given["key"])
    return ClientTLS(roots, key, chain, serverName)


def readArguments(
    options: Mapping[str, Any] | None, tls: ClientTLS | None
) -> list[tuple[str, Any]]:
    """
    Give a client's options in gRPC's own words.

    @raise OptionError: If there is no such option, or its value is none.
    """
    given = dict(options or {})
    for name in given:
        if name not in _OPTIONS:
            raise OptionError(f"a client has no option {name!r}; there are {sorted(_OPTIONS)}")
    read = changeOptions(GRPCOptions(), given)
    arguments: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"storagegate/{__version__}"),
        # A connection is its client's own: it goes when that is closed, and the failures of others
        # do not keep it waiting.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    arguments += read.arguments(_OPTIONS)
    if read.compression is not None:
        algorithm = _ALGORITHMS[read.compression]
        arguments.append(("grpc.default_compression_algorithm", algorithm))
    if tls is not None and tls.serverName is not None:
        arguments.append(("grpc.ssl_target_name_override", tls.serverName))
        arguments.append(("grpc.default_authority", tls.serverName))
    return arguments


def _systemRoots() -> bytes | None:
    """Find the authorities that this system trusts."""
    own = ssl.get_default_verify_paths().cafile
    for path in (own, *_SYSTEM_ROOTS):
        if path is not None and os.path.isfile(path):
            return _pem("ca", path)
    return None


def _pem(name: str, value: Any) -> bytes:
    """Read a file, if it is not the content already."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"credentials.{name} is the path of a PEM file, or its bytes")
    try:
        return readPEM(value)
    except ValueError as error:
        raise ValueError(f"credentials.{name}: {error}") from None


def _certificates(name: str, value: Any) -> bytes:
    """Read certificates; grpcio would find out at the first call, and say little of it."""
    content = _pem(name, value)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=content.decode("ascii")
        )
    except (ssl.SSLError, UnicodeDecodeError):
        raise ValueError(f"credentials.{name} is no PEM certificate") from None
    return content


def _key(value: Any) -> bytes:
    content = _pem("key", value)
    if b"PRIVATE KEY-----" not in content or b"ENCRYPTED" in content:
        raise ValueError("credentials.key is no PEM key, or needs a password")
    return content
