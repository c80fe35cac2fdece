"""Reading what a handler takes."""

from functools import partial
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.dispatch import readHandler, readHandlers


class Callable:
    """An object that is called like a function."""

    def __call__(self, req: Any, res: Any, next: Any) -> None:
        """Do nothing."""

    def method(self, req: Any, res: Any) -> None:
        """Do nothing."""


def withDefault(req: Any, res: Any, next: Any = None) -> None:
    """Take C{next} if it is given."""


def withOther(req: Any, res: Any, table: str = "users") -> None:
    """Have a default of its own."""


async def coroutine(req: Any, res: Any) -> None:
    """Do nothing."""


def pieces(req: Any, res: Any) -> Any:
    """Yield what would never be sent."""
    yield "piece"


async def laterPieces(req: Any, res: Any) -> Any:
    """Yield what would never be sent."""
    yield "piece"


class HandlerTests(SynchronousTestCase):
    """How many arguments a handler gets."""

    def test_kinds(self) -> None:
        """Two parameters make a handler, three one with next, four one for errors."""
        for function, count in [
            (lambda req, res: None, 2),
            (lambda req, res, next: None, 3),
            (lambda error, req, res, next: None, 4),
            (lambda *arguments: None, 3),
            (withDefault, 3),
            (withOther, 2),
            (coroutine, 2),
            (Callable(), 3),
            (Callable().method, 2),
            (partial(lambda db, req, res: None, "db"), 2),
        ]:
            self.assertEqual(readHandler(function), (function, count))

    def test_refused(self) -> None:
        """What cannot be called like a handler is refused when it is registered, by its name."""
        for wrong in [
            None,
            "handler",
            7,
            lambda: None,
            lambda req: None,
            lambda a, b, c, d, e: None,
            lambda req, res, *, needed: None,
        ]:
            self.assertRaises(TypeError, readHandler, wrong)
        for generator in (pieces, laterPieces):
            error = self.assertRaises(TypeError, readHandler, generator)
            self.assertIn("ieces is a generator", str(error))
        error = self.assertRaises(TypeError, readHandler, HandlerTests.setUp)
        self.assertIn("setUp", str(error))

    def test_nested(self) -> None:
        """Lists of handlers are taken apart, as deep as they go."""
        one, two, three = (lambda req, res: None for _ in range(3))
        read = readHandlers([one, [two, (three,)]])
        self.assertEqual([function for function, _ in read], [one, two, three])
