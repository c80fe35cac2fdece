"""XML as it is written."""

import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.xml.writer import document, element, escape, escapeReadable, optional

# What XML 1.0 can hold (section 2.2).
CHARACTERS = st.one_of(
    st.sampled_from("\t\n\r&<>\"']]>"),
    st.characters(min_codepoint=0x20, max_codepoint=0xD7FF),
    st.characters(min_codepoint=0xE000, max_codepoint=0xFFFD),
    st.characters(min_codepoint=0x10000),
)


class WriterTests(SynchronousTestCase):
    """Elements and documents."""

    def test_escape(self) -> None:
        """Markup, quotes and carriage returns are escaped; plain text is the same object."""
        self.assertEqual(escape("a&b<c>d\"e'\r\n\t"), "a&amp;b&lt;c&gt;d&quot;e'&#13;\n\t")
        plain = "photos/2026/é.jpg"
        self.assertIs(escape(plain), plain)

    def test_unwritable(self) -> None:
        """What XML cannot hold is written as S3 writes it."""
        self.assertEqual(escape("a\x01\x00\x1f\x0b\uffff"), "a&#x1;&#x0;&#x1f;&#xb;&#xffff;")

    def test_readable(self) -> None:
        """Where a document must be readable it is replaced, and the rest stays as it is."""
        self.assertEqual(escapeReadable("a\x01\uffff\udc80\r&"), "a\ufffd\ufffd\ufffd&#13;&amp;")

    def test_pieces(self) -> None:
        """An optional element is left out where there is no text."""
        self.assertEqual(element("Key", "a&b"), "<Key>a&amp;b</Key>")
        self.assertEqual(element("Key", ""), "<Key></Key>")
        self.assertEqual(optional("Key", "<"), "<Key>&lt;</Key>")
        self.assertEqual((optional("Key", ""), optional("Key", None)), ("", ""))

    def test_document(self) -> None:
        """A document has S3's declaration and namespace, or none."""
        self.assertEqual(
            document("A", "é"),
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<A xmlns="http://s3.amazonaws.com/doc/2006-03-01/">é</A>'.encode(),
        )
        self.assertEqual(
            document("A", "", namespace=""),
            b'<?xml version="1.0" encoding="UTF-8"?>\n<A></A>',
        )

    @given(st.text(CHARACTERS))
    def test_roundTrip(self, text: str) -> None:
        """Whatever XML can hold, a parser reads as it was."""
        root = ElementTree.fromstring(document("A", element("B", text), namespace=""))
        self.assertEqual(root.findtext("B"), text)

    @given(st.text(st.characters(codec=None)))
    def test_alwaysReadable(self, text: str) -> None:
        """The readable form can be read whatever the text, surrogates and all."""
        ElementTree.fromstring(document("A", escapeReadable(text), namespace=""))
