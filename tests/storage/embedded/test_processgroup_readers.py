"""The readers of other processes."""

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded.processgroup import PeerReaders, ReaderEpoch
from storagegate.storage.embedded.sharedmemory import HORIZON
from tests.support.sharedstores import joined, sharedDescriptor

BLOBS = [f"0000{number:04x}" + "0" * 24 for number in range(3)]


class ReadersCase(SynchronousTestCase):
    """A process that reads, and one that removes blobs; their times are one."""

    def setUp(self) -> None:
        """Make both."""
        descriptor = sharedDescriptor(self)
        self.clock = Clock()
        self.clock.advance(100)
        self.reader, self.remover = joined(self, descriptor), joined(self, descriptor)
        self.epoch = ReaderEpoch(self.reader, self.clock, self.nowNs)
        own = ReaderEpoch(self.remover, self.clock, self.nowNs)
        self.peers = PeerReaders(own, self.remover, self.clock, self.nowNs)
        self.again: list[list[str]] = []

    def nowNs(self) -> int:
        """The time of all processes."""
        return int(self.clock.seconds() * 1e9)

    def spare(self) -> Deferred[list[str]]:
        """Ask for those of the blobs that nobody reads."""
        asked = self.peers.withoutReaders(BLOBS, lambda blobs: self.again.append(list(blobs)))
        return Deferred.fromCoroutine(asked).addCallback(list)

    def pass_(self, seconds: float) -> None:
        """Let time pass, in small steps."""
        self.clock.pump([0.01] * round(seconds * 100))


class PeerReadersTests(ReadersCase):
    """L{PeerReaders} and what they are told by L{ReaderEpoch}."""

    def test_nobodyReads(self) -> None:
        """Where nobody has looked anything up, all blobs can go after the shortest wait."""
        spared = self.spare()
        self.assertNoResult(spared)
        self.pass_(0.03)
        self.assertEqual(self.successResultOf(spared), BLOBS)

    def test_lookUpBeforeTheLoss(self) -> None:
        """Who looked up before the loss, and may not have said what he holds, is waited for."""
        self.epoch.startRead()
        spared = self.spare()
        self.pass_(0.03)
        self.assertNoResult(spared)
        self.epoch.hold(BLOBS[1])
        self.pass_(0.1)
        self.assertEqual(self.successResultOf(spared), [BLOBS[0], BLOBS[2]])
        self.assertEqual(self.again, [])
        self.pass_(1.1)
        self.assertEqual(self.again, [[BLOBS[1]]])

    def test_readersGoOn(self) -> None:
        """Readers without end, who come after the loss, keep nobody waiting."""
        self.epoch.startRead()
        spared = self.spare()
        for _ in range(10):
            self.pass_(0.02)
            self.epoch.startRead()
        self.assertEqual(self.successResultOf(spared), BLOBS)

    def test_released(self) -> None:
        """What was held and is not any more can go; two readers of one blob count as two."""
        for _ in range(2):
            self.epoch.hold(BLOBS[0])
        self.epoch.release(BLOBS[0])
        spared = self.spare()
        self.pass_(0.1)
        self.assertEqual(self.successResultOf(spared), BLOBS[1:])
        self.epoch.release(BLOBS[0])
        spared = self.spare()
        self.pass_(0.1)
        self.assertEqual(self.successResultOf(spared), BLOBS)
        self.peers.close()

    def test_quietIsSaid(self) -> None:
        """A process without readers says so, and leaves no timer behind."""
        self.epoch.startRead()
        self.pass_(0.2)
        self.assertEqual(self.reader.word(HORIZON, self.reader.slot), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_deadReader(self) -> None:
        """The readers of a process that died keep nobody waiting for long."""
        self.epoch.startRead()
        self.epoch.close()
        self.reader.close(isClean=False)
        # Its last word is still there, as after a kill.
        dead = self.reader.slot
        self.remover.slot, own = dead, self.remover.slot
        self.remover.put(HORIZON, self.nowNs())
        self.remover.slot = own
        spared = self.spare()
        self.pass_(4)
        self.assertNoResult(spared)
        self.pass_(1.2)
        self.assertEqual(self.successResultOf(spared), BLOBS)

    def test_slowProcess(self) -> None:
        """One that lives and does not move is waited for."""
        self.epoch.startRead()
        self.epoch.close()
        spared = self.spare()
        self.pass_(8)
        self.assertNoResult(spared)
        self.peers.scheduleClose()
        self.pass_(0.9)
        self.assertNoResult(spared)
        self.pass_(0.2)
        self.failureResultOf(spared, CancelledError)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_close(self) -> None:
        """A close waits for nobody, and says that something was left; so it is ever after."""
        self.assertTrue(self.peers.isClean)
        self.epoch.hold(BLOBS[0])
        spared = self.spare()
        self.pass_(0.1)
        self.successResultOf(spared)
        self.peers.close()
        self.assertFalse(self.peers.isClean)
        self.failureResultOf(self.spare(), CancelledError)
        self.peers.close()
        self.assertFalse(self.peers.isClean)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.epoch.close()
        self.reader.close(isClean=True)
        self.epoch.release(BLOBS[0])
