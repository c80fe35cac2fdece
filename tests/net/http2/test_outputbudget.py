"""The output of streams in the budget of the process."""

from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.heldbytes import HeldBytes
from storagegate.net.http.interfaces import ClientLost
from storagegate.net.http.message import ChannelRequest
from storagegate.net.http2.interfaces import ErrorCode
from tests.net.http2.support import Peer
from tests.net.support import TestSite

KIB = 1024
LIMIT = 1024 * KIB


class OutputBudgetTests(SynchronousTestCase):
    """Clients that do not take their responses."""

    def setUp(self) -> None:
        """Serve bodies of the length in the path."""
        self.site = TestSite(self.handle)
        self.budget = self.site.site.budget = HeldBytes(LIMIT, self.site.clock.seconds)
        self.lost: list[type] = []

    async def handle(self, request: ChannelRequest) -> None:
        """Answer whole, or in pieces."""
        size = int(request.path[1:])
        if request.method == b"GET":
            request.respond(200, [], bytes(size))
            return
        request.begin(200, [], None)
        try:
            for _ in range(size // KIB):
                await (request.send(bytes(KIB)) or succeed(None))
        except ClientLost as error:
            self.lost.append(type(error))
            raise
        request.finish()

    def greedy(self, path: str, method: str = "GET", streams: int = 100) -> Peer:
        """Make requests, and take nothing."""
        peer = Peer(self.site)
        peer.isReading = False
        peer.wire.update_settings({4: 0})
        peer.pump()
        for _ in range(streams):
            peer.begin(method, path)
        return peer

    def test_bounded(self) -> None:
        """Whole and streamed responses count, and streams over the limit are reset."""
        for method, size in (("GET", 60_000), ("PUT", 200_000)):
            before = self.budget.refused
            peers = [self.greedy(f"/{size}", method) for _ in range(3)]
            self.site.clock.advance(0)
            for peer in peers:
                peer.pump()
            waiting = sum(each.server.waiting for each in peers)
            self.assertLess(waiting, LIMIT + 3 * 64 * KIB)
            self.assertGreater(waiting, LIMIT // 2)
            self.assertGreater(self.budget.total, LIMIT // 2)
            self.assertLessEqual(self.budget.total, LIMIT)
            codes = [each.resetCode for peer in peers for each in peer.answers.values()]
            resets = [each for each in codes if each is not None]
            self.assertEqual(set(resets), {ErrorCode.ENHANCE_YOUR_CALM})
            self.assertEqual(len(resets), self.budget.refused - before)
            self.assertEqual(len(self.lost), 0 if method == "GET" else len(resets))
            for peer in peers:
                peer.server.connectionLost()
                self.assertEqual(peer.server.waiting, 0)
            self.assertEqual(self.budget.total, 0)
        self.assertEqual(self.site.site.requests, 0)

    def test_many(self) -> None:
        """Short responses count, too, with what their streams take."""
        peers = [self.greedy("/10") for _ in range(20)]
        open_ = sum(len(each.server.streams) for each in peers)
        self.assertLess(open_, LIMIT // 2048 + 20 * 32)
        self.assertLessEqual(self.budget.total, LIMIT)
        self.assertGreater(self.budget.refused, 500)

    def test_few(self) -> None:
        """A connection with little output does not count."""
        peer = self.greedy("/1000", streams=10)
        self.assertEqual((self.budget.total, self.budget.refused), (0, 0))
        peer.begin("GET", "/60000")
        self.assertGreater(self.budget.total, 60_000)

    def test_taken(self) -> None:
        """What the client takes counts no more."""
        peer = Peer(self.site)
        peer.isReading = False
        number = peer.begin("GET", "/500000")
        counted = self.budget.total
        self.assertEqual(counted, LIMIT // 8)
        peer.wire.increment_flow_control_window(400_000)
        peer.wire.increment_flow_control_window(400_000, number)
        peer.pump()
        self.assertEqual(self.budget.total, 500_000 - 65_535 - 400_000 + 2048)
        peer.wire.increment_flow_control_window(400_000)
        peer.wire.increment_flow_control_window(400_000, number)
        peer.pump()
        self.assertEqual(self.budget.total, 0)
        self.assertEqual(len(peer.answers[number].body), 500_000)

    def test_others(self) -> None:
        """A client that reads gets every response beside others that do not."""
        for _ in range(3):
            self.greedy("/60000")
        self.site.clock.advance(5)
        reader = Peer(self.site, "192.0.2.8")
        for size in (1000, 60_000, 5_000_000):
            number = reader.begin("GET", f"/{size}")
            while not reader.answers[number].isEnded:
                self.site.clock.advance(0)
                before = len(reader.answers[number].body)
                reader.pump()
                self.assertIsNone(reader.answers[number].resetCode)
                self.assertGreater(len(reader.answers[number].body) + 1, before)
            self.assertEqual(len(reader.answers[number].body), size)

    def test_slowReader(self) -> None:
        """A client that takes its response slowly goes on; those that take nothing are reset."""
        reader = self.greedy("/2000000", "PUT", streams=1)
        stalled = self.greedy("/60000", streams=14)
        [number] = reader.answers
        for _ in range(30):
            self.site.clock.advance(1)
            reader.wire.increment_flow_control_window(8 * KIB)
            reader.wire.increment_flow_control_window(8 * KIB, number)
            reader.pump()
        self.assertEqual((len(reader.answers[number].body), self.budget.refused), (30 * 8 * KIB, 0))
        self.greedy("/60000", streams=2)
        self.site.clock.advance(0)
        self.assertGreater(self.budget.refused, 0)
        for peer in (reader, stalled):
            peer.pump()
        self.assertIsNone(reader.answers[number].resetCode)
        codes = [each.resetCode for each in stalled.answers.values()]
        self.assertEqual(codes.count(ErrorCode.ENHANCE_YOUR_CALM), self.budget.refused)

    def test_greedy(self) -> None:
        """Many small responses of one address do not end a large one of another."""
        reader = Peer(self.site, "192.0.2.8")
        reader.isReading = False
        number = reader.begin("GET", "/500000")
        for _ in range(3):
            self.greedy("/30000")
            self.site.clock.advance(1)
        self.assertGreater(self.budget.refused, 100)
        reader.isReading = True
        reader.wire.increment_flow_control_window(1_000_000)
        reader.wire.increment_flow_control_window(1_000_000, number)
        reader.pump()
        answer = reader.answers[number]
        self.assertEqual((answer.resetCode, len(answer.body)), (None, 500_000))

    def test_resetAtOnce(self) -> None:
        """The resets of streams over the budget are sent at once."""
        peer = self.greedy("/60000", streams=10)
        self.assertEqual(self.budget.refused, 0)
        self.budget.limit = self.budget.total + KIB
        peer.begin("GET", "/60000")
        self.assertGreater(self.budget.refused, 0)
        codes = [each.resetCode for each in peer.answers.values() if each.resetCode is not None]
        self.assertEqual(len(codes), self.budget.refused)

    def test_paused(self) -> None:
        """Output that waits for the transport counts, until the client reads on."""
        peer = Peer(self.site)
        peer.isReading = False
        peer.wire.increment_flow_control_window(10_000_000)
        number = peer.begin("GET", "/0")
        peer.server.pauseProducing()
        number = peer.begin("GET", "/60000")
        self.assertEqual(self.budget.total, 0)
        second = peer.begin("GET", "/60000")
        self.assertGreater(self.budget.total, 120_000)
        peer.server.resumeProducing()
        peer.pump()
        self.assertEqual(self.budget.total, 0)
        self.assertEqual([len(peer.answers[each].body) for each in (number, second)], [60_000] * 2)
