"""Errors of the domain in the console."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.errors import STATUSES, asServiceError
from storagegate.objects.errors import ObjectNotFound
from storagegate.storage.errors import StoreBusy
from tests.support.domainerrors import errorKinds


class ErrorTests(SynchronousTestCase):
    """The table of statuses."""

    def test_complete(self) -> None:
        """Every error of the domain has a status."""
        self.assertEqual(set(STATUSES), set(errorKinds()))

    def test_shown(self) -> None:
        """A client gets code and message of a refusal, but nothing of a fault."""
        found = asServiceError(ObjectNotFound(key="k"))
        assert found is not None
        self.assertEqual(
            (found.code, found.message, found.statusCode),
            ("NoSuchKey", "The specified key does not exist.", 404),
        )
        self.assertIsNone(asServiceError(ValueError("secret")))
        self.assertIsNone(asServiceError(StoreBusy("busy")))
