"""The rules for the fields of messages."""

from attrs import asdict
from h2.exceptions import ProtocolError
from h2.utilities import HeaderValidationFlags, validate_headers
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.interfaces import BadRequest, HTTPLimits
from storagegate.net.http.parser import RequestHead, parseHead
from storagegate.net.http2 import fields as module
from storagegate.net.http2.fields import readRequest, readResponse, readTrailers
from storagegate.net.http2.hpack import HeaderDecoder, Pair, ReceivedFields, encodePairs
from storagegate.net.http2.interfaces import ErrorCode, StreamFailure

LIMITS = HTTPLimits()

PSEUDO = {b":method": b"GET", b":scheme": b"https", b":path": b"/", b":authority": b"x"}


def request(*fields: Pair, **pseudo: bytes | None) -> list[Pair]:
    """Make the fields of a request; C{None} leaves a pseudo-field out."""
    merged = PSEUDO | {b":" + name.encode(): value for name, value in pseudo.items()}
    return [(name, value) for name, value in merged.items() if value is not None] + [*fields]


def receive(pairs: list[Pair]) -> ReceivedFields:
    """Make received fields of pairs."""
    return ReceivedFields(pairs, sum(len(name) + len(value) + 32 for name, value in pairs))


def read(
    pairs: list[Pair], isEnded: bool = False, limits: HTTPLimits = LIMITS
) -> tuple[RequestHead, bytes | None]:
    """Read a request, as often as it takes until all of it is kept."""
    decoder = HeaderDecoder()
    heads = []
    for _ in range(4):
        head = RequestHead()
        protocol = readRequest(decoder.decode(encodePairs(pairs)), limits, head, isEnded)
        heads.append(head)
    assert all(asdict(each) == asdict(heads[0]) for each in heads)
    return heads[-1], protocol


class AcceptedTests(SynchronousTestCase):
    """Requests, and what becomes of them."""

    def test_attributes(self) -> None:
        """A request has the attributes of one in HTTP/1.1."""
        head, protocol = read(request((b"x-one", b"1"), method=b"PUT", path=b"/a%2Fb//c?x=1?2"))
        self.assertIsNone(protocol)
        self.assertEqual(
            asdict(head),
            {
                "method": b"PUT",
                "uri": b"/a%2Fb//c?x=1?2",
                "path": b"/a%2Fb//c",
                "queryString": b"x=1?2",
                "version": b"HTTP/2",
                "headers": {b"host": b"x", b"x-one": b"1"},
                "headerList": [(b"host", b"x"), (b"x-one", b"1")],
                "contentLength": None,
                "keepAlive": True,
                "expectsContinue": False,
            },
        )

    def test_order(self) -> None:
        """Pseudo-fields come in any order."""
        pairs = [*request()[::-1], (b"a", b"b")]
        self.assertEqual(read(pairs)[0].headers, {b"host": b"x", b"a": b"b"})

    def test_values(self) -> None:
        """Values may be empty, and have tabs and any octets from 0x80."""
        values = [b"", b"a\tb c", b"\x80\xff", b"a: b"]
        head, _ = read(request(*[(b"v-%d" % n, value) for n, value in enumerate(values)]))
        self.assertEqual([value for _, value in head.headerList[1:]], values)

    def test_repeated(self) -> None:
        """Repeated fields are joined as in HTTP/1.1, cookies by semicolons."""
        fields = [(b"a", b"1"), (b"cookie", b"a=1"), (b"a", b"2"), (b"cookie", b"b=2")]
        fields += [(b"user-agent", b"1"), (b"user-agent", b"2")]
        head, _ = read(request(*fields))
        self.assertEqual(head.headers[b"a"], b"1, 2")
        self.assertEqual(head.headers[b"cookie"], b"a=1; b=2")
        self.assertEqual(head.headers[b"user-agent"], b"1")
        self.assertEqual(head.headerList, [(b"host", b"x"), *fields])

    def test_hosts(self) -> None:
        """The authority is the Host; a client may send either, or both if they agree."""
        for authority, fields, host in [
            (b"a:80", [], b"a:80"),
            (None, [(b"host", b"b")], b"b"),
            (b"a", [(b"host", b"a")], b"a"),
            (b"[::1]:9000", [(b"host", b"[::1]:9000")], b"[::1]:9000"),
            (b"A", [(b"host", b"a")], b"a"),
        ]:
            head, _ = read(request(*fields, authority=authority))
            self.assertEqual(head.headers[b"host"], host)
            self.assertEqual(head.headerList, [(b"host", host)])

    def test_asterisk(self) -> None:
        """OPTIONS may ask about the server itself."""
        self.assertEqual(read(request(method=b"OPTIONS", path=b"*"))[0].uri, b"*")

    def test_lengths(self) -> None:
        """The length of a body is declared, or unknown, or 0 as the stream ends with the head."""
        length = b"content-length", b"007"
        self.assertEqual(read(request(length))[0].contentLength, 7)
        self.assertIsNone(read(request())[0].contentLength)
        self.assertEqual(read(request(), isEnded=True)[0].contentLength, 0)
        zero = request((b"content-length", b"0"))
        self.assertEqual(read(zero)[0].contentLength, 0)
        self.assertEqual(read(zero, isEnded=True)[0].contentLength, 0)

    def test_lengthOfKept(self) -> None:
        """The same fields are read with and without a body."""
        fields = HeaderDecoder().decode(encodePairs(request()))
        fields.isRepeated = True
        head = RequestHead()
        for isEnded in (False, True, False):
            readRequest(fields, LIMITS, head, isEnded)
            self.assertEqual(head.contentLength, 0 if isEnded else None)
        self.assertIsNotNone(fields.head)

    def test_expectation(self) -> None:
        """A client may wait to be asked for its body, as in HTTP/1.1."""
        self.assertTrue(read(request((b"expect", b"100-Continue")))[0].expectsContinue)
        self.assertFalse(read(request((b"expect", b"")))[0].expectsContinue)

    def test_te(self) -> None:
        """A client may accept trailers, as gRPC's do."""
        self.assertEqual(read(request((b"te", b"trailers")))[0].headers[b"te"], b"trailers")

    def test_extendedConnect(self) -> None:
        """RFC 8441: a CONNECT with a protocol has a target, and the caller gets the protocol."""
        pairs = request(method=b"CONNECT", protocol=b"websocket", path=b"/chat?a=b")
        head, protocol = read(pairs)
        self.assertEqual(protocol, b"websocket")
        self.assertEqual((head.method, head.path, head.queryString), (b"CONNECT", b"/chat", b"a=b"))

    def test_ownHeaders(self) -> None:
        """A handler's changes to the fields of a request do not reach the next one."""
        decoder = HeaderDecoder()
        block = encodePairs(request((b"mine", b"1")))
        for _ in range(4):
            head = RequestHead()
            readRequest(decoder.decode(block), LIMITS, head, False)
            self.assertEqual(head.headers, {b"host": b"x", b"mine": b"1"})
            head.headers.clear()

    @given(
        st.sampled_from([b"GET", b"PUT", b"get", b"TRACE", b"G@T"]),
        st.binary(max_size=12),
        st.lists(
            st.tuples(st.sampled_from([b"a", b"host", b"content-length"]), st.binary(max_size=3)),
            max_size=3,
        ),
    )
    def test_asInHTTP1(self, method: bytes, target: bytes, fields: list[Pair]) -> None:
        """HTTP/2 accepts no target, method, host or length that HTTP/1.1 refuses."""
        pairs = request(*fields, method=method, path=b"/" + target, authority=None)
        head = RequestHead()
        try:
            readRequest(receive(pairs), LIMITS, head, False)
        except (StreamFailure, BadRequest):
            return
        lines = b"".join(b"%b: %b\r\n" % (name, value) for name, value in fields)
        old = RequestHead()
        parseHead(b"%b /%b HTTP/1.1\r\n%b\r\n" % (method, target, lines), LIMITS, old)
        self.assertEqual(
            (head.method, head.uri, head.path, head.queryString, head.headers),
            (old.method, old.uri, old.path, old.queryString, old.headers),
        )
        self.assertEqual(head.contentLength or 0, old.contentLength)


class MalformedTests(SynchronousTestCase):
    """Requests that a proxy or a server might take for others."""

    def assertMalformed(self, *heads: list[Pair], isEnded: bool = False) -> None:
        """Assert that the stream of each head is reset."""
        for pairs in heads:
            for _ in range(2):
                with self.assertRaises(StreamFailure, msg=pairs) as caught:
                    readRequest(receive(pairs), LIMITS, RequestHead(), isEnded)
                self.assertEqual(caught.exception.code, ErrorCode.PROTOCOL_ERROR)

    def test_missing(self) -> None:
        """A pseudo-field that is missing or empty."""
        for name in ("method", "scheme", "path", "authority"):
            self.assertMalformed(request(**{name: None}), request(**{name: b""}))
        self.assertMalformed([], [(b"host", b"x")], request((b"host", b""), authority=None))

    def test_repeatedPseudo(self) -> None:
        """A pseudo-field that stands twice, equal or not."""
        for name, value in PSEUDO.items():
            self.assertMalformed([(name, value), *request()], [(name, b"/other"), *request()])

    def test_latePseudo(self) -> None:
        """A pseudo-field after a field."""
        for name in PSEUDO:
            pairs = request()
            late = [pair for pair in pairs if pair[0] == name]
            rest = [pair for pair in pairs if pair[0] != name]
            self.assertMalformed([*rest, (b"a", b"b"), *late], [*pairs, (b"a", b"b"), *late])

    def test_unknownPseudo(self) -> None:
        """Unknown pseudo-fields, and those of responses."""
        for name in (b":status", b":", b":Path", b":path ", b":version", b"::path", b":host"):
            self.assertMalformed(request((name, b"200")), [(name, b"200"), *request()])

    def test_names(self) -> None:
        """Names with capitals, and names that are no tokens."""
        for octet in range(256):
            if octet not in b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz":
                name = bytes([octet])
                self.assertMalformed(
                    request((name, b"")), request((b"a" + name, b"")), request((name + b"a", b""))
                )
        self.assertMalformed(
            request((b"", b"a")),
            request((b"Content-Length", b"5")),
            request((b"transfer-encoding: chunked\r\nx", b"1")),
        )

    def test_values(self) -> None:
        """Values that would end a line of HTTP/1.1, with other controls, or spaces around them."""
        for octet in [*range(32), 127]:
            bad = bytes([octet])
            self.assertMalformed(request((b"a", bad)), request((b"a", b"b" + bad)))
            if octet != 9:
                self.assertMalformed(request((b"a", b"b" + bad + b"c")))
        self.assertMalformed(
            request((b"a", b" ")),
            request((b"a", b" b")),
            request((b"a", b"b ")),
            request((b"a", b"b\r\ntransfer-encoding: chunked")),
            request((b"a", b"b\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n")),
            request((b"authorization", b"a\r\nb: c")),
            request((b"long", b"x" * 200 + b"\n")),
        )

    def test_connectionFields(self) -> None:
        """Fields of the connection: they belong to HTTP/1.1, and change its framing."""
        for name, value in [
            (b"transfer-encoding", b"chunked"),
            (b"transfer-encoding", b""),
            (b"connection", b"close"),
            (b"connection", b"content-length"),
            (b"keep-alive", b"timeout=5"),
            (b"proxy-connection", b"keep-alive"),
            (b"upgrade", b"h2c"),
            (b"te", b"gzip"),
            (b"te", b"trailers, deflate"),
            (b"te", b""),
        ]:
            self.assertMalformed(request((name, value)))

    def test_paths(self) -> None:
        """Paths that carry a request line, a fragment, another form, or no ASCII."""
        for path in [
            b"a",
            b"?a",
            b"*",
            b"*?a",
            b"http://evil/",
            b"//a b",
            b"/ HTTP/1.1\r\nHost: evil\r\n\r\n",
            b"/\r",
            b"/\n",
            b"/\x00",
            b"/\t",
            b"/ ",
            b" /",
            b"/#",
            b"/?#a",
            b"/\x7f",
            b"/\xe9",
        ]:
            self.assertMalformed(request(path=path))

    def test_methods(self) -> None:
        """Methods that carry a request line."""
        for method in (b"GET ", b"GET / HTTP/1.1\r\nA: b", b"G\x00T", b"GET:", b"\xc7ET"):
            self.assertMalformed(request(method=method))

    def test_schemes(self) -> None:
        """Schemes that carry a part of a URL, or are not HTTP's."""
        for scheme in (b"ftp", b"http://evil/?", b"https:", b"HTTP", b"http\r\nA: b"):
            self.assertMalformed(request(scheme=scheme))

    def test_authorities(self) -> None:
        """Authorities with a user, a path, two hosts, or a port that does not exist."""
        for host in [
            b"user@a",
            b"user:pass@a",
            b"a/b",
            b"a b",
            b"a,b@c",
            b"a:65536",
            b"a:b",
            b"a\r\nB: c",
            b"a?b",
            b"a#b",
            b"[::1",
            b"a\xe9",
        ]:
            self.assertMalformed(request(authority=host), request((b"host", host), authority=None))

    def test_differentHosts(self) -> None:
        """Two hosts, in any combination of authority and Host."""
        self.assertMalformed(
            request((b"host", b"y")),
            request((b"host", b"")),
            request((b"host", b"x:443")),
            request((b"host", b"x"), (b"host", b"x")),
            request((b"host", b"x"), (b"host", b"y"), authority=None),
        )

    def test_contentLengths(self) -> None:
        """Two lengths, and values that another parser might read as another number."""
        for value in [b"", b"-1", b"+1", b"1_0", b"0x1", b"1,1", b"1, 1", b"1.0", b"\xb2", b"a"]:
            self.assertMalformed(request((b"content-length", value)))
        for value in (b"9" * 20, b"9" * 5000):
            self.assertMalformed(request((b"content-length", value)))
        self.assertMalformed(
            request((b"content-length", b"1"), (b"content-length", b"1")),
            request((b"content-length", b"0"), (b"content-length", b"1")),
        )

    def test_noBody(self) -> None:
        """A length without a body."""
        self.assertMalformed(request((b"content-length", b"1")), isEnded=True)
        fields = HeaderDecoder().decode(encodePairs(request((b"content-length", b"1"))))
        fields.isRepeated = True
        readRequest(fields, LIMITS, RequestHead(), False)
        self.assertRaises(StreamFailure, readRequest, fields, LIMITS, RequestHead(), True)

    def test_connect(self) -> None:
        """CONNECT with a scheme or a path, and protocols of other methods."""
        self.assertMalformed(
            request(method=b"CONNECT"),
            request(method=b"CONNECT", scheme=None),
            request(method=b"CONNECT", path=None),
            request(method=b"CONNECT", scheme=None, path=None, authority=None),
            request(method=b"CONNECT", scheme=None, path=None, authority=b"user@a"),
            request(method=b"CONNECT", scheme=None, path=None, protocol=b"websocket"),
            request(method=b"CONNECT", protocol=b"web socket"),
            request(method=b"CONNECT", protocol=b"websocket", path=b"*"),
            request((b"host", b"x"), method=b"CONNECT", protocol=b"a", authority=None),
            request(protocol=b"websocket"),
        )

    @given(
        st.lists(
            st.tuples(
                st.sampled_from([*PSEUDO, b":status", b"host", b"te", b"connection", b"a", b"A"]),
                st.sampled_from([b"GET", b"https", b"/", b"x", b"trailers", b" ", b"\n", b""]),
            ),
            max_size=8,
        )
    )
    def test_againstPeer(self, pairs: list[Pair]) -> None:
        """Another implementation accepts all that is accepted here."""
        try:
            readRequest(receive(pairs), LIMITS, RequestHead(), False)
        except (StreamFailure, BadRequest):
            return
        flags = HeaderValidationFlags(
            is_client=False, is_trailer=False, is_response_header=False, is_push_promise=False
        )
        try:
            list(validate_headers(pairs, flags))
        except ProtocolError as error:
            self.fail(f"{pairs}: {error}")

    @given(st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=10)), max_size=5))
    def test_garbage(self, pairs: list[Pair]) -> None:
        """Fields are a request, a L{StreamFailure} or a L{BadRequest}."""
        for fields in (pairs, request(*pairs)):
            try:
                readRequest(receive(fields), LIMITS, RequestHead(), False)
            except BadRequest as error:
                self.assertIn(error.code, (405, 417, 431))
            except StreamFailure as error:
                self.assertEqual(error.code, ErrorCode.PROTOCOL_ERROR)


class RefusedTests(SynchronousTestCase):
    """Well-formed requests that get a response, as in HTTP/1.1."""

    def assertRefused(self, code: int, pairs: list[Pair], limits: HTTPLimits = LIMITS) -> None:
        """Assert that a request gets a status."""
        error = self.assertRaises(
            BadRequest, readRequest, receive(pairs), limits, RequestHead(), False
        )
        self.assertEqual(error.code, code)

    def test_methods(self) -> None:
        """Methods that reach no resource are 405."""
        for method in (b"TRACE", b"get", b"FOO", b"GET\x7c"):
            self.assertRefused(405, request(method=method))
        self.assertRefused(405, request(method=b"CONNECT", scheme=None, path=None))

    def test_expectation(self) -> None:
        """Other expectations are 417."""
        self.assertRefused(417, request((b"expect", b"banana")))

    def test_path(self) -> None:
        """A path over its limit is 414; the query does not count."""
        limits = HTTPLimits(pathSize=10)
        readRequest(
            receive(request(path=b"/" + b"a" * 9 + b"?" + b"q" * 50)), limits, RequestHead(), False
        )
        self.assertRefused(414, request(path=b"/" + b"a" * 10), limits)

    def test_fields(self) -> None:
        """A hundred fields pass, one more is 431."""
        fields = [(b"a", b"1")] * 100
        readRequest(receive(request(*fields)), LIMITS, RequestHead(), False)
        self.assertRefused(431, request((b"b", b""), *fields))

    def test_size(self) -> None:
        """A list over the limit of the decoder is 431, although its fields are gone."""
        fields = HeaderDecoder(maxListSize=200).decode(encodePairs(request((b"a", b"x" * 200))))
        error = self.assertRaises(BadRequest, readRequest, fields, LIMITS, RequestHead(), False)
        self.assertEqual(error.code, 431)


class KeptTests(SynchronousTestCase):
    """The cache of checked fields."""

    def test_bounds(self) -> None:
        """It is bounded, and keeps no secrets and no long values."""
        for number in range(1500):
            read(request((b"a", b"%d" % number)))
        read(request((b"authorization", b"s3cr3t"), (b"cookie", b"s3cr3t"), (b"b", b"s3cr3t" * 20)))
        self.assertLessEqual(len(module._checked), 1024)
        self.assertNotIn("s3cr3t", repr(module._checked))


class ResponseTests(SynchronousTestCase):
    """Responses, as a client reads them."""

    def test_status(self) -> None:
        """A response has a status and fields."""
        decoder = HeaderDecoder()
        block = encodePairs([(b":status", b"103"), (b"a", b"b")])
        for _ in range(4):
            self.assertEqual(readResponse(decoder.decode(block)), (103, [(b"a", b"b")]))

    def test_malformed(self) -> None:
        """Statuses that are none, fields of requests, and fields of the connection."""
        heads: list[list[Pair]] = [[], [(b"a", b"b"), (b":status", b"200")]]
        heads += [
            [(b":status", status)] for status in (b"", b"20", b"2000", b"abc", b"+20", b"099")
        ]
        heads += [[(b":status", b"101")], [(b":status", b"\xb2\xb2\xb2")]]
        for field in [
            (b":status", b"200"),
            (b":path", b"/"),
            (b"A", b"b"),
            (b"a", b"b\r\n"),
            (b"connection", b"close"),
            (b"transfer-encoding", b"chunked"),
        ]:
            heads.append([(b":status", b"200"), field])
        for pairs in heads:
            with self.assertRaises(StreamFailure, msg=pairs) as caught:
                readResponse(receive(pairs))
            self.assertEqual(caught.exception.code, ErrorCode.PROTOCOL_ERROR)

    def test_size(self) -> None:
        """A head over the limit of the decoder resets the stream."""
        fields = HeaderDecoder(maxListSize=50).decode(b"\x88\x00\x01a\x01b")
        error = self.assertRaises(StreamFailure, readResponse, fields)
        self.assertEqual(error.code, ErrorCode.ENHANCE_YOUR_CALM)


class TrailerTests(SynchronousTestCase):
    """The fields after a body."""

    def test_fields(self) -> None:
        """Trailers are fields in order, each as often as it was sent."""
        pairs = [(b"grpc-status", b"0"), (b"a", b""), (b"a", b"2")]
        self.assertEqual(readTrailers(receive(pairs)), tuple(pairs))
        self.assertEqual(readTrailers(receive([])), ())

    def test_malformed(self) -> None:
        """Trailers have no pseudo-fields, and the rules of other fields."""
        for pair in [
            (b":status", b"200"),
            (b":path", b"/"),
            (b"A", b"b"),
            (b"a", b"b\n"),
            (b"a", b" b"),
            (b"transfer-encoding", b"chunked"),
            (b"", b""),
        ]:
            for pairs in ([pair], [(b"a", b"b"), pair]):
                error = self.assertRaises(StreamFailure, readTrailers, receive(pairs))
                self.assertEqual(error.code, ErrorCode.PROTOCOL_ERROR)

    def test_size(self) -> None:
        """Trailers over the limit of the decoder reset the stream."""
        fields = HeaderDecoder(maxListSize=50).decode(b"\x88\x00\x01a\x01b")
        error = self.assertRaises(StreamFailure, readTrailers, fields)
        self.assertEqual(error.code, ErrorCode.ENHANCE_YOUR_CALM)
