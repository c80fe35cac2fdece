"""
The table of configuration keys, and the strict reading of each value.

A reader accepts the text of a flag or a variable as well as a TOML value (text, number, truth
value, list), and returns the value or raises C{ValueError} with what was expected.
"""

import re
from collections.abc import Callable
from typing import Any

from attrs import frozen

from storagegate.core.options import parseDecimal
from storagegate.daemon.rootcredentials import CREDENTIAL, checkCredential
from storagegate.gateway.transports.registry import Transport, listenerTransports
from storagegate.telemetry.log import LEVELS

PREFIX = "STORAGEGATE_"

Reader = Callable[[object], Any]

_HOST_PORT = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})", re.ASCII)
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*", re.ASCII)
_SERVICE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)

# More processes on one machine would only wait for the write lock; and while all are replaced,
# twice as many run, for which the store has slots.
_MAXIMUM_WORKERS = 30
# An hour: the supervisor does not wait longer anyway.
_MAXIMUM_GRACE_SECONDS = 3600


def readText(value: object) -> str:
    """Accept text that is not empty and holds no control character."""
    if not isinstance(value, str):
        raise ValueError("expected text")
    if not value or not value.isprintable():
        raise ValueError("expected text without control characters")
    return value


def readEndpoint(value: object) -> str | None:
    """Accept the description of an endpoint, which its plugin validates; C{off} is L{None}."""
    if not isinstance(value, str):
        raise ValueError("expected an endpoint such as tcp:9000, or off")
    text = readText(value)
    return None if text == "off" else text


def readHostPort(value: object) -> str | None:
    """Accept C{HOST:PORT}; C{off} is L{None}."""
    if value == "off":
        return None
    match = _HOST_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match.group(1)) > 65535:
        raise ValueError("expected HOST:PORT or off")
    return match.string


def readSecret(value: object) -> str:
    """Accept one half of a key pair; the error does not repeat it."""
    if not isinstance(value, str):
        raise ValueError(f"expected {CREDENTIAL}")
    return checkCredential(value)


def readBoolean(value: object) -> bool:
    """Accept a truth value: TOML's own, or the words true and false."""
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in words:
        return words[value]
    raise ValueError("expected true or false")


def readServices(value: object) -> tuple[str, ...]:
    """Accept a list of C{MODULE:NAME}, or the same as one text with commas."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError("expected a list of MODULE:NAME")
    for item in items:
        if not isinstance(item, str) or not _SERVICE.fullmatch(item):
            raise ValueError("expected a list of MODULE:NAME")
    return tuple(items)


def matching(pattern: re.Pattern[str], expected: str) -> Reader:
    """Make a reader of text that must match as a whole."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return read


def oneOf(*words: str) -> Reader:
    """Make a reader of a choice."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"expected {' or '.join(words)}")
        return value

    return read


def wholeNumber(minimum: int, maximum: int, unit: str = "") -> Reader:
    """
    Make a reader of a whole number within bounds.

    @param unit: What it counts, for the error.
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


@frozen
class Key:
    """
    One configuration key.

    @ivar default: The default as text, as the documentation gives it; empty where there is none.
    @ivar argument: What the flag's argument is called; empty: there is no flag. Secrets have none,
        for every user of a machine sees the flags of every process.
    @ivar reloads: Whether SIGHUP applies a change without new processes. Where there are several
        workers it replaces them, and so applies all but what is shared.
    @ivar isShared: Whether it is part of what all workers have in common: a change takes a restart.
    @ivar secret: Whether the value must never be repeated in a message.
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


def _listener(name: str, default: str, read: Reader, meaning: str) -> Key:
    argument = "HOST:PORT" if read is readHostPort else "ENDPOINT"
    return Key(name, default, read, meaning, argument, isShared=True)


def _transport(row: Transport) -> Key:
    """Make the key of a transport's listener."""
    read = readHostPort if row.address == "hostport" else readEndpoint
    return _listener(
        row.name, row.default or "off", read, row.listener or f"the {row.title} listener"
    )


KEYS = (
    Key(
        "data",
        "./storagegate-data",
        readText,
        "where everything is kept; under systemd the default is $STATE_DIRECTORY",
        "DIR",
        isShared=True,
    ),
    _listener("s3", "tcp:9000:interface=127.0.0.1", readEndpoint, "the S3 listener"),
    *(_transport(row) for row in listenerTransports()),
    _listener(
        "admin",
        "tcp:9001:interface=127.0.0.1",
        readEndpoint,
        "the admin listener: /healthz, /readyz and /metrics",
    ),
    Key("service", "", readServices, "a service to serve; may be repeated", "MODULE:NAME"),
    Key(
        "workers",
        "1",
        wholeNumber(1, _MAXIMUM_WORKERS),
        "how many processes serve",
        "N",
        isShared=True,
    ),
    Key(
        "durability",
        "full",
        oneOf("full", "os"),
        "what an answer promises: full, that all of it is synced; os, that the system has it",
        "full|os",
        isShared=True,
    ),
    Key("accessKey", "", readSecret, "the root access key", reloads=True, secret=True),
    Key("secretKey", "", readSecret, "the root secret key", reloads=True, secret=True),
    Key(
        "region",
        "us-east-1",
        matching(_REGION, "lower-case letters, digits and hyphens"),
        "the region that signatures name",
        reloads=True,
    ),
    Key(
        "s3Domain",
        "",
        matching(_DOMAIN, "a lower-case domain name"),
        "the domain under which buckets are host names",
        reloads=True,
    ),
    Key(
        "requireSignedPayload",
        "false",
        readBoolean,
        "refuse bodies without a signed hash where there is no TLS",
        reloads=True,
    ),
    Key(
        "shutdownGraceSeconds",
        "30",
        wholeNumber(0, _MAXIMUM_GRACE_SECONDS, "seconds"),
        "how long a stop waits for what is in flight",
        reloads=True,
    ),
    Key("logFormat", "text", oneOf("text", "json"), "the form of the log", reloads=True),
    Key("logLevel", "info", oneOf(*LEVELS), "what is logged, and what matters more", reloads=True),
    Key(
        "verifyReads",
        "false",
        readBoolean,
        "check the bytes of every read while sending",
        isShared=True,
    ),
)
"""Every key of the configuration, in the order of the documentation."""
