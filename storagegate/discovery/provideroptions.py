"""
The options of each provider: where it is, whom it is told that we are, and how often it is asked.

A secret is never an option, but a file's name: a file is read again whenever it is needed, so that
whoever exchanges it need not start anything anew, and its content is in no log and no list.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import groupField, readFlag, readNumber
from storagegate.discovery.instances import formatPlace, readHost, readServedPort, readWeight
from storagegate.discovery.services import readKnownAs
from storagegate.discovery.tlsoptions import TLSOptions, readFile

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds who it is."""

# An address of an API; a path in front of it is for those behind a proxy.
_ADDRESS = re.compile(
    r"https?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{1,5})?(/[!-~]*)?"
)

_RESOLVER = re.compile(r"([0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,45}\])(?::(\d{1,5}))?")

# A list of this many is a mistake, and each of them may be waited for.
_MAX_LISTED = 32


def _address(value: Any) -> str:
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int((match[2] or ":1")[1:]) < 65536 or "?" in value or "#" in value:
        raise ValueError('is an address such as "http://127.0.0.1:8500"')
    return str(value).rstrip("/")


def _addresses(value: Any) -> tuple[str, ...]:
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not 0 < len(given) <= _MAX_LISTED:
        raise ValueError('is a list of addresses such as "http://127.0.0.1:2379"')
    return tuple(_address(each) for each in given)


def _resolver(value: Any) -> tuple[str, int]:
    match = _RESOLVER.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2] or 53) < 65536:
        raise ValueError('is a list of addresses such as "127.0.0.1:53"')
    return match[1].strip("[]"), int(match[2] or 53)


def _resolvers(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_LISTED:
        raise ValueError('is a list of addresses such as "127.0.0.1:53"')
    return tuple(each if isinstance(each, tuple) else _resolver(each) for each in value)


def _word(value: Any) -> str:
    # One that can stand in a query and in a field of HTTP.
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ValueError("is a name")
    return value


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > _MAX_LISTED:
        raise ValueError("is a list of names")
    return tuple(_word(each) for each in value)


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not value.strip("/") or not value.isprintable():
        raise ValueError('is what keys begin with, such as "/storagegate/services"')
    return value.rstrip("/")


def _names(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of services to names")
    return {str(service): readKnownAs(name) for service, name in value.items()}


def _timeout(value: Any) -> int:
    # Longer than a minute nobody waits for an answer that is not there yet.
    return readNumber(value, 10, 60_000, "milliseconds")


def _wait(value: Any) -> int:
    # Consul waits ten minutes at most.
    return readNumber(value, 1_000, 600_000, "milliseconds")


def _ttl(value: Any) -> int:
    # Under a second a resolver is flooded; who moves once a day is still found the day after.
    return readNumber(value, 1_000, 86_400_000, "milliseconds")


def _ttlSeconds(value: Any) -> int:
    # Three signs of life fit into it, and a dead daemon is forgotten within the hour.
    return readNumber(value, 3, 3_600, "seconds")


@frozen(kw_only=True)
class DNSOptions:
    """
    The options of the provider C{dns}.

    @ivar resolvers: Whom to ask, C{address:port}; empty for those of C{/etc/resolv.conf}.
    @ivar port: Where a service is whose name has addresses and no SRV records.
    @ivar timeoutMs: For one question to one resolver.
    @ivar minTtlMs: The shortest time that an answer is used for, whatever it says itself.
    @ivar maxTtlMs: The longest.
    """

    resolvers: tuple[tuple[str, int], ...] = field(default=(), converter=_resolvers)
    port: int | None = field(default=None, converter=optional(readServedPort))
    timeoutMs: int = field(default=2_000, converter=_timeout)
    minTtlMs: int = field(default=5_000, converter=_ttl)
    maxTtlMs: int = field(default=300_000, converter=_ttl)


@frozen(kw_only=True)
class ConsulOptions:
    """
    The options of the provider C{consul}.

    @ivar address: That of an agent.
    @ivar tokenFile: A file with the token.
    @ivar datacenter: Whose instances; without it those of the agent's own.
    @ivar namespace: The same, of Consul Enterprise.
    @ivar tags: An instance must have all of them.
    @ivar waitMs: How long a question waits for news.
    @ivar timeoutMs: How much longer an answer may take.
    @ivar tls: How an C{https} address is believed.
    """

    address: str = field(default="http://127.0.0.1:8500", converter=_address)
    tokenFile: str | None = field(default=None, converter=optional(readFile))
    datacenter: str | None = field(default=None, converter=optional(_word))
    namespace: str | None = field(default=None, converter=optional(_word))
    tags: tuple[str, ...] = field(default=(), converter=_words)
    waitMs: int = field(default=60_000, converter=_wait)
    timeoutMs: int = field(default=10_000, converter=_timeout)
    tls: TLSOptions = groupField(TLSOptions)


@frozen(kw_only=True)
class EtcdOptions:
    """
    The options of the provider C{etcd}.

    @ivar addresses: Those of the members of a cluster; the next one is asked when one fails.
    @ivar prefix: What the keys C{prefix/service/instance} begin with.
    @ivar username: Who we are, where authentication is on.
    @ivar passwordFile: A file with the password.
    @ivar timeoutMs: For one answer.
    @ivar tls: How an C{https} address is believed.
    """

    addresses: tuple[str, ...] = field(default=("http://127.0.0.1:2379",), converter=_addresses)
    prefix: str = field(default="/storagegate/services", converter=_prefix)
    username: str | None = field(default=None, converter=optional(_word))
    passwordFile: str | None = field(default=None, converter=optional(readFile))
    timeoutMs: int = field(default=10_000, converter=_timeout)
    tls: TLSOptions = groupField(TLSOptions)


@frozen(kw_only=True)
class KubernetesOptions:
    """
    The options of the provider C{kubernetes}; without any, those of the pod's service account.

    @ivar address: That of the API; without it what the pod's environment says.
    @ivar tokenFile: A file with the token.
    @ivar namespace: Where services are; without it in the pod's own.
    @ivar portName: Which port of a service is meant; without it the only one, or C{http}.
    @ivar timeoutMs: For one answer.
    @ivar tls: How the API is believed.
    """

    address: str | None = field(default=None, converter=optional(_address))
    tokenFile: str | None = field(default=None, converter=optional(readFile))
    namespace: str | None = field(default=None, converter=optional(readKnownAs))
    portName: str | None = field(default=None, converter=optional(_word))
    timeoutMs: int = field(default=10_000, converter=_timeout)
    tls: TLSOptions = groupField(TLSOptions)


@frozen(kw_only=True)
class RegisterOptions:
    """
    How this daemon tells a registry of itself.

    @ivar services: Which services, and the name of each at the registry; without it all that are
        served here, by their own names.
    @ivar address: Where others find this machine; without it the HTTP listener's interface, which
        then must be one that others can name.
    @ivar port: The port there; without it the HTTP listener's.
    @ivar weight: How many calls it takes for one that an instance of weight 1 takes.
    @ivar tls: Whether others are to speak TLS there.
    @ivar tags: What else Consul is told of the instance.
    @ivar ttlSeconds: How long it is believed to be there without a sign of life.
    """

    services: Mapping[str, str] | None = field(default=None, converter=optional(_names))
    address: str | None = field(default=None, converter=optional(readHost))
    port: int | None = field(default=None, converter=optional(readServedPort))
    weight: int = field(default=1, converter=readWeight)
    tls: bool = field(default=False, converter=readFlag)
    tags: tuple[str, ...] = field(default=(), converter=_words)
    ttlSeconds: int = field(default=15, converter=_ttlSeconds)


def ownCluster() -> str:
    """
    Give the address of the API of the cluster that this process runs in; empty in none.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not port.isascii() or not port.isdigit():
        return ""
    return f"https://{formatPlace(host, int(port))}"
