"""
The lifecycle scanner: removes objects and uploads that are due by the rules of their buckets, in
one round a day.

A round goes through the versions and uploads of each bucket with rules, in pages, which are read
and evaluated in threads. An entry that is due is removed as a client would remove it; the
transaction that removes it compares it once more with the evaluated state. The position of the
round is stored in the catalog, so that a restart continues it. A round waits while the machine's
clock is not trusted, see L{storagegate.storage.clock}.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import define, field
from msgspec.structs import replace
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from storagegate.objects.lifecycle import (
    LIFECYCLE,
    Calendar,
    Judge,
    LifecycleRule,
    Place,
    findAbort,
    searchedPrefix,
)
from storagegate.storage.errors import ConcurrentChange, NoSuchBucket, NoSuchUpload, StoreError
from storagegate.storage.mutations import AbortUpload, PutProgress
from storagegate.storage.periodic import PeriodicTask
from storagegate.storage.ranges import UploadRange
from storagegate.storage.records import (
    Bucket,
    ExpiryRow,
    MultipartUpload,
    Removal,
    UploadListing,
    WriteCondition,
)
from storagegate.storage.store import ObjectStore
from storagegate.telemetry.metrics import (
    MetricFamily,
    MetricsRegistry,
    counterFamily,
    gaugeFamily,
)

if TYPE_CHECKING:
    from storagegate.objects.settings import SettingsCache

PAGE = 500
"""Rows per page."""

_TASK = "lifecycle"
_LONGEST_PAUSE_SECONDS = 60.0
_SAVE_SECONDS = 1.0

# A turn of an idle loop takes a tenth of this. Without pauses under load, a round slows down 4 KiB
# reads over 64 connections by a quarter.
_BUSY_SECONDS = 0.001
_PAUSED_TURNS = 10
_LONGEST_TURNS_SECONDS = 0.2


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    The position of a round.

    @ivar day: The day of the round, counted from the epoch.
    @ivar startedMs: The start, in milliseconds since the epoch.
    @ivar isOver: Whether the round is complete.
    @ivar bucket: The bucket that is being scanned, or was scanned last.
    @ivar place: The end of the last page of its versions.
    @ivar upload: Key and id of the last upload, after all versions have been scanned.
    """

    day: int
    startedMs: int
    isOver: bool = False
    bucket: str = ""
    isBucketDone: bool = True
    place: Place | None = None
    upload: tuple[str, str] | None = None


_decodeRound = msgspec.json.Decoder(Round).decode


def _loadCache() -> "type[SettingsCache]":
    """
    Import the compiler of settings, which an idle daemon does not load. Any thread may call it.
    """
    from storagegate.objects.settings import SettingsCache

    return SettingsCache


@define(eq=False)
class LifecycleScanner:
    """
    Removes versions and uploads that are due. All methods must run in the reactor thread.

    @ivar _clock: Measures the pauses.
    @ivar _now: Returns seconds since the epoch.
    @ivar _settings: The compiled settings of buckets, loaded for the first bucket with rules.
    @ivar seen: The number of versions and uploads evaluated.
    @ivar removed: The number of them removed or hidden by a delete marker.
    @ivar kept: The number of them that were due but remain: locked, or changed in the meantime.
    """

    _log = Logger()

    _store: ObjectStore
    _calendar: Calendar
    _clock: IReactorTime
    _now: Callable[[], float]
    _settings: "SettingsCache | None" = field(default=None, init=False)
    _round: Round | None = field(default=None, init=False)
    _task: PeriodicTask = field(init=False)
    _savedAt: float = field(default=0.0, init=False)
    _isSaved: bool = field(default=True, init=False)
    seen: int = field(default=0, init=False)
    removed: int = field(default=0, init=False)
    kept: int = field(default=0, init=False)

    @_task.default
    def _makeTask(self) -> PeriodicTask:
        return PeriodicTask("the lifecycle scanner", self._clock)

    def start(self) -> None:
        """Scan, round after round, until L{stop}. Call once."""
        self._task.start(self._rounds)

    async def stop(self) -> None:
        """Stop after the current page, and save the position."""
        await self._task.stop()

    @property
    def ageSeconds(self) -> float:
        """Seconds since the start of the current or the last round; 0 before the first."""
        return 0.0 if self._round is None else max(0.0, self._now() - self._round.startedMs / 1000)

    async def scan(self) -> None:
        """Continue or begin today's round; do nothing if it is complete."""
        if self._mustEnd:
            return
        if self._round is None:
            document = await self._store.catalog.progress(_TASK)
            self._round = None if document is None else _decodeRound(document)
        nowMs = self._nowMs()
        day = nowMs // self._calendar.dayMs
        if self._round is None or (self._round.isOver and self._round.day != day):
            self._round = Round(day, nowMs)
        if self._round.isOver:
            return
        try:
            await self._buckets()
        finally:
            await self._save(isEnd=True)

    def _nowMs(self) -> int:
        return self._store.settledMs(int(self._now() * 1000))

    @property
    def _mustEnd(self) -> bool:
        """Whether removals must stop: the scanner is stopping, or dates are not trusted."""
        return self._task.isStopping or not self._isTrusted

    @property
    def _isTrusted(self) -> bool:
        clock = self._store.clock
        return clock is None or not clock.isStepped

    async def _canJudge(self) -> bool:
        """
        Return whether the dates of rows that have been read are trusted. The clock may have been
        set back before one of them was written.
        """
        await self._store.lookAtClocks()
        return self._isTrusted

    async def _rounds(self) -> None:
        daySeconds = self._calendar.dayMs / 1000
        longest = min(_LONGEST_PAUSE_SECONDS, daySeconds)
        # A starting daemon has more urgent work.
        await self._task.pause(longest)
        while not self._task.isStopping:
            pause = min(longest, daySeconds - self._now() % daySeconds)
            try:
                await self.scan()
            except (StoreError, OSError) as error:
                self._log.error("the round was aborted: {error}", error=str(error))
                pause = longest
            except Exception:
                # The next round may succeed.
                self._log.failure("the round was aborted")
                pause = longest
            await self._task.pause(pause)

    async def _move(self, **changes: Any) -> None:
        """Advance the position of the round."""
        assert self._round is not None, "it runs"
        self._round = replace(self._round, **changes)
        self._isSaved = False
        await self._save()

    async def _save(self, isEnd: bool = False) -> None:
        now = self._clock.seconds()
        if self._isSaved or (not isEnd and now - self._savedAt < _SAVE_SECONDS):
            return
        self._savedAt, self._isSaved = now, True
        await self._store.catalog.commit(PutProgress(_TASK, msgspec.json.encode(self._round)))

    async def _buckets(self) -> None:
        """Continue the round to its end, or until L{stop}."""
        assert self._round is not None, "it runs"
        if not self._round.isBucketDone:
            await self._bucket(self._round.bucket)
        while not self._mustEnd:
            names = await self._store.catalog.bucketsWith(LIFECYCLE, self._round.bucket, 1)
            if not names:
                # Without rules, nothing is stored.
                if self._round.bucket:
                    await self._move(isOver=True)
                else:
                    self._round = replace(self._round, isOver=True)
                return
            await self._move(bucket=names[0], isBucketDone=False, place=None, upload=None)
            await self._bucket(names[0])

    async def _giveWay(self) -> None:
        """Give way to requests: pause for several turns of a busy loop."""
        # Calls from threads run before timers, so the first timer may fire in the same turn.
        await deferLater(self._clock, 0)
        began = self._clock.seconds()
        await deferLater(self._clock, 0)
        turn = self._clock.seconds() - began
        if turn >= _BUSY_SECONDS:
            await self._task.pause(min(_PAUSED_TURNS * turn, _LONGEST_TURNS_SECONDS))

    async def _bucket(self, name: str) -> None:
        assert self._round is not None, "it runs"
        isDone = False
        try:
            if self._round.upload is None:
                while not isDone and not self._mustEnd:
                    await self._giveWay()
                    isDone = await self._versions(name)
            isDone = False
            while not isDone and not self._mustEnd:
                await self._giveWay()
                isDone = await self._uploads(name)
        except NoSuchBucket:
            isDone = True
        if isDone:
            await self._move(isBucketDone=True)

    async def _rules(self, name: str) -> tuple[Bucket, Sequence[LifecycleRule]]:
        bucket: Bucket | None = await self._store.catalog.bucket(name)
        if bucket is None:
            raise NoSuchBucket
        if self._settings is None:
            # Loading the compiler takes 30 ms, which must not block the loop.
            makeCache = await self._store.run(_loadCache)
            self._settings = makeCache(self._store.catalog)
        return bucket, (await self._settings.find(bucket)).lifecycle

    async def _versions(self, name: str) -> bool:
        """
        Process a page of versions, removing those that are due; return whether it was the last.
        """
        assert self._round is not None, "it runs"
        place = self._round.place
        bucket, rules = await self._rules(name)
        prefix = searchedPrefix(rules)
        if prefix is None:
            await self._move(upload=("", ""))
            return True
        after = None if place is None else (place.key.encode(), place.sequence)
        rows: list[ExpiryRow] = await self._store.catalog.expiryPage(
            name, prefix.encode(), after, PAGE
        )
        if not await self._canJudge():
            return False
        judge = Judge(rules, self._calendar, bucket.generation, self._nowMs())
        judgement = await self._store.run(judge.page, rows, place)
        if judgement.expired:
            entries = [
                (each.key, each.versionId, WriteCondition(expiry=each.expiry))
                for each in judgement.expired
            ]
            began = self._clock.seconds()
            results = await self._store.deleteObjects(name, entries, bucket.account, judge.nowMs)
            done = sum(isinstance(each, Removal) for each in results)
            self.removed += done
            if done < len(results) and (await self._rules(name))[0] != bucket:
                # The rules have changed: evaluate the page again.
                return False
            self.kept += len(results) - done
            # Leave clients as much time for their writes.
            await self._task.pause(min(1.0, self._clock.seconds() - began))
        self.seen += len(rows)
        self.kept += judgement.kept
        isLast = len(rows) < PAGE
        if judgement.place is not None:
            await self._move(place=judgement.place)
        if isLast:
            await self._move(upload=("", ""))
        return isLast

    async def _uploads(self, name: str) -> bool:
        """
        Process a page of uploads, aborting those that are due; return whether it was the last.
        """
        assert self._round is not None, "it runs"
        bucket, rules = await self._rules(name)
        if all(rule.abortDays is None for rule in rules):
            return True
        key, uploadId = self._round.upload or ("", "")
        page: UploadListing = await self._store.catalog.uploads(
            UploadRange(name, b"", b"", key.encode(), PAGE, uploadId)
        )
        if not await self._canJudge():
            return False
        nowMs = self._nowMs()

        def judge() -> list[MultipartUpload]:
            found = []
            for each in page.uploads:
                due = findAbort(rules, self._calendar, each.key.decode(), each.startedMs)
                if due is not None and due.atMs <= nowMs:
                    found.append(each)
            return found

        for each in await self._store.run(judge):
            if self._mustEnd:
                return False
            try:
                await self._store.catalog.commit(
                    AbortUpload(name, each.key, each.uploadId, bucket.generation)
                )
            except NoSuchUpload:
                continue
            except ConcurrentChange:
                return False
            self.removed += 1
        self.seen += len(page.uploads)
        if page.last is None:
            return True
        await self._move(upload=page.last)
        return False


def watchScanner(scanner: LifecycleScanner, meters: MetricsRegistry) -> None:
    """
    Register the metrics of a scanner.

    @param meters: The registry that receives them.
    """

    def families() -> Iterable[MetricFamily]:
        for name, help, value in (
            ("seen", "Versions and uploads checked against lifecycle rules.", "seen"),
            ("removed", "Versions and uploads removed by lifecycle rules.", "removed"),
            (
                "kept",
                "Versions that were due but kept, because they were locked or changed.",
                "kept",
            ),
        ):
            samples = [((), getattr(scanner, value))]
            yield counterFamily(f"storagegate_lifecycle_{name}_total", help, (), samples)
        yield gaugeFamily(
            "storagegate_lifecycle_round_age_seconds",
            "Time since the current or last round began.",
            scanner.ageSeconds,
            "max",
        )

    meters.watch(families)
