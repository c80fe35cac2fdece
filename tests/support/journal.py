"""
A client's record of a server that may crash: the acknowledged writes and the possible ones.

Each key has one writer, so its history is linear: the known versions, followed by the versions of
unanswered writes. After a restart of the server exactly these states are correct. In a bucket
without versioning a key has at most one version.
"""

import hashlib
import json
import os
from pathlib import Path
from threading import Lock
from typing import Any

from attrs import astuple, evolve, frozen


@frozen
class Written:
    """
    One complete content of a key.

    @ivar etag: The expected ETag, with quotes.
    @ivar sha256: The SHA-256 of the content, in hex.
    @ivar lock: The lock that prevents its removal: C{ON} for a legal hold, or the mode of a
        retention that does not end; empty without a lock.
    """

    etag: str
    size: int
    sha256: str
    lock: str = ""


def whole(body: bytes) -> Written:
    """Describe a body that is stored by one request."""
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return Written(f'"{digest}"', len(body), hashlib.sha256(body).hexdigest())


def inParts(parts: list[bytes]) -> Written:
    """
    Describe a body that is stored in parts: its ETag is computed from the digests of the parts.
    """
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    digest = hashlib.md5(digests, usedforsecurity=False).hexdigest()
    content = hashlib.sha256(b"".join(parts)).hexdigest()
    return Written(f'"{digest}-{len(parts)}"', sum(map(len, parts)), content)


State = Written | None
"""The content of a version; C{None} for a delete marker or nothing."""

NULL = "null"
"""The version id of writes while versioning is not enabled."""


@frozen
class Version:
    """
    One version of a key.

    @ivar id: The id from the server; empty until it is known.
    """

    id: str
    content: State


Stack = tuple[Version, ...]
"""All versions of a key, the newest first."""


def afterWrite(stack: Stack, status: str, content: State) -> Stack:
    """
    Return the versions of a key after a write.

    @param status: The versioning status of the bucket; empty if never enabled.
    @param content: The content; C{None} for a deletion without a version.
    """
    if status != "Enabled":
        stack = without(stack, NULL)
    if content is None and not status:
        return stack
    return (Version("" if status == "Enabled" else NULL, content), *stack)


def without(stack: Stack, versionId: str) -> Stack:
    """Return the versions of a key after one of them was deleted."""
    return tuple(each for each in stack if each.id != versionId)


def relocked(stack: Stack, versionId: str, lock: str) -> Stack:
    """Return the versions of a key after the lock of one, which is not a marker, has changed."""
    return tuple(
        evolve(each, content=evolve(each.content, lock=lock))
        if each.id == versionId and each.content is not None
        else each
        for each in stack
    )


def fits(found: Stack, allowed: Stack) -> bool:
    """Return whether the found versions match the allowed ones, with their ids."""
    return len(found) == len(allowed) and all(
        one.content == other.content and other.id in ("", one.id)
        for one, other in zip(found, allowed, strict=True)
    )


def _plain(stack: Stack) -> list[Any]:
    return [[each.id, each.content and astuple(each.content)] for each in stack]


def _stack(plain: list[Any]) -> Stack:
    return tuple(Version(id, Written(*content) if content else None) for id, content in plain)


class Journal:
    """
    The acknowledged and the possible versions of every key. Methods may be called in any thread.

    @ivar acknowledged: The number of acknowledged writes.
    """

    def __init__(self, path: Path | None = None) -> None:
        """@param path: A file that contains each entry before its call returns, for L{read}."""
        self._file = -1
        if path is not None:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = Lock()
        self._known: dict[str, Stack] = {}
        self._open: dict[str, list[Stack]] = {}
        self.acknowledged = 0
        self._hears = True

    @classmethod
    def read(cls, path: Path) -> "Journal":
        """Read the file of another process, which may have been killed at any point."""
        journal = cls()
        *lines, _unfinished = path.read_bytes().split(b"\n")
        for line in lines:
            note, key, plain = json.loads(line)
            if note == "acknowledge":
                journal.acknowledge(key, plain)
            elif note == "refuse":
                journal.refuse(key)
            else:
                getattr(journal, note)(key, _stack(plain))
        return journal

    def _note(self, note: str, key: str, plain: Any = None) -> None:
        if self._file >= 0:
            os.write(self._file, json.dumps([note, key, plain]).encode() + b"\n")

    def newest(self, key: str) -> Stack:
        """Return the versions of a key if all its writes succeed."""
        return self.allowed(key)[-1]

    def attempt(self, key: str, stack: Stack) -> None:
        """Record that a write is about to be sent after which a key has these versions."""
        with self._lock:
            self._open.setdefault(key, []).append(stack)
            self._note("attempt", key, _plain(stack))

    def refuse(self, key: str) -> None:
        """Record that the newest attempt has definitely failed."""
        with self._lock:
            self._open[key].pop()
            if not self._open[key]:
                del self._open[key]
            self._note("refuse", key)

    def acknowledge(self, key: str, versionId: str = "") -> None:
        """
        Record that the newest attempt has succeeded: older states are no longer possible.

        @param versionId: The id of the new version.
        """
        with self._lock:
            stack = self._open[key][-1]
            if stack and not stack[0].id:
                stack = self._open[key][-1] = (evolve(stack[0], id=versionId), *stack[1:])
            if self._hears:
                del self._open[key]
                self._known[key] = stack
                self.acknowledged += 1
                self._note("acknowledge", key, versionId)

    def freeze(self) -> None:
        """
        Ignore acknowledgements from now on.

        Must be called before a simulated power cut. In a real one no answer leaves the machine;
        here a sync in progress may still return as if it had succeeded.
        """
        with self._lock:
            self._hears = False

    def thaw(self) -> None:
        """Accept acknowledgements again."""
        with self._lock:
            self._hears = True

    def allowed(self, key: str) -> list[Stack]:
        """List the states that a reader may find."""
        with self._lock:
            return [self._known.get(key, ()), *self._open.get(key, [])]

    def written(self) -> list[str]:
        """List all keys that were ever written."""
        with self._lock:
            return sorted({*self._known, *self._open})

    def settle(self, key: str, stack: Stack) -> None:
        """Take the state after a restart as known: it must not change again on its own."""
        with self._lock:
            self._known[key] = stack
            self._open.pop(key, None)
            self._note("settle", key, _plain(stack))
