"""
Background jobs: delete, copy or move the objects below a prefix, abort its uploads, tag objects, or
empty a bucket.

Jobs are records that all workers, and all nodes of a cluster, share: each can list and cancel the
jobs of another. A job is interrupted when its process has ended; with several processes, when it
has not been written for 30 s. An interrupted job is not resumed, because its objects may have
changed since; the same job, started again, continues with the remaining objects.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from secrets import token_hex
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from storagegate.console.call import ConsoleCall, ConsoleCaller, copierOf, placesFor, readKey
from storagegate.console.objects import keptEncryption, namingTaken, removeSource
from storagegate.console.services import ConsoleServices
from storagegate.core.errors import ServiceError, codedError
from storagegate.core.task import fromCoroutine
from storagegate.objects.accounts import AccountKey
from storagegate.objects.contents import retryCopy
from storagegate.objects.errors import DomainError, asDomainError
from storagegate.objects.names import checkKey
from storagegate.objects.operations import (
    AbortMultipartUpload,
    CopyObject,
    DeleteEntry,
    DeleteObjects,
    ListMultipartUploads,
    ListObjects,
    ListObjectVersions,
    PutObjectTagging,
)
from storagegate.objects.tags import OBJECT_TAGS, checkedTags, decodeTags
from storagegate.storage.consolerecords import ConsoleRecord, IConsoleRecords, RecordLimits
from storagegate.storage.errors import NoSuchUpload, StoreError
from storagegate.storage.ranges import ObjectRange, UploadRange, VersionRange
from storagegate.storage.records import ObjectRecord, WriteCondition

_BATCH = 1000
"""Objects per batch; the job pauses between batches."""

_MOST_RUNNING = 4
"""Concurrent jobs, in all processes."""

_MOST_KEPT = 200
"""Finished jobs that are kept and listed."""

_MOST_FAILED = 100
_MOST_FAILED_TEXT = 8192
"""Failures kept per job, and characters of their keys; further failures are only counted."""

_MOST_NAMED = 10_000
"""Keys and prefixes that one job names: as many as the console selects one by one."""

_BEAT_SECONDS = 5.0
_DEAD_SECONDS = 30.0
"""Interval between writes of a running job, and time without a write until it is interrupted."""

_LONGEST_PAUSE_SECONDS = 1.0

_KEPT_MS = 30 * 24 * 3600 * 1000
"""How long a job is listed after its last write."""

_JOB, _STOP = "job", "jobStop"
"""The kinds of records: jobs, and requests to cancel them."""

_UNLIMITED = 1 << 40

_JOBS = RecordLimits(most=_MOST_KEPT + 1, mostOfOwner=_MOST_KEPT + 1, mostBytesOfOwner=_UNLIMITED)
"""The jobs that were written last are kept, and with them all that run."""

_STOPS = RecordLimits(most=_MOST_KEPT, mostOfOwner=1, mostBytesOfOwner=_UNLIMITED)

_INSIDE = "The target must not be inside the source"

Kind = Literal[
    "deletePrefix", "copyPrefix", "movePrefix", "abortUploads", "tagObjects", "emptyBucket"
]


class NewJob(Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A job to start.

    @ivar prefix: The prefix of the keys; empty for the whole bucket, as for C{emptyBucket}.
    @ivar toBucket: The target of a copy or a move; empty for the same bucket.
    @ivar toPrefix: Replaces C{prefix} in the keys of a copy or a move.
    @ivar replaces: Whether a copy or a move replaces objects that exist; otherwise, these fail.
    @ivar tags: The tags that C{tagObjects} adds: they replace those with the same keys, and the
        others stay.
    @ivar keys: The objects that C{tagObjects} tags. Without C{keys} and C{prefixes} it tags all
        below C{prefix}.
    @ivar prefixes: Further prefixes of objects that C{tagObjects} tags.
    """

    kind: Kind
    bucket: str
    prefix: str = ""
    toBucket: str = ""
    toPrefix: str = ""
    replaces: bool = True
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    keys: list[str] = msgspec.field(default_factory=list)
    prefixes: list[str] = msgspec.field(default_factory=list)


class Failed(Struct):
    """An object that a job failed to process."""

    key: str
    error: str


class JobView(Struct, kw_only=True):
    """
    A job.

    @ivar named: The number of keys and prefixes that the job names.
    @ivar state: C{running}, C{done}, C{cancelled}, C{failed} or C{interrupted}.
    @ivar done: Objects, versions or uploads that were processed, including failures.
    @ivar failures: The number of failures; C{failed} has the first ones.
    @ivar error: The reason why the job failed.
    """

    id: str
    kind: Kind
    bucket: str
    prefix: str
    toBucket: str
    toPrefix: str
    accessKey: str
    state: str
    replaces: bool = True
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    named: int = 0
    startedMs: int
    endedMs: int | None = None
    done: int = 0
    failures: int = 0
    failed: list[Failed] = msgspec.field(default_factory=list)
    error: str = ""


class Jobs(Struct):
    """
    All jobs, newest first.

    @ivar mayStart: Whether the policy of the caller's key allows a job.
    """

    items: list[JobView]
    mayStart: bool


class _StoredJob(Struct):
    """
    The content of the record of a job.

    @ivar wroteMs: When the process of the job has written it.
    """

    job: JobView
    wroteMs: int


_decoder = msgspec.json.Decoder(_StoredJob)


def _read(record: ConsoleRecord) -> _StoredJob | None:
    """Read the record of a job; return L{None} if only a newer version can read it."""
    try:
        return _decoder.decode(record.document)
    except msgspec.ValidationError:
        return None


@define(eq=False)
class JobManager:
    """Runs and stores jobs. Must run in the reactor thread."""

    _services: ConsoleServices
    _running: dict[str, "_Run"] = field(factory=dict, init=False)
    _own: set[str] = field(factory=set, init=False)

    @property
    def _records(self) -> IConsoleRecords:
        return self._services.records

    async def jobs(self, accessKey: str | None = None) -> list[JobView]:
        """
        List jobs, without those that only a newer version of another node can read.

        @param accessKey: Return only the jobs of this key.
        """
        found = []
        for record in await self._records.records(_JOB, accessKey):
            stored = _read(record)
            if stored is None:
                continue
            stored.job.state = self._stateOf(stored)
            found.append(stored.job)
        return sorted(found, key=lambda each: (-each.startedMs, each.id))

    async def start(self, key: AccountKey, wanted: NewJob, run: Callable[["_Run"], Any]) -> JobView:
        """
        Start a job.

        @param key: The key with whose rights the job runs.
        @param run: The work of the job.
        @raise ServiceError: C{RATE_LIMITED}: too many jobs are running, in total or for this key.
        """
        most = placesFor(key.role, _MOST_RUNNING)
        job = JobView(
            id=token_hex(8),
            kind=wanted.kind,
            bucket=wanted.bucket,
            prefix=wanted.prefix,
            toBucket=wanted.toBucket,
            toPrefix=wanted.toPrefix,
            replaces=wanted.replaces,
            accessKey=key.identity.accessKey,
            state="running",
            tags=wanted.tags,
            # A listing returns all jobs, and has no room for the names.
            named=len(wanted.keys) + len(wanted.prefixes),
            startedMs=self._nowMs(),
        )
        # Set before the job is stored, so that it never looks interrupted.
        self._own.add(job.id)
        try:
            isStarted = await self._isWithin(job, most)
            if isStarted:
                await self._records.add(self._recordOf(job), _JOBS, self._nowMs())
                # Another process can have started one at the same time: then neither may start.
                isStarted = await self._isWithin(job, most)
                if not isStarted:
                    await self._records.remove(_JOB, job.id)
        except BaseException:
            # The client may also have disconnected: the job does not run, and looks interrupted.
            self._own.discard(job.id)
            raise
        if not isStarted:
            self._own.discard(job.id)
            text = f"{_MOST_RUNNING} jobs are already running, or {most} of this key"
            raise codedError("RATE_LIMITED", text)
        started = _Run(self, self._services, key, job)
        self._running[job.id] = started
        started.ended = fromCoroutine(started.run(run(started)))
        return job

    async def _isWithin(self, job: JobView, most: int) -> bool:
        """
        Return whether the other running jobs leave a place for one.

        @param most: The most jobs of its key.
        """
        others = [
            each.accessKey
            for each in await self.jobs()
            if each.state == "running" and each.id != job.id
        ]
        return len(others) < _MOST_RUNNING and others.count(job.accessKey) < most

    async def cancel(self, id: str) -> None:
        """Cancel a running job, or delete the record of a finished job."""
        found = await self._records.find(_JOB, id)
        stored = None if found is None else _read(found)
        if stored is not None and self._stateOf(stored) == "running":
            expiresMs = self._nowMs() + _KEPT_MS
            stop = ConsoleRecord(_STOP, id, id, expiresMs, b"")
            await self._records.add(stop, _STOPS, self._nowMs())
        else:
            await self._records.remove(_JOB, id)
        if id in self._running:
            self._running[id].isCancelled = True

    async def write(self, job: JobView) -> bool:
        """Write the state of a job; return whether the job may continue."""
        isKept = await self._records.replace(self._recordOf(job))
        return isKept and await self._records.find(_STOP, job.id) is None

    async def close(self) -> None:
        """Interrupt the jobs of this process."""
        for each in list(self._running.values()):
            each.isClosing = True
        for each in list(self._running.values()):
            assert each.ended is not None
            await each.ended

    def forget(self, id: str) -> None:
        """Remove a finished job from memory."""
        self._running.pop(id, None)
        self._own.discard(id)

    def _recordOf(self, job: JobView) -> ConsoleRecord:
        nowMs = self._nowMs()
        document = msgspec.json.encode(_StoredJob(job, nowMs))
        return ConsoleRecord(_JOB, job.id, job.accessKey, nowMs + _KEPT_MS, document)

    def _stateOf(self, stored: _StoredJob) -> str:
        """Return the state of a job, whose process may have ended."""
        if stored.job.state != "running":
            return stored.job.state
        # No other process can run a job of a daemon without workers.
        isOthers = self._services.link is not None or self._records.isOfNodes
        # A date in the future was written before the clock was set back.
        isAlive = isOthers and abs(self._nowMs() - stored.wroteMs) < _DEAD_SECONDS * 1000
        return "running" if isAlive or stored.job.id in self._own else "interrupted"

    def _nowMs(self) -> int:
        return int(self._services.now() * 1000)


class _Ended(Exception):
    """Ends the job with a state."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


@define(eq=False)
class _Run:
    """
    A running job.

    @ivar request: The attributes of the request that callers need: its address and whether it was
        secure.
    """

    _manager: JobManager
    services: ConsoleServices
    _key: AccountKey
    job: JobView
    request: Any = None
    isCancelled: bool = field(default=False, init=False)
    isClosing: bool = field(default=False, init=False)
    ended: Deferred[None] | None = field(default=None, init=False)
    _turnSeconds: float = field(default=0.0, init=False)
    _wroteSeconds: float = field(default=0.0, init=False)

    _log = Logger()

    async def run(self, work: Awaitable[None]) -> None:
        """Run the job, and write its final state."""
        job = self.job
        self._turnSeconds = self._wroteSeconds = self.services.reactor.seconds()
        beats = LoopingCall(lambda: Deferred.fromCoroutine(self._beat()))
        beats.clock = self.services.reactor
        beating = beats.start(_BEAT_SECONDS, now=False)
        try:
            await work
            job.state = "done"
        except _Ended as end:
            job.state = end.state
        except (DomainError, ServiceError, StoreError) as error:
            job.state, job.error = "failed", _describe(error)
        except Exception:
            self._log.failure("console: the job {id} failed", id=job.id)
            job.state, job.error = "failed", "Internal error"
        beats.stop()
        # A write that is under way must not follow the last one.
        await beating
        job.endedMs = int(self.services.now() * 1000)
        self._log.info(
            "console: the job {id} ({kind}) of {who} ended: {state}, {done} objects,"
            " {failures} failures",
            id=job.id,
            kind=job.kind,
            who=job.accessKey,
            state=job.state,
            done=job.done,
            failures=job.failures,
        )
        try:
            await self._manager.write(job)
        except StoreError:
            self._log.failure("console: cannot record the end of the job {id}", id=job.id)
        self._manager.forget(job.id)

    def caller(
        self, name: str, access: str, bucket: str, key: bytes = b"", prefix: str | None = None
    ) -> ConsoleCaller:
        """Authorise an access with the current key; see L{ConsoleCall.caller}."""
        identity = self._key.identity
        identity.authorise(access, bucket, key, prefix)
        return ConsoleCaller(identity, name, self.request, prefix)

    def failed(self, key: str, error: Exception) -> None:
        """Count an object that the job failed to process."""
        self.job.failures += 1
        kept = self.job.failed
        if len(kept) < _MOST_FAILED and sum(len(each.key) for each in kept) < _MOST_FAILED_TEXT:
            kept.append(Failed(key, _describe(error)))

    async def turn(self, isBatchOver: bool = True) -> None:
        """
        Check whether the job may continue, and write its progress. After a batch, first pause for
        as long as the batch took.

        @param isBatchOver: Whether a batch has ended.
        @raise _Ended: The job was cancelled, or the daemon stops.
        @raise ServiceError: C{UNAUTHENTICATED}: the key of the job is no longer valid.
        """
        seconds = self.services.reactor.seconds
        if isBatchOver:
            took = min(seconds() - self._turnSeconds, _LONGEST_PAUSE_SECONDS)
            pause: Deferred[None] = Deferred()
            self.services.reactor.callLater(took, pause.callback, None)
            await pause
            self._turnSeconds = seconds()
        if self.isClosing:
            raise _Ended("interrupted")
        found = self.services.accounts.renew(self._key)
        if found is None or found.secretKey != self._key.secretKey:
            raise codedError("UNAUTHENTICATED", "The key of the job is no longer valid")
        self._key = found
        if isBatchOver or seconds() - self._wroteSeconds >= _BEAT_SECONDS:
            await self._write()
        if self.isCancelled:
            raise _Ended("cancelled")

    async def _write(self) -> None:
        """Write the progress, and note whether the job was cancelled."""
        self._wroteSeconds = self.services.reactor.seconds()
        if not await self._manager.write(self.job):
            self.isCancelled = True

    async def _beat(self) -> None:
        """Write the progress of a job that takes long for one object: it runs for all processes."""
        if self.services.reactor.seconds() - self._wroteSeconds < _BEAT_SECONDS:
            return
        try:
            await self._write()
        except StoreError as error:
            self._log.warn(
                "console: cannot record the job {id}: {error}", id=self.job.id, error=str(error)
            )
        except Exception:
            # The work goes on, and its own next write fails as well.
            self._log.failure("console: cannot record the job {id}", id=self.job.id)

    async def pages(
        self, take: Callable[[Sequence[str]], Awaitable[None]], prefix: str | None = None
    ) -> None:
        """
        Process the keys below a prefix, page by page.

        @param prefix: L{None} for the prefix of the job.
        """
        job, after = self.job, b""
        if prefix is None:
            prefix = job.prefix
        while True:
            caller = self.caller("ListObjectsV2", "list", job.bucket, prefix=prefix)
            wanted = ObjectRange(job.bucket, prefix.encode(), b"", after, _BATCH)
            page = await self.services.objects.perform(caller, ListObjects(wanted))
            await take([each.key for each in page.objects])
            if page.last is None:
                return
            after = page.last.encode()
            await self.turn()


def _describe(error: Exception) -> str:
    if isinstance(error, StoreError):
        error = asDomainError(error)
    if isinstance(error, DomainError | ServiceError):
        return f"{error.code}: {error.message}"
    return "Internal error"


def _manager(call: ConsoleCall) -> JobManager:
    services = call.services
    found: JobManager = services.keep("jobs", lambda: JobManager(services))
    return found


async def listJobs(call: ConsoleCall) -> Jobs:
    """List the jobs of the key, or of all keys for an auditor."""
    mine = None if call.who.has("auditor") else call.who.identity.accessKey
    mayStart = call.who.identity.policy.allows("write", None, None)
    return Jobs(await _manager(call).jobs(mine), mayStart)


async def startJob(call: ConsoleCall, body: NewJob) -> JobView:
    """Start a job."""
    named = len(body.keys) + len(body.prefixes)
    noted = msgspec.structs.asdict(body)
    call.note(**noted | {"keys": len(body.keys), "prefixes": len(body.prefixes)})
    # One listing returns all jobs, so their keys are bounded.
    for each in (body.prefix, body.toPrefix, *body.keys, *body.prefixes):
        checkKey(each.encode())
    if body.kind == "tagObjects":
        if named > _MOST_NAMED:
            raise codedError("INVALID_ARGUMENT", f"A job can name at most {_MOST_NAMED} objects")
        if not body.tags or (named and body.prefix):
            text = "tagObjects takes tags, and either keys and prefixes or one prefix"
            raise codedError("INVALID_ARGUMENT", text)
        checkedTags(body.tags.items(), OBJECT_TAGS)
    elif body.tags or named:
        raise codedError("INVALID_ARGUMENT", f"{body.kind} does not take tags or names of objects")
    isCopy = body.kind in ("copyPrefix", "movePrefix")
    if not isCopy and (body.toBucket or body.toPrefix or not body.replaces):
        raise codedError("INVALID_ARGUMENT", f"{body.kind} does not take a target")
    isWithin = body.toBucket in ("", body.bucket) and body.toPrefix.startswith(body.prefix)
    if isCopy and isWithin:
        raise codedError("INVALID_ARGUMENT", _INSIDE)
    # Refuse now instead of starting a job that fails.
    if body.kind == "emptyBucket":
        if body.prefix:
            raise codedError("INVALID_ARGUMENT", "emptyBucket does not take a prefix")
        call.caller("DeleteObject", "write", body.bucket)
    name, access = _ACCESS[body.kind]
    for prefix in body.prefixes or ([] if body.keys else [body.prefix]):
        caller = call.caller(name, access, body.bucket, prefix=prefix)
        await call.services.objects.bucket(caller, body.bucket)
    if body.keys:
        await call.services.objects.find(body.bucket)
    if body.toBucket:
        await call.services.objects.find(body.toBucket)
    request = SimpleNamespace(ip=call.request.ip, secure=call.request.secure)

    def run(started: _Run) -> Awaitable[None]:
        started.request = request
        if body.kind == "tagObjects":
            return _tagObjects(started, body.keys, body.prefixes)
        return _WORK[body.kind](started)

    return await _manager(call).start(call.who.key, body, run)


async def cancelJob(call: ConsoleCall) -> None:
    """Cancel a running job, or delete the record of a finished job."""
    manager = _manager(call)
    mine = None if call.who.has("admin") else call.who.identity.accessKey
    if not any(each.id == call.params["id"] for each in await manager.jobs(mine)):
        raise codedError("NOT_FOUND", "No such job")
    await manager.cancel(call.params["id"])


async def _deletePrefix(run: _Run) -> None:
    """Delete the objects; a versioned bucket keeps them as older versions."""

    async def take(keys: Sequence[str]) -> None:
        await _deleteAll(run, [DeleteEntry(key.encode()) for key in keys])

    await run.pages(take)


async def _deleteAll(run: _Run, entries: Sequence[DeleteEntry]) -> None:
    """Delete objects or versions; count those that are refused as failed."""
    bucket = run.job.bucket
    allowed = []
    for entry in entries:
        try:
            run.caller("DeleteObject", "write", bucket, entry.key)
            allowed.append(entry)
        except DomainError as error:
            run.failed(entry.key.decode(), error)
    caller = run.caller("DeleteObjects", "list", bucket, prefix=run.job.prefix)
    caller.operationName = "DeleteObject"
    results = await run.services.objects.perform(caller, DeleteObjects(bucket, allowed))
    for entry, result in zip(allowed, results, strict=True):
        if isinstance(result, Exception):
            run.failed(entry.key.decode(), result)
    run.job.done += len(entries)


async def _emptyBucket(run: _Run) -> None:
    """
    Permanently delete the objects with all versions and delete markers, and abort the uploads.

    A retention is not bypassed: what it protects counts as failed and stays.
    """
    objects, page = run.services.objects, VersionRange(run.job.bucket, b"", b"", b"", _BATCH)
    while True:
        # Without versions, the right to delete objects is enough.
        hasVersions = (await objects.find(run.job.bucket)).versioning
        caller = run.caller("ListObjectVersions", "list", run.job.bucket, prefix="")
        found = await objects.perform(caller, ListObjectVersions(page))
        entries = [
            DeleteEntry(each.key.encode(), each.versionId if hasVersions else None)
            for each in found.versions
        ]
        await _deleteAll(run, entries)
        if found.last is None:
            break
        page = replace(page, after=found.last.encode(), versionAfter=found.lastVersion)
        await run.turn()
    await run.turn()
    await _abortUploads(run)


async def _copyPrefix(run: _Run) -> None:
    """Copy the objects."""
    await run.pages(lambda keys: _copyAll(run, keys, isMove=False))


async def _movePrefix(run: _Run) -> None:
    """
    Copy the objects, and delete each that was copied and has not been written since.

    The same bytes, written again, are another write: a job in the other direction may have made
    them from the copy.
    """
    await run.pages(lambda keys: _copyAll(run, keys, isMove=True))


async def _copyAll(run: _Run, keys: Sequence[str], isMove: bool) -> None:
    job = run.job
    target = job.toBucket or job.bucket
    for key in keys:
        try:
            source = await _copy(run, key, target)
            if isMove:
                caller = run.caller("DeleteObject", "write", job.bucket, source.key)
                await removeSource(run.services.objects, caller, source)
        except (DomainError, ServiceError, StoreError) as error:
            run.failed(key, error)
        job.done += 1
        await run.turn(isBatchOver=False)


async def _copy(run: _Run, key: str, target: str) -> ObjectRecord:
    """Copy an object; return the source."""
    job, objects = run.job, run.services.objects
    source = key.encode()
    name = job.toPrefix + key[len(job.prefix) :]
    if target == job.bucket and name.startswith(job.prefix):
        # It may replace an object that the job has not reached yet.
        raise codedError("INVALID_ARGUMENT", f"{_INSIDE}: {name}")
    copied = readKey(name)

    async def copy() -> ObjectRecord:
        reader = run.caller("GetObject", "read", job.bucket, source)
        writer = copierOf(run.caller("PutObject", "write", target, copied), job.bucket, source)
        _, record = await objects.object(reader, job.bucket, source)
        encryption = await keptEncryption(objects, writer, target, record)
        condition = WriteCondition(absent=not job.replaces)
        wanted = CopyObject(target, copied, record, condition=condition, encryption=encryption)
        await objects.perform(writer, wanted)
        return record

    with namingTaken(name):
        return await retryCopy(copy)


async def _tagObjects(run: _Run, keys: Sequence[str], prefixes: Sequence[str]) -> None:
    """Add the tags of the job to the named objects, or to all below the prefix of the job."""
    for at in range(0, len(keys), _BATCH):
        await _tagAll(run, keys[at : at + _BATCH])
        await run.turn()
    for prefix in prefixes or ([] if keys else [run.job.prefix]):
        await run.pages(lambda found: _tagAll(run, found), prefix)


async def _tagAll(run: _Run, keys: Sequence[str]) -> None:
    for key in keys:
        try:
            await retryCopy(partial(_tag, run, key.encode()))
        except (DomainError, ServiceError, StoreError) as error:
            run.failed(key, error)
        run.job.done += 1
        await run.turn(isBatchOver=False)


async def _tag(run: _Run, key: bytes) -> None:
    """
    Add the tags of the job to those of an object.

    @raise ConcurrentChange: The object or its tags have just changed.
    """
    job, objects = run.job, run.services.objects
    reader = run.caller("GetObjectTagging", "read", job.bucket, key)
    _, record = await objects.object(reader, job.bucket, key)
    before = decodeTags(record.attributes.tags)
    tags = checkedTags({**before, **job.tags}.items(), OBJECT_TAGS)
    if tags == before:
        return
    writer = run.caller("PutObjectTagging", "write", job.bucket, key)
    writer.tags = tags
    await objects.perform(writer, PutObjectTagging(job.bucket, key, None, tags, record))


async def _abortUploads(run: _Run) -> None:
    """Abort the uploads in progress."""
    job, objects = run.job, run.services.objects
    page = UploadRange(job.bucket, job.prefix.encode(), b"", b"", _BATCH)
    while True:
        caller = run.caller("ListMultipartUploads", "list", job.bucket, prefix=job.prefix)
        found = await objects.perform(caller, ListMultipartUploads(page))
        for each in found.uploads:
            try:
                caller = run.caller("AbortMultipartUpload", "write", job.bucket, each.key)
                wanted = AbortMultipartUpload(job.bucket, each.key, each.uploadId)
                await objects.perform(caller, wanted)
            except NoSuchUpload:
                pass
            except (DomainError, StoreError) as error:
                run.failed(each.key.decode(), error)
            job.done += 1
            await run.turn(isBatchOver=False)
        if found.last is None:
            return
        key, uploadId = found.last
        page = replace(page, after=key.encode(), idAfter=uploadId)
        await run.turn()


_ACCESS = {
    "deletePrefix": ("ListObjectsV2", "list"),
    "copyPrefix": ("ListObjectsV2", "list"),
    "movePrefix": ("ListObjectsV2", "list"),
    "abortUploads": ("ListMultipartUploads", "list"),
    "tagObjects": ("ListObjectsV2", "list"),
    "emptyBucket": ("ListObjectVersions", "list"),
}

_WORK = {
    "deletePrefix": _deletePrefix,
    "copyPrefix": _copyPrefix,
    "movePrefix": _movePrefix,
    "abortUploads": _abortUploads,
    "emptyBucket": _emptyBucket,
}
