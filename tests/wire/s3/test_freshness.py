"""A write that was answered is what every later read finds, whichever connection it comes by."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from threading import Event

from tests.support.clients import ROOT
from tests.support.selection import long
from tests.wire.s3.bulk import connect, inParallel, objectTarget
from tests.wire.s3.fixture import S3Case

ROUNDS = 400
READERS = 4

READS = 20
"""So many reads make a race; the writer goes on until there were as many."""

MOST_ROUNDS = 100 * ROUNDS
"""Where nobody has read anything by then, nobody will."""


class Counter:
    """
    What one writer has begun to write, and what was acknowledged of it: numbers that grow.

    @ivar reads: One for each read that showed what it had to.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.acknowledged = 0
        self.reads: list[None] = []
        self.ended = Event()


class FreshnessTests(S3Case):
    """
    One writer and several readers of one key.

    @cvar rounds: How many writes are a race.
    """

    rounds = ROUNDS

    def setUp(self) -> None:
        """Have a bucket."""
        super().setUp()
        self.bucket = self.makeBucket("fresh")
        self.target = objectTarget(self.bucket, "k")

    def ask(
        self, connection: HTTPConnection, method: str, target: str, body: bytes = b""
    ) -> tuple[int, bytes]:
        """Send a request on a kept connection."""
        connection.request(method, target, body, ROOT.plainHeaders())
        with connection.getresponse() as response:
            return response.status, response.read()

    def write(self, counter: Counter, body: Callable[[int], bytes]) -> None:
        """Write the numbers, one after the other, until they were read often enough."""
        try:
            with closing(connect(self.address)) as connection:
                for number in range(1, MOST_ROUNDS):
                    counter.begun = number
                    status, _ = self.ask(connection, "PUT", self.target, body(number))
                    self.assertEqual(status, 200)
                    counter.acknowledged = number
                    if number >= self.rounds and len(counter.reads) >= READS:
                        break
        finally:
            counter.ended.set()

    def read(self, counter: Counter, number: Callable[[HTTPConnection], int]) -> None:
        """Read until the writer has ended; each read shows what was acknowledged."""
        with closing(connect(self.address)) as connection:
            while not counter.ended.is_set():
                oldest = counter.acknowledged
                found = number(connection)
                newest = counter.begun
                self.assertLessEqual(oldest, found, "an old state was read")
                self.assertLessEqual(found, newest, "a state was read before it was written")
                counter.reads.append(None)

    def race(self, number: Callable[[HTTPConnection], int], body: Callable[[int], bytes]) -> None:
        """Let the writer and the readers run against each other."""
        counter = Counter()
        with closing(connect(self.address)) as connection:
            self.ask(connection, "PUT", self.target, body(0))
        readers = [partial(self.read, counter, number) for _ in range(READERS)]
        inParallel([partial(self.write, counter, body), *readers])
        self.assertGreaterEqual(len(counter.reads), READS, "the readers hardly read")

    @long("takes a second or more")
    def test_get(self) -> None:
        """A GET finds the last acknowledged body, or one that is just being written."""

        def number(connection: HTTPConnection) -> int:
            return int(self.ask(connection, "GET", self.target)[1])

        self.race(number, lambda count: b"%d" % count)

    @long("takes seconds")
    def test_getOfFiles(self) -> None:
        """The same holds for bodies that lie in files of their own."""

        def number(connection: HTTPConnection) -> int:
            status, body = self.ask(connection, "GET", self.target)
            self.assertEqual((status, body == body[:8] * 10_000), (200, True))
            return int(body[:8])

        self.race(number, lambda count: b"%08d" % count * 10_000)

    @long("takes seconds")
    def test_list(self) -> None:
        """A list shows the size of the last acknowledged body, or of one just being written."""

        def number(connection: HTTPConnection) -> int:
            _, page = self.ask(connection, "GET", f"/{self.bucket}")
            return int(page.partition(b"<Size>")[2].partition(b"<")[0])

        self.race(number, bytes)

    @long("takes a second or more")
    def test_deleted(self) -> None:
        """What was deleted is gone for every connection at once, and what replaces it is there."""
        with closing(connect(self.address)) as writer, closing(connect(self.address)) as reader:
            for number in range(self.rounds):
                body = b"%d" % number
                self.assertEqual(self.ask(writer, "PUT", self.target, body)[0], 200)
                self.assertEqual(self.ask(reader, "GET", self.target), (200, body))
                self.assertEqual(self.ask(writer, "DELETE", self.target)[0], 204)
                self.assertEqual(self.ask(reader, "GET", self.target)[0], 404)
