"""The header fields of gRPC, read and written."""

from base64 import b64encode
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import GrpcError
from storagegate.rpc.engine.native.metadata import (
    isGRPC,
    readEncodings,
    readMetadata,
    readTimeout,
    writeMessage,
    writeMetadata,
    writeTimeout,
)


class MetadataTests(SynchronousTestCase):
    """L{readMetadata} and L{writeMetadata}."""

    def test_read(self) -> None:
        """Text and bytes come in order; the fields of the transport are left out."""
        found = readMetadata(
            [
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", b"client"),
                (b"x-a", b"1"),
                (b"x-raw-bin", b"//79"),
                (b"x-a", b"2"),
                (b"grpc-timeout", b"1S"),
                (b"x-latin", b"\xff"),
                (b"x-utf8", "ä".encode()),
            ]
        )
        self.assertEqual(
            found,
            [
                ("user-agent", "client"),
                ("x-a", "1"),
                ("x-raw-bin", b"\xff\xfe\xfd"),
                ("x-a", "2"),
                ("x-latin", "\xff"),
                ("x-utf8", "ä"),
            ],
        )

    def test_binary(self) -> None:
        """Base64 is read with padding and without; values joined by a comma are several."""
        for value, expected in (
            (b"AA==", [b"\0"]),
            (b"AA", [b"\0"]),
            (b"AAE=,AA==", [b"\0\1", b"\0"]),
            (b"AAE, AA", [b"\0\1", b"\0"]),
            (b"", [b""]),
        ):
            found = readMetadata([(b"x-bin", value)])
            self.assertEqual(found, [("x-bin", each) for each in expected])

    def test_invalidBinary(self) -> None:
        """Anything else is an error of the call."""
        for value in (b"!!!!", b"A", b"AA-_", b"A A=", b"AA==AA=="):
            error = self.assertRaises(GrpcError, readMetadata, [(b"x-bin", value)])
            self.assertEqual(error.statusName, "INTERNAL")

    @given(st.binary())
    def test_roundTrip(self, value: bytes) -> None:
        """Bytes that are written are read."""
        [(name, wire)] = writeMetadata([("x-bin", value)])
        self.assertEqual(wire, b64encode(value).rstrip(b"="))
        self.assertEqual(readMetadata([(name, wire)]), [("x-bin", value)])

    def test_write(self) -> None:
        """Text goes as it is; a value of another type is an error."""
        self.assertEqual(writeMetadata([("x-a", "1")]), [(b"x-a", b"1")])
        self.assertRaises(TypeError, writeMetadata, [("x-a", 5)])
        self.assertRaises(UnicodeError, writeMetadata, [("x-a", "ä")])


class TimeoutTests(SynchronousTestCase):
    """L{readTimeout} and L{writeTimeout}."""

    def test_written(self) -> None:
        """A deadline is sent in milliseconds, or in larger units, and never shortened."""
        for seconds, text in (
            (0.0001, b"1m"),
            (0.25, b"250m"),
            (4.9991, b"5000m"),
            (99_999.0, b"99999000m"),
            (100_000.0, b"100000S"),
            (1e8, b"1666667M"),
            (1e10, b"2777778H"),
            (1e20, b"99999999H"),
        ):
            self.assertEqual(writeTimeout(seconds), text)
            self.assertGreaterEqual(readTimeout(text), min(seconds, 99_999_999 * 3600))

    def test_units(self) -> None:
        """A deadline has up to eight digits and a unit."""
        for text, seconds in (
            (b"1H", 3600.0),
            (b"2M", 120.0),
            (b"3S", 3.0),
            (b"250m", 0.25),
            (b"99999999u", 99.999999),
            (b"0n", 0.0),
        ):
            self.assertAlmostEqual(readTimeout(text), seconds)

    def test_invalid(self) -> None:
        """Anything else is an error of the call."""
        for text in (b"", b"1", b"S", b"-1S", b"1.5S", b"123456789S", b"1s", b"1S\n", b" 1S"):
            error = self.assertRaises(GrpcError, readTimeout, text)
            self.assertEqual(error.statusName, "INTERNAL")


class MessageTests(SynchronousTestCase):
    """L{writeMessage}."""

    def test_quoted(self) -> None:
        """Printable ASCII stays, apart from the percent sign."""
        self.assertEqual(writeMessage("not found: a/b"), b"not found: a/b")
        self.assertEqual(writeMessage("100%"), b"100%25")
        self.assertEqual(writeMessage("ä\n"), b"%C3%A4%0A")
        self.assertEqual(writeMessage("\ud800"), b"?")

    def test_spaces(self) -> None:
        """Spaces at the ends are quoted, as HTTP/2 allows none there."""
        for text, wire in (
            ("why: ", b"why:%20"),
            (" a b ", b"%20a b%20"),
            (" ", b"%20"),
            ("  ä ", b"%20 %C3%A4%20"),
        ):
            self.assertEqual(writeMessage(text), wire)
            self.assertEqual(unquote(wire.decode("ascii")), text)

    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def test_roundTrip(self, text: str) -> None:
        """Any text is read back, and is one line of ASCII on the wire."""
        wire = writeMessage(text)
        self.assertTrue(all(0x20 <= byte <= 0x7E for byte in wire))
        self.assertEqual(wire.strip(), wire)
        self.assertEqual(unquote(wire.decode("ascii")), text)


class FieldTests(SynchronousTestCase):
    """Other fields."""

    def test_contentType(self) -> None:
        """The content type is C{application/grpc}, with a subtype or a parameter."""
        for value in (b"application/grpc", b"application/grpc+proto", b"application/grpc;a=b"):
            self.assertTrue(isGRPC(value))
        for value in (b"", b"application/grpc-web", b"application/grpcx", b"application/json"):
            self.assertFalse(isGRPC(value))

    def test_encodings(self) -> None:
        """Encodings are separated by commas."""
        self.assertEqual(
            readEncodings(b"identity,gzip, deflate"), {b"identity", b"gzip", b"deflate"}
        )
