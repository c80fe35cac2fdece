"""Random histories against a dictionary, and the audit that must agree with both."""

from collections import Counter
from sqlite3 import Connection
from typing import Any

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage.embedded import fsck
from storagegate.storage.embedded.groupcommit import QueuedMutation, runTogether
from storagegate.storage.embedded.objects import lookUp
from storagegate.storage.embedded.refcounts import blobRows, forgetBlobs
from storagegate.storage.embedded.uploads import abortUpload, putPart
from storagegate.storage.embedded.usage import recountUsage
from storagegate.storage.mutations import AbortUpload, PutPart
from storagegate.storage.records import ObjectRecord, WriteCondition
from tests.contract.catalogcase import (
    blobRecord,
    inlineRecord,
    newBlobsOf,
    partOf,
    uploadOf,
)
from tests.storage.embedded.memory import CREATE_UPLOAD, change, deletionOf, memoryCatalog, putOf
from tests.support.selection import long, rounds

PUT_PART = putPart
ABORT = abortUpload
SET_COUNTS = fsck.setCounts


@define
class Model:
    """
    What a catalog of one bucket should hold.

    @ivar objects: Key to ETag, inline bytes and blobs.
    @ivar garbage: Blobs that have lost their last reference.
    """

    objects: dict[bytes, tuple[str, bytes | None, tuple[str, ...]]] = field(factory=dict)
    known: set[str] = field(factory=set)
    garbage: set[str] = field(factory=set)

    def references(self) -> Counter[str]:
        """Count who names what."""
        return Counter(blob for _, _, blobs in self.objects.values() for blob in blobs)

    def put(self, record: ObjectRecord, condition: WriteCondition, new: set[str]) -> bool:
        """Store an object if that may be; say whether it was."""
        there = self.objects.get(record.key)
        if condition.absent and there is not None:
            return False
        if condition.etags and (there is None or there[0] not in condition.etags):
            return False
        blobs = tuple(segment.blob for segment in record.content.segments)
        named = self.references()
        if any(not named[blob] if blob in self.known else blob not in new for blob in blobs):
            return False
        self.known.update(blobs)
        self.objects[record.key] = (record.etag, record.content.inline, blobs)
        self.collect()
        return True

    def delete(self, key: bytes) -> bool:
        """Remove an object; say whether it was there."""
        there = self.objects.pop(key, None) is not None
        self.collect()
        return there

    def collect(self) -> None:
        """Take note of new garbage."""
        named = self.references()
        self.garbage |= {blob for blob in self.known if not named[blob]}


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
BLOBS = st.lists(st.sampled_from("xyz"), max_size=2)
CONDITIONS = st.sampled_from(
    [WriteCondition()] * 3
    + [WriteCondition(absent=True), WriteCondition(etags=("e0",)), WriteCondition(etags=("e1",))]
)
PUTS = st.tuples(st.just("put"), KEYS, BLOBS, CONDITIONS, st.booleans(), st.integers(0, 2))
DELETES = st.tuples(st.just("delete"), st.lists(KEYS, max_size=3))
FORGETS = st.tuples(st.just("forget"))
ACTIONS = st.one_of(PUTS, PUTS, DELETES, FORGETS)
BATCHES = st.lists(st.lists(ACTIONS, min_size=1, max_size=8), max_size=6)


class HistoryTests(SynchronousTestCase):
    """Random batches of puts, copies, deletes and forgotten garbage."""

    def step(self, model: Model, action: tuple[Any, ...]) -> tuple[QueuedMutation, object]:
        """Do an action in the model; give its mutation and the outcome that it must have."""
        if action[0] == "put":
            _, key, blobs, condition, isNew, etag = action
            record = blobRecord(key, *blobs, etag=f"e{etag}")
            if not blobs:
                record = inlineRecord(key, b"%d" % etag, etag=f"e{etag}")
            new = set(blobs) if isNew else set()
            stored = model.put(record, condition, new)
            return putOf(record, condition, newBlobsOf(*new)), stored
        if action[0] == "delete":
            gone = [model.delete(key) for key in action[1]]
            return deletionOf(*action[1]), gone
        named = model.references()
        model.known = {blob for blob in model.known if named[blob]}
        return QueuedMutation(forgetBlobs, list("xyz")), None

    @long("takes seconds")
    @settings(max_examples=rounds(40, 200), deadline=None)
    @given(BATCHES)
    def test_asTheModel(self, batches: list[list[tuple[Any, ...]]]) -> None:
        """Whatever is committed together, it is as if each had come after the other."""
        connection = memoryCatalog()
        self.addCleanup(connection.close)
        model = Model()
        garbage: set[str] = set()
        for batch in batches:
            steps = [self.step(model, action) for action in batch]
            outcomes, left = runTogether(connection, [mutation for mutation, _ in steps])
            garbage.update(left)
            for outcome, (_, wanted) in zip(outcomes, steps, strict=True):
                if isinstance(outcome, list):
                    outcome = [each.isFound for each in outcome]
                stored = isinstance(outcome, ObjectRecord)
                self.assertEqual(stored if isinstance(wanted, bool) else outcome, wanted)
            self.check(connection, model)
        self.assertEqual(garbage, model.garbage)

    def check(self, connection: Connection, model: Model) -> None:
        """Compare the catalog with the model, and let it be audited."""
        for key in (b"a", b"b", b"c", b"d", b"e"):
            _, record = lookUp(connection, "b", key)
            found = None
            if record is not None:
                blobs = tuple(segment.blob for segment in record.content.segments)
                found = (record.etag, record.content.inline, blobs)
            self.assertEqual(found, model.objects.get(key))
        named = model.references()
        rows = {row.id: row.refs for row in blobRows(connection, "", 10)}
        self.assertEqual(rows, {blob: named[blob] for blob in model.known})
        self.assertEqual(fsck.recount(connection), [])
        self.assertEqual(recountUsage(connection), [])
        inline = connection.execute("SELECT count(*) FROM inline").fetchall()[0][0]
        small = sum(1 for _, body, _ in model.objects.values() if body is not None)
        self.assertEqual(inline, small)


class AuditTests(SynchronousTestCase):
    """The checks of a catalog against itself."""

    def setUp(self) -> None:
        """Make a catalog with objects, a part and garbage."""
        self.connection = memoryCatalog()
        self.addCleanup(self.connection.close)
        runTogether(
            self.connection,
            [
                putOf(blobRecord(b"k", "x", "y"), newBlobs=newBlobsOf("x", "y")),
                putOf(blobRecord(b"l", "x")),
                putOf(blobRecord(b"m", "z"), newBlobs=newBlobsOf("z")),
                deletionOf(b"m"),
                QueuedMutation(CREATE_UPLOAD, uploadOf(b"u", "1")),
                QueuedMutation(PUT_PART, PutPart("b", b"u", "1", partOf(1, "w"), newBlobsOf("w"))),
            ],
        )

    def test_whole(self) -> None:
        """A catalog that is whole has nothing to report."""
        self.assertEqual(fsck.recount(self.connection), [])
        checked = self.connection.execute("PRAGMA integrity_check")
        self.assertEqual(checked.fetchall(), [("ok",)])

    def test_recount(self) -> None:
        """Wrong counts and missing rows are found, and counts can be put right."""
        self.connection.execute("UPDATE blobs SET refs = 5 WHERE id IN ('x', 'z')")
        self.connection.execute("UPDATE blobs SET refs = 0 WHERE id = 'w'")
        self.connection.execute("DELETE FROM blobs WHERE id = 'y'")
        wrong = [
            fsck.Mismatch("w", 0, 1),
            fsck.Mismatch("x", 5, 2),
            fsck.Mismatch("y", None, 1),
            fsck.Mismatch("z", 5, 0),
        ]
        self.assertEqual(fsck.recount(self.connection), wrong)
        change(self.connection, SET_COUNTS, wrong)
        self.assertEqual(fsck.recount(self.connection), [wrong[2]])

    def test_owners(self) -> None:
        """It is known which objects and uploads name a blob."""
        self.assertEqual(fsck.owners(self.connection, "x"), [("b", b"k"), ("b", b"l")])
        self.assertEqual(fsck.owners(self.connection, "w"), [("b", b"u")])
        self.assertEqual(fsck.owners(self.connection, "z"), [])

    def test_abortedPartIsGarbage(self) -> None:
        """An aborted upload's counts are right as well."""
        mutation = QueuedMutation(ABORT, AbortUpload("b", b"u", "1"))
        _, garbage = runTogether(self.connection, [mutation])
        self.assertEqual(garbage, ["w"])
        self.assertEqual(fsck.recount(self.connection), [])
        self.assertEqual(recountUsage(self.connection), [])
