"""Writers that record acknowledged writes, through balancers whose machines may die."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from threading import Event, Lock
from time import monotonic
from typing import Any

from attrs import define, field
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.clients import Account, botoClient

BUCKET = "written"

_KEYS = 40
"""Keys of each writer, which are overwritten repeatedly."""

_PAUSE_SECONDS = 0.02

SLOW_SECONDS = 6.0
"""A node answers within five seconds in any case."""

_names = count()


@define
class _Key:
    """
    The possible values of one key.

    @ivar acknowledged: The number of the last acknowledged write.
    @ivar unknown: The numbers of later writes, which may have been stored.
    """

    acknowledged: int = 0
    unknown: list[int] = field(factory=list)


class Writers:
    """
    Threads that write to their own keys, and switch to the next balancer when one fails.

    @ivar acknowledged: The number of acknowledged writes.
    @ivar failed: The number of failed writes by the text of the error.
    @ivar gap: The longest time without any acknowledgement, in seconds.
    @ivar slow: The answers that took longer than L{SLOW_SECONDS}.
    @ivar slowest: The longest time of an answer of any kind, in seconds.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        account: Account,
        writers: int = 3,
        isPatient: bool = False,
    ) -> None:
        """
        @param endpoints: The URLs of the balancers.
        @param writers: The number of writers.
        @param isPatient: Whether to retry failed writes, as boto3 does by default.
        """
        self.acknowledged = 0
        self.failed: dict[str, int] = {}
        self.slow: list[str] = []
        self.gap = self.slowest = 0.0
        self._last = monotonic()
        self._clients = [botoClient(each, account, patient=isPatient) for each in endpoints]
        self._keys: dict[str, _Key] = {}
        self._lock = Lock()
        self._stopping = Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(writers)]
        # Each instance uses different keys.
        self._name = next(_names)
        with suppress(self._clients[0].exceptions.BucketAlreadyOwnedByYou):
            self._clients[0].create_bucket(Bucket=BUCKET)

    def __enter__(self) -> "Writers":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start to write."""
        self._last = monotonic()
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Stop all writers after their last answers."""
        self._stopping.set()
        for each in self._threads:
            each.join()

    def waitFor(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many further writes are acknowledged."""
        wanted, end = self.acknowledged + count, monotonic() + seconds
        while self.acknowledged < wanted:
            assert monotonic() < end, f"{self.acknowledged} of {wanted} writes: {self.failed}"
            Event().wait(0.05)

    def wrong(self) -> list[str]:
        """
        Read every key, after L{stop}; return lost or wrong ones.

        @return: A line for each key that contains neither its last acknowledged write nor a later
            one.
        """
        found = []
        client = self._clients[0]
        for name, key in self._keys.items():
            try:
                body = client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
            except client.exceptions.NoSuchKey:
                held, text = 0, ""
            except ClientError as error:
                held, text = 0, str(error)
            else:
                number, _, rest = body.partition(b" ")
                held, text = int(number), "" if rest == _tail(int(number)) else "not whole"
            if text or held not in (key.acknowledged, *key.unknown):
                found.append(f"{name}: {held} {text}, {key.acknowledged} was acknowledged")
        return found

    def _write(self, writer: int) -> None:
        number, client = 0, writer % len(self._clients)
        while not self._stopping.wait(_PAUSE_SECONDS):
            number += 1
            name = f"{self._name}/{writer}/{number % _KEYS}"
            key = self._keys.setdefault(name, _Key())
            begin = monotonic()
            try:
                body = b"%d %s" % (number, _tail(number))
                self._clients[client].put_object(Bucket=BUCKET, Key=name, Body=body)
            except (BotoCoreError, ClientError) as error:
                key.unknown.append(number)
                self._note(begin, f"{type(error).__name__}: {error}"[:160])
                client = (client + 1) % len(self._clients)
            else:
                key.acknowledged, key.unknown = number, []
                self._note(begin)

    def _note(self, begin: float, failure: str = "") -> None:
        now = monotonic()
        with self._lock:
            self.slowest = max(self.slowest, now - begin)
            if now - begin > SLOW_SECONDS:
                self.slow.append(f"{failure or 'acknowledged'} after {now - begin:.1f} s")
            if failure:
                self.failed[failure] = self.failed.get(failure, 0) + 1
                return
            self.acknowledged += 1
            self.gap = max(self.gap, now - self._last)
            self._last = now


def _tail(number: int) -> bytes:
    # Two of three bodies become blobs, the others rows.
    return b"%d" % number * (7000 if number % 3 else 200)


def describe(writers: Any) -> str:
    """Return the figures in one line."""
    return (
        f"{writers.acknowledged} acknowledged, {sum(writers.failed.values())} not,"
        f" {writers.gap:.1f} s without, slowest answer {writers.slowest:.1f} s"
    )
