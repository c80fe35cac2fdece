"""Encrypted objects in the domain: writes, reads, copies and parts, on a real store."""

import contextlib
import hashlib
import itertools
import os
import threading
import tracemalloc
from base64 import b64encode
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.objects.access.context import PlainCaller
from storagegate.objects.accounts import AccessKeyStore, Identity
from storagegate.objects.checksums import BodyExpectation, IngestedBody, ingest, newHasher
from storagegate.objects.contents import OpenContent, digest, openPieces, sendSegments
from storagegate.objects.domain import openDomain
from storagegate.objects.encryption.bucketkeys import keysIn
from storagegate.objects.encryption.options import EncryptionOptions
from storagegate.objects.encryption.requests import (
    SSE_C,
    SSE_KMS,
    SSE_S3,
    BucketEncryption,
    CustomerKey,
    RequestedEncryption,
)
from storagegate.objects.encryption.sealing import (
    CHUNK,
    BlobOpener,
    ObjectKey,
    sealedLength,
)
from storagegate.objects.errors import (
    AccessDenied,
    InvalidRequest,
    MasterKeyDisabled,
    MasterKeyNotFound,
    MasterKeysUnavailable,
    WrongMasterKey,
)
from storagegate.objects.operations import (
    CompletedPart,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    ListParts,
    PutBucketEncryption,
    UploadPartCopy,
)
from storagegate.objects.service import ObjectService
from storagegate.services.objectstreams import readContent
from storagegate.storage.backends import DEFAULT_BLOBS, DEFAULT_CATALOG
from storagegate.storage.embedded.backup import backup
from storagegate.storage.embedded.fsck import check
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.embedded.restore import restore
from storagegate.storage.errors import (
    BucketChanged,
    ConcurrentChange,
    CorruptBlob,
    CorruptObject,
    PreconditionFailed,
)
from storagegate.storage.files import Files
from storagegate.storage.layout import isBlobId
from storagegate.storage.mutations import CreateUpload
from storagegate.storage.ranges import PartRange
from storagegate.storage.records import (
    BUCKET_KEY,
    UNCONDITIONAL,
    Attributes,
    Checksum,
    Content,
    MultipartUpload,
    ObjectRecord,
    Part,
    PartSummary,
    WriteCondition,
)
from storagegate.storage.scrub import CorruptionLog, Scrubber
from tests.contract.delayedcatalog import DELAYED
from tests.contract.rangedblobs import RANGED
from tests.support.masterkeys import MemoryMasterKeys
from tests.support.selection import long

CALLER = PlainCaller(Identity("AK", "root", isRoot=True), "")

MIB = 1 << 20
NEEDLE = b"a text that nobody may find again"
SMALL = NEEDLE * 30
LARGE = NEEDLE * 9000


def customerKey(number: int = 1) -> CustomerKey:
    """Make a client's key."""
    key = bytes([number]) * 32
    return CustomerKey(key, b64encode(hashlib.md5(key).digest()).decode())


KINDS: dict[str, RequestedEncryption | None] = {
    "plain": None,
    SSE_S3: RequestedEncryption(SSE_S3),
    SSE_KMS: RequestedEncryption(
        SSE_KMS, "arn:aws:kms:us-east-1:1:key/other", "eyJhIjoiYiJ9", True
    ),
    SSE_C: RequestedEncryption(SSE_C, customerKey=customerKey()),
}
"""An encryption of each kind."""


class WholeBody:
    """A body whose first pieces have arrived."""

    def __init__(self, body: bytes) -> None:
        self._pieces = [body[i : i + 200_000] for i in range(0, len(body), 200_000)]

    def readAvailable(self) -> bytes | None:
        """Return the whole body if it is small."""
        return b"".join(self._pieces) if len(self._pieces) < 2 else None

    def __aiter__(self) -> "WholeBody":
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        return self._pieces.pop(0)


class Response:
    """A response that keeps what is sent."""

    def __init__(self) -> None:
        self.body = b""
        self.started = self.finished = False
        self.largest = 0

    def begin(self) -> None:
        """Send the head."""
        self.started = True

    def send(self, chunk: bytes) -> None:
        """Keep a chunk."""
        self.body += chunk
        self.largest = max(self.largest, len(chunk))

    def sendBuffer(self, view: memoryview) -> None:
        """Keep the bytes of a buffer."""
        self.send(bytes(view))

    def finish(self) -> None:
        """End it."""
        self.finished = True

    async def sendFile(self, fd: int, offset: int, count: int, run: Any) -> None:
        """Keep a range of a file."""
        self.body += await run(os.pread, fd, count, offset)


class EncryptionCase(TestCase):
    """A store with master keys and a bucket."""

    catalog = DEFAULT_CATALOG
    blobs = DEFAULT_BLOBS
    verifyReads = False
    timeout = 120

    def setUp(self) -> Deferred[None]:
        """Open the store and make buckets."""
        self.directory = os.path.abspath(self.mktemp())
        self.nowSeconds = 1.8e9
        self.elapsed = 0.0
        self.keys = MemoryMasterKeys("other")
        self.reopen()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        return Deferred.fromCoroutine(self._make())

    def reopen(self) -> None:
        """Open the store."""
        from twisted.internet import reactor

        self.store = openStore(
            self.directory,
            reactor,
            durability="os",
            verifyReads=self.verifyReads,
            catalog=self.catalog,
            blobs=self.blobs,
        )
        self.objects = self.domain()

    def domain(self, options: EncryptionOptions | None = None) -> ObjectService:
        """Make a domain, as of another process."""
        accounts = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        options = options or EncryptionOptions(lambda: self.keys)
        options.seconds = lambda: self.elapsed
        return openDomain(self.store, accounts, "us-east-1", lambda: self.nowSeconds, "", options)

    async def _make(self) -> None:
        for name in ("box", "other"):
            await self.objects.perform(CALLER, CreateBucket(name))

    async def ingest(self, objectKey: Any, body: bytes, inlineLimit: int = 0) -> IngestedBody:
        """Take in a body."""
        expectation = BodyExpectation(algorithm="CRC32")
        blobs = self.store.blobs
        return await ingest(WholeBody(body), expectation, blobs, inlineLimit, "box", objectKey)

    async def put(
        self, key: bytes, body: bytes, kind: RequestedEncryption | None = None, bucket: str = "box"
    ) -> ObjectRecord:
        """Store an object."""
        home, owner = await self.objects.checkWrite(CALLER, bucket, key)
        objectKey = await self.objects.keyForWrite(home, key, kind)
        received = await self.ingest(objectKey, body, self.store.inlineLimit)
        return await self.objects.putObject(owner, bucket, key, received, Attributes())

    async def find(
        self, key: bytes, customer: CustomerKey | None = None, bucket: str = "box"
    ) -> tuple[ObjectRecord, OpenContent]:
        """Look up an object and open its key."""
        home, record = await self.objects.object(CALLER, bucket, key)
        return record, await self.objects.contentOf(home, record, customer)

    async def read(
        self,
        key: bytes,
        customer: CustomerKey | None = None,
        bucket: str = "box",
        start: int = 0,
        length: int | None = None,
    ) -> bytes:
        """Read a range of an object as S3 does, and compare what all other readers get."""
        record, content = await self.find(key, customer, bucket)
        rest = record.size - start if length is None else length
        response = Response()
        if content.isInline:
            response.body = content.inline(start, rest)
        else:
            begun = await sendSegments(self.store, content, start, rest, response, response.begin)
            self.assertEqual((begun, response.finished), (rest > 0, rest > 0))
        chunks = readContent(self.store, content, start, rest, 10_000)
        async with aclosing(chunks):
            streamed = b"".join([each async for each in chunks])
        self.assertTrue(streamed == response.body)
        hasher = newHasher("SHA256")
        await digest(self.store, content, start, rest, [hasher])
        self.assertEqual(hasher.digest(), hashlib.sha256(response.body).digest())
        return response.body

    def files(self) -> bytes:
        """Return the bytes of all files of the store."""
        found = []
        for each in Path(self.directory).rglob("*"):
            # Names in staging/ disappear in the background.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                found.append(each.read_bytes())
        return b"\n".join(found)


class ObjectTests(EncryptionCase):
    """Objects of each kind."""

    async def test_kinds(self) -> None:
        """Each kind reads back what was written; only plain bytes are in the files."""
        for name, kind in KINDS.items():
            customer = None if kind is None else kind.customerKey
            for size, body in (("small", SMALL), ("large", LARGE), ("empty", b"")):
                key = f"{name} {size}".encode()
                record = await self.put(key, body, kind)
                self.assertEqual(record.size, len(body))
                self.assertTrue(await self.read(key, customer) == body)
                found, _ = await self.find(key, customer)
                encryption = found.attributes.encryption
                isMD5 = found.etag == hashlib.md5(body).hexdigest()
                self.assertEqual(isMD5, name in ("plain", SSE_S3))
                self.assertEqual(len(found.etag), 32)
                if kind is None:
                    self.assertIsNone(encryption)
                    continue
                assert encryption is not None
                self.assertEqual(encryption.kind, name)
                self.assertEqual((encryption.keyId, encryption.context), (kind.keyId, kind.context))
                [length] = (
                    [segment.length for segment in found.content.segments]
                    if found.content.inline is None
                    else [len(found.content.inline)]
                )
                self.assertEqual(length, sealedLength(len(body)))
        await self.put(b"plain small", b"")
        await self.put(b"plain large", b"")
        await self.store.idle()

    async def test_nothingPlain(self) -> None:
        """No file has the plain bytes, their digests or a key, also of parts and copies."""
        digests = [hashlib.md5(body) for body in (SMALL, LARGE)]
        for name, kind in KINDS.items():
            if kind is None:
                continue
            customer = kind.customerKey
            await self.put(f"{name} s".encode(), SMALL, kind)
            await self.put(f"{name} l".encode(), LARGE, kind)
            upload = await self.objects.perform(
                CALLER, CreateMultipartUpload("box", name.encode(), Attributes(), encryption=kind)
            )
            objectKey = await self.objects.keyOfUpload(upload, customer)
            await self.objects.putPart(upload, 1, await self.ingest(objectKey, LARGE))
            found, content = await self.find(f"{name} l".encode(), customer)
            assert content.objectKey is not None
            files = self.files()
            self.assertNotIn(content.objectKey.key, files)
            self.assertNotIn(b64encode(content.objectKey.key), files)
            if name != SSE_S3:
                for each in digests:
                    self.assertNotIn(each.hexdigest().encode() + name.encode(), files)
                checksum = newHasher("CRC32")
                checksum.update(LARGE)
                self.assertNotIn(b64encode(checksum.digest()), self.rowsOf(found))
        files = self.files()
        for start in range(len(NEEDLE)):
            doubled = NEEDLE + NEEDLE
            self.assertNotIn(doubled[start : start + 16], files)
        self.assertNotIn(customerKey().key, files)
        self.assertNotIn(customerKey().md5.encode(), files)

    def rowsOf(self, record: ObjectRecord) -> bytes:
        """Return the attributes as they are stored."""
        return repr(record.attributes).encode()

    async def test_default(self) -> None:
        """Without a header, the default of the bucket applies, else that of the store."""
        cases: list[tuple[BucketEncryption | None, bool, str | None]] = [
            (None, False, None),
            (None, True, SSE_S3),
            (BucketEncryption(), True, SSE_S3),
            (BucketEncryption(SSE_S3), False, SSE_S3),
            (BucketEncryption(SSE_KMS, "other", True), False, SSE_KMS),
            (BucketEncryption(SSE_KMS), True, SSE_KMS),
        ]
        for configuration, encryptAll, expected in cases:
            self.objects = self.domain(EncryptionOptions(lambda: self.keys, encryptAll))
            if configuration is not None:
                await self.objects.perform(CALLER, PutBucketEncryption("box", configuration))
            for body in (SMALL, LARGE):
                for kind in KINDS.values():
                    customer = None if kind is None else kind.customerKey
                    await self.put(b"k", body, kind)
                    record, _ = await self.find(b"k", customer)
                    encryption = record.attributes.encryption
                    found = None if encryption is None else encryption.kind
                    self.assertEqual(found, expected if kind is None else kind.kind)
                    self.assertTrue(await self.read(b"k", customer) == body)

    async def test_blocked(self) -> None:
        """A bucket that blocks clients' keys refuses writes with them; reads go on."""
        await self.put(b"k", SMALL, KINDS[SSE_C])
        blocked = BucketEncryption(blocked=(SSE_C,))
        await self.objects.perform(CALLER, PutBucketEncryption("box", blocked))
        with self.assertRaises(AccessDenied):
            await self.put(b"k", SMALL, KINDS[SSE_C])
        self.assertEqual(await self.read(b"k", customerKey()), SMALL)

    async def test_customerKeys(self) -> None:
        """A client's key that is missing, superfluous or another is refused."""
        await self.put(b"c", LARGE, KINDS[SSE_C])
        await self.put(b"s", LARGE, KINDS[SSE_S3])
        await self.put(b"p", LARGE)
        for key, customer, error in (
            (b"c", None, InvalidRequest),
            (b"c", customerKey(2), AccessDenied),
            (b"s", customerKey(), InvalidRequest),
            (b"p", customerKey(), InvalidRequest),
        ):
            with self.assertRaises(error):
                await self.read(key, customer)

    async def test_binding(self) -> None:
        """The wrapped key of an object opens no other object, context or kind."""
        record = await self.put(b"k", SMALL, KINDS[SSE_KMS])
        encryption = record.attributes.encryption
        assert encryption is not None
        home = await self.objects.find("box")
        for wrong in (
            replace(record, key=b"l"),
            replace(record, attributes=replace(record.attributes, encryption=None)),
            *[
                replace(record, attributes=replace(record.attributes, encryption=changed))
                for changed in (
                    replace(encryption, context=""),
                    replace(encryption, kind=SSE_S3),
                    replace(encryption, wrapped=encryption.wrapped[:-8] + "AAAAAAA="),
                )
            ],
        ):
            if wrong.attributes.encryption is None:
                continue
            with self.assertRaises(WrongMasterKey):
                await self.objects.contentOf(home, wrong)

    async def test_inlineDamage(self) -> None:
        """Every flipped byte of inline content is an error."""
        for kind in (KINDS[SSE_S3], KINDS[SSE_C]):
            assert kind is not None
            await self.put(b"k", b"short", kind)
            _, content = await self.find(b"k", kind.customerKey)
            sealed = content.stored.inline
            assert sealed is not None
            for position in range(len(sealed)):
                damaged = bytearray(sealed)
                damaged[position] ^= 0x10
                wrong = OpenContent(Content(5, bytes(damaged)), content.objectKey)
                with self.assertRaises(CorruptObject):
                    wrong.inline(0, 5)

    async def test_checksumDamage(self) -> None:
        """A damaged checksum is an error of its object, which a job counts and goes on after."""
        record = await self.put(b"k", b"short", KINDS[SSE_KMS])
        checksum = record.attributes.checksum
        assert checksum is not None
        for value in ("", "AAAA", "###", checksum.value[:-8] + "AAAAAAA="):
            attributes = replace(record.attributes, checksum=replace(checksum, value=value))
            damaged = replace(record, attributes=attributes)
            with self.assertRaises(CorruptObject):
                await self.objects.perform(CALLER, CopyObject("other", b"k", damaged))

    async def test_inlineDamageNoted(self) -> None:
        """Inline content that does not open is counted as damaged, and a scrub checks it again."""
        from twisted.internet import reactor

        await self.put(b"k", b"short", KINDS[SSE_S3])
        home, record = await self.objects.object(CALLER, "box", b"k")
        assert record.content.inline is not None
        damaged = replace(record, content=Content(5, record.content.inline[:-1] + b"?"))
        for _ in range(2):
            content = await self.objects.contentOf(home, damaged)
            with self.assertRaises(CorruptObject):
                content.inline(0, 5)
            self.assertEqual(self.store.scrubber.corruptObjects, {("box", b"k")})
            self.assertEqual(self.store.damagedCount, 1)
        # The scrubber of the store pauses before its first round.
        report = CorruptionLog(self.store.catalog, self.store.blobs.markCorrupt)
        scrubber = Scrubber(self.store.catalog, self.store.blobs, reactor, report, 1 << 40)
        scrubber.noteObject("box", b"k")
        await scrubber.scrub()
        self.assertEqual(scrubber.corruptObjects, frozenset())
        for number in range(2000):
            scrubber.noteObject("box", b"%d" % number)
        self.assertEqual(len(scrubber.corruptObjects), 1000)
        self.flushLoggedErrors()


@long("reads many ranges")
class RangeTests(EncryptionCase):
    """Ranges of large objects."""

    EDGES = tuple(
        sorted(
            {n * CHUNK + d for n in (0, 1, 4, 5, 8) for d in (-17, -1, 0, 1) if n * CHUNK + d >= 0}
        )
    )

    async def test_ranges(self) -> None:
        """All ranges between edges of chunks and pieces; no piece exceeds 256 KiB."""
        body = os.urandom(9 * CHUNK + 5)
        await self.put(b"k", body, KINDS[SSE_S3])
        for start, end in itertools.combinations((*self.EDGES, len(body)), 2):
            got = await self.read(b"k", start=start, length=end - start)
            self.assertTrue(got == body[start:end], (start, end))
        record, content = await self.find(b"k")
        response = Response()
        await sendSegments(self.store, content, 0, record.size, response, response.begin)
        self.assertEqual(response.largest, 256 * 1024)


class _SlowResponse(Response):
    """
    A response whose client falls behind after each piece.

    @ivar pieces: Sizes of the pieces between waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[int] = []

    def sendBuffer(self, view: memoryview) -> Any:
        """Keep the bytes of a buffer, and have the sender wait."""
        super().sendBuffer(view)
        self.pieces.append(len(view))
        return succeed(None)


class BufferTests(EncryptionCase):
    """The buffers of readers."""

    async def test_slow(self) -> None:
        """A client that falls behind gets one piece at a time, and all bytes."""
        body = os.urandom(13 * CHUNK + 5)
        await self.put(b"k", body, KINDS[SSE_S3])
        _, content = await self.find(b"k")
        response = _SlowResponse()
        await sendSegments(self.store, content, 100, len(body) - 100, response, response.begin)
        self.assertTrue(response.body == body[100:])
        self.assertEqual(response.largest, 4 * CHUNK)
        self.assertEqual(len(response.pieces), 4)

    async def test_together(self) -> None:
        """Readers of several objects at once get their own bytes."""
        bodies = {b"%d" % number: os.urandom(9 * CHUNK + number) for number in range(5)}
        for key, body in bodies.items():
            await self.put(key, body, KINDS[SSE_S3])
        results = await gatherResults(
            [Deferred.fromCoroutine(self.read(key)) for key in bodies for _ in range(2)]
        )
        self.assertEqual(results, [body for body in bodies.values() for _ in range(2)])

    async def test_cancelled(self) -> None:
        """The buffer of a cancelled read is not used again: its job still writes to it."""
        await self.put(b"k", os.urandom(9 * CHUNK), KINDS[SSE_S3])
        _, content = await self.find(b"k")
        entered, ended = threading.Event(), threading.Event()
        used: list[object] = []

        def update(opener: BlobOpener, data: object) -> None:
            assert opener._buffer is not None
            used.append(opener._buffer.obj)
            entered.set()
            ended.wait(10)

        self.patch(BlobOpener, "update", update)
        response = Response()
        reading = Deferred.fromCoroutine(
            sendSegments(self.store, content, 0, 9 * CHUNK, response, response.begin)
        )
        reading.addErrback(lambda failure: failure.trap(CancelledError))
        await deferToThread(entered.wait, 10)
        reading.cancel()
        await reading
        free = list(self.store.openings.pending)
        self.assertEqual(len(free), len(os.sched_getaffinity(0)))
        self.assertNotIn(id(used[0]), [id(each) for each in free])
        ended.set()

    async def test_cold(self) -> None:
        """A chunk is opened at once only if it is in the page cache, and else in the pool."""
        body = os.urandom(3 * CHUNK)
        await self.put(b"k", body, KINDS[SSE_S3])
        _, content = await self.find(b"k")
        warm, threads = Files.readWarm, set()
        update = BlobOpener.update

        def noting(opener: BlobOpener, data: Any) -> None:
            threads.add(threading.current_thread())
            update(opener, data)

        self.patch(BlobOpener, "update", noting)
        for read, isHere in ((warm, True), (lambda *arguments: None, False)):
            self.patch(Files, "readWarm", read)
            threads.clear()
            response = Response()
            await sendSegments(self.store, content, CHUNK + 5, 4096, response, response.begin)
            self.assertEqual(response.body, body[CHUNK + 5 : CHUNK + 5 + 4096])
            self.assertEqual(threads == {threading.main_thread()}, isHere)


class DamageTests(EncryptionCase):
    """Damaged blobs."""

    async def _damage(self, position: int, key: bytes = b"k") -> tuple[str, bytes]:
        record, _ = await self.find(key)
        [segment] = record.content.segments
        [path] = Path(self.directory, "blobs").rglob(segment.blob)
        stored = path.read_bytes()
        damaged = bytearray(stored)
        damaged[position] ^= 1
        path.chmod(0o600)
        with path.open("r+b") as file:
            file.write(damaged)
        self.path = path
        return segment.blob, stored

    async def test_flipped(self) -> None:
        """A flipped byte anywhere is an error before the bytes of its chunk, and is marked."""
        body = os.urandom(5 * CHUNK + 9)
        stored = sealedLength(len(body))
        for position in (0, 15, 16, 40_000, 16 + CHUNK, 16 + CHUNK + 16, stored - 17, stored - 1):
            key = b"%d" % position
            await self.put(key, body, KINDS[SSE_S3])
            blob, _ = await self._damage(position, key)
            record, content = await self.find(key)
            response = Response()
            with self.assertRaises(CorruptBlob):
                await sendSegments(self.store, content, 0, record.size, response, response.begin)
            self.assertTrue(body.startswith(response.body))
            self.assertFalse(response.finished)
            self.assertEqual(response.started, position >= 16 + 4 * (CHUNK + 16))
            self.assertIn(blob, self.store.blobs.corrupt)
        await self.store.idle()

    async def test_chunksOnly(self) -> None:
        """A range opens only its own chunks."""
        body = os.urandom(5 * CHUNK)
        await self.put(b"k", body, KINDS[SSE_S3])
        await self._damage(16 + CHUNK + 16 + 99)
        self.assertTrue(await self.read(b"k", length=CHUNK) == body[:CHUNK])
        rest = await self.read(b"k", start=2 * CHUNK)
        self.assertTrue(rest == body[2 * CHUNK :])
        with self.assertRaises(CorruptBlob):
            await self.read(b"k", start=2 * CHUNK - 1, length=1)


class CopyTests(EncryptionCase):
    """Copies between kinds."""

    async def _copies(self, body: bytes) -> None:
        for (sourceName, source), (targetName, target) in itertools.product(
            KINDS.items(), KINDS.items()
        ):
            label = f"{sourceName} to {targetName}"
            sent = None if source is None else source.customerKey
            if sent is not None and target is not None and target.customerKey is not None:
                target = replaceKey(target, customerKey(2))
            await self.put(b"from", body, source)
            record, _ = await self.find(b"from", sent)
            writes = await self.blobCount()
            copied = await self.objects.perform(
                CALLER,
                CopyObject("other", b"to", record, encryption=target, sourceKey=sent),
            )
            isShared = (source is None) == (target is None)
            if record.content.segments:
                self.assertEqual(await self.blobCount() - writes, 0 if isShared else 1, label)
            customer = None if target is None else target.customerKey
            self.assertTrue(await self.read(b"to", customer, "other") == body, label)
            found, content = await self.find(b"to", customer, "other")
            encryption = found.attributes.encryption
            self.assertEqual(encryption and encryption.kind, target and target.kind, label)
            md5 = hashlib.md5(body).hexdigest()
            self.assertEqual(found.etag == md5, targetName in ("plain", SSE_S3), label)
            plain = found if content.objectKey is None else content.objectKey.openRecord(found)
            crc = newHasher("CRC32")
            crc.update(body)
            value = b64encode(crc.digest()).decode()
            self.assertEqual(plain.attributes.checksum, Checksum("CRC32", value), label)
            self.assertEqual(copied.attributes.checksum, Checksum("CRC32", value), label)
            await self.objects.perform(CALLER, DeleteObject("box", b"from", None))
            await self.store.idle()
            self.assertTrue(await self.read(b"to", customer, "other") == body, label)
            await self.objects.perform(CALLER, DeleteObject("other", b"to", None))
            await self.store.idle()
            self.assertEqual(await self.blobCount(), 0, label)

    async def blobCount(self) -> int:
        """Count the blobs."""
        return sum(isBlobId(each.name) for each in Path(self.directory, "blobs").rglob("*"))

    async def test_inline(self) -> None:
        """All 16 copies of inline contents."""
        await self._copies(SMALL)

    async def test_blobs(self) -> None:
        """All 16 copies of blobs: between encrypted kinds they share bytes, else they write."""
        await self._copies(LARGE)

    async def test_ontoItself(self) -> None:
        """
        A copy onto itself never undoes a later write or removal, of any kind and size: the caller
        repeats it. The blobs that it looked up may be gone.
        """
        for (name, source), target, body in itertools.product(
            KINDS.items(), KINDS.values(), (SMALL, LARGE)
        ):
            sent = None if source is None else source.customerKey
            await self.put(b"k", body, source)
            record, _ = await self.find(b"k", sent)
            wanted = CopyObject(
                "box", b"k", record, overwrites=True, encryption=target, sourceKey=sent
            )
            for condition in (UNCONDITIONAL, WriteCondition(etags=("x", record.etag))):
                await self.put(b"k", body + b"!", source)
                with self.assertRaises((ConcurrentChange, CorruptBlob)):
                    await self.objects.perform(CALLER, replace(wanted, condition=condition))
                self.assertTrue(await self.read(b"k", sent) == body + b"!", name)
                await self.objects.perform(CALLER, DeleteObject("box", b"k", None))
                with self.assertRaises((ConcurrentChange, CorruptBlob)):
                    await self.objects.perform(CALLER, replace(wanted, condition=condition))
        # The bytes of refused copies are removed in the background.
        await self.store.close()
        self.reopen()
        await self.store.idle()
        self.assertEqual(await self.blobCount(), 0)

    async def test_ontoItselfConditions(self) -> None:
        """A condition that its source does not meet refuses a copy onto itself as any other."""
        record = await self.put(b"k", SMALL)
        for condition in (
            WriteCondition(etags=("x",)),
            WriteCondition(absent=True),
            WriteCondition(unlike=(record.etag,)),
        ):
            wanted = CopyObject("box", b"k", record, overwrites=True, condition=condition)
            with self.assertRaises(PreconditionFailed):
                await self.objects.perform(CALLER, wanted)
        wanted = CopyObject(
            "box", b"k", record, overwrites=True, condition=WriteCondition(etags=("*",))
        )
        await self.objects.perform(CALLER, wanted)

    async def test_bucketDecides(self) -> None:
        """A copy has the kind of its bucket, not of its source."""
        await self.objects.perform(CALLER, PutBucketEncryption("other", BucketEncryption(SSE_KMS)))
        for name, kind in KINDS.items():
            customer = None if kind is None else kind.customerKey
            await self.put(b"from", LARGE, kind)
            record, _ = await self.find(b"from", customer)
            await self.objects.perform(
                CALLER, CopyObject("other", name.encode(), record, sourceKey=customer)
            )
            found, _ = await self.find(name.encode(), None, "other")
            assert found.attributes.encryption is not None
            self.assertEqual(found.attributes.encryption.kind, SSE_KMS)
            self.assertTrue(await self.read(name.encode(), None, "other") == LARGE)

    async def test_sourceKey(self) -> None:
        """A copy needs the key of its source."""
        await self.put(b"from", LARGE, KINDS[SSE_C])
        record, _ = await self.find(b"from", customerKey())
        for sent, error in ((None, InvalidRequest), (customerKey(2), AccessDenied)):
            with self.assertRaises(error):
                await self.objects.perform(
                    CALLER, CopyObject("other", b"to", record, sourceKey=sent)
                )


def replaceKey(kind: RequestedEncryption, key: CustomerKey) -> RequestedEncryption:
    """Return the encryption with another client's key."""
    return RequestedEncryption(SSE_C, customerKey=key)


class PartTests(EncryptionCase):
    """Uploads in parts."""

    async def begin(self, kind: RequestedEncryption | None, key: bytes = b"k") -> Any:
        """Begin an upload."""
        return await self.objects.perform(
            CALLER, CreateMultipartUpload("box", key, Attributes(), encryption=kind)
        )

    async def putPart(
        self, upload: Any, number: int, body: bytes, customer: CustomerKey | None = None
    ) -> Part:
        """Store a part."""
        objectKey = await self.objects.keyOfUpload(upload, customer)
        return await self.objects.putPart(upload, number, await self.ingest(objectKey, body))

    async def complete(
        self, upload: Any, parts: list[Part], customer: CustomerKey | None = None, **more: Any
    ) -> ObjectRecord:
        """Complete an upload."""
        named = [CompletedPart(each.number, each.etag, more.get("checksums", {})) for each in parts]
        wanted = CompleteMultipartUpload(
            "box", upload.key, upload.uploadId, named, customerKey=customer
        )
        return await self.objects.perform(CALLER, wanted)

    async def test_kinds(self) -> None:
        """Parts of each kind; the object reads back across the parts, with the right digests."""
        first, second = os.urandom(5 * MIB + 3), os.urandom(100_000)
        body = first + second
        for name, kind in KINDS.items():
            customer = None if kind is None else kind.customerKey
            upload = await self.begin(kind)
            one = await self.putPart(upload, 1, first, customer)
            two = await self.putPart(upload, 7, second, customer)
            isMD5 = one.etag == hashlib.md5(first).hexdigest()
            self.assertEqual(isMD5, name in ("plain", SSE_S3))
            self.assertEqual(one.checksum and one.checksum.algorithm, "CRC32")
            listing = await self.objects.perform(
                CALLER, ListParts(PartRange("box", b"k", upload.uploadId, 0, 9), customer)
            )
            self.assertEqual(
                [each.checksum for each in listing.parts], [one.checksum, two.checksum]
            )
            done = await self.complete(upload, [one, two], customer)
            self.assertTrue(done.etag.endswith("-2"))
            again = await self.complete(upload, [one, two], customer)
            self.assertEqual(again.attributes, done.attributes)
            self.assertEqual(
                [part.checksum for part in done.attributes.parts],
                [one.checksum, two.checksum],
            )
            self.assertTrue(await self.read(b"k", customer) == body)
            for start, length in (
                (len(first) - 1, 2),
                (len(first), 1),
                (len(first) - CHUNK, 2 * CHUNK),
                (len(body) - 1, 1),
            ):
                got = await self.read(b"k", customer, start=start, length=length)
                self.assertTrue(got == body[start : start + length])

    async def test_twice(self) -> None:
        """The same part sent twice has two ciphertexts."""
        for kind in (KINDS[SSE_S3], KINDS[SSE_C]):
            assert kind is not None
            upload = await self.begin(kind)
            objectKey = await self.objects.keyOfUpload(upload, kind.customerKey)
            stored = []
            for _ in range(2):
                received = await self.ingest(objectKey, LARGE)
                [segment] = received.content.segments
                [path] = Path(self.directory, "blobs").rglob(segment.blob)
                stored.append(path.read_bytes())
                await self.objects.putPart(upload, 1, received)
            blocks = [{each[i : i + 16] for i in range(0, len(each), 16)} for each in stored]
            self.assertEqual(blocks[0] & blocks[1], set())

    async def test_manyParts(self) -> None:
        """The checksums of many parts are opened and sealed outside the reactor thread."""
        threads: set[int] = set()
        former = ObjectKey.openChecksum

        def openChecksum(key: ObjectKey, checksum: Checksum | None) -> Checksum | None:
            threads.add(threading.get_ident())
            return former(key, checksum)

        self.patch(ObjectKey, "openChecksum", openChecksum)
        record = await self.put(b"k", SMALL, KINDS[SSE_KMS])
        home, _ = await self.objects.object(CALLER, "box", b"k")
        objectKey = await self.objects.keyForRead(home, record)
        assert objectKey is not None
        for count in (3, 300):
            parts = tuple(
                PartSummary(number, 1, Checksum("CRC32", "AAAAAA==")) for number in range(count)
            )
            plain = replace(objectKey.openRecord(record).attributes, parts=parts)
            sealed = replace(record, attributes=objectKey.sealAttributes(plain))
            threads.clear()
            found = await self.objects.withDigests(home, sealed)
            self.assertEqual(found.attributes.parts, parts)
            copied = await self.objects.perform(CALLER, CopyObject("other", b"k", sealed))
            self.assertEqual(copied.attributes.parts, parts)
            self.assertEqual(threading.get_ident() in threads, count == 3)

    async def test_manyListedParts(self) -> None:
        """The checksums of a long page of parts are opened outside the reactor thread, too."""
        threads: set[int] = set()
        former = ObjectKey.openPart

        def openPart(key: ObjectKey, part: Part) -> Part:
            threads.add(threading.get_ident())
            return former(key, part)

        self.patch(ObjectKey, "openPart", openPart)
        upload = await self.begin(KINDS[SSE_KMS])
        last = 0
        for count in (3, 101):
            for number in range(last + 1, count + 1):
                await self.putPart(upload, number, b"x")
            last = count
            threads.clear()
            page = PartRange("box", b"k", upload.uploadId, 0, 1000)
            listing = await self.objects.perform(CALLER, ListParts(page))
            self.assertEqual(len(listing.parts), count)
            self.assertEqual(
                {each.checksum and each.checksum.algorithm for each in listing.parts}, {"CRC32"}
            )
            self.assertEqual(threading.get_ident() in threads, count == 3)

    async def test_customerKey(self) -> None:
        """All parts use the key of the creation; a completion may omit it."""
        upload = await self.begin(KINDS[SSE_C])
        for sent in (None, customerKey(2)):
            with self.assertRaises(InvalidRequest):
                await self.putPart(upload, 1, LARGE, sent)
        part = await self.putPart(upload, 1, LARGE, customerKey())
        done = await self.complete(upload, [part], None, checksums={"CRC32": "AAAAAA=="})
        self.assertIsNone(done.attributes.checksum)
        self.assertTrue(await self.read(b"k", customerKey()) == LARGE)
        plain = await self.begin(None)
        with self.assertRaises(InvalidRequest):
            await self.putPart(plain, 1, LARGE, customerKey())

    async def test_partCopy(self) -> None:
        """Parts copied from objects of each kind into uploads of each kind, also of ranges."""
        for (sourceName, source), (targetName, target) in itertools.product(
            KINDS.items(), KINDS.items()
        ):
            label = f"{sourceName} to {targetName}"
            sent = None if source is None else source.customerKey
            customer = None if target is None else target.customerKey
            parts, body = [], b""
            upload = await self.begin(target)
            for number, content in enumerate((LARGE, SMALL), 1):
                await self.put(b"from", content, source)
                record, _ = await self.find(b"from", sent)
                start, length = 5, len(content) - 9
                if number == 1:
                    # Only the last part may be small.
                    continue
                copied = await self.objects.perform(
                    CALLER,
                    UploadPartCopy(
                        "box", b"k", upload.uploadId, number, record, start, length, customer, sent
                    ),
                )
                parts.append(copied)
                body += content[start : start + length]
            record = await self.put(b"from", LARGE, source)
            copied = await self.objects.perform(
                CALLER,
                UploadPartCopy("box", b"k", upload.uploadId, 1, record, 3, 100_000, customer, sent),
            )
            self.assertEqual(copied.size, 100_000)
            await self.complete(upload, parts, customer)
            self.assertTrue(await self.read(b"k", customer) == body, label)
            upload = await self.begin(target)
            copied = await self.objects.perform(
                CALLER,
                UploadPartCopy("box", b"k", upload.uploadId, 1, record, 3, 100_000, customer, sent),
            )
            await self.complete(upload, [copied], customer)
            self.assertTrue(await self.read(b"k", customer) == LARGE[3:100_003], label)


class KeyTests(EncryptionCase):
    """Bucket keys and master keys."""

    async def test_oneCall(self) -> None:
        """
        A bucket needs one call in the time of the cache, however many objects it gets. Its key is
        unwrapped once before it is used.
        """
        for number in range(20):
            await self.put(b"%d" % number, SMALL, KINDS[SSE_S3])
        self.assertEqual((self.keys.wraps, self.keys.unwraps), (1, 1))
        self.objects = self.domain()
        reads = [Deferred.fromCoroutine(self.read(b"%d" % number)) for number in range(20)]
        await gatherResults(reads)
        self.assertEqual((self.keys.wraps, self.keys.unwraps), (1, 2))
        self.elapsed += 299
        await self.read(b"1")
        self.assertEqual(self.keys.unwraps, 2)
        self.elapsed += 2
        await self.read(b"1")
        self.assertEqual(self.keys.unwraps, 3)

    async def test_clockSetBack(self) -> None:
        """A clock that is set back does not keep keys open: time passes for them all the same."""
        await self.put(b"k", SMALL, KINDS[SSE_S3])
        # The clock was set back by 300 seconds.
        self.nowSeconds += 1
        self.elapsed += 301
        await self.read(b"k")
        self.assertEqual(self.keys.unwraps, 2)

    async def test_unopened(self) -> None:
        """A write is refused, not lost, if the provider wraps keys that it will not unwrap."""
        unwrap = self.keys.unwrap

        async def refuse(name: str, wrapped: str, binding: bytes) -> bytes:
            raise MasterKeyNotFound()

        self.patch(self.keys, "unwrap", refuse)
        for _ in range(2):
            with self.assertRaises(MasterKeyNotFound):
                await self.put(b"k", SMALL, KINDS[SSE_S3])
        _, documents = await self.store.catalog.settings("box")
        self.assertEqual(keysIn(documents), {})
        self.patch(self.keys, "unwrap", unwrap)
        await self.put(b"k", SMALL, KINDS[SSE_S3])
        self.assertEqual(await self.read(b"k"), SMALL)

    async def test_concurrent(self) -> None:
        """Concurrent first uses in two processes make one key, which both use."""
        self.keys.gate = Deferred()
        domains = [self.domain(), self.domain()]
        home = await self.objects.find("box")
        making = [
            Deferred.fromCoroutine(domain.keyForWrite(home, b"k", KINDS[SSE_S3]))
            for domain in domains
            for _ in range(5)
        ]
        gate, self.keys.gate = self.keys.gate, None
        gate.callback(None)
        keys = await gatherResults(making)
        self.assertEqual(self.keys.wraps, 2)
        _, documents = await self.store.catalog.settings("box")
        self.assertEqual(len(keysIn(documents)), 1)
        fresh = self.domain()
        for made in keys:
            opened = await fresh.encryption.open("box", documents, b"k", made.encryption, None)
            assert opened is not None
            self.assertEqual(opened.key, made.key)

    async def test_cancelled(self) -> None:
        """A load goes on for others if the first caller is cancelled."""
        self.keys.gate = Deferred()
        home = await self.objects.find("box")
        first, second = (
            Deferred.fromCoroutine(self.objects.keyForWrite(home, b"k", KINDS[SSE_S3]))
            for _ in range(2)
        )
        first.addErrback(lambda failure: None)
        first.cancel()
        gate, self.keys.gate = self.keys.gate, None
        gate.callback(None)
        self.assertIsNotNone(await second)

    async def test_recreated(self) -> None:
        """
        A bucket that is removed and created again during a write refuses what its former key
        encrypts, which nothing could open.
        """
        home, owner = await self.objects.checkWrite(CALLER, "box", b"k")
        objectKey = await self.objects.keyForWrite(home, b"k", KINDS[SSE_S3])
        client = await self.objects.keyForWrite(home, b"c", KINDS[SSE_C])
        assert objectKey is not None and client is not None
        bodies = {b"k": (objectKey, SMALL), b"l": (objectKey, LARGE), b"c": (client, LARGE)}
        limit = self.store.inlineLimit
        received = {key: await self.ingest(*each, limit) for key, each in bodies.items()}
        await self.objects.perform(CALLER, DeleteBucket("box"))
        await self.objects.perform(CALLER, CreateBucket("box"))
        await self.put(b"other", SMALL, KINDS[SSE_S3])
        for key in (b"k", b"l"):
            stored = self.objects.putObject(owner, "box", key, received[key], Attributes())
            with self.assertRaises(BucketChanged):
                await stored
        attributes = Attributes(encryption=objectKey.encryption)
        upload = MultipartUpload("box", b"k", "id", "root", 0, attributes, "", "")
        with self.assertRaises(BucketChanged):
            await self.store.catalog.commit(CreateUpload(upload))
        # A client's key belongs to no bucket.
        await self.objects.putObject(owner, "box", b"c", received[b"c"], Attributes())
        self.assertEqual(await self.read(b"c", customerKey()), LARGE)
        self.assertEqual(await self.read(b"other"), SMALL)

    async def test_forgotten(self) -> None:
        """Neither keys of objects nor the means to make them outlive the key of their bucket."""
        record = await self.put(b"k", SMALL, KINDS[SSE_S3])
        await self.put(b"l", SMALL, KINDS[SSE_S3])
        await self.read(b"k")
        home = await self.objects.find("box")
        encryption = self.objects.encryption
        for forget in (encryption.bucketKeys.forget, self._pass):
            self.assertIsNotNone(self.objects.recallKey(home, record))
            self.assertIsNotNone(encryption.recallForWrite(home, b"k", KINDS[SSE_S3]))
            # Neither serves another object.
            moved = replace(record, key=b"other")
            self.assertIsNone(self.objects.recallKey(home, moved))
            forget()
            self.assertIsNone(self.objects.recallKey(home, record))
            self.assertIsNone(encryption.recallForWrite(home, b"k", KINDS[SSE_S3]))
            await self.put(b"l", SMALL, KINDS[SSE_S3])
            await self.read(b"k")

    def _pass(self) -> None:
        self.elapsed += 301

    async def test_disabledMeanwhile(self) -> None:
        """A bucket key that is opened while its master key is disabled does not stay open."""
        encryption = (await self.put(b"k", SMALL, KINDS[SSE_S3])).attributes.encryption
        assert encryption is not None
        _, documents = await self.store.catalog.settings("box")
        keys = self.objects.encryption.bucketKeys
        keys.forget()
        gate = self.keys.gate = Deferred()
        opening = Deferred.fromCoroutine(keys.find("box", documents, encryption.bucketKey))
        keys.forget()
        self.keys.gate = None
        gate.callback(None)
        self.assertEqual(len(await opening), 32)
        self.keys.problem = "disabled"
        with self.assertRaises(MasterKeysUnavailable):
            await self.read(b"k")

    async def test_unavailable(self) -> None:
        """Without master keys, what is open goes on until the cache ends; plain bytes always."""
        await self.put(b"k", SMALL, KINDS[SSE_S3])
        await self.put(b"p", SMALL)
        await self.put(b"c", SMALL, KINDS[SSE_C])
        self.keys.problem = "away"
        self.assertEqual(await self.read(b"k"), SMALL)
        await self.put(b"k", SMALL, KINDS[SSE_S3])
        self.elapsed += 301
        for use in (
            lambda: self.read(b"k"),
            lambda: self.put(b"k", SMALL, KINDS[SSE_S3]),
            lambda: self.put(b"k", SMALL, KINDS[SSE_KMS]),
        ):
            with self.assertRaises(MasterKeysUnavailable):
                await use()
        self.objects = self.domain(EncryptionOptions(None, encryptAll=True))
        with self.assertRaises(MasterKeysUnavailable):
            await self.put(b"k", SMALL)
        self.assertEqual(await self.read(b"p"), SMALL)
        self.assertEqual(await self.read(b"c", customerKey()), SMALL)
        await self.put(b"c", SMALL, KINDS[SSE_C])

    async def test_refusedKeys(self) -> None:
        """A write with an unknown or a disabled master key is refused."""
        unknown = RequestedEncryption(SSE_KMS, "arn:aws:kms:r:1:key/unknown")
        with self.assertRaises(MasterKeyNotFound):
            await self.put(b"k", SMALL, unknown)
        await self.keys.disable("other", True)
        with self.assertRaises(MasterKeyDisabled):
            await self.put(b"k", SMALL, KINDS[SSE_KMS])

    async def test_masterKeys(self) -> None:
        """Each master key has a bucket key; names, ARNs and aliases mean the same."""
        names = ("", "other", "arn:aws:kms:us-east-1:1:key/other", "alias/other", "main")
        for number, name in enumerate(names):
            await self.put(b"%d" % number, SMALL, RequestedEncryption(SSE_KMS, name))
        _, documents = await self.store.catalog.settings("box")
        self.assertEqual(
            sorted(each.masterKey for each in keysIn(documents).values()), ["main", "other"]
        )
        self.assertEqual(self.keys.wraps, 2)

    async def test_manyAtOnce(self) -> None:
        """Keys for many master keys are made at once, each with one call of the provider."""
        names = [f"team{number}" for number in range(12)]
        self.keys = MemoryMasterKeys(*names)
        domains = [self.domain() for _ in range(2)]
        home = await self.objects.find("box")
        kinds = [RequestedEncryption(SSE_KMS, name) for name in names]
        made = await gatherResults(
            [
                Deferred.fromCoroutine(objects.keyForWrite(home, b"k", kind))
                for kind in kinds
                for objects in domains
            ]
        )
        self.assertEqual(len({each.encryption.bucketKey for each in made}), len(names))
        _, documents = await self.store.catalog.settings("box")
        self.assertEqual(
            sorted(each.masterKey for each in keysIn(documents).values()), sorted(names)
        )
        self.assertLessEqual(self.keys.wraps, 2 * len(names))

    async def test_settingsStay(self) -> None:
        """Other changes of a bucket's settings leave its keys."""
        await self.put(b"k", SMALL, KINDS[SSE_S3])
        await self.objects.perform(CALLER, PutBucketEncryption("box", BucketEncryption(SSE_KMS)))
        _, documents = await self.store.catalog.settings("box")
        self.assertEqual(len([each for each in documents if each.startswith(BUCKET_KEY)]), 1)
        self.objects = self.domain()
        self.assertEqual(await self.read(b"k"), SMALL)


class MaintenanceTests(EncryptionCase):
    """What operators do with a store needs no key."""

    async def test_withoutKeys(self) -> None:
        """Scrubs, checks, backups, restores and removals need no key; restored objects read."""
        from twisted.internet import reactor

        for name, kind in KINDS.items():
            for label, body in (("s", SMALL), ("l", LARGE)):
                await self.put(f"{name} {label}".encode(), body, kind)
        await self.put(b"gone", LARGE, KINDS[SSE_S3])
        self.keys.problem = "away"
        self.elapsed += 1000
        await self.objects.perform(CALLER, DeleteObject("box", b"gone", None))
        await self.store.idle()
        await self.store.scrubber.stop()
        report = CorruptionLog(self.store.catalog, self.store.blobs.markCorrupt)
        await Scrubber(self.store.catalog, self.store.blobs, reactor, report, 1 << 40).scrub()
        self.assertEqual(self.store.blobs.corrupt, frozenset())
        blobs = [each.name for each in Path(self.directory, "blobs").rglob("*")]
        self.assertEqual(len(list(filter(isBlobId, blobs))), len(KINDS))
        calls = self.keys.wraps, self.keys.unwraps
        copy, restored = f"{self.directory}-copy", f"{self.directory}-restored"
        lines: list[str] = []
        self.assertEqual(backup(self.directory, copy, True, lines.append), 0, lines)
        self.assertEqual(restore(copy, restored, True, lines.append), 0, lines)
        await self.store.close()
        for directory in (self.directory, restored):
            self.assertEqual(check(directory, False, True, lines.append), 0, lines)
        self.directory = restored
        self.reopen()
        self.assertEqual((self.keys.wraps, self.keys.unwraps), calls)
        self.keys.problem = None
        for name, kind in KINDS.items():
            customer = None if kind is None else kind.customerKey
            for label, body in (("s", SMALL), ("l", LARGE)):
                found = await self.read(f"{name} {label}".encode(), customer)
                self.assertTrue(found == body)

    async def test_bounded(self) -> None:
        """A sealed upload and its read hold a few buffers, whatever its size."""
        home, _ = await self.objects.checkWrite(CALLER, "box", b"k")
        objectKey = await self.objects.keyForWrite(home, b"k", KINDS[SSE_S3])
        assert objectKey is not None
        size = 24 * MIB
        tracemalloc.start()
        try:
            sink = self.store.blobs.writer(0, size, "box", objectKey.sealer())
            for _ in range(size // CHUNK):
                wait = sink.write(bytes(CHUNK))
                if wait is not None:
                    await wait
            content = await sink.finish()
            _, written = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            opened = OpenContent(content, objectKey)
            pieces = openPieces(self.store, opened, 0, size)
            async with aclosing(pieces):
                total = sum([len(piece) async for piece in pieces])
            _, read = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertEqual(total, size)
        self.assertLess(written, 4 * MIB)
        self.assertLess(read, 3 * MIB)
        self.store.abort(sink)


@long("waits for a catalog and blobs with delays")
class RemoteTests(EncryptionCase):
    """Blobs on another machine."""

    catalog = DELAYED
    blobs = RANGED
    test_kinds = ObjectTests.test_kinds
    rowsOf = ObjectTests.rowsOf

    async def test_reread(self) -> None:
        """A wrong response is read again; a damaged blob is not."""
        await self.put(b"k", LARGE, KINDS[SSE_S3])
        blobs: Any = self.store.blobs
        former: Callable[..., Any] = blobs.readRange
        wrong: list[bool] = []

        async def readRange(blob: str, offset: int, length: int) -> bytes:
            found: bytes = await former(blob, offset, length)
            return bytes([found[0] ^ 1]) + found[1:] if wrong and wrong.pop() else found

        blobs.readRange = readRange
        # The response with the salt or with the first or last chunks is wrong.
        for start, sequence in ((0, [True]), (100_000, [True]), (100_000, [True, False])):
            wrong[:] = sequence
            self.objects = self.domain()
            _, content = await self.find(b"k")
            response = Response()
            await sendSegments(self.store, content, start, 50, response, response.begin)
            self.assertEqual((response.body, wrong), (LARGE[start : start + 50], []))
        self.assertEqual(blobs.corrupt, frozenset())
        wrong[:] = [True] * 9
        with self.assertRaises(CorruptBlob):
            await sendSegments(self.store, content, 0, 50, response, response.begin)
        self.assertEqual(len(blobs.corrupt), 1)
        wrong.clear()
        await self.store.idle()


class VerifiedTests(EncryptionCase):
    """Reads with C{verifyReads}."""

    verifyReads = True
    test_kinds = ObjectTests.test_kinds
    rowsOf = ObjectTests.rowsOf
