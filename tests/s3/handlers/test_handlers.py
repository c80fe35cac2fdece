"""The handlers of the table of operations."""

import inspect

from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.handlers import buckets, post
from storagegate.s3.handlers.buckets import StaticResponse
from storagegate.s3.operations import OPERATIONS


class TableTests(SynchronousTestCase):
    """The handler of each operation."""

    def test_everyHandlerIsItsOwn(self) -> None:
        """Only settings without a value and the versions of a list share a handler."""
        shared = (buckets.listObjects,)
        handlers = [
            row.handler
            for row in OPERATIONS.values()
            if not isinstance(row.handler, StaticResponse) and row.handler not in shared
        ]
        self.assertEqual(len(set(handlers)), len(handlers))
        for handler in handlers:
            self.assertTrue(inspect.iscoroutinefunction(handler), handler)

    def test_postForm(self) -> None:
        """The row of PostObject rejects a POST that is no form."""
        self.assertIs(OPERATIONS["PostObject"].handler, post.rejectNonForm)
