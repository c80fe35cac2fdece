"""Bodies in aws-chunked: Amazon's examples, the clients' habits, and what is refused."""

from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from storagegate.s3.auth import sigv4
from storagegate.s3.auth.sigv4 import SignatureParams, deriveSigningKey
from storagegate.s3.chunked import (
    MAX_CHUNKS,
    AwsChunkedDecoder,
    makeDecoder,
    parseDecodedLength,
)
from storagegate.s3.errors import S3Error
from tests.s3.examples import NOW, REGION, SECRET, TIMESTAMP, S3Case, authorization, check
from tests.support.selection import rounds

CRC32C = b"x-amz-checksum-crc32c"
KEY = deriveSigningKey(SECRET, "20130524", REGION, "s3")
SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
TRAILER_SEED = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"


def seedRequest(signature: str, payload: str, trailer: bytes = b"") -> sigv4.SignedRequest:
    """Make Amazon's PUT that begins a chunked upload."""
    headers = {
        b"content-encoding": b"aws-chunked",
        b"content-length": b"66824",
        b"host": b"s3.amazonaws.com",
        b"x-amz-content-sha256": payload.encode(),
        b"x-amz-date": TIMESTAMP.encode(),
        b"x-amz-decoded-content-length": b"66560",
        b"x-amz-storage-class": b"REDUCED_REDUNDANCY",
    }
    if trailer:
        # The example with a trailer does not sign its length.
        del headers[b"content-length"]
        headers[b"x-amz-trailer"] = trailer
    headers[b"authorization"] = authorization(
        signature, ";".join(name.decode() for name in sorted(headers))
    )
    return sigv4.SignedRequest(b"PUT", b"/examplebucket/chunkObject.txt", b"", headers)


def claimWith(payload: str, signature: str = SEED) -> SignatureParams:
    """Make a claim whose request was verified."""
    claim = sigv4.parseHeaderClaim(seedRequest(signature, payload).headers)
    return replace(claim, payloadHash=payload)


def signedChunk(data: bytes, signature: str) -> bytes:
    """Write a chunk with its signature."""
    return b"%x;chunk-signature=%b\r\n%b\r\n" % (len(data), signature.encode(), data)


EXAMPLE = (
    signedChunk(b"a" * 65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648")
    + signedChunk(b"a" * 1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497")
    + signedChunk(b"", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9")
)
TRAILER_CHUNKS = (
    signedChunk(b"a" * 65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2")
    + signedChunk(b"a" * 1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7")
    + b"0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n"
)
TRAILER_SIGNATURE = (
    b"x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"
)


def signedBody(pieces: list[bytes], trailers: list[tuple[bytes, bytes]] | None = None) -> bytes:
    """Write a signed body, seeded by C{SEED}; trailers are signed in order."""
    previous, wire = SEED, []
    context = f"{TIMESTAMP}\n20130524/{REGION}/s3/aws4_request"
    empty = sha256().hexdigest()
    for piece in [*pieces, b""]:
        digest = sha256(piece).hexdigest()
        text = f"AWS4-HMAC-SHA256-PAYLOAD\n{context}\n{previous}\n{empty}\n{digest}"
        previous = KEY.sign(text.encode())
        wire.append(signedChunk(piece, previous))
    if trailers is not None:
        wire[-1] = wire[-1][:-2]
        digest = sha256(b"".join(b"%b:%b\n" % field for field in trailers)).hexdigest()
        text = f"AWS4-HMAC-SHA256-TRAILER\n{context}\n{previous}\n{digest}"
        wire += [b"%b:%b\r\n" % field for field in trailers]
        wire.append(b"x-amz-trailer-signature:%b\r\n\r\n" % KEY.sign(text.encode()).encode())
    return b"".join(wire)


def unsignedBody(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    """Write a body without signatures."""
    chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"


def cut(wire: bytes, positions: list[int]) -> list[bytes]:
    """Cut a body at some positions."""
    ends = sorted({position % (len(wire) + 1) for position in positions} | {len(wire)})
    return [wire[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def decode(decoder: AwsChunkedDecoder, pieces: list[bytes]) -> bytes:
    """Decode a whole body."""
    found: list[bytes] = []
    for wire in pieces:
        found += decoder.feed(wire)
        while decoder.isBehind:
            found += decoder.feed(b"")
    decoder.finish()
    return b"".join(found)


class ChunkedCase(S3Case):
    """A test case that knows the four kinds of bodies."""

    def signedDecoder(self, length: int, names: tuple[bytes, ...] = ()) -> AwsChunkedDecoder:
        """Make a decoder of a signed body."""
        payload = sigv4.STREAMING_SIGNED_TRAILER if names else sigv4.STREAMING_SIGNED
        return makeDecoder(claimWith(payload), KEY, length, names)

    def unsignedDecoder(self, length: int, names: tuple[bytes, ...] = ()) -> AwsChunkedDecoder:
        """Make a decoder of an unsigned body."""
        return makeDecoder(claimWith(sigv4.STREAMING_UNSIGNED_TRAILER), KEY, length, names)

    def refusedBody(
        self, decoder: AwsChunkedDecoder, wire: bytes, code: str = "IncompleteBody"
    ) -> S3Error:
        """Assert that a body is refused."""
        return self.refused(code, 403 if code.startswith("Sig") else 400, decode, decoder, [wire])


class PublishedExampleTests(ChunkedCase):
    """The examples of the S3 API reference."""

    def test_chunks(self) -> None:
        """The seed of the chunked upload and its three chunks are accepted."""
        request = seedRequest(SEED, sigv4.STREAMING_SIGNED)
        key = check(request, NOW)
        decoder = makeDecoder(sigv4.parseHeaderClaim(request.headers), key, 66560, ())
        self.assertEqual(decode(decoder, [EXAMPLE]), b"a" * 66560)
        self.assertEqual(decoder.trailers, {})

    def test_trailer(self) -> None:
        """The upload with a trailer is accepted, with the line feed of the example or without."""
        request = seedRequest(TRAILER_SEED, sigv4.STREAMING_SIGNED_TRAILER, CRC32C)
        key = check(request, NOW)
        claim = sigv4.parseHeaderClaim(request.headers)
        for end in (b"\r\n", b"\n\r\n"):
            decoder = makeDecoder(claim, key, 66560, [CRC32C])
            wire = TRAILER_CHUNKS + CRC32C + b":sOO8/Q==" + end + TRAILER_SIGNATURE + b"\r\n\r\n"
            self.assertEqual(decode(decoder, [wire]), b"a" * 66560)
            self.assertEqual(decoder.trailers, {CRC32C: b"sOO8/Q=="})


class DecodingTests(ChunkedCase):
    """However a body comes, it decodes the same."""

    def assertDecodes(self, make: object, wire: bytes, data: bytes, end: list[int]) -> None:
        """Feed a body whole, byte by byte, cut at random, and with bytes behind it."""
        assert callable(make)
        self.assertEqual(decode(make(), [wire]), data)
        if len(wire) < 2000:
            self.assertEqual(decode(make(), [wire[i : i + 1] for i in range(len(wire))]), data)
        self.assertEqual(decode(make(), cut(wire, end)), data)
        for extra in (b"\r\n", b"0\r\n\r\n", b"x"):
            self.refusedBody(make(), wire + extra)

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(
        st.lists(st.binary(min_size=1, max_size=300), max_size=4),
        st.lists(st.integers(0, 5000), max_size=8),
        st.booleans(),
        st.booleans(),
    )
    def test_anyCut(self, pieces: list[bytes], ends: list[int], signed: bool, trail: bool) -> None:
        """Signed or not, with a trailer or without, whole or in any pieces."""
        data = b"".join(pieces)
        names = (CRC32C,) if trail else ()
        if signed:
            wire = signedBody(pieces, [(CRC32C, b"AAAAAA==")] if trail else None)
            self.assertDecodes(lambda: self.signedDecoder(len(data), names), wire, data, ends)
        else:
            wire = unsignedBody(pieces, CRC32C + b":AAAAAA==\r\n" if trail else b"")
            self.assertDecodes(lambda: self.unsignedDecoder(len(data), names), wire, data, ends)

    @settings(max_examples=rounds(12, 60), deadline=None)
    @given(st.lists(st.binary(min_size=1, max_size=60), max_size=3), st.booleans(), st.data())
    def test_cutShort(self, pieces: list[bytes], signed: bool, data: st.DataObject) -> None:
        """A body that ends too early is never taken for a whole one."""
        length = sum(map(len, pieces))
        wire = signedBody(pieces) if signed else unsignedBody(pieces)
        stop = data.draw(st.integers(0, len(wire) - 1))
        decoder = self.signedDecoder(length) if signed else self.unsignedDecoder(length)
        self.refusedBody(decoder, wire[:stop])

    @settings(max_examples=rounds(20, 100), deadline=None)
    @given(st.binary(max_size=60), st.integers(0, 255), st.data())
    def test_changedByte(self, body: bytes, byte: int, data: st.DataObject) -> None:
        """No byte of a signed body can be changed."""
        pieces = [body[:20], body[20:]] if len(body) > 20 else [body] * bool(body)
        wire = signedBody(pieces, [(CRC32C, b"AAAAAA==")])
        index = data.draw(st.integers(0, len(wire) - 1))
        changed = wire[:index] + bytes([byte]) + wire[index + 1 :]
        # What may be written in capitals means the same.
        if changed.lower() == wire.lower():
            return
        error = self.assertRaises(
            S3Error, decode, self.signedDecoder(len(body), (CRC32C,)), [changed]
        )
        self.assertIn(error.status, (400, 403))

    def test_manyChunks(self) -> None:
        """A call decodes some chunks and leaves the others, whose errors come later."""
        body = bytes(range(256)) * 2
        small = [body[i : i + 1] for i in range(len(body))]
        for decoder, wire in (
            (self.unsignedDecoder(len(body)), unsignedBody(small)),
            (self.signedDecoder(len(body)), signedBody(small)),
        ):
            found: list[bytes] = []
            taken = decoder.feed(wire[:-1])
            while decoder.isBehind:
                self.assertEqual(len(taken), MAX_CHUNKS)
                found += taken
                taken = decoder.feed(b"")
            found += taken + decoder.feed(wire[-1:])
            self.assertEqual(b"".join(found), body)
            decoder.finish()
        decoder = self.unsignedDecoder(MAX_CHUNKS + 2)
        self.assertEqual(len(decoder.feed(b"1\r\na\r\n" * (MAX_CHUNKS + 1) + b"x")), MAX_CHUNKS)
        self.refused("IncompleteBody", 400, decoder.feed, b"\r\n")

    def test_noCopies(self) -> None:
        """Data comes out in pieces as large as it came in."""
        decoder = self.unsignedDecoder(1 << 20)
        self.assertEqual(decoder.feed(b"100000\r\n"), [])
        piece = b"x" * 65536
        for _ in range(16):
            [out] = decoder.feed(piece)
            self.assertIs(out, piece)

    def test_boundedWithoutSignature(self) -> None:
        """Data of a chunk is given out before the chunk has ended."""
        decoder = self.signedDecoder(100)
        wire = signedBody([b"a" * 100])
        self.assertEqual(b"".join(decoder.feed(wire[:150])), b"a" * (150 - wire.index(b"\n") - 1))

    def test_failedStaysFailed(self) -> None:
        """A decoder that raised takes nothing more, and does not finish."""
        decoder = self.unsignedDecoder(0)
        self.refused("IncompleteBody", 400, decoder.feed, b"x\r\n")
        self.refused("IncompleteBody", 400, decoder.feed, b"0\r\n\r\n")
        self.refused("IncompleteBody", 400, decoder.finish)


class TamperingTests(ChunkedCase):
    """Signed bodies that are not what was signed."""

    def test_changedData(self) -> None:
        """A byte of data that was changed is found, and the answer shows what was signed."""
        wire = EXAMPLE.replace(b"a\r\n400;", b"b\r\n400;")
        error = self.refusedBody(self.signedDecoder(66560), wire, "SignatureDoesNotMatch")
        self.assertEqual(error.fields["SignatureProvided"][:8], "ad80c730")
        self.assertTrue(error.fields["StringToSign"].startswith("AWS4-HMAC-SHA256-PAYLOAD\n"))

    def test_swappedChunks(self) -> None:
        """Chunks in another order are refused."""
        wire = signedBody([b"a", b"b"])
        first, second = wire[:87], wire[87:174]
        self.assertTrue(first.endswith(b"a\r\n") and second.endswith(b"b\r\n"))
        wire = second + first + wire[174:]
        self.refusedBody(self.signedDecoder(2), wire, "SignatureDoesNotMatch")

    def test_forgedLastChunk(self) -> None:
        """The last chunk has to be signed too."""
        wire = signedBody([b"a"])[:87] + signedChunk(b"", "0" * 64)
        self.refusedBody(self.signedDecoder(1), wire, "SignatureDoesNotMatch")

    def test_unsignedChunks(self) -> None:
        """A signed body has no chunk without a signature, nor an unsigned one any with."""
        self.refusedBody(self.signedDecoder(1), unsignedBody([b"a"]))
        self.refusedBody(self.unsignedDecoder(1), signedBody([b"a"]))

    def test_trailer(self) -> None:
        """A trailer that is changed, not signed or signed by another key is refused."""
        wire = signedBody([b"a"], [(CRC32C, b"AAAAAA==")])
        changed = wire.replace(b"AAAAAA==", b"AAAAAQ==")
        names = (CRC32C,)
        self.refusedBody(self.signedDecoder(1, names), changed, "SignatureDoesNotMatch")
        unsigned = wire[: wire.index(b"x-amz-trailer")] + b"\r\n"
        self.refusedBody(self.signedDecoder(1, names), unsigned, "InvalidRequest")
        for signature in (b"", b"x-amz-trailer-signature:\r\n"):
            bare = wire[: wire.index(CRC32C)] + signature + b"\r\n"
            self.refusedBody(self.signedDecoder(1, names), bare, "InvalidRequest")

    def test_announcedWithoutTrailerPayload(self) -> None:
        """A payload without a trailer announces none."""
        claim = claimWith(sigv4.STREAMING_SIGNED)
        self.refused("InvalidRequest", 400, makeDecoder, claim, KEY, 1, (CRC32C,))


class GrammarTests(ChunkedCase):
    """What is no such body."""

    def test_lines(self) -> None:
        """The line of a chunk is hexadecimal digits and CRLF, and nothing else."""
        for line in (
            b"",
            b" 1",
            b"1 ",
            b"+1",
            b"-1",
            b"0x1",
            b"1_0",
            b"g",
            b"1;",
            b"1;a=b",
            b"1\n",
            b"\n1",
            b"1\r",
            b"f" * 17,
            b"0" * 17,
        ):
            self.refusedBody(self.unsignedDecoder(1), line + b"\r\na\r\n0\r\n\r\n")
        for signature in (b"", b"0" * 129, b"0 " * 32, b"\xff" * 64, b"0" * 64 + b";a=b"):
            wire = b"1;chunk-signature=%b\r\na\r\n" % signature
            self.refusedBody(self.signedDecoder(1), wire)
        for signature in (b"0", b"0" * 63, b"0" * 65, b"G" * 64, b"x" * 64):
            wire = b"1;chunk-signature=%b\r\na\r\n" % signature
            self.refusedBody(self.signedDecoder(1), wire, "SignatureDoesNotMatch")
        capitals = b"A\r\naaaaaaaaaa\r\n000\r\n\r\n"
        self.assertEqual(decode(self.unsignedDecoder(10), [capitals]), b"a" * 10)

    def test_lineEnds(self) -> None:
        """Data ends with CRLF, and no line with a bare LF."""
        for wire in (
            b"1\na\r\n0\r\n\r\n",
            b"1\r\na\n0\r\n\r\n",
            b"1\r\naa\r\n0\r\n\r\n",
            b"1\r\na0\r\n\r\n",
            b"1\r\na\r\n0\n\n",
            b"1\r\na\r\n0\r\n\n\n",
        ):
            self.refusedBody(self.unsignedDecoder(1), wire)

    def test_endlessLine(self) -> None:
        """A line without an end is refused as soon as it is too long."""
        decoder = self.unsignedDecoder(1)
        decoder.feed(b"0" * 4097)
        self.refused("IncompleteBody", 400, decoder.feed, b"0")
        self.refused("IncompleteBody", 400, self.unsignedDecoder(1).feed, b"0" * 100_000)

    def test_length(self) -> None:
        """The data is as long as was declared; more is refused at the line that says so."""
        self.refusedBody(self.unsignedDecoder(2), unsignedBody([b"a"]))
        self.refused("IncompleteBody", 400, self.unsignedDecoder(2).feed, b"3\r\n")
        self.refused("IncompleteBody", 400, self.unsignedDecoder(2).feed, b"10000000000\r\n")
        self.refusedBody(self.unsignedDecoder(1), unsignedBody([b"a", b"b"]))

    def test_declaredLength(self) -> None:
        """The declared length is there, and is a number."""
        self.assertEqual(parseDecodedLength(b"66560"), 66560)
        self.refused("MissingContentLength", 411, parseDecodedLength, None)
        for value in (b"", b"-1", b"+1", b"1_0", b"1.0", b"9" * 20, b"\xff"):
            self.refused("InvalidArgument", 400, parseDecodedLength, value)


class TrailerTests(ChunkedCase):
    """Trailers of unsigned bodies."""

    def trailers(self, section: bytes) -> dict[bytes, bytes]:
        """Decode a body with a trailer that announces a CRC32C."""
        decoder = self.unsignedDecoder(1, (CRC32C,))
        decode(decoder, [unsignedBody([b"a"], section)])
        return decoder.trailers

    def test_clients(self) -> None:
        """The trailers of the SDKs, of minio's clients and of those who like spaces are read."""
        for section in (
            CRC32C + b":AAAAAA==\r\n",
            CRC32C + b":AAAAAA==\n\r\n",
            b"X-Amz-Checksum-CRC32C: AAAAAA== \r\n",
        ):
            self.assertEqual(self.trailers(section), {CRC32C: b"AAAAAA=="})

    def test_notWhatWasAnnounced(self) -> None:
        """A trailer that is missing, is another, comes twice or cannot be read is refused."""
        line = CRC32C + b":AAAAAA==\r\n"
        for section in (
            b"",
            b"x-amz-checksum-crc32:AAAAAA==\r\n",
            line + line,
            line + b"x-amz-meta-a:b\r\n",
            line + TRAILER_SIGNATURE + b"\r\n",
            CRC32C + b"\r\n",
            CRC32C + b":\r\n",
            CRC32C + b" :AAAAAA==\r\n",
            CRC32C + b":AAAA\nAA==\r\n",
            CRC32C + b":AAAA\x00AA==\r\n",
            b" " + line,
        ):
            self.refused("InvalidRequest", 400, self.trailers, section)
        wire = unsignedBody([b"a"], line)
        self.refusedBody(self.unsignedDecoder(1), wire, "InvalidRequest")

    def test_tooLong(self) -> None:
        """A trailer of more than 8 kB is refused, whether its end comes or not."""
        section = CRC32C + b":" + b"A" * 8200
        self.refused("InvalidRequest", 400, self.trailers, section + b"\r\n")
        decoder = self.unsignedDecoder(0, (CRC32C,))
        decoder.feed(b"0\r\n")
        self.refused("InvalidRequest", 400, decoder.feed, section)
