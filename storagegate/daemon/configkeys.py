"""
The keys of the configuration: L{KEYS} is their table.

The reader of a key accepts the text of a flag or a variable as well as a TOML value (string,
number, boolean, list). It returns the value, or raises C{ValueError} with a description of the
expected value.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from storagegate.core.addresses import SCHEMES
from storagegate.core.options import parseDecimal, readSize
from storagegate.gateway.transports.registry import listenerTransports
from storagegate.net.http.interfaces import MAX_STREAMS
from storagegate.objects.issuedkeys import CREDENTIAL, readCredential
from storagegate.telemetry.log import LEVELS

PREFIX = "STORAGEGATE_"

Reader = Callable[[object], Any]

_ENDPOINT = re.compile(r"[A-Za-z][\w.+-]*:", re.ASCII)
_HOST_PORT = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})", re.ASCII)
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*", re.ASCII)
OWN_SERVICES = ("UserService", "Storage")
"""The reference services, which need no module."""

_SERVICE = re.compile(rf"[A-Za-z_][\w.]*:[A-Za-z_]\w*|{'|'.join(OWN_SERVICES)}", re.ASCII)

# More processes on one machine would only wait for the write lock. While all workers are replaced,
# twice as many run, and the store has slots for them.
_MAXIMUM_WORKERS = 30
# An hour: the supervisor does not wait longer anyway.
_MAXIMUM_GRACE_SECONDS = 3600
DAY_SECONDS = 86400


# The values of storagegate.objects.access.decision, which is imported with the first S3 request.
_OWNERSHIPS = ("ObjectWriter", "BucketOwnerPreferred", "BucketOwnerEnforced")


def _readText(value: object) -> str:
    """Accept non-empty text without control characters."""
    if not isinstance(value, str):
        raise ValueError("expected text")
    if not value or not value.isprintable():
        raise ValueError("expected text without control characters")
    return value


def _readEndpoint(value: object) -> str | None:
    """Accept an endpoint description, which its plugin validates; C{off} becomes C{None}."""
    if value == "off":
        return None
    if not isinstance(value, str) or _ENDPOINT.match(value) is None:
        raise ValueError("expected an endpoint such as tcp:9000, or off")
    return _readText(value)


def _readHostPort(value: object) -> str | None:
    """Accept C{HOST:PORT}; C{off} becomes C{None}."""
    if value == "off":
        return None
    match = _HOST_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match.group(1)) > 65535:
        raise ValueError("expected HOST:PORT or off")
    return match.string


def _readSecret(value: object) -> str:
    """Accept one half of a key pair; the error does not contain it."""
    if not isinstance(value, str):
        raise ValueError(f"expected {CREDENTIAL}")
    return readCredential(value)


def _readBoolean(value: object) -> bool:
    """Accept a boolean: a TOML boolean, or the words true and false."""
    if isinstance(value, bool) or value in ("true", "false"):
        return value in (True, "true")
    raise ValueError("expected true or false")


def _readUrl(value: object) -> str:
    """Accept an HTTP URL without credentials, query and fragment."""
    parts = urlsplit(value) if isinstance(value, str) and value.isprintable() else None
    if (
        parts is None
        or parts.scheme not in SCHEMES
        or not parts.hostname
        or parts.username is not None
        or parts.query
        or parts.fragment
    ):
        raise ValueError("expected a URL such as https://ops.example.com/store/")
    return parts.geturl()


def _readBytes(value: object) -> int:
    """Accept a size of at least a mebibyte."""
    try:
        size = readSize(value)
    except ValueError:
        size = 0
    if size < 1024 * 1024:
        raise ValueError('expected a size of at least 1 MiB, such as "256mb"')
    return size


def _readServices(value: object) -> tuple[str, ...]:
    """Accept a list of C{MODULE:NAME} and reference services, or one comma-separated text."""
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, list):
        services = tuple(each for each in items if isinstance(each, str))
        if len(services) == len(items) and all(map(_SERVICE.fullmatch, services)):
            return services
    raise ValueError(f"expected a list of MODULE:NAME, {' or '.join(OWN_SERVICES)}")


def _matching(pattern: re.Pattern[str], expected: str) -> Reader:
    """
    Return a reader of text that must match a pattern as a whole.

    @param expected: The description of valid texts, for the error.
    """

    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return read


def _oneOf(*words: str) -> Reader:
    """Return a reader that accepts one of some words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return value

    return read


def _wholeNumber(minimum: int, maximum: int, unit: str = "") -> Reader:
    """
    Return a reader of a whole number within inclusive bounds.

    @param unit: The unit in the plural, for the error.
    """
    counted = f"a whole number of {unit}" if unit else "a whole number"

    def read(value: object) -> int:
        try:
            number = parseDecimal(value, maximum) if isinstance(value, str) else value
        except ValueError:
            number = None
        if type(number) is not int or not minimum <= number <= maximum:
            raise ValueError(f"expected {counted} from {minimum} to {maximum}")
        return number

    return read


class Key(Struct, frozen=True):
    """
    One configuration key.

    @ivar default: The default in the form of the documentation; empty if the key has no default.
    @ivar argument: The name of the flag's argument; empty if the key has no flag. Secrets have no
        flag, because every user of a machine can see the flags of all processes.
    @ivar reloads: Whether SIGHUP applies a change without new processes. With several workers
        SIGHUP replaces them, which applies all keys that are not shared.
    @ivar isShared: Whether all workers share the value: a change requires a restart.
    @ivar secret: Whether messages must never contain the value.
    """

    name: str
    default: str
    read: Reader
    meaning: str
    argument: str = ""
    reloads: bool = False
    isShared: bool = False
    secret: bool = False

    @property
    def variable(self) -> str:
        """The environment variable: C{s3Domain} is C{STORAGEGATE_S3_DOMAIN}."""
        return PREFIX + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).upper()


def _listener(name: str, default: str, meaning: str, read: Reader = _readEndpoint) -> Key:
    argument = "HOST:PORT" if read is _readHostPort else "ENDPOINT"
    return Key(name, default, read, meaning, argument, isShared=True)


KEYS = (
    Key(
        "data",
        "./storagegate-data",
        _readText,
        "the data directory; under systemd the default is $STATE_DIRECTORY",
        "DIR",
        isShared=True,
    ),
    _listener("s3", "tcp:9000:interface=127.0.0.1", "the S3 listener"),
    *(
        _listener(
            row.name,
            row.default or "off",
            row.listener or f"the {row.title} listener",
            _readHostPort if row.address == "hostport" else _readEndpoint,
        )
        for row in listenerTransports()
    ),
    _listener(
        "admin",
        "tcp:9001:interface=127.0.0.1",
        "the admin listener: /healthz, /readyz and /metrics",
    ),
    Key(
        "http2",
        "true",
        _readBoolean,
        "whether clients of the S3 and admin listeners may speak HTTP/2",
    ),
    Key(
        "http2MaxStreams",
        "100",
        _wholeNumber(1, MAX_STREAMS, "streams"),
        "the open streams of a connection of HTTP/2 on the S3 and admin listeners",
    ),
    Key(
        "gatewayOnS3",
        "false",
        _readBoolean,
        "whether the S3 listener also serves the gateway: HTTP, WebSocket and, with onHTTP, gRPC",
    ),
    Key(
        "console",
        "true",
        _readBoolean,
        "whether the admin listener serves the console at /console/",
        isShared=True,
    ),
    Key(
        "consoleUrl",
        "",
        _readUrl,
        "the URL of the console for browsers, if a proxy serves it",
        isShared=True,
    ),
    Key(
        "s3Url",
        "",
        _readUrl,
        "the URL of S3 for clients, for links from the console",
        isShared=True,
    ),
    Key(
        "consoleClearText",
        "false",
        _readBoolean,
        "whether other machines may sign in to the console without TLS",
        isShared=True,
    ),
    Key(
        "service",
        "",
        _readServices,
        "a service to serve, or the built-in UserService or Storage; may be repeated",
        "MODULE:NAME",
    ),
    Key(
        "workers",
        "1",
        _wholeNumber(1, _MAXIMUM_WORKERS),
        "the number of worker processes",
        "N",
        isShared=True,
    ),
    Key(
        "durability",
        "full",
        _oneOf("full", "os"),
        "when a write is acknowledged: full, after it is synced; os, once the kernel has it",
        "full|os",
        isShared=True,
    ),
    Key("accessKey", "", _readSecret, "the root access key", reloads=True, secret=True),
    Key("secretKey", "", _readSecret, "the root secret key", reloads=True, secret=True),
    Key(
        "region",
        "us-east-1",
        _matching(_REGION, "lower-case letters, digits and hyphens"),
        "the region of signatures",
        reloads=True,
    ),
    Key(
        "s3Domain",
        "",
        _matching(_DOMAIN, "a lower-case domain name"),
        "the domain of virtual-hosted buckets, BUCKET.DOMAIN",
        reloads=True,
    ),
    Key(
        "requireSignedPayload",
        "false",
        _readBoolean,
        "whether connections without TLS require a signed hash of the body",
        reloads=True,
    ),
    Key(
        "objectOwnership",
        "",
        _oneOf(*_OWNERSHIPS),
        "the default object ownership of new buckets",
        reloads=True,
    ),
    Key(
        "shutdownGraceSeconds",
        "30",
        _wholeNumber(0, _MAXIMUM_GRACE_SECONDS, "seconds"),
        "how long a stop waits for requests in flight",
        reloads=True,
    ),
    Key(
        "heldBytes",
        "64mb",
        _readBytes,
        "the memory limit of a process for incomplete requests, on all listeners together",
        reloads=True,
    ),
    Key(
        "reactor",
        "default",
        _oneOf("default", "asyncio"),
        "the reactor of the process; with asyncio, services may await asyncio libraries",
        "default|asyncio",
    ),
    Key("logFormat", "text", _oneOf("text", "json"), "the format of the log", reloads=True),
    Key("logLevel", "info", _oneOf(*LEVELS), "the lowest level that is logged", reloads=True),
    Key(
        "accessLog",
        "",
        _readText,
        "the file of the access log; default: the log",
        "FILE",
        isShared=True,
    ),
    Key(
        "lifecycleDaySeconds",
        "86400",
        _wholeNumber(1, DAY_SECONDS, "seconds"),
        "the length of a day in lifecycle rules, for tests",
        isShared=True,
    ),
    Key(
        "bucketMetrics",
        "false",
        _readBoolean,
        "whether /metrics has figures for each bucket; default: totals only",
        isShared=True,
    ),
    Key(
        "metricsToken",
        "",
        _readSecret,
        "the bearer token that /metrics and the details of /readyz require",
        isShared=True,
        secret=True,
    ),
    Key(
        "verifyReads",
        "false",
        _readBoolean,
        "whether reads verify the checksums of the bytes they send",
        isShared=True,
    ),
    Key(
        "masterKeys",
        "",
        _readText,
        "the file of the master keys; default: master-keys in the data directory",
        isShared=True,
    ),
    Key(
        "encryptAll",
        "false",
        _readBoolean,
        "whether objects are encrypted (SSE-S3) if neither request nor bucket says so",
        isShared=True,
    ),
    Key(
        "keyCacheSeconds",
        "300",
        _wholeNumber(1, DAY_SECONDS, "seconds"),
        "how long a bucket key stays open in memory; then the master key opens it again",
        isShared=True,
    ),
    Key(
        "blockCustomerKeys",
        "false",
        _readBoolean,
        "whether new buckets block the encryption keys of clients (SSE-C), as at Amazon",
        isShared=True,
    ),
    Key(
        "customerKeysOverHTTP",
        "false",
        _readBoolean,
        "whether other machines may send encryption keys (SSE-C) without TLS",
        reloads=True,
    ),
)
"""Every key of the configuration, in the order of the documentation."""
