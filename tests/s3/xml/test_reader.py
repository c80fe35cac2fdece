"""XML from the wire: what is read, and what is refused."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.errors import S3Error
from storagegate.s3.xml.reader import Limits, readRecords

LIMITS = Limits(size=100_000, records=3, fields=4)


class ReadRecordsTests(SynchronousTestCase):
    """Settings and records."""

    def assertRefused(self, body: bytes, limits: Limits = LIMITS) -> None:
        """Assert that a document is the one error that S3 gives."""
        error = self.assertRaises(S3Error, readRecords, body, "R", "Row", limits)
        self.assertEqual((error.code, error.status), ("MalformedXML", 400))

    def test_flat(self) -> None:
        """Text of the root's elements and of each record's fields, in order."""
        read = readRecords(
            b'<?xml version="1.0"?>\n<R>\n <A>x</A>\n <Row><B>1</B><C> 2 </C></Row>\n'
            b" <Row><B>3</B></Row><Row/>\n</R>\n",
            "R",
            "Row",
            LIMITS,
        )
        self.assertEqual(read.settings, {"A": "x"})
        self.assertEqual(read.records, [{"B": "1", "C": " 2 "}, {"B": "3"}, {}])

    def test_namespaces(self) -> None:
        """A namespace may be there or not, by default or by prefix, S3's or any other."""
        for body in [
            b'<R xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Row><B>1</B></Row></R>',
            b'<s:R xmlns:s="x"><s:Row><s:B>1</s:B></s:Row></s:R>',
            b'<R xmlns="a"><Row xmlns="b"><B xmlns="">1</B></Row></R>',
        ]:
            self.assertEqual(readRecords(body, "R", "Row", LIMITS).records, [{"B": "1"}], body)

    def test_text(self) -> None:
        """References, CDATA, comments and line ends are read as XML says."""
        body = "<R><A>a&amp;&lt;&#233;&#x1F600;<![CDATA[<b>&]]><!-- c -->é\r\n</A></R>".encode()
        self.assertEqual(
            readRecords(body, "R", "Row", LIMITS).settings, {"A": "a&<é\U0001f600<b>&é\n"}
        )

    def test_passedOver(self) -> None:
        """Unknown elements, attributes and deeper ones are ignored; the first of a name counts."""
        body = (
            b"<R><X><Y>1</Y></X><Row a='1'><B>1</B><B>2</B><D><E><B>3</B></E></D></Row>"
            b"<A>1</A><A>2</A><?pi x?></R>"
        )
        read = readRecords(body, "R", "Row", LIMITS)
        self.assertEqual(read.records, [{"B": "1", "D": ""}])
        self.assertEqual(read.settings, {"X": "", "A": "1"})

    def test_notWellFormed(self) -> None:
        """Whatever is no XML is refused."""
        for body in [
            b"",
            b"x",
            b"<R>",
            b"<R></S>",
            b"<R/><R/>",
            b"<R>&nope;</R>",
            b"<R>&#1;</R>",
            b"<R>\x01</R>",
            b"<R>\xff</R>",
            b"<R a=1/>",
            b"<R><s:A/></R>",
            b"\x00" * 100,
            b'{"R": 1}',
        ]:
            self.assertRefused(body)

    def test_otherRoot(self) -> None:
        """A document of another kind is refused."""
        self.assertRefused(b"<S><R><Row/></R></S>")
        self.assertRefused(b"<r/>")

    def test_documentType(self) -> None:
        """A DTD is refused, whatever it declares."""
        for body in [
            b"<!DOCTYPE R><R/>",
            b'<!DOCTYPE R SYSTEM "file:///etc/passwd"><R/>',
            b'<!DOCTYPE R [<!ENTITY a "b">]><R>&a;</R>',
            b'<!DOCTYPE R [<!ENTITY a SYSTEM "file:///etc/passwd">]><R>&a;</R>',
            b'<!DOCTYPE R [<!ENTITY % a SYSTEM "http://127.0.0.1/">%a;]><R/>',
            b'<?xml version="1.0"?>\n<!DOCTYPE\nR><R/>',
        ]:
            self.assertRefused(body)

    def test_size(self) -> None:
        """A document of exactly the limit is read, one byte more is refused."""
        body = b"<R>" + b" " * (1000 - 7) + b"</R>"
        limits = Limits(size=1000, records=0, fields=0)
        readRecords(body, "R", "Row", limits)
        self.assertRefused(body + b"\n", limits)
        self.assertRefused(b"<R>" + b" " * 20_000_000 + b"</R>")

    def test_depth(self) -> None:
        """20 levels are read, 21 or 200,000 are refused."""
        limits = Limits(size=2_000_000, records=1, fields=300_000)
        readRecords(b"<R>" + b"<a>" * 19 + b"</a>" * 19 + b"</R>", "R", "Row", limits)
        for depth in [20, 200_000]:
            self.assertRefused(b"<R>" + b"<a>" * depth + b"</a>" * depth + b"</R>", limits)
        self.assertRefused(b"<a>" * 200_000, limits)

    def test_records(self) -> None:
        """As many records as allowed are read, one more is refused; others are not counted."""
        body = b"<R>" + b"<Row/>" * 3 + b"<X/>" * 5 + b"</R>"
        self.assertEqual(len(readRecords(body, "R", "Row", LIMITS).records), 3)
        self.assertRefused(b"<R>" + b"<Row/>" * 4 + b"</R>")

    def test_elements(self) -> None:
        """Elements are counted, known or not, wherever they stand."""
        # Three records and the root, each with four fields.
        readRecords(b"<R>" + b"<X/>" * 19 + b"</R>", "R", "Row", LIMITS)
        self.assertRefused(b"<R>" + b"<X/>" * 20 + b"</R>")
        self.assertRefused(b"<R><Row>" + b"<X/>" * 19 + b"</Row></R>")

    def test_attributes(self) -> None:
        """Four attributes pass, five do not, and neither do 50,000."""
        readRecords(b"<R a='' b='' c='' d=''/>", "R", "Row", LIMITS)
        self.assertRefused(b"<R a='' b='' c='' d='' e=''/>")
        many = b" ".join(b"a%d=''" % number for number in range(50_000))
        self.assertRefused(b"<R " + many + b"/>", Limits(size=1_000_000, records=1, fields=1))

    def test_longPieces(self) -> None:
        """A tag, a name, a text or a namespace that is too long is refused."""
        for body in [
            b"<R a='" + b"x" * 20_000 + b"'/>",
            b"<R><" + b"x" * 300 + b"/></R>",
            b"<R xmlns='" + b"x" * 300 + b"'/>",
            b"<R><A>" + b"x" * 17_000 + b"</A></R>",
            b"<R><A>" + (b"x" * 1000 + b"<!---->") * 17 + b"</A></R>",
            b"<R><A>" + b"x<![CDATA[" + b"x" * 17_000 + b"]]></A></R>",
        ]:
            self.assertRefused(body)
        body = b"<R><A>" + b"&#x1F600;" * 256 + b"</A></R>"
        self.assertEqual(readRecords(body, "R", "Row", LIMITS).settings, {"A": "\U0001f600" * 256})

    def test_namespaceDeclarations(self) -> None:
        """64 declarations of namespaces pass, one more does not."""
        for count in [64, 65]:
            declared = b" ".join(b"xmlns:a%d='x'" % number for number in range(count))
            body = b"<R " + declared + b"/>"
            if count == 64:
                readRecords(body, "R", "Row", LIMITS)
            else:
                self.assertRefused(body)

    @given(st.binary(max_size=100))
    def test_anything(self, noise: bytes) -> None:
        """Whatever bytes come, the answer is a document or S3's error."""
        for body in [noise, b"<R>" + noise + b"</R>", b"<R><Row><A>" + noise]:
            try:
                readRecords(body, "R", "Row", LIMITS)
            except S3Error as error:
                self.assertEqual(error.code, "MalformedXML")
