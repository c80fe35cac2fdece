"""The table of routes."""

import inspect

from twisted.trial.unittest import SynchronousTestCase

from storagegate.s3.handlers import buckets, post
from storagegate.s3.operations import OPERATIONS, ROUTES


class TableTests(SynchronousTestCase):
    """Which route answers which operation."""

    def test_everyOperation(self) -> None:
        """Every operation has a route, and there is no route that no operation leads to."""
        self.assertEqual(set(ROUTES), set(OPERATIONS))

    def test_everyRouteIsItsOwn(self) -> None:
        """Only what is answered from the table of settings, and the two ACLs, share a route."""
        shared = {buckets.setting, buckets.getAcl}
        own = [route for route in ROUTES.values() if route not in shared]
        self.assertEqual(len(set(own)), len(own))
        for name, route in ROUTES.items():
            self.assertTrue(inspect.iscoroutinefunction(route), name)

    def test_settings(self) -> None:
        """What has a fixed answer gives it; a POST that is no form is refused."""
        for name, operation in OPERATIONS.items():
            self.assertEqual(ROUTES[name] is buckets.setting, operation.answer is not None, name)
        self.assertIs(ROUTES["PostObject"], post.rejectNonForm)
