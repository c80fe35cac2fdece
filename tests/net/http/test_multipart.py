"""Multipart forms are split the same way however they are cut, and bad ones are refused."""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.multipart import (
    HEAD_LINES,
    HEAD_SIZE,
    PADDING_SIZE,
    PART_END,
    BadMultipart,
    Event,
    MultipartDecoder,
    PartHead,
    boundaryOf,
)

BOUNDARY = "aB3x"


def decode(pieces: Iterable[bytes], boundary: str = BOUNDARY) -> list[object]:
    """Feed pieces; give the events, content in one piece each, and the error that ended them."""
    decoder = MultipartDecoder(boundary)
    events: list[object] = []

    def take(event: Event) -> None:
        if isinstance(event, bytes) and events and isinstance(events[-1], bytes):
            events[-1] += event
        else:
            events.append(event)

    try:
        for piece in pieces:
            for event in decoder.feed(piece):
                take(event)
        decoder.close()
    except BadMultipart as error:
        events.append((str(error), error.isTooLarge))
    return events


def cut(wire: bytes, places: Sequence[int]) -> list[bytes]:
    """Cut bytes at some places."""
    edges = [0, *sorted(place % (len(wire) + 1) for place in places), len(wire)]
    return [wire[start:end] for start, end in pairwise(edges)]


def part(content: bytes, *fields: bytes, name: bytes = b"a") -> bytes:
    """Write a part with the boundary in front of it."""
    head = (b'Content-Disposition: form-data; name="%b"' % name, *fields)
    return b"--aB3x\r\n%b\r\n\r\n%b\r\n" % (b"\r\n".join(head), content)


def filePart(parameters: bytes) -> bytes:
    """Write a form of one part with more parameters of its disposition."""
    return b"--aB3x\r\nContent-Disposition: form-data; %b\r\n\r\nx\r\n--aB3x--" % parameters


END = b"--aB3x--\r\n"

DISPOSITION = b'Content-Disposition: form-data;name="n"'
FRAGMENTS = [
    b"\r\n",
    b"\r",
    b"\n",
    b"--",
    b"-",
    b"aB3x",
    b"aB",
    b"3x",
    b":",
    b"x",
    b"\r\n\r\n",
    b"--aB3x\r\n",
    b"--aB3x--",
    part(b"x"),
    DISPOSITION,
]


class DecoderCase(SynchronousTestCase):
    """What the cases share."""

    def assertDecodes(self, wire: bytes, events: list[object]) -> None:
        """Feed bytes whole, one at a time, in two pieces cut anywhere, and cut at random."""
        self.assertEqual(decode([wire]), events)
        self.assertEqual(decode(wire[i : i + 1] for i in range(len(wire))), events)
        if len(wire) < 500:
            for place in range(len(wire)):
                self.assertEqual(decode([wire[:place], wire[place:]]), events, place)
        chance = random.Random(1)
        for _ in range(5):
            places = [chance.randrange(len(wire) + 1) for _ in range(7)]
            self.assertEqual(decode(cut(wire, places)), events, places)

    def assertRefused(self, wire: bytes, about: str, isTooLarge: bool = False) -> None:
        """Expect the error, however the bytes are cut, and nothing after it."""
        events = decode([wire])
        message, large = events[-1]  # type: ignore[misc]
        self.assertIn(about, message)
        self.assertEqual(large, isTooLarge)
        self.assertDecodes(wire, events)


class FramingTests(DecoderCase):
    """Boundaries."""

    def test_parts(self) -> None:
        """Each part gives its head, its content, and its end."""
        wire = part(b"one") + part(b"", name=b"b") + part(b"three\r\n", name=b"c") + END
        self.assertDecodes(
            wire,
            [
                PartHead("a"),
                b"one",
                PART_END,
                PartHead("b"),
                PART_END,
                PartHead("c"),
                b"three\r\n",
                PART_END,
            ],
        )

    def test_almostBoundaries(self) -> None:
        """Content that only looks like a boundary comes through as it is."""
        content = b"\r\n--aB3\r\r\n\r\n--\r\n-\r--aB3x\n--aB3x\r\n--AB3X\r\n--aB3"
        self.assertDecodes(part(content) + END, [PartHead("a"), content, PART_END])

    def test_boundaryOfDashes(self) -> None:
        """A boundary that repeats itself is found behind content that begins like it."""
        wire = (
            b'-------\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
            b"\r\n------\r\r\n---x\r\n---------"
        )
        events = [PartHead("a"), b"\r\n------\r\r\n---x", PART_END]
        self.assertEqual(decode([wire], "-----"), events)
        self.assertEqual(decode((wire[i : i + 1] for i in range(len(wire))), "-----"), events)

    def test_padding(self) -> None:
        """What stands before the first boundary and after the last is ignored."""
        wire = b"hello\r\n--aB3\r\n" + part(b"x") + END + b"--aB3x\r\nbye"
        self.assertDecodes(wire, [PartHead("a"), b"x", PART_END])

    def test_muchPadding(self) -> None:
        """A body whose boundary never comes is given up early, and so is one after its end."""
        self.assertRefused(b"x" * (PADDING_SIZE + 200), "before its first")
        self.assertRefused(part(b"x") + END + b"x" * PADDING_SIZE, "after its last")

    def test_noParts(self) -> None:
        """A form without a part, as some clients send an empty one, has no events."""
        self.assertDecodes(END, [])
        self.assertDecodes(b"\r\n" + END, [])

    def test_truncated(self) -> None:
        """A form that ends early, wherever that is, is refused."""
        wire = part(b"content") + END.rstrip()
        for size in range(len(wire)):
            *_, error = decode([wire[:size]])
            self.assertEqual(error, ("the form ends before its last boundary", False), size)
        self.assertEqual(len(decode([wire])), 3)

    def test_inlineBoundary(self) -> None:
        """A boundary in the middle of a line is none."""
        self.assertRefused(b"x" + part(b"y"), "ends before")
        self.assertDecodes(part(b"x--aB3x--") + END, [PartHead("a"), b"x--aB3x--", PART_END])

    def test_lineEnds(self) -> None:
        """A lone LF or CR ends no line: neither behind a boundary nor in a head."""
        wire = part(b"x") + END
        self.assertRefused(wire.replace(b"\r\n", b"\n"), "something else")
        self.assertRefused(wire.replace(b"\r\n--", b"\n--"), "ends before")
        self.assertRefused(wire.replace(b"--aB3x\r\n", b"--aB3x\n"), "something else")
        self.assertRefused(wire.replace(b"--aB3x\r\n", b"--aB3x \r\n"), "something else")
        self.assertRefused(wire.replace(b"--aB3x--", b"--aB3x-x"), "something else")
        for inside in (b"\n", b"\r", b"\0"):
            self.assertRefused(part(b"x", b"X-Y: a" + inside + b"b") + END, "bare CR, LF or NUL")
        self.assertRefused(part(b"x", b"X-Y: a\nContent-Type: b/c") + END, "bare CR, LF or NUL")

    @given(st.binary(max_size=200), st.lists(st.integers(min_value=0), max_size=8))
    def test_anyBytes(self, wire: bytes, places: list[int]) -> None:
        """Any bytes, however they are cut, give the same events or the same error."""
        self.assertEqual(decode(cut(wire, places)), decode([wire]))

    @given(
        st.lists(
            st.sampled_from(FRAGMENTS),
            max_size=20,
        ),
        st.lists(st.integers(min_value=0), max_size=8),
    )
    def test_anyFragments(self, fragments: list[bytes], places: list[int]) -> None:
        """Bytes that are nearly a form, however they are cut, give the same events or error."""
        wire = b"".join(fragments)
        self.assertEqual(decode(cut(wire, places)), decode([wire]))

    @given(
        st.lists(st.binary(max_size=60).filter(lambda content: b"\r\n--aB3x" not in content)),
        st.lists(st.integers(min_value=0), max_size=8),
    )
    def test_anyContent(self, contents: list[bytes], places: list[int]) -> None:
        """Whatever content without the boundary goes in comes out."""
        contents = [content for content in contents if not content.startswith(b"--aB3x")]
        wire = b"".join(map(part, contents)) + END
        expected: list[object] = []
        for content in contents:
            expected += [PartHead("a"), content, PART_END] if content else [PartHead("a"), PART_END]
        self.assertEqual(decode(cut(wire, places)), expected)


class HeadTests(DecoderCase):
    """The heads of parts."""

    def fileName(self, parameters: bytes) -> str | None:
        """Give the file name that the parameters of a disposition say."""
        head = decode([filePart(b"name=a; " + parameters)])[0]
        self.assertIsInstance(head, PartHead, head)
        assert isinstance(head, PartHead)
        return head.fileName

    def test_fields(self) -> None:
        """Name, file name, type, charset and encoding are read; names are of any case."""
        wire = part(
            b"x",
            b'content-TYPE:Text/CSV; Charset="Latin1"; x=y',
            b"Content-Transfer-Encoding: BASE64",
            b"X-Other: 1",
            name=b'n"; FileName="f.csv',
        )
        head = PartHead("n", "f.csv", "text/csv", "latin1", "base64")
        self.assertDecodes(wire + END, [head, b"x", PART_END])

    def test_encodedContent(self) -> None:
        """Content-Transfer-Encoding is told, the bytes stay."""
        wire = part(b"aGk=", b"Content-Transfer-Encoding: base64")
        self.assertDecodes(wire + END, [PartHead("a", encoding="base64"), b"aGk=", PART_END])

    def test_fileNames(self) -> None:
        """Quotes, escapes and UTF-8 as browsers write them; the base name only."""
        for parameters, name in (
            (b'filename="na\xc3\xafve.txt"', "na\u00efve.txt"),
            (b'filename="50%.txt"', "50%.txt"),
            (b'filename="a%22b%41.txt"', 'a"b%41.txt'),
            (b'filename="a\\"b.txt"', 'a"b.txt'),
            (b'filename="semi;colon.txt"', "semi;colon.txt"),
            (b"filename=plain.txt", "plain.txt"),
            (b'filename="C:\\dir\\file.txt"', "file.txt"),
            (b'filename="../../etc/passwd"', "passwd"),
            (b'filename="..\\..\\boot.ini"', "boot.ini"),
            (b'filename="/"', ""),
            (b'filename=".."', ""),
            (b'filename="a/.."', ""),
            (b'filename=""', ""),
            (b"filename=", ""),
            (b'filename="a%0D%0Ab\x01\x7f\xc2\x85\xe2\x80\xa8.txt"', "ab.txt"),
            (b'filename="\xff.txt"', "\ufffd.txt"),
            (b'filename=" spaces "', " spaces "),
        ):
            self.assertEqual(self.fileName(parameters), name, parameters)

    def test_extendedNames(self) -> None:
        """C{filename*} comes first, in UTF-8 or Latin 1, and is cut and cleaned as the other."""
        for parameters, name in (
            (b"filename=\"x\"; filename*=UTF-8''na%C3%AFve.txt", "na\u00efve.txt"),
            (b"filename*=utf-8'en'a.txt; filename=x", "a.txt"),
            (b"filename*=ISO-8859-1''%E9.txt", "\u00e9.txt"),
            (b"filename*=UTF-8''..%2F..%5Cpasswd", "passwd"),
            (b"filename*=UTF-8''a%00%0D%0Ab", "ab"),
        ):
            self.assertEqual(self.fileName(parameters), name, parameters)

    def test_malformedExtendedNames(self) -> None:
        """A C{filename*} that cannot be decoded gives way to C{filename}; alone it is refused."""
        for value in (
            b"UTF-8''%FF",
            b"UTF-8''%4",
            b"UTF-8'a",
            b"a.txt",
            b"utf-7''a",
            b"UTF-8''a b",
        ):
            self.assertEqual(self.fileName(b"filename=x; filename*=" + value), "x")
            self.assertRefused(filePart(b"name=a; filename*=" + value), "cannot be decoded")

    def test_noFile(self) -> None:
        """A part without a file name is none, whatever its type."""
        head = PartHead("a", None, "application/octet-stream")
        wire = part(b"x", b"Content-Type: application/octet-stream")
        self.assertDecodes(wire + END, [head, b"x", PART_END])

    def test_names(self) -> None:
        """A name is unescaped as browsers escape it, and may be missing for others to judge."""
        for parameters, name in (
            (b'name="a%0D%0Ab%22"', 'a\r\nb"'),
            (b"name=a[b]", "a[b]"),
            (b'name=""', ""),
            (b"x=y", ""),
            (b'name="a";', "a"),
        ):
            head = decode([filePart(parameters)])[0]
            self.assertEqual(head, PartHead(name), parameters)
        self.assertDecodes(b"--aB3x\r\n\r\nx\r\n" + END, [PartHead(""), b"x", PART_END])

    def test_malformed(self) -> None:
        """What cannot be read, or in two ways, is refused."""
        for field in (b"no colon", b": no name", b"sp ace: x", b" folded: x", b"X\xc3: y"):
            self.assertRefused(part(b"x", field) + END, "no header field")
        self.assertRefused(part(b"x", b'Content-Disposition: form-data; name="b"') + END, "twice")
        self.assertRefused(part(b"x", b"Content-Type: a/b", b"content-type: c/d") + END, "twice")
        self.assertRefused(filePart(b'name="a"; NAME="b"'), "twice")
        self.assertRefused(filePart(b'name="a'), "cannot be read")
        self.assertRefused(filePart(b'name="a"x'), "cannot be read")
        self.assertRefused(filePart(b"name"), "cannot be read")
        self.assertRefused(filePart(b"name=a" + b";" * 100), "cannot be read")
        self.assertRefused(part(b"x").replace(b"form-data", b"attachment") + END, "no form-data")

    def test_size(self) -> None:
        """A head may have 16 KiB and not a byte more."""
        rest = len(b'Content-Disposition: form-data; name="a"\r\n')
        for size, isRead in ((HEAD_SIZE, True), (HEAD_SIZE + 1, False)):
            wire = part(b"y", b"X: ".ljust(size - rest, b"x")) + END
            whole, bytewise = decode([wire]), decode(wire[i : i + 1] for i in range(len(wire)))
            self.assertEqual(whole, bytewise)
            self.assertEqual(isinstance(whole[0], PartHead), isRead)
        self.assertEqual(
            decode([b"--aB3x\r\n", *[b"x" * 1000] * 1000])[0],
            (f"the head of a part is over {HEAD_SIZE} bytes", True),
        )

    def test_lines(self) -> None:
        """A head may have 32 lines."""
        fields = [b"X: y"] * (HEAD_LINES - 1)
        self.assertEqual(decode([part(b"x", *fields) + END])[0], PartHead("a"))
        self.assertRefused(part(b"x", *fields, b"X: y") + END, "lines", isTooLarge=True)


class BoundaryTests(SynchronousTestCase):
    """What the request says of its body."""

    def test_boundaries(self) -> None:
        """Quoted or not, up to 70 characters."""
        for contentType, boundary in (
            ("multipart/form-data; boundary=abc", "abc"),
            ('Multipart/Form-Data;charset=utf-8; BOUNDARY="a b:c"', "a b:c"),
            ("multipart/form-data; boundary=" + "x" * 70, "x" * 70),
            ("multipart/form-data; boundary=----geckoformboundary'()+_,-./:=?*", None),
        ):
            expected = boundary or contentType.partition("boundary=")[2]
            self.assertEqual(boundaryOf(contentType), expected)

    def test_refused(self) -> None:
        """None, an empty one, one that is too long or could not be told from other lines."""
        for contentType in (
            "multipart/form-data",
            "multipart/form-data; boundary=",
            'multipart/form-data; boundary=""',
            "multipart/form-data; boundary=" + "x" * 71,
            "multipart/form-data; boundary=" + "x" * 1024,
            'multipart/form-data; boundary="a\rb"',
            'multipart/form-data; boundary="ends in "',
            "multipart/form-data; boundary=\u00e9",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/mixed; boundary=a",
        ):
            self.assertRaises(BadMultipart, boundaryOf, contentType)
