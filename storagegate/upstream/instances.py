"""
The places where a service is.

What registries are told.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import Factory, field, frozen
from attrs.converters import optional

from storagegate.core.options import makeOptions, readFlag, readNumber

AUTO = "auto-discover"
"""In the place of instances: the provider knows them."""

# More is a typing error, and the smooth order of so many would be long.
MAX_WEIGHT = 1_000

MAX_INSTANCES = 1_000
"""Of one service: each is asked for its health by everybody who balances over them."""

# What may stand in a URL: names, IPv4 and IPv6 addresses, those with a zone too.
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}(%[A-Za-z0-9_.-]{1,32})?")


def readHost(value: Any) -> str:
    """Read the name or address of a machine, without brackets."""
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise ValueError("is the name or address of a machine")
    return value


def readServedPort(value: Any) -> int:
    """Read the port where something is: there is none of number 0."""
    return readNumber(value, 1, 65535)


def readWeight(value: Any) -> int:
    """Read how many calls an instance takes for one that another of weight 1 takes."""
    return readNumber(value, 1, MAX_WEIGHT)


def _id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 300 or not value.isprintable():
        raise ValueError("is a name")
    return value


@frozen
class Instance:
    """
    One place where a service is.

    @ivar host: Its name or address.
    @ivar port: Where its gateway speaks HTTP.
    @ivar weight: How many calls it takes for one that an instance of weight 1 takes.
    @ivar id: What tells it from the others; without it its address as C{host:port}.
    @ivar tls: Whether it speaks TLS there; without it as is said of the service.
    """

    host: str = field(converter=readHost)
    port: int = field(converter=readServedPort)
    weight: int = field(default=1, converter=readWeight)
    id: str = field(
        default=Factory(lambda self: formatPlace(self.host, self.port), takes_self=True),
        converter=_id,
    )
    tls: bool | None = field(default=None, converter=optional(readFlag))


def formatPlace(host: str, port: int) -> str:
    """Write an address as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def distinct(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Leave out those whose id was there before: several names may lead to one place."""
    known: dict[str, Instance] = {}
    for each in instances:
        known.setdefault(each.id, each)
    return tuple(known.values())


def readInstances(value: Any) -> tuple[Instance, ...] | None:
    """Read a list of instances; C{None} for those that the provider knows."""
    if value == AUTO:
        return None
    isList = isinstance(value, list | tuple)
    if not isList or not all(isinstance(each, Mapping | Instance) for each in value):
        raise ValueError(f'is a list of instances, or "{AUTO}"')
    if len(value) > MAX_INSTANCES:
        raise ValueError(f"has more than {MAX_INSTANCES} instances")
    return distinct(
        each if isinstance(each, Instance) else makeOptions(Instance, each, f"instances[{index}].")
        for index, each in enumerate(value)
    )


@frozen
class Entry:
    """
    What a registry is told of one service.

    @ivar service: Its name there.
    @ivar id: What tells this entry from all others.
    @ivar tls: Whether others are to speak TLS there.
    """

    service: str
    id: str
    host: str
    port: int
    weight: int
    tls: bool
    tags: tuple[str, ...]
