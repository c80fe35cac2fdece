"""
The commands C{storagegate masterkeys}.

On this machine they change the file of the master keys or the transit engine themselves; a running
daemon notices it. With C{--url} they use the API of a daemon. A rewrap goes through the daemon if
one runs, because it keeps the settings of buckets in memory.
"""

import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, closing
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.threads import blockingCallFromThread

from storagegate.cli.administration import catalogPath, refuseCluster
from storagegate.cli.client import ConsoleClient, escapeSegment
from storagegate.cli.daemonclient import apiOf, runningDaemon
from storagegate.cli.invocation import FAILED, INTERRUPTED, MISUSED, CommandError, Invocation
from storagegate.cli.output import Cell, formatTime
from storagegate.objects.encryption.masterkeys.keyfile import (
    DEFAULT_KEY,
    KeyFileError,
    readKeyFile,
)
from storagegate.objects.errors import DomainError, MasterKeysUnavailable
from storagegate.storage.files import createFile
from storagegate.storage.layout import MASTER_KEYS
from storagegate.storage.records import KEYED

if TYPE_CHECKING:
    from storagegate.objects.encryption.interfaces import IMasterKeys
    from storagegate.objects.encryption.rewrapping import RewrapResult
    from storagegate.storage.mutations import PutSettings

T = TypeVar("T")

_PATH = "masterkeys"

_HEADINGS = ("NAME", "VERSIONS", "CREATED", "DEFAULT", "STATE")


def create(invocation: Invocation) -> int:
    """Create a master key."""
    name = _name(invocation)
    if invocation.isRemote:
        apiOf(invocation).request("POST", _PATH, {"name": name})
    else:
        _provided(invocation, lambda keys: keys.newKey(name))
    invocation.output.result({"name": name})
    return 0


def listMasterKeys(invocation: Invocation) -> int:
    """List the master keys."""
    if invocation.isRemote:
        found = apiOf(invocation).get(_PATH)["items"]
    else:

        async def read(keys: "IMasterKeys") -> list[Any]:
            return [msgspec.to_builtins(key) for key in await keys.keys()]

        found = _provided(invocation, read)
    output = invocation.output
    rows = [
        (
            each["name"],
            str(each["versions"]),
            formatTime(each["createdMs"]),
            "yes" if each["isDefault"] else "-",
            Cell("disabled", "yellow") if each["disabled"] else Cell("enabled", "green"),
        )
        for each in found
    ]
    output.result({"masterKeys": found}, output.table(_HEADINGS, rows))
    return 0


def rotate(invocation: Invocation) -> int:
    """Add a version to a master key."""
    name = _name(invocation)
    if invocation.isRemote:
        apiOf(invocation).request("POST", f"{_PATH}/{escapeSegment(name)}/rotate", {})
    else:
        _provided(invocation, lambda keys: keys.rotate(name))
    invocation.output.result({"name": name})
    return 0


def disable(invocation: Invocation) -> int:
    """Disable a master key."""
    return _disable(invocation, True)


def enable(invocation: Invocation) -> int:
    """Enable a master key."""
    return _disable(invocation, False)


def _disable(invocation: Invocation, disabled: bool) -> int:
    name = _name(invocation)
    if invocation.isRemote:
        path = f"{_PATH}/{escapeSegment(name)}"
        apiOf(invocation).request("PATCH", path, {"disabled": disabled})
    else:
        _provided(invocation, lambda keys: keys.disable(name, disabled))
    invocation.output.result({"name": name, "disabled": disabled})
    return 0


def _name(invocation: Invocation) -> str:
    """Return the key that a command names, or the default key."""
    name: str | None = invocation.options.name
    if name is not None:
        return name
    if invocation.isRemote:
        found = [
            each["name"] for each in apiOf(invocation).get(_PATH)["items"] if each["isDefault"]
        ]
        return found[0] if found else DEFAULT_KEY
    vault = invocation.configuration.store.vault
    return DEFAULT_KEY if vault is None else str(vault.defaultKey)


def rewrap(invocation: Invocation) -> int:
    """Rewrap the keys of all buckets; exit code 1 if some could not be rewrapped."""
    if invocation.isRemote or runningDaemon(invocation.configuration) is not None:
        found = _rewrapRemotely(apiOf(invocation))
    else:
        refuseCluster(invocation, "use --url with the admin listener of a node")
        found = _rewrapLocally(invocation)
    rewrapped, current = found["rewrapped"], found["current"]
    lines = [f"rewrapped keys of buckets: {rewrapped}, already current: {current}"]
    lines += [f"failed: {each}" for each in found["failed"]]
    invocation.output.result(found, lines)
    return FAILED if found["failed"] else 0


def _rewrapRemotely(api: ConsoleClient) -> dict[str, Any]:
    """Rewrap page by page, so that each request is short; a repetition goes on after a stop."""
    total: dict[str, Any] = {"rewrapped": 0, "current": 0, "failed": []}
    after: str | None = ""
    while after is not None:
        page = api.request("POST", "bucketkeys/rewrap", {"after": after})
        for name in total:
            total[name] += page[name]
        after = page["next"]
    return total


def _rewrapLocally(invocation: Invocation) -> dict[str, Any]:
    from storagegate.objects.encryption.rewrapping import RewrapResult, rewrapBucket
    from storagegate.storage.embedded.keyadmin import openForTools
    from storagegate.storage.files import DirectoryLock

    with ExitStack() as stack:
        path = catalogPath(invocation)
        # A daemon that starts now would not notice the changes.
        stack.callback(DirectoryLock.take(os.path.dirname(path)).release)
        catalog = stack.enter_context(closing(openForTools(path)))

        async def put(change: "PutSettings") -> None:
            catalog.putSettings(change)

        async def act(keys: "IMasterKeys") -> "RewrapResult":
            await keys.keys()
            total = RewrapResult()
            for bucket, documents in catalog.settings():
                if KEYED in documents:
                    total = total.plus(await rewrapBucket(bucket.name, documents, keys, put))
            return total

        found = _provided(invocation, act)
    return {
        "rewrapped": found.rewrapped,
        "current": found.current,
        "failed": list(found.failed),
    }


def masterKeyFile(invocation: Invocation) -> str | None:
    """Return the path of the file of the master keys; L{None} if they are in Vault."""
    store = invocation.configuration.store
    if store.vault is not None:
        return None
    return os.path.abspath(store.masterKeys or os.path.join(invocation.data, MASTER_KEYS))


def _keyedSettings(invocation: Invocation) -> Generator[dict[str, bytes], None, None]:
    """Yield the settings of the buckets that have wrapped keys."""
    cluster = invocation.configuration.cluster
    admin: Any
    if cluster is not None:
        from storagegate.storage.cluster.admin import openForTools as openCluster

        admin = openCluster(cluster.catalog)
    else:
        from storagegate.storage.embedded.keyadmin import openForTools

        admin = openForTools(catalogPath(invocation))
    with closing(admin):
        for _, documents in admin.settings():
            if KEYED in documents:
                yield documents


def keyedBuckets(invocation: Invocation) -> int:
    """Return the number of buckets that have encrypted objects, and so need master keys."""
    return sum(1 for _ in _keyedSettings(invocation))


def backUpKeys(invocation: Invocation, to: str) -> None:
    """
    Copy the file of the master keys into a backup with C{--with-keys}; otherwise say that the
    backup does not have it, if buckets need it. The backup is complete, so the file has all keys
    that it needs.

    @param to: The backup.
    @raise CommandError: The file cannot be copied.
    """
    path, output = masterKeyFile(invocation), invocation.output
    count = keyedBuckets(invocation)
    buckets = "1 bucket needs them" if count == 1 else f"{count} buckets need them"
    if path is None:
        if count:
            output.line(f"the master keys are in Vault, not in the backup; {buckets}")
    elif not invocation.options.withKeys:
        if count:
            output.line(
                f"the backup has no master keys, and {buckets}: keep a copy of {path} elsewhere,"
                " or use --with-keys"
            )
    else:
        try:
            found = readKeyFile(path)
            if found is None and count:
                raise CommandError(f"{path}: the master keys are missing, and {buckets}")
            if found is not None:
                with open(path, "rb") as file:
                    createFile(os.path.join(os.path.abspath(to), MASTER_KEYS), file.read())
                output.line("the backup has the master keys: keep it as secret as they are")
        except KeyFileError as error:
            raise CommandError(str(error)) from error


def refuseVaultKeys(invocation: Invocation) -> None:
    """
    Refuse C{--with-keys} before a backup begins, if there is no file of master keys.

    @raise CommandError: The master keys are in Vault.
    """
    if invocation.options.withKeys and masterKeyFile(invocation) is None:
        raise CommandError("--with-keys: the master keys are in Vault, not in a file", MISUSED)


def restoreKeys(invocation: Invocation, source: str) -> None:
    """
    Put the master keys of a backup of a cluster into their file on this node, unless it exists.

    @param source: The backup.
    """
    kept, path = os.path.join(source, MASTER_KEYS), masterKeyFile(invocation)
    if not os.path.exists(kept) or path is None:
        return
    with open(kept, "rb") as file:
        content = file.read()
    try:
        createFile(path, content)
        invocation.output.line(f"restored the master keys to {path}: copy it to all nodes")
    except FileExistsError:
        invocation.output.line(f"{path} exists, so the master keys of the backup were not restored")


def _provided(invocation: Invocation, act: "Callable[[IMasterKeys], Awaitable[T]]") -> T:
    """
    Run a coroutine function with the provider of the configuration, and return its result.

    @raise CommandError: The provider refuses, or is unavailable.
    """
    vault = invocation.configuration.store.vault
    path = masterKeyFile(invocation)
    outcome: list[T] = []
    problem: list[str | None] = []

    async def wrapped(most: int) -> list[str]:
        from storagegate.objects.encryption.bucketkeys import keysIn

        with closing(_keyedSettings(invocation)) as settings:
            some = list(islice(settings, most))
        return [key.wrapped for documents in some for key in keysIn(documents).values()]

    async def run(keys: "IMasterKeys") -> None:
        try:
            outcome.append(await act(keys))
        finally:
            problem.append(keys.problem)
            await keys.close()

    def runFile() -> None:
        from twisted.internet.task import Clock

        from storagegate.objects.encryption.masterkeys.file import FileMasterKeys

        if invocation.configuration.cluster is None:
            catalogPath(invocation)
        assert path is not None
        keys = FileMasterKeys(path, Clock(), maybeDeferred, wrapped, False, 0)
        failures: list[Any] = []
        # Each step blocks, so the result is there at once.
        Deferred.fromCoroutine(run(keys)).addErrback(failures.append)
        if failures:
            failures[0].raiseException()

    def runVault() -> None:
        from storagegate.migration.command import runInReactor
        from storagegate.objects.encryption.masterkeys.vault import VaultMasterKeys

        def inThread(reactor: Any) -> bool:
            def begin() -> Any:
                return Deferred.fromCoroutine(run(VaultMasterKeys(vault, reactor, maybeDeferred)))

            blockingCallFromThread(reactor, begin)
            return True

        if runInReactor(inThread) is None:
            raise CommandError("interrupted", INTERRUPTED)

    try:
        if path is None:
            runVault()
        else:
            runFile()
    except MasterKeysUnavailable as error:
        reason = problem[0] if problem and problem[0] else error.message
        raise CommandError(reason) from error
    except DomainError as error:
        raise CommandError(f"{error.message} ({error.code})", error=error.code) from error
    return outcome[0]
