"""The table of mutations of each catalog."""

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.storage import mutations
from storagegate.storage.cluster.mutations import MUTATIONS as CLUSTER
from storagegate.storage.embedded.catalog import MUTATIONS as EMBEDDED
from storagegate.storage.mutations import (
    BucketMutation,
    Mutation,
    NamedBucketMutation,
    PutPart,
    copiedBlobsOf,
    noteDamage,
)
from tests.contract.catalogcase import partOf

BASES = {BucketMutation, NamedBucketMutation, mutations.StoreMutation, mutations.BlobMutation}


def kinds(base: type[Mutation[Any]] = Mutation) -> Iterator[type[Mutation[Any]]]:
    """Give every kind of mutation."""
    for each in base.__subclasses__():
        if each.__module__ == mutations.__name__:
            if each not in BASES:
                yield each
            yield from kinds(each)


class TableTests(SynchronousTestCase):
    """Each catalog has a function for each kind."""

    def test_rows(self) -> None:
        """No row is missing, and none is left over."""
        every = set(kinds())
        self.assertIn(PutPart, every)
        self.assertEqual(set(EMBEDDED), every)
        self.assertEqual(set(CLUSTER), every)

    def test_buckets(self) -> None:
        """Each kind has one place: a bucket, the store, or the blobs."""
        for kind in kinds():
            places = (BucketMutation, mutations.StoreMutation, mutations.BlobMutation)
            self.assertEqual(sum(issubclass(kind, each) for each in places), 1, kind)

    def test_copied(self) -> None:
        """The blobs that are not new are copied."""
        part = partOf(1, "a", "b")
        self.assertEqual(copiedBlobsOf(PutPart("b", b"k", "u", part, {"a": 1})), ["b"])

    def test_damage(self) -> None:
        """A process follows the marks that it makes."""
        corrupt = {"x", "y", "z"}
        noteDamage(corrupt, mutations.MarkCorrupt("w"))
        noteDamage(corrupt, mutations.ClearCorrupt("x"))
        noteDamage(corrupt, mutations.ForgetBlobs(["y"]))
        self.assertEqual(corrupt, {"w", "z"})
