"""The tag in pages."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from storagegate.http.development.livereload import TagInserter
from storagegate.http.encoding import IBodyEncoder

TAG = b"<tag>"


def insert(*pieces: bytes) -> bytes:
    """Put the tag into a page that comes in pieces."""
    inserter = TagInserter(TAG)
    return b"".join([*map(inserter.feed, pieces), inserter.finish()])


class InserterTests(SynchronousTestCase):
    """Where the tag goes."""

    def test_encoder(self) -> None:
        """It is an encoder as responses want it."""
        self.assertTrue(verifyObject(IBodyEncoder, TagInserter(TAG)))

    def test_places(self) -> None:
        """The tag comes before the end of the body, else at the end of the page."""
        for page, result in [
            (b"<body>x</body></html>", b"<body>x<tag></body></html>"),
            (b"<BODY>x</BODY >", b"<BODY>x<tag></BODY >"),
            (b"x</bodyguard>", b"x</bodyguard><tag>"),
            (b"x</body></body>", b"x<tag></body></body>"),
            (b"x</bod", b"x</bod<tag>"),
            (b"", b"<tag>"),
        ]:
            self.assertEqual(insert(page), result)

    @given(
        st.lists(st.sampled_from([b"</body", b"<", b"/", b"</BO", b"dy", b">", b" ", b"x"])),
        st.lists(st.integers(0, 60)),
    )
    def test_pieces(self, parts: list[bytes], cuts: list[int]) -> None:
        """However a page is cut, the result is the same, and nothing but the tag is added."""
        page = b"".join(parts)
        places = sorted({min(cut, len(page)) for cut in cuts} | {0, len(page)})
        pieces = [page[a:b] for a, b in pairwise(places)]
        result = insert(*pieces)
        self.assertEqual(result, insert(page))
        self.assertEqual(result.replace(TAG, b"", 1), page)

    def test_prompt(self) -> None:
        """What cannot be the mark is passed on at once, and a flush holds nothing back."""
        inserter = TagInserter(TAG)
        self.assertEqual(inserter.feed(b"<p>Hi</"), b"<p>Hi")
        self.assertEqual(inserter.flush(), b"</")
        self.assertEqual(inserter.feed(b"p>"), b"p>")
        self.assertEqual(inserter.finish(), TAG)
