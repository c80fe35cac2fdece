"""C{Content-Disposition}."""

import re
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.contenttypes import contentDisposition

READ = re.compile(
    r"""attachment; filename="((?:[^"\\]|\\.)*)"(?:; filename\*=UTF-8''([\w!#$&+.^`|~%-]+))?""",
    re.ASCII,
)


class DispositionTests(SynchronousTestCase):
    """What clients are told about names."""

    def test_withoutName(self) -> None:
        """There need be no name."""
        self.assertEqual(contentDisposition(), "attachment")
        self.assertEqual(contentDisposition(kind="inline"), "inline")

    def test_plain(self) -> None:
        """A name in ASCII is quoted, and needs no second parameter."""
        for name, expected in (
            ("plans.pdf", 'attachment; filename="plans.pdf"'),
            ("the plans.pdf", 'attachment; filename="the plans.pdf"'),
            ('the "plans".pdf', 'attachment; filename="the \\"plans\\".pdf"'),
            ("a\\b.pdf", 'attachment; filename="a\\\\b.pdf"'),
            ("50%.pdf", 'attachment; filename="50%.pdf"'),
        ):
            self.assertEqual(contentDisposition(name), expected)

    def test_extended(self) -> None:
        """Any other name is there twice: as near as ASCII comes, and exactly."""
        for name, expected in (
            ("plané.pdf", "attachment; filename=\"plan?.pdf\"; filename*=UTF-8''plan%C3%A9.pdf"),
            ("€ rates", "attachment; filename=\"? rates\"; filename*=UTF-8''%E2%82%AC%20rates"),
            ("a%41.pdf", "attachment; filename=\"a%41.pdf\"; filename*=UTF-8''a%2541.pdf"),
            ("é'*().a", "attachment; filename=\"?'*().a\"; filename*=UTF-8''%C3%A9%27%2A%28%29.a"),
        ):
            self.assertEqual(contentDisposition(name), expected)

    def test_undecodable(self) -> None:
        """A name that is not UTF-8 on the disk still makes a field."""
        self.assertEqual(
            contentDisposition(b"a\xff".decode(errors="surrogateescape")),
            "attachment; filename=\"a?\"; filename*=UTF-8''a%3F",
        )

    def test_path(self) -> None:
        """Of a path only the last part is told."""
        self.assertEqual(contentDisposition("/srv/x/../plans.pdf"), contentDisposition("plans.pdf"))

    def test_control(self) -> None:
        """Line ends and their kin are refused."""
        for name in ("a\r\nSet-Cookie: b", "a\n", "\0", "a\x7f", "\x1b[1m", "a\r\n/b"):
            self.assertRaises(ValueError, contentDisposition, name)

    def test_kind(self) -> None:
        """The kind is a token."""
        for kind in ("", "a b", "a;b", "inline\r\n", "é"):
            self.assertRaises(ValueError, contentDisposition, "a", kind)

    @given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1))
    def test_readBack(self, name: str) -> None:
        """A client that goes by the RFCs reads the name that was written."""
        field = contentDisposition(name)
        self.assertTrue(field.isascii())
        match = READ.fullmatch(field)
        assert match is not None
        plain, extended = match.groups()
        read = unquote(extended) if extended else re.sub(r"\\(.)", r"\1", plain)
        self.assertEqual(read, name.rpartition("/")[2])
