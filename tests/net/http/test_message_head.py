"""Writing the head of a response."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.message import encodeFields, statusLine


class FieldTests(SynchronousTestCase):
    """Header fields that our own code gives."""

    def test_date(self) -> None:
        """There is one Date: the given one, or ours."""
        self.assertEqual(encodeFields([]).block.count(b"Date: "), 1)
        self.assertEqual(encodeFields([(b"date", b"never")]).block, b"date: never\r\n")

    @given(st.sampled_from(b"\r\n\0\x01\x1f\x7f"), st.binary(max_size=5), st.binary(max_size=5))
    def test_control(self, bad: int, before: bytes, after: bytes) -> None:
        """A value with a control character never gets onto the wire."""
        value = before + bytes([bad]) + after
        self.assertRaises(ValueError, encodeFields, [(b"A", b"1"), (b"B", value), (b"C", b"2")])

    def test_smuggledPairs(self) -> None:
        """Nor do whole lines, in a value or in a name."""
        for field in [(b"A", b"1\r\nB: 2"), (b"A: 1\r\nB", b"2"), (b"A", b"\r\n"), (b"A", b"1\n")]:
            self.assertRaises(ValueError, encodeFields, [field])

    def test_names(self) -> None:
        """A name is a token."""
        for name in [b"", b"a b", b"a:", b"\xe9", b"a\n"]:
            self.assertRaises(ValueError, encodeFields, [(name, b"1")])

    def test_framing(self) -> None:
        """The length and the wish to close are taken out; a transfer coding is refused."""
        fields = encodeFields(
            [(b"Content-length", b"5"), (b"connection", b"Close"), (b"Date", b"")]
        )
        self.assertEqual((fields.block, fields.length, fields.closes), (b"Date: \r\n", 5, True))
        self.assertRaises(ValueError, encodeFields, [(b"Transfer-Encoding", b"chunked")])
        self.assertRaises(ValueError, encodeFields, [(b"Content-Length", b"+5")])

    def test_manyNames(self) -> None:
        """Names made out of data are not all remembered, and still come out right."""
        for number in range(3000):
            fields = encodeFields([(b"X-%d" % number, b"1"), (b"Date", b"")])
            self.assertEqual(fields.block, b"X-%d: 1\r\nDate: \r\n" % number)


class StatusTests(SynchronousTestCase):
    """Status lines."""

    def test_phrases(self) -> None:
        """A status has its usual phrase, an unusual one has one too, and it can be given."""
        self.assertEqual(statusLine(404), b"HTTP/1.1 404 Not Found\r\n")
        self.assertEqual(statusLine(299), b"HTTP/1.1 299 Unknown\r\n")
        self.assertEqual(statusLine(200, b"Fine"), b"HTTP/1.1 200 Fine\r\n")

    def test_refused(self) -> None:
        """Interim and unknown statuses are refused, and phrases with line ends."""
        for code in [0, 100, 101, 199, 1000]:
            self.assertRaises(ValueError, statusLine, code)
        self.assertRaises(ValueError, statusLine, 200, b"a\r\nb")
