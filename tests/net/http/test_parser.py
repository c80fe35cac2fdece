"""Reading the head of a request."""

import re

from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http import parser
from storagegate.net.http.interfaces import BadRequest, HTTPLimits
from storagegate.net.http.parser import RequestHead, checkPartialHead, parseHead
from tests.net.support import head
from tests.support.selection import long

LIMITS = HTTPLimits()

SINGLE_FIELDS = """
    age authorization content-type etag expires from if-modified-since if-unmodified-since
    last-modified location max-forwards proxy-authorization referer retry-after server user-agent
"""


def parseOnce(wire: bytes, limits: HTTPLimits = LIMITS) -> RequestHead:
    """Read a head, which must be all of the wire."""
    read = RequestHead()
    assert parseHead(wire, limits, read) == len(wire)
    return read


def parse(wire: bytes) -> RequestHead:
    """Read a head with the usual limits, as often as it takes until all of it is looked up."""
    reads = [parseOnce(wire) for _ in range(4)]
    assert all(asdict(read) == asdict(reads[0]) for read in reads)
    return reads[-1]


class AcceptedTests(SynchronousTestCase):
    """What is accepted, and what is made of it."""

    def test_requestLine(self) -> None:
        """The target is kept raw, and is split at the first question mark."""
        read = parse(head(line=b"PUT /a%2Fb//c?x=1?2 HTTP/1.1"))
        self.assertEqual(
            (read.method, read.uri, read.path, read.queryString, read.version),
            (b"PUT", b"/a%2Fb//c?x=1?2", b"/a%2Fb//c", b"x=1?2", b"HTTP/1.1"),
        )

    def test_fields(self) -> None:
        """Names are lower case, values lose the white space around them, the order is kept."""
        read = parse(head(b"X-One: \t a b \t", b"x-TWO:", b"X-Latin: \xe9"))
        self.assertEqual(
            read.headerList,
            [(b"host", b"x"), (b"x-one", b"a b"), (b"x-two", b""), (b"x-latin", b"\xe9")],
        )
        self.assertEqual(read.headers, dict(read.headerList))

    def test_repeatedFields(self) -> None:
        """Repeated fields are joined by commas and spaces, cookies by semicolons."""
        read = parse(head(b"A: 1", b"Cookie: a=1", b"a: 2", b"cookie: b=2", b"A: 3"))
        self.assertEqual(read.headers[b"a"], b"1, 2, 3")
        self.assertEqual(read.headers[b"cookie"], b"a=1; b=2")

    def test_repeatedSingleFields(self) -> None:
        """Of a repeated field that is no list, the first counts, as in Node.js."""
        for name in [
            "age",
            "authorization",
            "content-type",
            "etag",
            "expires",
            "from",
            "if-modified-since",
            "if-unmodified-since",
            "last-modified",
            "location",
            "max-forwards",
            "proxy-authorization",
            "referer",
            "retry-after",
            "server",
            "user-agent",
        ]:
            read = parse(head(b"%b: 1" % name.encode(), b"%b: 2" % name.title().encode()))
            self.assertEqual(read.headers[name.encode()], b"1", name)
            self.assertEqual(len(read.headerList), 3)

    def test_absoluteForm(self) -> None:
        """An absolute target gives its path, and its authority replaces Host (RFC 9112 3.2.2)."""
        read = parse(head(b"A: 1", line=b"GET http://evil:81/p?q HTTP/1.1"))
        self.assertEqual((read.uri, read.path, read.queryString), (b"/p?q", b"/p", b"q"))
        self.assertEqual(read.headers[b"host"], b"evil:81")
        self.assertEqual(read.headerList, [(b"host", b"evil:81"), (b"a", b"1")])

    def test_absoluteFormWithoutPath(self) -> None:
        """An absolute target without a path means the root."""
        self.assertEqual(parse(head(line=b"GET HTTPS://h HTTP/1.1")).uri, b"/")
        self.assertEqual(parse(head(line=b"GET http://h?q HTTP/1.1")).uri, b"/?q")

    def test_absoluteFormBesideOrigin(self) -> None:
        """The fields of an absolute target are not those of the next request with the same ones."""
        for _ in range(4):
            parseOnce(head(b"A: 7", line=b"GET http://evil/p HTTP/1.1"))
            read = parseOnce(head(b"A: 7", line=b"GET /p HTTP/1.1"))
            self.assertEqual(read.headers[b"host"], b"x")
            self.assertEqual(read.headerList, [(b"host", b"x"), (b"a", b"7")])

    def test_versionsBesideEachOther(self) -> None:
        """Equal fields mean in HTTP/1.0 what they mean there."""
        for _ in range(4):
            old = parseOnce(head(b"Expect: 100-continue", line=b"GET / HTTP/1.0"))
            new = parseOnce(head(b"Expect: 100-continue", line=b"GET / HTTP/1.1"))
            self.assertEqual((old.keepAlive, old.expectsContinue), (False, False))
            self.assertEqual((new.keepAlive, new.expectsContinue), (True, True))

    def test_laterHeads(self) -> None:
        """A head ends at its empty line, whatever follows, and is read within its own limits."""
        first, later = head(b"A: 1", line=b"GET /1 HTTP/1.1"), head(b"B: 2" * 50, b"C: 3")
        for limits in (LIMITS, HTTPLimits(headSize=len(first)), HTTPLimits(headFields=2)):
            for wire in (first, first + later, first + b"x\r\n\r\n", first + later * 3):
                for _ in range(4):
                    read = RequestHead()
                    self.assertEqual(parseHead(wire, limits, read), len(first))
                    self.assertEqual(read.headers, {b"host": b"x", b"a": b"1"})

    def test_unended(self) -> None:
        """A head without an empty line is refused, whatever it ends with."""
        whole = head(b"A: 1")
        for end in range(1, 5):
            for _ in range(4):
                error = self.assertRaises(BadRequest, parseOnce, whole[:-end])
                self.assertEqual(error.code, 400)

    def test_ownHeaders(self) -> None:
        """What a handler does to the fields of a request is not seen by the next."""
        for _ in range(4):
            read = parse(head(b"Mine: 1"))
            self.assertEqual(read.headers, {b"host": b"x", b"mine": b"1"})
            read.headers.clear()

    def test_limitsOfKnown(self) -> None:
        """A head that one listener has accepted is measured by the limits of another."""
        wire = head(b"A: 1", b"B: 2", line=b"GET /long HTTP/1.1")
        parse(wire)
        for limits, code in (
            (HTTPLimits(headFields=2), 431),
            (HTTPLimits(headSize=20), 431),
            (HTTPLimits(pathSize=4), 414),
        ):
            with self.assertRaises(BadRequest) as caught:
                parseOnce(wire, limits)
            self.assertEqual(caught.exception.code, code)

    def test_boundedMemory(self) -> None:
        """What is kept of heads is bounded, and nothing is kept of long lines and of queries."""
        for number in range(1100):
            for _ in range(2):
                parseOnce(head(b"N: %d" % number, line=b"GET /%d HTTP/1.1" % number))
        secret = b"s" * 120
        for _ in range(3):
            parse(head(b"T: " + secret, line=b"GET /?t=%b HTTP/1.1" % secret))
            parse(head(line=b"GET /?t=s3cr3t HTTP/1.1"))
            parse(head(line=b"GET /%b HTTP/1.1" % secret))
        for kept in (parser._requestLines, parser._blocks, parser._lines):
            self.assertLessEqual(len(kept), 1024)
            self.assertFalse([line for line in kept if secret in line or b"s3cr3t" in line])

    def test_asterisk(self) -> None:
        """OPTIONS may ask about the server itself."""
        self.assertEqual(parse(head(line=b"OPTIONS * HTTP/1.1")).uri, b"*")

    def test_bodyLength(self) -> None:
        """No length is an empty body, chunked is an unknown length."""
        self.assertEqual(parse(head()).contentLength, 0)
        self.assertEqual(parse(head(b"Content-Length: 007")).contentLength, 7)
        self.assertIsNone(parse(head(b"Transfer-Encoding: Chunked")).contentLength)

    def test_keepAlive(self) -> None:
        """HTTP/1.1 goes on unless told otherwise, HTTP/1.0 only if told so."""
        old = b"GET / HTTP/1.0"
        for fields, line, expected in [
            ([], b"GET / HTTP/1.1", True),
            ([b"Connection: TE , Close"], b"GET / HTTP/1.1", False),
            ([b"Connection: upgrade", b"Upgrade: websocket"], b"GET / HTTP/1.1", True),
            ([], old, False),
            ([b"Connection: Keep-Alive"], old, True),
            ([b"Connection: keep-alive, close"], old, False),
        ]:
            self.assertEqual(parse(head(*fields, line=line)).keepAlive, expected, (fields, line))

    def test_expectation(self) -> None:
        """A client that waits for its body to be asked for is known; HTTP/1.0 cannot wait."""
        expect = b"Expect: 100-Continue"
        self.assertTrue(parse(head(b"Content-Length: 1", expect)).expectsContinue)
        self.assertTrue(parse(head(expect)).expectsContinue)
        old = head(b"Content-Length: 1", expect, line=b"PUT / HTTP/1.0")
        self.assertFalse(parse(old).expectsContinue)
        self.assertFalse(parse(head(b"Content-Length: 1", b"Expect: ")).expectsContinue)
        self.assertEqual(self.assertRaises(BadRequest, parse, head(b"Expect: 200")).code, 417)

    def test_tabs(self) -> None:
        """The white space around a value is any run of spaces and tabs, also that of a coding."""
        for space in (b"\t", b" \t", b"\t "):
            for value in (space + b"chunked", b"chunked" + space):
                found = parse(head(b"A: 1", b"Transfer-Encoding:" + value))
                self.assertIsNone(found.contentLength)
                self.assertEqual(found.headers[b"transfer-encoding"], b"chunked")
            self.assertEqual(parse(head(b"Content-Length:" + space + b"7")).contentLength, 7)

    def test_codings(self) -> None:
        """A body whose last coding is not chunked has no end; others are not implemented."""
        for value, code in (
            (b"gzip", 400),
            (b"chunked, gzip", 400),
            (b"gzip, chunked", 501),
            (b"chunked, chunked", 501),
        ):
            wire = head(b"Transfer-Encoding: " + value)
            self.assertEqual(self.assertRaises(BadRequest, parse, wire).code, code, value)

    def test_knownLines(self) -> None:
        """Fields that came before are the same again; what is remembered is bounded."""
        for number in [*range(3000), 1, 2999]:
            wire = head(b"X-Number: %d" % number, b"x-number-%d: \t%d " % (number, number))
            found = parse(wire).headers
            expected = b"%d" % number
            self.assertEqual(found[b"x-number"], expected)
            self.assertEqual(found[b"x-number-%d" % number], expected)
        self.assertLessEqual(len(parser._lines), 1024)
        self.assertLessEqual(len(parser._names), 1024)
        secret = b"Authorization: Bearer " + b"s" * 100
        parse(head(secret))
        self.assertNotIn(secret + b"\r", parser._lines)

    def test_oldWithoutHost(self) -> None:
        """HTTP/1.0 has no Host."""
        self.assertEqual(parse(b"GET / HTTP/1.0\r\n\r\n").headers, {})

    def test_hosts(self) -> None:
        """Names, addresses of both kinds and ports are hosts."""
        names = [b"", b"a.b-c_d", b"%41", b"[::1]", b"[::ffff:1.2.3.4]:9000"]
        for host in [*names, b"a:", b"a:80", b"a:65535"]:
            self.assertEqual(parse(head(host=b"Host: " + host)).headers[b"host"], host)

    def test_ports(self) -> None:
        """A port above 65535 is no host's, in an absolute target neither."""
        for port in (b"65536", b"99999"):
            for wire in (
                head(host=b"Host: a:" + port),
                head(line=b"GET http://a:%b/ HTTP/1.1" % port),
            ):
                self.assertEqual(self.assertRaises(BadRequest, parse, wire).code, 400, wire)


class LimitTests(SynchronousTestCase):
    """Each limit, on both sides of it."""

    def assertRefused(self, code: int, wire: bytes) -> None:
        """Assert that a whole head is refused with a status."""
        error = self.assertRaises(BadRequest, parse, wire)
        self.assertEqual(error.code, code)

    def test_path(self) -> None:
        """A path of 8 KiB passes, a longer one is 414; the query does not count."""
        longest = b"/" + b"a" * (8 * 1024 - 1)
        query = b"q" * 4 * 1024
        self.assertEqual(parse(head(line=b"GET %b?%b HTTP/1.1" % (longest, query))).path, longest)
        self.assertRefused(414, head(line=b"GET %ba HTTP/1.1" % longest))

    def test_target(self) -> None:
        """A target that is over 16 KiB by its query is 414 too."""
        self.assertRefused(414, head(line=b"GET /?%b HTTP/1.1" % (b"q" * 16 * 1024)))

    def test_headSize(self) -> None:
        """A head of 16 KiB passes, a longer one is 431."""
        room = 16 * 1024 - len(head(b"A: "))
        self.assertEqual(len(parse(head(b"A: " + b"a" * room)).headers[b"a"]), room)
        self.assertRefused(431, head(b"A: " + b"a" * (room + 1)))

    def test_fields(self) -> None:
        """A hundred fields pass, one more is 431."""
        fields = [b"A: 1"] * 99
        self.assertEqual(len(parse(head(*fields)).headerList), 100)
        self.assertRefused(431, head(b"B: 1", *fields))

    def test_unfinished(self) -> None:
        """A target that never ends is 414, fields that never end are 431."""
        for code, wire in [
            (414, b"GET /" + b"a" * 16 * 1024),
            (431, head(b"A: " + b"a" * 16 * 1024)[:-4]),
        ]:
            error = self.assertRaises(BadRequest, checkPartialHead, wire, 0, LIMITS)
            self.assertEqual(error.code, code)


class PartialTests(SynchronousTestCase):
    """Judging a head before it is complete."""

    @given(st.data())
    def test_anyBeginningPasses(self, data: st.DataObject) -> None:
        """No beginning of a good head is refused, however it was cut before."""
        wire = head(b"A:\tb", b"Content-Length: 3", line=b"PUT /a?b HTTP/1.1")
        end = data.draw(st.integers(1, len(wire) - 1))
        seen = data.draw(st.integers(0, end - 1))
        checkPartialHead(wire[:end], seen, LIMITS)

    def test_refusedAtOnce(self) -> None:
        """What can become no request is refused without waiting for its end."""
        for wire in [
            b"\x16\x03\x01\x02",
            b"GET / HTTP/1.1\n",
            b"GET /\r\n",
            b"GET / HTTP/1.1\r\nA\rB",
            b"GET / HTTP/1.1\r\nA: b\r\n c",
        ]:
            for seen in range(len(wire)):
                try:
                    checkPartialHead(wire[: seen + 1], seen, LIMITS)
                except BadRequest:
                    break
            else:
                self.fail(f"{wire!r} was not refused")


class RobustnessTests(SynchronousTestCase):
    """Anything at all."""

    @long("takes seconds")
    def test_strayBytes(self) -> None:
        """
        No control character, lone CR or LF, or continued line passes, wherever it stands.

        We leave this to httptools; here every byte is tried in every place.
        """
        good = head(b"A: \tb c ", b"B:", b"Connection: Upgrade", b"Upgrade: x")
        stray = re.compile(rb"[^\t\n\r -~\x80-\xff]|(?<!\r)\n|\r[^\n]|\n[ \t]")
        strange = [bytes([octet]) for octet in range(256)]
        strange += [b"\r ", b"\r\r", b"\r\n ", b"\r\n\t", b"\n\r"]
        for place in range(len(good)):
            for octets in strange:
                for wire in (
                    good[:place] + octets + good[place:],
                    good[:place] + octets + good[place + 1 :],
                ):
                    whole, end, _ = wire.partition(b"\r\n\r\n")
                    try:
                        parse(whole + end)
                    except BadRequest:
                        continue
                    self.assertIsNone(stray.search(whole), whole)

    @given(st.binary(max_size=200))
    def test_garbage(self, garbage: bytes) -> None:
        """Bytes are a request or a L{BadRequest}, never another exception."""
        wire = b"GET / HTTP/1.1\r\nHost: x\r\n" + garbage + b"\r\n\r\n"
        whole, end, _ = wire.partition(b"\r\n\r\n")
        try:
            parse(whole + end)
        except BadRequest as error:
            self.assertIn(error.code, range(400, 506))
