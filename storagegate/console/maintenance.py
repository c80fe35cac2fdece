"""Scrubbing, damage, fsck and backup, the log of the catalog, the doctor, and the clock."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from storagegate.console.call import ConsoleCall
from storagegate.console.services import ConsoleServices
from storagegate.storage.clock import TOPIC
from storagegate.storage.commandresults import CommandResult, readResult
from storagegate.storage.scrub import BYTES_PER_SECOND
from storagegate.telemetry.metrics import MetricFamily
from storagegate.telemetry.prometheus import mergedSnapshot

_MOST_DAMAGED = 1000
"""Damaged objects that are listed; further ones are only counted."""

_NAMED_SECONDS = 60.0
"""Interval between searches for the objects of damaged blobs, which read all objects."""

_RATE_SECONDS = 2.0
"""The shortest interval over which a rate is measured."""

_COMMITS = "storagegate_store_commit_seconds"
_SYNCS = "storagegate_store_fsync_seconds"


class Scrub(Struct, kw_only=True):
    """
    The continuous verification of all stored bytes.

    @ivar rounds: Rounds completed since the daemon started.
    @ivar bytes: Bytes read since the daemon started.
    @ivar perSecond: Bytes per second since the previous call; C{null} for the first call.
    @ivar limitPerSecond: The limit of the rate, in bytes per second.
    """

    rounds: int
    bytes: int
    perSecond: float | None
    limitPerSecond: int


class Damaged(Struct, kw_only=True):
    """
    An object whose bytes have changed since they were written.

    @ivar bucket: Empty if only the blob is known.
    @ivar versionId: Empty if it is unknown or there are no versions.
    @ivar blob: Empty if the bytes are in the catalog.
    """

    bucket: str
    key: str
    versionId: str = ""
    blob: str = ""


class SyncTimes(Struct, kw_only=True):
    """
    Durations of one kind of sync since the daemon started.

    @ivar kind: C{commit} of the catalog, C{file} or C{directory} of a blob.
    @ivar p99Ms: An upper bound; C{null} above the largest measured bound.
    """

    kind: str
    count: int
    meanMs: float
    p50Ms: float | None
    p99Ms: float | None


class Maintenance(Struct, kw_only=True):
    """
    The state of the data.

    @ivar store: C{embedded} or C{cluster}.
    @ivar absent: The fields that this kind of store lacks.
    @ivar damagedCount: The number of damaged objects and blobs; C{damaged} has the first ones.
    @ivar walBytes: The length of the catalog's write-ahead log.
    """

    store: str
    absent: list[str]
    scrub: Scrub
    damagedCount: int
    damaged: list[Damaged]
    fsck: CommandResult | None
    backup: CommandResult | None
    walBytes: int | None
    syncs: list[SyncTimes]


class DoctorFinding(Struct):
    """
    A finding of the doctor.

    @ivar level: C{ok}, C{warning} or C{problem}.
    """

    level: str
    check: str
    text: str


class Findings(Struct):
    """All findings of the doctor."""

    ok: bool
    findings: list[DoctorFinding]


_ABSENT_IN_CLUSTER = ["fsck", "backup", "walBytes"]


async def showMaintenance(call: ConsoleCall) -> Maintenance:
    """Describe scrubbing, damage, the last commands and the times of syncs."""
    services = call.services
    families = await mergedSnapshot(services.link, services.meters)
    found = {family.name: family for family in families}
    isEmbedded = not services.store.catalog.isRemote
    directory = services.daemon.dataDirectory
    damaged = await _damaged(services)
    return Maintenance(
        store="embedded" if isEmbedded else "cluster",
        absent=[] if isEmbedded else _ABSENT_IN_CLUSTER,
        scrub=_scrub(services, found),
        damagedCount=max(int(_total(found, "storagegate_store_damaged")), len(damaged)),
        damaged=damaged[:_MOST_DAMAGED],
        fsck=readResult(directory, "fsck") if isEmbedded else None,
        backup=readResult(directory, "backup") if isEmbedded else None,
        walBytes=_walBytes(directory) if isEmbedded else None,
        syncs=[
            *_syncTimes(found.get(_COMMITS), lambda labels: "commit"),
            *_syncTimes(found.get(_SYNCS), lambda labels: labels[0]),
        ],
    )


async def runDoctor(call: ConsoleCall) -> Findings:
    """Run the doctor in its own process."""
    found = msgspec.convert(await call.services.daemon.doctor(), list[DoctorFinding])
    return Findings(all(each.level != "problem" for each in found), found)


class ClockConfirmed(Struct):
    """
    The result of confirming the clock.

    @ivar wasStepped: Whether the clock was stepped, so that removals by date were suspended.
    @ivar nowMs: The clock, in milliseconds since 1970.
    """

    wasStepped: bool
    nowMs: int


async def confirmClock(call: ConsoleCall) -> ClockConfirmed:
    """Trust the machine's current clock, in all processes of this machine."""
    services = call.services
    clock = services.store.clock
    wasStepped = clock is not None and clock.confirm()
    if services.link is not None:
        services.link.broadcast(TOPIC, None)
    call.note(wasStepped=wasStepped)
    return ClockConfirmed(wasStepped, int(services.now() * 1000))


async def countDamaged(services: ConsoleServices) -> int:
    """Count the objects and blobs that all workers know to be damaged."""
    return len(await _damagedInline(services)) + len(services.store.blobs.corrupt)


def _total(families: Mapping[str, MetricFamily], name: str) -> float:
    family = families.get(name)
    return 0 if family is None else sum(value for _, value in family.samples)


def _scrub(services: ConsoleServices, families: Mapping[str, MetricFamily]) -> Scrub:
    """Describe scrubbing; the rate is measured since an earlier call."""
    read = int(_total(families, "storagegate_store_scrubbed_bytes_total"))
    now = services.reactor.seconds()
    before: dict[str, Any] = services.keep("scrub", lambda: {"at": now, "read": read, "rate": None})
    if now - before["at"] >= _RATE_SECONDS:
        rate = max(read - before["read"], 0) / (now - before["at"])
        before.update(at=now, read=read, rate=rate)
    return Scrub(
        rounds=int(_total(families, "storagegate_store_scrub_rounds_total")),
        bytes=read,
        perSecond=before["rate"],
        limitPerSecond=BYTES_PER_SECOND,
    )


async def _damagedInline(services: ConsoleServices) -> set[tuple[str, bytes]]:
    """Return bucket and key of the objects that all workers know to be damaged in the catalog."""
    inline = set(services.store.scrubber.corruptObjects)
    if services.link is not None:
        for reply in await services.link.ask("damaged"):
            inline.update((bucket, bytes.fromhex(key)) for bucket, key in reply)
    return inline


async def _damaged(services: ConsoleServices) -> list[Damaged]:
    """Return the damaged objects known to all workers."""
    inline = await _damagedInline(services)
    found = [Damaged(bucket=bucket, key=_text(key)) for bucket, key in sorted(inline)]
    blobs = sorted(services.store.blobs.corrupt)
    return found + (await _ofBlobs(services, blobs) if blobs else [])


async def _ofBlobs(services: ConsoleServices, blobs: list[str]) -> list[Damaged]:
    """Find the objects with bytes in damaged blobs; a blob without an object is listed alone."""
    now = services.reactor.seconds()
    kept: dict[str, Any] = services.keep("damagedNames", dict)
    if kept.get("blobs") == blobs and now - kept["at"] < _NAMED_SECONDS:
        named: list[Damaged] = kept["named"]
        return named
    rows = await services.store.catalog.objectsOf(blobs, _MOST_DAMAGED)
    named = [
        Damaged(bucket=bucket, key=_text(key), versionId=version, blob=blob)
        for blob, key, bucket, version in sorted(rows)
    ]
    known = {each.blob for each in named}
    named += [Damaged(bucket="", key="", blob=blob) for blob in blobs if blob not in known]
    kept.update(blobs=blobs, at=now, named=named)
    return named


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _walBytes(directory: str) -> int:
    try:
        return os.stat(os.path.join(directory, "catalog.sqlite-wal")).st_size
    except OSError:
        return 0


def _syncTimes(family: MetricFamily | None, kindOf: Any) -> Iterable[SyncTimes]:
    """Sum the samples of all workers, by kind."""
    if family is None:
        return
    added: dict[str, list[float]] = {}
    for labels, values in family.samples:
        kind = kindOf(labels)
        before = added.get(kind, [0.0] * len(values))
        added[kind] = [a + b for a, b in zip(before, values, strict=True)]
    for kind, values in added.items():
        *counts, seconds = values
        count = int(sum(counts))
        yield SyncTimes(
            kind=kind,
            count=count,
            meanMs=seconds * 1000 / count if count else 0.0,
            p50Ms=_quantileMs(counts, family.buckets, 0.5),
            p99Ms=_quantileMs(counts, family.buckets, 0.99),
        )


def _quantileMs(counts: list[float], bounds: Iterable[float], part: float) -> float | None:
    """Return the upper bound of the bucket that contains a quantile, in milliseconds."""
    wanted = sum(counts) * part
    reached = 0.0
    for count, bound in zip(counts, bounds, strict=False):
        reached += count
        if reached >= wanted:
            return bound * 1000
    return None
