"""Writers that race each other by two nodes, under conditions that one of them can meet."""

from threading import Barrier

from tests.support.daemon import Daemon
from tests.support.selection import long, rounds
from tests.wire.cluster.case import ClusterCase, get, put
from tests.wire.cluster.client import Answer

RACES = rounds(25, 25, soak=2_000)
INCREMENTS = rounds(6, 6, soak=250)
"""Of each of the eight that count."""

BUCKET = "races"
WRITERS = 8


@long("starts a cluster")
class RaceTests(ClusterCase):
    """Eight at one time, four by each node."""

    def setUp(self) -> None:
        """Start two nodes."""
        super().setUp()
        self.cluster = self.makeCluster()
        self.nodes = self.startNodes(self.cluster)
        self.cluster.client(self.nodes[0]).create_bucket(Bucket=BUCKET)

    def test_races(self) -> None:
        """Each is decided by the server of the catalog: once."""
        self.create()
        self.count()
        self.settle(self.cluster.conninfos[0])
        self.assertAgreement(self.cluster)

    def create(self) -> None:
        """One C{If-None-Match: *} wins, all others are refused, and all nodes see the winner."""
        barrier = Barrier(WRITERS)

        def write(number: int, race: int) -> int:
            body = bytes([number]) * (1_000 if race % 2 else 60_000)
            barrier.wait(60)
            return put(self.nodes[number % 2], BUCKET, f"k{race}", body, If_None_Match="*").status

        for race in range(RACES):
            calls = [self.begin(write, number, race) for number in range(WRITERS)]
            found = [call.result(60) for call in calls]
            self.assertEqual(sorted(found), [200] + [412] * (WRITERS - 1), race)
            winner = bytes([found.index(200)])
            for node in self.nodes:
                self.assertEqual(set(get(node, BUCKET, f"k{race}").body), set(winner))
        self.figures(f"{RACES} races of {WRITERS}, each with one winner")

    def count(self) -> None:
        """Counters that are written with C{If-Match} add up."""
        put(self.nodes[0], BUCKET, "counter", b"0")

        def increase(node: Daemon) -> None:
            answer: Answer = get(node, BUCKET, "counter")
            for _ in range(INCREMENTS):
                while True:
                    answer = get(node, BUCKET, "counter")
                    body = b"%d" % (int(answer.body) + 1)
                    etag = answer.headers["etag"]
                    written = put(node, BUCKET, "counter", body, If_Match=etag)
                    if written.status == 200:
                        break
                    # 409: the other was first, and the server judged nothing.
                    self.assertIn(written.status, (409, 412), written)

        calls = [self.begin(increase, self.nodes[number % 2]) for number in range(WRITERS)]
        for call in calls:
            call.result(600)
        for node in self.nodes:
            self.assertEqual(get(node, BUCKET, "counter").body, b"%d" % (WRITERS * INCREMENTS))
