"""
What a client remembers of a server that may die: which writes were acknowledged, which may be.

Each key has one writer, so its history is a line: the state that is known, and after it the writes
whose answer never came. After the server is back any of those states is right, and no other.
"""

import hashlib
from threading import Lock

from attrs import frozen


@frozen
class Written:
    """
    One whole content of a key.

    @ivar etag: As the server has to say it, with its quotes.
    @ivar sha256: Of the whole content, in hex.
    """

    etag: str
    size: int
    sha256: str


def whole(body: bytes) -> Written:
    """Describe a body that is put in one request."""
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return Written(f'"{digest}"', len(body), hashlib.sha256(body).hexdigest())


def inParts(parts: list[bytes]) -> Written:
    """Describe a body that is put in parts: its ETag is that of the parts' digests."""
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    digest = hashlib.md5(digests, usedforsecurity=False).hexdigest()
    content = hashlib.sha256(b"".join(parts)).hexdigest()
    return Written(f'"{digest}-{len(parts)}"', sum(map(len, parts)), content)


State = Written | None
"""What a key holds; L{None} is nothing."""


class Journal:
    """
    The acknowledged and the possible state of every key. Any thread may call any method.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, State] = {}
        self._open: dict[str, list[State]] = {}
        self.acknowledged = 0
        self._hears = True

    def attempt(self, key: str, state: State) -> None:
        """Note that a write of this state is about to be sent."""
        with self._lock:
            self._open.setdefault(key, []).append(state)

    def acknowledge(self, key: str) -> None:
        """Note that the newest attempt was answered with success: nothing older can be seen."""
        with self._lock:
            if self._hears:
                self._known[key] = self._open.pop(key)[-1]
                self.acknowledged += 1

    def freeze(self) -> None:
        """
        Take no answer for one from here on.

        To be called before a power cut is staged: with the power out no answer would leave the
        machine, while here a sync that was under way may still return, as if it had been done.
        """
        with self._lock:
            self._hears = False

    def thaw(self) -> None:
        """Take answers again."""
        with self._lock:
            self._hears = True

    def allowed(self, key: str) -> list[State]:
        """List the states that a reader may find."""
        with self._lock:
            return [self._known.get(key), *self._open.get(key, [])]

    def written(self) -> list[str]:
        """List all keys that were ever written."""
        with self._lock:
            return sorted({*self._known, *self._open})

    def settle(self, key: str, state: State) -> None:
        """Take what was found after a restart as known: it may not change again by itself."""
        with self._lock:
            self._known[key] = state
            self._open.pop(key, None)
