"""Warnings about state that each process keeps for itself."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.perprocess import holdsStateOf, perProcessWarning


class Holder:
    """A middleware with a store in memory."""

    isPerProcess = True
    held = "baskets"
    sharedBy = "BasketStore(path)"

    def handle(self) -> None:
        """Do nothing."""


class WarningTests(SynchronousTestCase):
    """The attributes of stores and middleware."""

    def test_declared(self) -> None:
        """An object that keeps state, and a method of it, give the store to use."""
        text = "each worker has its own baskets; to share them, use BasketStore(path)"
        self.assertEqual(perProcessWarning(Holder()), text)
        self.assertEqual(perProcessWarning(Holder().handle), text)

    def test_others(self) -> None:
        """An object without the attributes gives no warning."""
        for each in (object(), print, self.test_declared, lambda: None):
            self.assertIsNone(perProcessWarning(each))

    def test_function(self) -> None:
        """A function declares the state of its store."""

        def limit() -> None:
            """Do nothing."""

        self.assertIs(holdsStateOf(limit, None, "counts"), limit)
        self.assertIsNone(perProcessWarning(limit))
        holdsStateOf(limit, Holder(), "counts")
        self.assertEqual(
            perProcessWarning(limit),
            "each worker has its own counts; to share them, use BasketStore(path)",
        )
