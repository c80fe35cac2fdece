"""Blobs in a bucket whose server, or what answers in its place, is not to be believed."""

import os
from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.threads import deferToThread
from twisted.logger import ILogObserver, LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from storagegate.storage.cluster.blobs.pieces import MARKER, MissingPiece
from storagegate.storage.cluster.blobs.remote import checkPieces, readMarker
from storagegate.storage.cluster.blobs.s3 import BucketPieces
from storagegate.storage.cluster.blobs.s3answers import SUMS_HEADER
from storagegate.storage.errors import CorruptBlob, StoreBusy
from storagegate.storage.records import Segment
from tests.contract.blobs import KIB, MIB, SlowResponse, load, store
from tests.contract.remoteblobs import STORE, RemoteCase
from tests.support.lyingupstream import (
    LyingUpstream,
    Reply,
    Sent,
    flipped,
    html,
    md5Of,
    notFound,
)
from tests.support.selection import long
from tests.support.upstreams3 import credentials

CRC = "x-amz-checksum-crc32c"


def onPut(change: Callable[[Sent, Reply], Reply]) -> Callable[[Sent, Reply], Reply]:
    """Change the answers to uploads alone."""
    return lambda sent, reply: change(sent, reply) if sent.method == "PUT" else reply


class LyingCase(RemoteCase):
    """A bucket of a server that a test makes lie."""

    isCut = False

    async def setUp(self: Any) -> None:
        """Start the server."""
        self.upstream = LyingUpstream().start()
        self.addCleanup(deferToThread, self.upstream.stop)
        self.damaged: list[str] = []
        await super().setUp()
        self.blobs.onDamaged = self.damaged.append
        self.blobs.onShort = lambda blob, size: self.damaged.append(blob)

    def openPieces(self: Any) -> BucketPieces:
        """Connect."""
        from twisted.internet import reactor

        return BucketPieces(self.upstream.address(), reactor, self.pool, credentials())

    async def sent(self: Any, segment: Segment) -> bytes:
        """Send a segment to a response; return what the response has received."""
        handle = await self.blobs.open(segment)
        response = SlowResponse()
        try:
            await handle.sendTo(response, segment.offset, segment.length)
        finally:
            handle.close()
        return response.body


class UploadTests(LyingCase, TestCase):
    """Only what the server confirms is stored."""

    async def test_refused(self) -> None:
        """An answer without proof of the bytes is an error, counted each time and logged once."""
        lies: list[Callable[[Sent, Reply], Reply]] = [
            html,
            lambda sent, reply: Reply(200),
            lambda sent, reply: reply.without("etag"),
            lambda sent, reply: reply.having(**{CRC: "AAAAAA=="}),
            # They give neither the checksum nor the MD5, and HEAD has none.
            lambda sent, reply: reply.without(CRC).having(etag=md5Of(b"other bytes")),
            lambda sent, reply: reply.without(CRC).having(
                etag=md5Of(sent.body[: len(sent.body) // 2])
            ),
        ]
        seen: list[str] = []

        @implementer(ILogObserver)
        def observe(event: LogEvent) -> None:
            if "did not confirm" in formatEvent(event):
                seen.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for lie in lies:
            seen.clear()
            self.pieces._isDoubted = False
            before = self.pieces.unconfirmedWrites

            def change(sent: Sent, reply: Reply, lie: Any = lie) -> Reply:
                return lie(sent, reply) if sent.method == "PUT" else reply.without(CRC)

            self.upstream.change = change
            for size in (300 * KIB, 5):
                with self.assertRaises(StoreBusy):
                    await store(self.blobs, os.urandom(size))
            self.assertEqual(self.pieces.unconfirmedWrites - before, 2)
            self.assertEqual(len(seen), 1)
        self.assertIsNone(self.blobs.failure)

    async def test_headOfOthers(self) -> None:
        """HEAD confirms neither other bytes nor other sizes."""

        def change(sent: Sent, reply: Reply) -> Reply:
            if sent.method == "PUT":
                return reply.without(CRC).having(etag='"opaque"')
            return answers[-1](reply) if sent.method == "HEAD" else reply

        self.upstream.change = change
        answers: list[Callable[[Reply], Reply]] = []
        for answer in (
            lambda reply: reply.having(**{CRC: "AAAAAA=="}),
            lambda reply: evolve(reply, length=1),
            lambda reply: Reply(404),
            lambda reply: Reply(200, {"content-type": "text/html"}),
        ):
            answers.append(answer)
            with self.assertRaises(StoreBusy):
                await store(self.blobs, b"bytes")
        answers.append(lambda reply: reply)
        await store(self.blobs, b"bytes")

    @long("takes seconds")
    async def test_others(self) -> None:
        """The answers of the servers that people have are understood."""
        amazonKMS = {
            "etag": '"0c78aef83f66abc1fa1e8477f296d394"',
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:eu-west-1:1:key/k",
        }
        rgw = {"x-rgw-object-type": "Normal", "x-amz-request-id": "tx00000abc-0065-default"}

        def google(reply: Reply, body: bytes, etag: str) -> Reply:
            crc = reply.headers[CRC]
            plain = reply.without(CRC, "x-amz-request-id", "x-amz-id-2")
            hashes = f"crc32c={crc},md5=AAAAAAAAAAAAAAAAAAAAAA=="
            return plain.having(
                **{"x-goog-hash": hashes, "x-guploader-uploadid": "ABg5", "etag": etag}
            )

        servers: dict[str, Callable[[Sent, Reply], Reply]] = {
            "Amazon": lambda sent, reply: reply,
            "Amazon, KMS": lambda sent, reply: reply.having(**amazonKMS),
            "Amazon, KMS, of HEAD": lambda sent, reply: reply.having(**amazonKMS).without(CRC),
            "MinIO": lambda sent, reply: reply.having(server="MinIO"),
            "MinIO, encrypted": lambda sent, reply: reply.having(etag='"f' + "0" * 30 + 'f"'),
            "Ceph": lambda sent, reply: reply.having(**rgw).without(CRC),
            "Ceph, ETag without quotes": lambda sent, reply: reply.having(
                etag=md5Of(sent.body).strip('"')
            ).without(CRC),
            "R2": lambda sent, reply: reply.without(CRC, "x-amz-request-id", "x-amz-id-2").having(
                **{"cf-ray": "7d", "x-amz-version-id": "7e6"}
            ),
            "Google": lambda sent, reply: google(reply, sent.body, md5Of(sent.body)),
            "Google, CMEK": lambda sent, reply: google(reply, sent.body, '"CKih16GjycICEAE="'),
        }
        for name, answer in servers.items():
            self.upstream.change = onPut(answer)
            for size in (5, 100 * KIB, 9 * MIB):
                body = os.urandom(size)
                content = await store(self.blobs, body)
                self.assertTrue(await load(self.blobs, content) == body, name)
        self.assertEqual(self.pieces.unconfirmedWrites, 0)


class ReadTests(LyingCase, TestCase):
    """No wrong byte of a read is passed on."""

    async def test_oneWrongAnswer(self) -> None:
        """A wrong bit of one answer is not seen: the chunk is read anew, also for a range."""
        body = os.urandom(9 * MIB)
        [segment] = (await store(self.blobs, body)).segments
        lies = [3]

        def change(sent: Sent, reply: Reply) -> Reply:
            if sent.method == "GET" and len(reply.body) > 1000 and lies[0]:
                lies[0] -= 1
                return evolve(reply, body=flipped(reply.body, 777))
            return reply

        self.upstream.change = change
        for offset, length in ((0, 9 * MIB), (5, 10), (4 * MIB - 1, 2), (9 * MIB - 3, 3)):
            lies[0] = 1
            part = Segment(segment.blob, offset, length)
            self.assertTrue(await self.sent(part) == body[offset : offset + length])
            self.assertEqual(lies[0], 0)
        self.assertEqual(self.damaged, [])
        self.assertEqual(self.pieces.rereads, 4)

    async def test_alwaysWrong(self) -> None:
        """Where the second answer is wrong, too, not a byte of the chunk is sent; it is damage."""
        body = os.urandom(3 * MIB)
        [segment] = (await store(self.blobs, body)).segments
        self.upstream.change = lambda sent, reply: (
            evolve(reply, body=flipped(reply.body, 0)) if sent.method == "GET" else reply
        )
        for part in (segment, Segment(segment.blob, MIB + 5, 7)):
            with self.assertRaises(CorruptBlob):
                await self.sent(part)
        self.assertEqual(self.damaged, [segment.blob] * 2)

    async def test_otherPiece(self) -> None:
        """Right bytes of another piece, or of another range, are wrong bytes."""
        [first] = (await store(self.blobs, os.urandom(200 * KIB))).segments
        [second] = (await store(self.blobs, os.urandom(200 * KIB))).segments
        objects = self.upstream.objects
        objects[f"blobs/{first.blob}"] = objects[f"blobs/{second.blob}"]
        with self.assertRaises(CorruptBlob):
            await self.sent(first)
        body, meta = objects[f"blobs/{second.blob}"]
        turned = body[64 * KIB : 128 * KIB] + body[: 64 * KIB] + body[128 * KIB :]
        objects[f"blobs/{second.blob}"] = (turned, meta)
        with self.assertRaises(CorruptBlob):
            await self.sent(second)

    async def test_withoutSums(self) -> None:
        """An object without checksums of its chunks is read, and known not to be verified."""
        body = os.urandom(200 * KIB)
        [segment] = (await store(self.blobs, body)).segments
        key = f"blobs/{segment.blob}"
        self.assertIn(SUMS_HEADER, self.upstream.objects[key][1])
        for meta, isVerified in ((self.upstream.objects[key][1], True), ({}, False)):
            self.upstream.objects[key] = (body, meta)
            handle = await self.blobs.open(segment)
            self.assertEqual(handle.isVerified, isVerified)
            self.assertTrue(await handle.read(5, 100_000) == body[5:100_005])
            self.assertEqual(handle.isVerified, isVerified)
            handle.close()

    async def test_missingOnce(self) -> None:
        """An object that is missing in one answer is looked for once more."""
        [segment] = (await store(self.blobs, b"bytes")).segments
        missing = [1]

        def change(sent: Sent, reply: Reply) -> Reply:
            if segment.blob in sent.key and missing[0] and "." not in sent.key:
                missing[0] -= 1
                body = b"<Error><Code>NoSuchKey</Code></Error>"
                return Reply(404, {"x-amz-request-id": "1"}, body)
            return reply

        self.upstream.change = change
        self.assertEqual(await self.sent(segment), b"bytes")
        self.assertEqual((missing, self.damaged), ([0], []))


class AnswerTests(LyingCase, TestCase):
    """What is not S3's answer is no answer."""

    async def test_notFound(self) -> None:
        """404 of something else is no missing blob; the health says that the bucket is broken."""
        content = await store(self.blobs, b"bytes")
        for lie in (notFound, html, lambda sent, reply: Reply(404)):
            self.upstream.change = lie
            for operation in (
                store(self.blobs, b"new"),
                load(self.blobs, content),
                self.blobs.openUncached(content.segments[0].blob),
                checkPieces(self.pieces, STORE),
                self.pieces.remove("absent"),
            ):
                with self.assertRaises(StoreBusy):
                    await operation
        self.blobs.health()
        while self.blobs._isProbing:
            await deferToThread(lambda: None)
        self.assertIn("404", self.blobs.health()["blobs"])
        self.assertEqual(self.damaged, [])
        self.upstream.change = lambda sent, reply: reply
        self.assertEqual(await load(self.blobs, content), b"bytes")

    async def test_missing(self) -> None:
        """A missing object is known by its code; where HEAD has no id, by an answer to GET."""
        for gone in ((), ("x-amz-request-id", "x-amz-id-2")):
            self.upstream.change = lambda sent, reply, gone=gone: (
                reply.without(*gone) if sent.method != "HEAD" or not gone else Reply(reply.status)
            )
            for operation in (self.pieces.size("absent"), self.pieces.get("absent", 0, 1)):
                with self.assertRaises(MissingPiece):
                    await operation
            await self.pieces.remove("absent")

    async def test_removal(self) -> None:
        """Only 204 and NoSuchKey are a removal; after any other answer it is tried again."""
        [segment] = (await store(self.blobs, b"bytes")).segments
        for lie in (notFound, html, lambda sent, reply: Reply(200), lambda sent, reply: Reply(202)):
            self.upstream.change = lie
            with self.assertRaises(StoreBusy):
                await self.blobs.remove([segment.blob])
        # An upload that nobody commits waits until it is removed.
        self.upstream.change = lambda sent, reply: (
            html(sent, reply) if sent.method == "DELETE" else reply
        )
        self.blobs._removals.add(segment.blob, False)
        self.upstream.change = lambda sent, reply: reply
        await self.blobs.idle()
        self.assertEqual(set(self.upstream.objects), {f"blobs/{MARKER}"})

    async def test_names(self) -> None:
        """All names are listed, page by page; what is no list is an error."""
        for name in ("a", "b&c", "d/e", "f g"):
            await self.pieces.put(name, 0, [b"bytes"], True)
        found = [name async for page in self.pieces.names() for name in page]
        self.assertEqual(found, ["a", "b&c", "d/e", "f g", MARKER])
        self.upstream.change = html
        with self.assertRaises(StoreBusy):
            [page async for page in self.pieces.names()]

    async def test_namesAgain(self) -> None:
        """A list that goes on with the same names, or with none, is an error and not endless."""
        for entries in ("<Contents><Key>blobs/a</Key></Contents>", ""):
            body = f"<ListBucketResult>{entries}<IsTruncated>true</IsTruncated></ListBucketResult>"
            lie = Reply(200, {"x-amz-request-id": "1"}, body.encode())
            self.upstream.change = lambda sent, reply, lie=lie: lie
            pages = 0
            with self.assertRaisesRegex(StoreBusy, "did not continue its list"):
                async for _ in self.pieces.names():
                    pages += 1
                    self.assertLess(pages, 5)

    async def test_probe(self) -> None:
        """The probe reads what it has written, and leaves nothing; an idle store is probed."""
        await self.blobs._probe()
        self.assertEqual(set(self.upstream.objects), {f"blobs/{MARKER}"})
        self.upstream.change = lambda sent, reply: (
            evolve(reply, body=reply.body[::-1]).without(SUMS_HEADER)
            if sent.method == "GET" and MARKER not in sent.key
            else reply
        )
        with self.assertRaisesRegex(StoreBusy, "differ from the bytes written"):
            await self.blobs._probe()
        self.assertEqual(await readMarker(self.pieces), STORE)
        self.blobs._provedAt -= 31
        self.assertIsNone(self.blobs.health()["blobs"])
        while self.blobs._isProbing:
            await deferToThread(lambda: None)
        self.assertIn("differ from the bytes written", self.blobs.health()["blobs"])
