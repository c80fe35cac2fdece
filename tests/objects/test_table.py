"""The table of operations of the domain."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects import operations
from storagegate.objects.access.actions import OPERATION_ACTIONS
from storagegate.objects.access.context import Caller
from storagegate.objects.access.decision import PublicAccessBlock
from storagegate.objects.cors import CORSRule
from storagegate.objects.encryption.requests import BucketEncryption
from storagegate.objects.lifecycle import LifecycleRule
from storagegate.objects.operations import (
    BucketOperation,
    CopyObject,
    Operation,
    UploadOperation,
    VersionOperation,
)
from storagegate.objects.table import FUNCTIONS
from storagegate.objects.tags import Tags
from storagegate.storage import mutations
from storagegate.storage.mutations import Mutation

LATE = {
    "BucketEncryption": BucketEncryption,
    "Caller": Caller,
    "CORSRule": CORSRule,
    "LifecycleRule": LifecycleRule,
    "PublicAccessBlock": PublicAccessBlock,
    "Tags": Tags,
}
"""Names that are imported for type checkers alone."""

BASES = {BucketOperation, VersionOperation, UploadOperation}


def kinds(base: type[Operation[Any]] = Operation) -> Iterator[type[Operation[Any]]]:
    """Give every kind of operation."""
    for each in base.__subclasses__():
        if each.__module__ == operations.__name__:
            if each not in BASES:
                yield each
            yield from kinds(each)


def answerOf(kind: type[Operation[Any]]) -> Any:
    """Return the type that the class of an operation names as its answer."""

    def answer() -> None:
        """Has it as an annotation, which can be resolved."""

    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]
    (named,) = get_args(base)
    answer.__annotations__["return"] = named
    return get_type_hints(answer, localns=LATE)["return"]


class TableTests(SynchronousTestCase):
    """Each operation has a function."""

    def test_rows(self) -> None:
        """No row is missing, and none is left over."""
        every = set(kinds())
        self.assertIn(CopyObject, every)
        self.assertEqual(set(FUNCTIONS), every)

    def test_answers(self) -> None:
        """A function takes its operation, and returns what the class says."""
        for kind, function in FUNCTIONS.items():
            hints = get_type_hints(function, localns=LATE)
            self.assertEqual(hints["return"], answerOf(kind), kind)
            taken = get_origin(hints["wanted"]) or hints["wanted"]
            self.assertTrue(issubclass(kind, taken), kind)

    def test_names(self) -> None:
        """An operation has Amazon's name, and no mutation of the catalog has one of these."""
        names = {each.__name__ for each in kinds()}
        self.assertEqual(names - set(OPERATION_ACTIONS), set())
        changes = {
            name
            for name, each in vars(mutations).items()
            if isinstance(each, type) and issubclass(each, Mutation)
        }
        self.assertEqual(names & changes, set())
