"""The table C{[cluster]} of the configuration."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import field, frozen
from psycopg import Error
from psycopg.conninfo import conninfo_to_dict

from storagegate.cluster.counts import readCounts
from storagegate.core.options import (
    optionField,
    parseDecimal,
    readNumber,
    readSize,
    readWord,
)

_MOST_SERVERS = 16
"""Limit of the servers: each search for the primary queries all of them."""

_ETCD_URL = re.compile(r"https?://[^\s/@?#]+:[0-9]{1,5}", re.ASCII)

_MOST_INLINE = 1 << 20
"""Larger rows cost the catalog more than the bytes cost a blob store."""

BACK_ENDS = {"rados": "rados", "s3": "s3", "files": "shared"}
"""The back ends of blobs by the scheme of the option."""

_SCHEMES = tuple(f"{scheme}:" for scheme in BACK_ENDS)


def readServers(value: Any) -> tuple[str, ...]:
    """Read conninfos: a list, or one text with semicolons between them. Errors contain none."""
    if isinstance(value, str):
        value = [each.strip() for each in value.split(";")]
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST_SERVERS:
        raise ValueError(f"is a list of 1 to {_MOST_SERVERS} conninfos, one for each server")
    for number, each in enumerate(value, 1):
        try:
            parsed = conninfo_to_dict(each) if isinstance(each, str) else {}
        except Error:
            parsed = {}
        if not parsed:
            raise ValueError(f"is a list of conninfos, but number {number} is not a conninfo")
        if "," in str(parsed.get("host", "")):
            raise ValueError(
                f"is a list with one conninfo for each server, but number {number} names several"
            )
    return tuple(value)


def _readEtcd(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [each.strip() for each in value.split(";")]
    if not isinstance(value, list | tuple) or len(value) > _MOST_SERVERS:
        raise ValueError(f"is a list of at most {_MOST_SERVERS} URLs, one for each member of etcd")
    for number, each in enumerate(value, 1):
        if not isinstance(each, str) or not _ETCD_URL.fullmatch(each):
            raise ValueError(
                f'is a list of URLs such as "http://10.0.0.1:2379", but number {number} is not one'
            )
    return tuple(value)


def _readBlobs(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(_SCHEMES) or not value.isprintable():
        raise ValueError('is "rados:POOL", "s3:URL" or "files:DIRECTORY"')
    return value


def _readCounts(value: Any) -> str:
    isValkey = isinstance(value, str) and value.startswith("valkey:") and value.isprintable()
    if value != "postgresql" and not isValkey:
        raise ValueError('is "postgresql" or "valkey:URL"')
    if isValkey:
        try:
            readCounts(value)
        except ValueError as error:
            raise ValueError(f'is "valkey:URL", and {error}') from None
    return str(value)


def _readSeconds(value: Any) -> int:
    try:
        return readNumber(parseDecimal(value, 300) if isinstance(value, str) else value, 2, 300)
    except ValueError:
        raise ValueError("is a number of seconds from 2 to 300") from None


def _readWait(value: Any) -> int:
    try:
        return readNumber(parseDecimal(value, 3600) if isinstance(value, str) else value, 0, 3600)
    except ValueError:
        raise ValueError("is a number of seconds from 0 to 3600") from None


def _readInlineLimit(value: Any) -> int:
    size = readSize(value)
    if size > _MOST_INLINE:
        raise ValueError('is a size of at most 1 MiB, such as "16kb"')
    return size


@frozen(kw_only=True)
class ClusterOptions:
    """
    A store over several machines: the location of its catalog and its blobs.

    @ivar catalog: The conninfo of each PostgreSQL server; one server is the primary.
    @ivar blobs: The blob store: C{"rados:POOL"}, C{"s3:https://HOST/BUCKET"} or
        C{"files:DIRECTORY"} on a file system that all nodes have mounted.
    @ivar counts: The server of the cluster-wide counts of rate limits and sessions.
    @ivar leaseSeconds: The duration of a node's lease; the node renews it three times within this
        time.
    @ivar connectWait: The time that a starting node waits for the catalog, in seconds. The node
        starts even without the blobs, and serves the requests that do not need them.
    @ivar inlineLimit: The largest objects that are stored in rows of the catalog, in bytes.
    @ivar synchronous: C{"required"}: no writes are accepted unless a standby confirms commits;
        C{"off"}: the latest acknowledged writes may be lost with the primary.
    @ivar etcd: The client URL of each member of Patroni's etcd. C{cluster status} queries them for
        missing members; nodes do not use them.
    """

    catalog: tuple[str, ...] = field(converter=readServers, repr=False)
    blobs: str = field(converter=_readBlobs)
    counts: str = field(default="postgresql", converter=_readCounts, repr=False)
    leaseSeconds: int = field(default=10, converter=_readSeconds)
    connectWait: int = field(default=60, converter=_readWait)
    inlineLimit: int = field(default=16 << 10, converter=_readInlineLimit)
    synchronous: str = optionField("required", readWord, ("required", "off"))
    etcd: tuple[str, ...] = field(default=(), converter=_readEtcd)

    def secrets(self, servers: Iterable[str] = ()) -> Iterator[str]:
        """
        Yield the passwords in these options, and the strings that contain one.

        @param servers: Additional conninfos, of further shards.
        """
        for conninfo in (*self.catalog, *servers):
            password = conninfo_to_dict(conninfo).get("password")
            if password:
                yield from (str(password), conninfo)
        if "@" in self.counts:
            login = self.counts.partition("://")[2].rpartition("@")[0]
            yield from filter(None, (login.partition(":")[2], self.counts))
