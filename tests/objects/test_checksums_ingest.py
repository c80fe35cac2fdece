"""Taking bytes in: what is checked, and that nothing is left of what fails."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.checksums import (
    BodyExpectation,
    ExpectedChecksum,
    IngestedBody,
    encodeDigest,
    ingest,
    newHasher,
)
from storagegate.objects.errors import DomainError
from storagegate.s3.checksums import gather
from storagegate.s3.chunked import MAX_CHUNKS, AwsChunkedDecoder
from storagegate.storage.blobinterfaces import BlobFilter
from storagegate.storage.errors import StoreFull
from storagegate.storage.records import Content

DATA = b"some bytes of an object" * 10


def crc32(data: bytes) -> str:
    """A CRC32 as S3 writes it."""
    hasher = newHasher("CRC32")
    hasher.update(data)
    return encodeDigest(hasher.digest())


class Body:
    """A request's body in pieces."""

    def __init__(self, pieces: Sequence[bytes], ready: bool = False) -> None:
        self._pieces = list(pieces)
        self._ready = ready
        self.taken = 0
        self.held: list[int] = []

    def hold(self, size: int) -> None:
        """As RequestBody."""
        self.held.append(size)

    def readAvailable(self) -> bytes | None:
        """As ReadableBody."""
        return b"".join(self._pieces) if self._ready else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """As ReadableBody."""
        for piece in self._pieces:
            self.taken += len(piece)
            yield piece


class Sink:
    """Remembers what became of it."""

    def __init__(self, full: bool = False) -> None:
        self.taken: list[bytes] = []
        self.waits: list[Deferred[None]] = []
        self.aborted = False
        self.finished = False
        self._full = full

    def write(self, chunk: bytes) -> Deferred[None] | None:
        """As IBlobWriter."""
        if self._full:
            raise StoreFull("no space")
        self.taken.append(chunk)
        return self.waits.pop(0) if self.waits else None

    def finish(self) -> Deferred[Content]:
        """As IBlobWriter."""
        self.finished = True
        return succeed(Content(sum(map(len, self.taken)), None))

    def abort(self) -> None:
        """As IBlobWriter."""
        self.aborted = True

    def takeNewBlobs(self) -> Mapping[str, int]:
        """As IBlobWriter."""
        return {}


class ReceiveTests(SynchronousTestCase):
    """L{ingest} and L{gather}."""

    def begin(
        self, body: Body, expectation: BodyExpectation, sink: Sink | None = None, inline: int = 16
    ) -> Deferred[IngestedBody]:
        """Start to take a body in."""
        self.sink = sink or Sink()
        self.sinks = 0

        return Deferred.fromCoroutine(ingest(body, expectation, self, inline, "b"))

    def writer(
        self,
        inlineLimit: int,
        expectedSize: int | None = None,
        bucket: str = "",
        filtered: BlobFilter | None = None,
    ) -> Sink:
        """As IBlobStore."""
        self.sinks += 1
        return self.sink

    def test_small(self) -> None:
        """A body that is all here and small becomes inline content; no sink is made."""
        received = self.successResultOf(
            self.begin(Body([b"small"], True), BodyExpectation(length=5))
        )
        self.assertEqual(received.content, Content(5, b"small"))
        self.assertEqual(received.etag, hashlib.md5(b"small").hexdigest())
        self.assertEqual((self.sinks, received.sink), (0, None))

    def test_large(self) -> None:
        """A larger body goes through a sink in its pieces, whether or not it is all here."""
        for ready in (False, True):
            pieces = [DATA[:100], DATA[100:]]
            received = self.successResultOf(self.begin(Body(pieces, ready), BodyExpectation()))
            self.assertEqual(b"".join(self.sink.taken), DATA)
            self.assertEqual(received.etag, hashlib.md5(DATA).hexdigest())
            self.assertTrue(self.sink.finished)

    def test_waitsForTheDisk(self) -> None:
        """While the sink's Deferred has not fired no further piece is read."""
        sink = Sink()
        wait: Deferred[None] = Deferred()
        sink.waits.append(wait)
        taking = self.begin(Body([b"a" * 20, b"b" * 20]), BodyExpectation(), sink)
        self.assertEqual(len(sink.taken), 1)
        wait.callback(None)
        self.successResultOf(taking)
        self.assertEqual(len(sink.taken), 2)

    def test_refused(self) -> None:
        """Whatever the client said that is not so refuses the body and aborts the sink."""
        right = BodyExpectation(
            length=len(DATA),
            md5=hashlib.md5(DATA).digest(),
            payloadHash=hashlib.sha256(DATA).hexdigest(),
            checksum=ExpectedChecksum("CRC32", crc32(DATA)),
        )
        self.successResultOf(self.begin(Body([DATA]), right))
        self.assertFalse(self.sink.aborted)
        wrong = {
            "IncompleteBody": replace(right, length=len(DATA) + 1),
            "BadDigest": replace(right, md5=bytes(16)),
            "XAmzContentSHA256Mismatch": replace(right, payloadHash="0" * 64),
            "EntityTooLarge": replace(right, limit=len(DATA) - 1),
        }
        for code, expectation in wrong.items():
            failure = self.failureResultOf(self.begin(Body([DATA]), expectation), DomainError)
            self.assertEqual(failure.value.code, code)
            self.assertTrue(self.sink.aborted, code)
            self.assertFalse(self.sink.finished, code)
        bad = replace(right, checksum=ExpectedChecksum("CRC32", crc32(b"other")))
        for inline in (16, 1 << 20):
            failure = self.failureResultOf(self.begin(Body([DATA], True), bad, inline=inline))
            self.assertEqual(failure.value.code, "BadDigest")

    def test_trailers(self) -> None:
        """A checksum that comes in the trailer is checked and kept."""
        for value, code in ((crc32(DATA), None), (crc32(b"x"), "BadDigest")):
            wire = b"%x\r\n%b\r\n0\r\nx-amz-checksum-crc32:%b\r\n\r\n"
            wire %= (len(DATA), DATA, value.encode())
            decoder = AwsChunkedDecoder(len(DATA), None, (b"x-amz-checksum-crc32",))
            expectation = BodyExpectation(
                length=len(DATA), checksum=ExpectedChecksum("CRC32", None), decoder=decoder
            )
            taking = self.begin(Body([wire[:50], wire[50:]]), expectation)
            if code is None:
                self.assertEqual(self.successResultOf(taking).checksum.value, value)
            else:
                self.assertEqual(self.failureResultOf(taking, DomainError).value.code, code)

    def test_smallChunks(self) -> None:
        """A body of many small chunks is decoded in turns, however it is read."""
        wire = b"".join(b"1\r\n%c\r\n" % byte for byte in DATA) + b"0\r\n\r\n"

        def expectation(turns: list[Deferred[None]]) -> BodyExpectation:
            def turn() -> Deferred[None]:
                turns.append(Deferred())
                return turns[-1]

            decoder = AwsChunkedDecoder(len(DATA))
            return BodyExpectation(length=len(DATA), decoder=decoder, turn=turn)

        for ready, inline in ((False, 16), (True, 16), (True, 1 << 20), (False, None)):
            turns: list[Deferred[None]] = []
            body, expected = Body([wire], ready), expectation(turns)
            if inline is None:
                taking = Deferred.fromCoroutine(gather(body, expected))
            else:
                taking = self.begin(body, expected, inline=inline)
            for number in range(len(DATA) // MAX_CHUNKS):
                self.assertEqual(len(turns), number + 1)
                self.assertNoResult(taking)
                if inline is not None and self.sinks:
                    self.assertEqual(len(self.sink.taken), (number + 1) * MAX_CHUNKS)
                turns[-1].callback(None)
            received = self.successResultOf(taking)
            if isinstance(received, bytes):
                self.assertEqual(received, DATA)
            else:
                self.assertEqual(received.etag, hashlib.md5(DATA).hexdigest())

    def test_storeFails(self) -> None:
        """What the store raises comes out as it is, and the sink is aborted."""
        taking = self.begin(Body([DATA]), BodyExpectation(), Sink(full=True))
        self.failureResultOf(taking, StoreFull)
        self.assertTrue(self.sink.aborted)

    def test_clientGoes(self) -> None:
        """A cancelled upload aborts its sink."""
        sink = Sink()
        sink.waits.append(Deferred())
        taking = self.begin(Body([DATA]), BodyExpectation(), sink)
        taking.cancel()
        self.failureResultOf(taking)
        self.assertTrue(sink.aborted)

    def test_gather(self) -> None:
        """A document is read whole, up to its limit, with the same checks."""
        body = Body([b"<a>", b"</a>"])
        good = gather(body, BodyExpectation(length=7, limit=7))
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(good)), b"<a></a>")
        self.assertEqual(body.held, [3, 7, 0])
        bad = gather(Body([b"<a>", b"</a>"]), BodyExpectation(limit=6))
        failure = self.failureResultOf(Deferred.fromCoroutine(bad), DomainError)
        self.assertEqual(failure.value.code, "EntityTooLarge")
