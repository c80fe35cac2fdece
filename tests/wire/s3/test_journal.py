"""The journal and the verdict are the judges of the crash tests: so they are judged first."""

from twisted.trial.unittest import SynchronousTestCase

from tests.support.journal import Journal, inParts, whole


class JournalTests(SynchronousTestCase):
    """Which states a reader may find."""

    def test_acknowledged(self) -> None:
        """What was acknowledged is all that may be found."""
        journal = Journal()
        journal.attempt("k", whole(b"a"))
        self.assertEqual(journal.allowed("k"), [None, whole(b"a")])
        journal.acknowledge("k")
        self.assertEqual(journal.allowed("k"), [whole(b"a")])
        self.assertEqual(journal.acknowledged, 1)

    def test_open(self) -> None:
        """A write without an answer may be found, or what it was to replace."""
        journal = Journal()
        journal.attempt("k", whole(b"a"))
        journal.acknowledge("k")
        journal.attempt("k", None)
        self.assertEqual(journal.allowed("k"), [whole(b"a"), None])

    def test_frozen(self) -> None:
        """An answer that comes after the power went is none: its write is as open as before."""
        journal = Journal()
        journal.attempt("k", whole(b"a"))
        journal.freeze()
        journal.acknowledge("k")
        journal.attempt("k", whole(b"b"))
        journal.acknowledge("k")
        self.assertEqual(journal.allowed("k"), [None, whole(b"a"), whole(b"b")])
        journal.thaw()
        journal.attempt("k", whole(b"c"))
        journal.acknowledge("k")
        self.assertEqual(journal.allowed("k"), [whole(b"c")])

    def test_settled(self) -> None:
        """What was found once may not change by itself."""
        journal = Journal()
        journal.attempt("k", whole(b"a"))
        journal.settle("k", None)
        self.assertEqual(journal.allowed("k"), [None])
        self.assertEqual(journal.written(), ["k"])

    def test_bodies(self) -> None:
        """A body in parts is known by the digests of its parts, of one piece by its own."""
        self.assertEqual(whole(b"").etag, '"d41d8cd98f00b204e9800998ecf8427e"')
        self.assertEqual(inParts([b""]).etag, '"59adb24ef3cdbe0297f05b395827453f-1"')
        self.assertEqual(inParts([b"a", b"b"]).sha256, whole(b"ab").sha256)
