"""The provider C{file}: master keys in a file of the store."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from storagegate.core.files import fileStamp
from storagegate.core.hmacs import prepareKey
from storagegate.objects.encryption.interfaces import IMasterKeys, MasterKey
from storagegate.objects.encryption.masterkeys.keyfile import (
    DEFAULT_KEY,
    KEY_NAME,
    KeyFile,
    KeyFileError,
    KeyVersion,
    StoredKey,
    addKey,
    createKeyFile,
    disableKey,
    readKeyFile,
    rotateKey,
)
from storagegate.objects.errors import (
    InvalidArgument,
    MasterKeyDisabled,
    MasterKeyNotFound,
    MasterKeysUnavailable,
    WrongMasterKey,
)

_PREFIX = "file"

CHECK_SECONDS = 10.0
"""The interval at which L{FileMasterKeys.check} repeats itself, for C{/readyz}."""

WATCH_SECONDS = 1.0
"""The interval at which the file is checked for changes while bucket keys are open."""

MISSING = "the file of the master keys is missing: restore it from a copy"

FOREIGN = (
    "the file of the master keys opens no key of this store: it belongs to another store, or is an"
    " old copy; restore the right file"
)

_SAMPLES = (20, 1000)
"""
Buckets whose wrapped keys tell whether a file is of this store: more if it opens none of the first,
whose keys may have been given up.
"""

_ABSENT = "there are no master keys yet: run storagegate masterkeys create"


@define(eq=False)
class _FileReading:
    """
    A reading of the file.

    @ivar stamp: See L{fileStamp}.
    @ivar file: Its content; L{None} if it does not exist or cannot be used.
    @ivar problem: Why it cannot be used.
    """

    stamp: tuple[int, ...] = ()
    file: KeyFile | None = field(default=None, repr=False)
    problem: str | None = None


def _read(path: str, last: _FileReading) -> _FileReading:
    """Read the file if it has changed. Runs in a pool thread."""
    stamp = fileStamp(path)
    if last.file is not None and stamp == last.stamp:
        return last
    try:
        return _FileReading(stamp, readKeyFile(path))
    except KeyFileError as error:
        return _FileReading(stamp, None, str(error))


@implementer(IMasterKeys)
class FileMasterKeys:
    """
    Master keys in a file. See L{IMasterKeys}.

    Each call checks whether the file has changed, in a pool thread. While bucket keys may be open
    in memory, a timer does so too, and L{onChange} closes them.

    @ivar path: The file.
    """

    _log = Logger()

    def __init__(
        self,
        path: str,
        clock: IReactorTime,
        run: Callable[..., Awaitable[Any]],
        wrapped: Callable[[int], Awaitable[Sequence[str]]],
        mayCreate: bool,
        openSeconds: float,
    ) -> None:
        """
        @param path: The file, which may not exist yet.
        @param clock: Times the checks of the file.
        @param run: Runs a blocking function in a pool thread.
        @param wrapped: Returns the wrapped keys of the store, of at most so many buckets; if there
            are any, a missing file is lost, and no other takes its place.
        @param mayCreate: Whether L{wrap} creates a missing file. Nodes of a cluster must not: each
            would have keys of its own.
        @param openSeconds: How long bucket keys stay open in memory after a call.
        """
        self.path = path
        self.problem: str | None = None
        self.defaultKey = DEFAULT_KEY
        self.onChange: Callable[[], object] | None = None
        self._clock = clock
        self._run = run
        self._wrapped = wrapped
        self._mayCreate = mayCreate
        self._openSeconds = openSeconds
        self._last = _FileReading()
        # The readings that were found to be of this store, and of another one until a time.
        self._own: _FileReading | None = None
        self._foreign: _FileReading | None = None
        self._foreignUntil = 0.0
        self._watchedUntil = 0.0
        self._timers: dict[str, IDelayedCall] = {}
        self._isClosed = False

    async def wrap(self, name: str, plain: bytes, binding: bytes) -> str:
        """Wrap a key. The first call creates the file."""
        from storagegate.objects.encryption.sealing import wrapKey

        key = _enabled(await self._current(self._mayCreate), name)
        await self._refuseForeign()
        last = key.versions[-1]
        sealed = wrapKey(prepareKey(last.key), plain, _bindingOf(last, binding))
        return f"{_PREFIX}:v{len(key.versions)}:{last.id}:{sealed}"

    async def unwrap(self, name: str, wrapped: str, binding: bytes) -> bytes:
        """Unwrap a key with the version that its text names."""
        from storagegate.objects.encryption.sealing import Unopened, unwrapKey

        key = _enabled(await self._current(), name)
        id, sealed = _split(wrapped)
        for version in key.versions:
            if version.id == id:
                try:
                    return unwrapKey(version.key, sealed, _bindingOf(version, binding))
                except Unopened as error:
                    raise WrongMasterKey() from error
        await self._refuseForeign()
        raise MasterKeyNotFound("The master key does not have the version that wrapped the key.")

    def isCurrent(self, name: str, wrapped: str) -> bool:
        """Return whether the last known version of a key wrapped a text."""
        file = self._last.file
        if file is None or not wrapped.startswith(f"{_PREFIX}:"):
            return False
        id, _ = _split(wrapped)
        return any(key.name == name and key.versions[-1].id == id for key in file.keys)

    async def newKey(self, name: str) -> None:
        """Create a key; the first one creates the file, with the default key."""
        if not KEY_NAME.fullmatch(name):
            raise InvalidArgument("The name of a master key has 1 to 128 letters, digits, _ . -")
        await self._refuseLost()
        await self._change(addKey, name)

    async def rotate(self, name: str) -> None:
        """Add a version to a key."""
        await self._requireFile()
        await self._change(rotateKey, name)

    async def disable(self, name: str, disabled: bool) -> None:
        """Disable a key, or enable it again."""
        await self._requireFile()
        await self._change(disableKey, name, disabled)

    async def keys(self) -> Sequence[MasterKey]:
        """List the keys; none if the file does not exist yet."""
        last = await self._reload()
        if last.file is None:
            await self._refuseLost()
            return []
        found = [
            MasterKey(
                key.name, len(key.versions), key.createdMs, key.disabled, key.name == DEFAULT_KEY
            )
            for key in last.file.keys
        ]
        return sorted(found, key=lambda key: key.name)

    async def check(self) -> None:
        """Find out whether the keys can be used, and check again periodically."""
        try:
            if (await self._reload()).file is None:
                await self._refuseLost()
                self._setProblem(None if self._mayCreate else _ABSENT)
            else:
                await self._refuseForeign()
        except MasterKeysUnavailable:
            pass
        finally:
            self._schedule("check", CHECK_SECONDS, self.check)

    async def close(self) -> None:
        """Stop the checks of the file, and forget the keys."""
        self._isClosed = True
        self._last = _FileReading()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _current(self, mayCreate: bool = False) -> KeyFile:
        """
        Return the content of the file.

        @param mayCreate: Whether to create a file that does not exist.
        @raise MasterKeysUnavailable: It does not exist, or cannot be used.
        """
        if self._isClosed:
            raise MasterKeysUnavailable()
        self._watch()
        last = await self._reload()
        if last.file is None and mayCreate:
            await self._refuseLost()
            try:
                await self._run(createKeyFile, self.path)
            except KeyFileError as error:
                raise self._unavailable(str(error)) from error
            self._log.info("created the master keys path={path}", path=self.path)
            last = await self._reload()
        if last.file is None:
            await self._refuseLost()
            raise self._unavailable(_ABSENT)
        return last.file

    async def _refuseLost(self) -> None:
        """
        @raise MasterKeysUnavailable: The file cannot be used, or is lost.
        """
        last = await self._reload()
        if last.file is None:
            if last.problem is not None:
                raise self._unavailable(last.problem)
            if await self._wrapped(1):
                raise self._unavailable(MISSING)

    async def _refuseForeign(self) -> None:
        """
        Check that the file has wrapped keys of this store. If a wrong file sealed objects, the
        right one could not open them later.

        @raise MasterKeysUnavailable: The file has wrapped none of the keys of the store.
        """
        last = self._last
        if last.file is None or last is self._own:
            return
        now = self._clock.seconds()
        if last is not self._foreign or now >= self._foreignUntil:
            ids = {version.id for key in last.file.keys for version in key.versions}
            for most in _SAMPLES:
                wrapped = await self._wrapped(most)
                if not ids.isdisjoint(map(_versionOf, wrapped)):
                    self._own = last
                    break
            if last is self._own or not wrapped:
                if self._foreign is not None:
                    # The buckets with keys of another file are gone.
                    self._foreign = None
                    self._setProblem(None)
                return
            self._foreign, self._foreignUntil = last, now + CHECK_SECONDS
        raise self._unavailable(FOREIGN)

    async def _requireFile(self) -> None:
        """
        @raise MasterKeysUnavailable: The file cannot be used, or is lost.
        @raise MasterKeyNotFound: There are no keys yet.
        """
        await self._refuseLost()
        if self._last.file is None:
            raise MasterKeyNotFound()

    async def _change(self, change: Callable[..., None], *arguments: Any) -> None:
        """Change the file."""
        try:
            await self._run(change, self.path, *arguments)
        except KeyFileError as error:
            raise self._unavailable(str(error)) from error
        await self._reload()

    async def _reload(self) -> _FileReading:
        """Read the file if it has changed."""
        before = self._last
        found: _FileReading = await self._run(_read, self.path, before)
        # A slower reading must not undo the result of a later one.
        if self._last is before and not self._isClosed:
            self._last = found
            if found.problem is not None or found.file is not None:
                self._setProblem(FOREIGN if found is self._foreign else found.problem)
            if found is not before and before.stamp and self.onChange is not None:
                self.onChange()
        return found

    def _watch(self) -> None:
        """Check the file once a second as long as bucket keys may be open."""
        self._watchedUntil = self._clock.seconds() + self._openSeconds
        if "watch" not in self._timers:
            self._schedule("watch", WATCH_SECONDS, self._watchAgain)

    async def _watchAgain(self) -> None:
        if self._clock.seconds() < self._watchedUntil:
            try:
                await self._reload()
            finally:
                self._schedule("watch", WATCH_SECONDS, self._watchAgain)

    def _schedule(
        self, name: str, seconds: float, act: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Run a coroutine function later, unless the provider is closed."""
        if self._isClosed:
            return
        former = self._timers.pop(name, None)
        if former is not None:
            former.cancel()

        def begin() -> None:
            del self._timers[name]
            Deferred.fromCoroutine(act()).addErrback(
                lambda failure: self._log.failure("checking the master keys failed", failure)
            )

        self._timers[name] = self._clock.callLater(seconds, begin)

    def _unavailable(self, problem: str) -> MasterKeysUnavailable:
        self._setProblem(problem)
        return MasterKeysUnavailable()

    def _setProblem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem is not None:
                self._log.warn("the master keys cannot be used: {problem}", problem=problem)


def _enabled(file: KeyFile, name: str) -> StoredKey:
    """
    Return a key for use.

    @raise MasterKeyNotFound: There is no such key.
    @raise MasterKeyDisabled: It is disabled.
    """
    key = file.find(name)
    if key.disabled:
        raise MasterKeyDisabled()
    return key


def _bindingOf(version: KeyVersion, binding: bytes) -> bytes:
    return f"{_PREFIX}:{version.id}\0".encode() + binding


def _versionOf(wrapped: str) -> str:
    """Return the id of the version of a wrapped text; empty if it has another form."""
    try:
        return _split(wrapped)[0]
    except WrongMasterKey:
        return ""


def _split(wrapped: str) -> tuple[str, str]:
    """
    Return the id of the version and the sealed key of a wrapped text.

    @raise WrongMasterKey: The text has another form, such as that of another provider.
    """
    words = wrapped.split(":")
    if len(words) != 4 or words[0] != _PREFIX:
        raise WrongMasterKey()
    return words[2], words[3]
