"""
A commit that is cut at each of its calls: writes, syncs and maps of the log, its index and the
database.

A soak cuts at each call, other runs at a few.
"""

import errno
from itertools import count, product

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.errors import StoreError
from tests.support.commits import CommitProcesses, ProcessDied
from tests.support.faultycalls import (
    ANY_CALL,
    FAIL,
    KILL_AFTER,
    KILL_BEFORE,
    LOG,
    MAP,
    SYNC,
    WRITE,
    CallFault,
)
from tests.support.selection import CHOICE, long

_WHOLE = CHOICE == "soak"

_FEW = (1, 8)
"""The calls that go wrong in a short run."""


@frozen
class Cut:
    """
    How a commit is cut.

    @ivar action: What becomes of the call.
    @ivar error: The error, if it fails.
    @ivar calls: Its kind.
    @ivar sticky: Whether the later ones fail, too.
    """

    action: int
    error: int = 0
    calls: int = ANY_CALL
    sticky: bool = False


# The last of each are those of a short run.
KILLS = (Cut(KILL_BEFORE), Cut(KILL_AFTER))
FAILURES = (Cut(FAIL, errno.ENOMEM, MAP), Cut(FAIL, errno.EIO, SYNC), Cut(FAIL, errno.EIO))
FULL = (Cut(FAIL, errno.ENOSPC, WRITE), Cut(FAIL, errno.ENOSPC, WRITE, True))


@long("cuts commits of processes")
class CommitModelTests(SynchronousTestCase):
    """
    What was acknowledged is whole, a cut write is there whole or not at all, and no blob is left.
    """

    timeout = 3600

    def setUp(self) -> None:
        """Start the program."""
        self.processes = CommitProcesses(self)
        self.do = self.processes.do
        self.allowed: dict[str, set[str | None]] = {}
        self.refused = self.died = 0

    def put(self, member: int, key: str, body: str) -> bool:
        """Store an object; return whether the process is alive."""
        allowed = self.allowed.setdefault(key, {None})
        try:
            self.do(member, "put", key, body)
        except StoreError:
            self.refused += 1
            allowed.add(body)
        except AssertionError as error:
            # An error of SQLite that is none of the store's.
            self.assertIn("Error: ", str(error))
            self.refused += 1
            allowed.add(body)
        except ProcessDied:
            self.died += 1
            allowed.add(body)
            return False
        else:
            allowed.clear()
            allowed.add(body)
        return True

    def assertRead(self, member: int, where: object) -> None:
        """Read all objects."""
        keys = list(self.allowed)
        for key, body in zip(keys, self.do(member, "getAll", keys), strict=True):
            self.assertIn(body, self.allowed[key], (key, where))

    def reopen(self, member: int, isGroup: bool) -> None:
        """Let another process take the place of one that died."""
        if isGroup:
            self.processes.join(member)
        else:
            self.processes.open(member)

    def cut(self, cut: Cut, at: int, isGroup: bool, isHarder: bool) -> bool:
        """
        Cut two commits at a call; return whether there were so many calls.

        @param isHarder: Whether a reader has the catalog open all the time, and the process is
            killed a second time after the sync of its next commit.
        """
        where = (cut, at, isGroup, isHarder)
        self.allowed.clear()
        if isGroup:
            self.processes.openGroup()
        else:
            self.processes.open(0)
        self.do(0, "createBucket")
        for key in ("k", "small"):
            self.assertTrue(self.put(0, key, f"{key} 1 " * (100 if key == "k" else 1)))
        if isHarder:
            self.processes.start(8)
            self.do(8, "look", self.processes.catalog)
        member = int(isGroup)
        # After each commit, so that calls on the database are among those that are cut.
        self.do(member, "checkpointAt", 1)
        fault = CallFault(at, cut.action, cut.error, cut.calls, sticky=cut.sticky)
        self.processes.arm(member, fault)
        isAlive = self.put(member, "k", "k 2 " * 100) and self.put(member, "small", "small 2 ")
        hits = self.processes.faults.disarm()
        if isHarder:
            if not isAlive:
                self.reopen(member, isGroup)
            self.processes.arm(member, CallFault(1, KILL_AFTER, calls=SYNC, files=LOG))
            self.put(member, "k", "k 3 " * 100)
            self.processes.faults.disarm()
        try:
            # It may have been killed in the checkpoint after the last commit.
            self.do(member, "idle")
        except (ProcessDied, AssertionError):
            self.processes.kill(member)
            self.reopen(member, isGroup)
        self.assertRead(member, where)
        if isGroup:
            self.assertRead(0, where)
        self.processes.killAll()
        self.processes.open(5)
        self.do(5, "idle")
        self.assertRead(5, where)
        self.assertEqual(self.do(5, "files")[1], 0, where)
        self.assertTrue(self.put(5, "after", "after " * 100))
        self.do(5, "close")
        self.processes.kill(5)
        self.processes.start(6)
        self.assertEqual(self.do(6, "check", self.processes.directory), [], where)
        self.processes.clear()
        return hits > 0

    def loop(self, cuts: tuple[Cut, ...], isGroup: bool) -> None:
        """Make all cuts, or a few of them."""
        done = 0
        # With a reader beside and a second kill, or with neither.
        flags = (False, True) if _WHOLE else (True,)
        for isHarder, cut in product(flags, cuts if _WHOLE else cuts[-1:]):
            for at in count(1) if _WHOLE else _FEW:
                if not self.cut(cut, at, isGroup, isHarder):
                    break
                done += 1
        print(f"{done} cuts, {self.died} processes died, {self.refused} writes refused")
        self.assertGreater(done, 30 if _WHOLE else 1)

    def test_kills(self) -> None:
        """A process that is alone is killed."""
        self.loop(KILLS, False)

    def test_killsOfWorkers(self) -> None:
        """One of two workers is killed, and replaced."""
        self.loop(KILLS, True)

    def test_failures(self) -> None:
        """A call of a process that is alone fails."""
        self.loop(FAILURES, False)

    def test_failuresOfWorkers(self) -> None:
        """A call of one of two workers fails."""
        self.loop(FAILURES, True)

    def test_full(self) -> None:
        """The disk is full for one call, or from one on."""
        self.loop(FULL, False)

    def test_fullForWorkers(self) -> None:
        """The disk is full for one of two workers."""
        self.loop(FULL, True)
