"""The journal and the verdict are the judges of the crash tests: so they are judged first."""

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.support.journal import (
    NULL,
    Journal,
    Stack,
    Version,
    afterWrite,
    fits,
    inParts,
    relocked,
    whole,
    without,
)
from tests.wire.s3.fixture import S3Case
from tests.wire.s3.verdict import judge
from tests.wire.s3.workload import setVersioning

ENABLED = "Enabled"


def alone(body: bytes) -> Stack:
    """Return the versions of a key that was put in a bucket without versioning."""
    return afterWrite((), "", whole(body))


class JournalTests(SynchronousTestCase):
    """Which states a reader may find."""

    def test_acknowledged(self) -> None:
        """What was acknowledged is all that may be found."""
        journal = Journal()
        journal.attempt("k", alone(b"a"))
        self.assertEqual(journal.allowed("k"), [(), alone(b"a")])
        journal.acknowledge("k")
        self.assertEqual(journal.allowed("k"), [alone(b"a")])
        self.assertEqual(journal.acknowledged, 1)

    def test_open(self) -> None:
        """A write without an answer may be found, or what it was to replace."""
        journal = Journal()
        journal.attempt("k", alone(b"a"))
        journal.acknowledge("k")
        journal.attempt("k", afterWrite(journal.newest("k"), "", None))
        self.assertEqual(journal.allowed("k"), [alone(b"a"), ()])

    def test_frozen(self) -> None:
        """An answer that comes after the power went is none: its write is as open as before."""
        journal = Journal()
        journal.attempt("k", alone(b"a"))
        journal.freeze()
        journal.acknowledge("k")
        journal.attempt("k", alone(b"b"))
        journal.acknowledge("k")
        self.assertEqual(journal.allowed("k"), [(), alone(b"a"), alone(b"b")])
        journal.thaw()
        journal.attempt("k", alone(b"c"))
        journal.acknowledge("k")
        self.assertEqual(journal.allowed("k"), [alone(b"c")])

    def test_settled(self) -> None:
        """What was found once may not change by itself."""
        journal = Journal()
        journal.attempt("k", alone(b"a"))
        journal.settle("k", ())
        self.assertEqual(journal.allowed("k"), [()])
        self.assertEqual(journal.written(), ["k"])

    def test_versions(self) -> None:
        """A version that was acknowledged is found under its id, one that was not under any."""
        journal = Journal()
        journal.attempt("k", afterWrite((), ENABLED, whole(b"a")))
        journal.acknowledge("k", "1")
        journal.attempt("k", afterWrite(journal.newest("k"), ENABLED, None))
        first, marker = Version("1", whole(b"a")), Version("2", None)
        before, after = journal.allowed("k")
        self.assertEqual(before, (first,))
        self.assertTrue(fits((marker, first), after))
        self.assertFalse(fits((first, marker), after))
        self.assertFalse(fits((marker, Version("3", whole(b"a"))), after))
        self.assertFalse(fits((marker,), after))
        journal.acknowledge("k", "2")
        self.assertEqual(without(journal.newest("k"), "1"), (marker,))

    def test_suspended(self) -> None:
        """Without versions there is one C{null} version, wherever it stands."""
        null = Version(NULL, whole(b"a"))
        stack = (Version("1", whole(b"b")), null)
        self.assertEqual(
            afterWrite(stack, "Suspended", None), (Version(NULL, None), Version("1", whole(b"b")))
        )
        self.assertEqual(afterWrite((null,), "", None), ())

    def test_locks(self) -> None:
        """A lock that was acknowledged is found, and goes only by a write that takes it away."""
        journal = Journal()
        held = evolve(whole(b"a"), lock="ON")
        journal.attempt("k", afterWrite((), ENABLED, held))
        journal.acknowledge("k", "1")
        journal.attempt("k", afterWrite(journal.newest("k"), ENABLED, None))
        journal.acknowledge("k", "2")
        [stack] = journal.allowed("k")
        marker, version = stack
        self.assertEqual(version, Version("1", held))
        self.assertFalse(fits((marker, Version("1", whole(b"a"))), stack))
        free = relocked(stack, "1", "")
        self.assertEqual(free, (marker, Version("1", whole(b"a"))))
        self.assertEqual(relocked(free, "1", "ON"), stack)

    def test_bodies(self) -> None:
        """A body in parts is known by the digests of its parts, of one piece by its own."""
        self.assertEqual(whole(b"").etag, '"d41d8cd98f00b204e9800998ecf8427e"')
        self.assertEqual(inParts([b""]).etag, '"59adb24ef3cdbe0297f05b395827453f-1"')
        self.assertEqual(inParts([b"a", b"b"]).sha256, whole(b"ab").sha256)


class VerdictTests(S3Case):
    """What the verdict finds of versions."""

    def test_locks(self) -> None:
        """A lock that is gone is found, and one that nothing has placed."""
        bucket = self.makeName("locked")
        self.s3.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
        journal, named = Journal(), {"Bucket": bucket, "Key": "k"}
        put = self.s3.put_object(**named, Body=b"a", ObjectLockLegalHoldStatus="ON")
        held = evolve(whole(b"a"), lock="ON")
        journal.attempt("k", afterWrite((), ENABLED, held))
        journal.acknowledge("k", put["VersionId"])
        judge(self.daemon, bucket, journal, "so far")
        self.s3.put_object_legal_hold(**named, LegalHold={"Status": "OFF"})
        with self.assertRaisesRegex(AssertionError, "late: k has the versions"):
            judge(self.daemon, bucket, journal, "late")
        journal.attempt("k", relocked(journal.newest("k"), put["VersionId"], ""))
        judge(self.daemon, bucket, journal, "settled")
        self.s3.put_object_legal_hold(**named, LegalHold={"Status": "ON"})
        with self.assertRaisesRegex(AssertionError, "late: k has the versions"):
            judge(self.daemon, bucket, journal, "late")

    def test_versions(self) -> None:
        """A version that is gone, one that nobody wrote and one under another id are found."""
        bucket = self.makeBucket()
        status = setVersioning(self.daemon, bucket, 0)
        self.assertEqual(status, ENABLED)
        journal = Journal()

        def write(body: bytes | None, isNoted: bool = True) -> str:
            call = self.s3.delete_object if body is None else self.s3.put_object
            more = {} if body is None else {"Body": body}
            versionId: str = call(Bucket=bucket, Key="k", **more)["VersionId"]
            if isNoted:
                content = None if body is None else whole(body)
                journal.attempt("k", afterWrite(journal.newest("k"), status, content))
                journal.acknowledge("k", versionId)
            return versionId

        for body in (b"a", b"b", None, b"c"):
            write(body)
            judge(self.daemon, bucket, journal, "so far")
        extra = write(b"c", isNoted=False)
        with self.assertRaisesRegex(AssertionError, "late: k has the versions"):
            judge(self.daemon, bucket, journal, "late")
        gone = journal.newest("k")[0].id
        self.s3.delete_object(Bucket=bucket, Key="k", VersionId=gone)
        with self.assertRaisesRegex(AssertionError, "late: k has the versions"):
            judge(self.daemon, bucket, journal, "late")
        self.s3.delete_object(Bucket=bucket, Key="k", VersionId=extra)
        with self.assertRaisesRegex(AssertionError, "late: k has the versions"):
            judge(self.daemon, bucket, journal, "late")
        journal.attempt("k", without(journal.newest("k"), gone))
        judge(self.daemon, bucket, journal, "settled")
        journal.settle("k", ())
        with self.assertRaisesRegex(AssertionError, "late: k has the versions"):
            judge(self.daemon, bucket, journal, "late")
