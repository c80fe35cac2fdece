"""Functions of users get what they take."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.invoker import adaptHandler


class HookTests(SynchronousTestCase):
    """Functions of one thing or two."""

    def test_both(self) -> None:
        """A function that takes both gets both, by whatever names."""
        for function in (
            lambda a, b: (a, b),
            lambda *both: both,
            lambda a, *more: (a, *more),
            lambda a, b, c=3: (a, b),
            lambda req, res=None: (req, res),
            max,
        ):
            self.assertIn(adaptHandler(function, "f")(1, 2), ((1, 2), 2))

    def test_one(self) -> None:
        """One that takes one thing gets the first."""
        for function in (lambda a: a, abs, lambda a, **options: a):
            self.assertEqual(adaptHandler(function, "f")(1, 2), 1)

    def test_own(self) -> None:
        """A default that belongs to the function stays, unless the parameter has the name."""
        for function in (lambda a, b=7: b, {0: 1}.get, lambda a, b=7, c=8: b):
            self.assertIn(adaptHandler(function, "f")(1, 2), (7, None))
        call: Any = adaptHandler(lambda token, call=7: call, "f", "token", "call")
        self.assertEqual(call(1, 2), 2)

    def test_refused(self) -> None:
        """Anything else is refused by the name of its option."""
        for function in (None, "f", lambda: 1, lambda a, b, c: 1, lambda *, a: 1):
            error = self.assertRaises(TypeError, adaptHandler, function, "option")
            self.assertIn("option", str(error))
            self.assertIn("(req, res)", str(error))
