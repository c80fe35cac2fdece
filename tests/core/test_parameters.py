"""Signatures, and texts that become values of their types."""

import enum
from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any

from msgspec import NODEFAULT, Meta
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.parameters import (
    Depends,
    FunctionParameter,
    Header,
    Query,
    TextReader,
    readParameters,
    underlying,
)


class SignatureTests(SynchronousTestCase):
    """The parameters of functions."""

    def test_parameters(self) -> None:
        """Names, types, markers and defaults; stars are omitted."""

        def function(
            a: int, b: Annotated[int, Query(ge=1)] = 2, *rest: Any, c: "list[str]", **more: Any
        ) -> None: ...

        a, b, c = readParameters(function)
        self.assertEqual(a, FunctionParameter("a", int))
        self.assertTrue(a.isRequired)
        self.assertEqual((b.type, b.base, b.default), (Annotated[int, Meta(ge=1)], int, 2))
        self.assertIsInstance(b.marker, Query)
        self.assertEqual((c.type, c.isKeyword, c.default), (list[str], True, NODEFAULT))

    def test_dependency(self) -> None:
        """A dependency is a default, or metadata of the annotation."""
        first = Depends(int)

        def function(a: int = first, b: Annotated[str, first] = "") -> None: ...

        a, b = readParameters(function)
        self.assertIs(a.marker, first)
        self.assertEqual(a.default, NODEFAULT)
        self.assertIs(b.marker, first)

    def test_undefined(self) -> None:
        """An annotation that cannot be evaluated is kept as a problem."""

        def function(a: "Undefined", b: int) -> None: ...  # type: ignore[name-defined] # noqa: F821

        a, b = readParameters(function)
        self.assertIn("Undefined", a.problem or "")
        self.assertEqual(b.type, int)

    def test_underlying(self) -> None:
        """Annotations are those of the module that defines the function."""

        def function(a: "int") -> None: ...

        class Show:
            def __call__(self, a: "int") -> None: ...

            def method(self, a: "int") -> None: ...

        @wraps(function)
        def wrapped(*arguments: Any) -> None: ...

        given: list[Callable[..., Any]] = [partial(function), Show(), Show().method, wrapped]
        for each in given:
            self.assertEqual([found.type for found in readParameters(each)], [int], each)
        self.assertIs(underlying(wrapped), function)

    def test_constraints(self) -> None:
        """An unknown constraint, and two that contradict each other, are errors at once."""
        self.assertRaises(TypeError, Query, minimum=1)
        self.assertRaises(ValueError, Header, gt=1, ge=1)


class Size(enum.IntEnum):
    """Numbers with names."""

    small = 1


class TextTests(SynchronousTestCase):
    """Texts that are converted."""

    def test_values(self) -> None:
        """Texts become values; one text is a list of one."""
        for kind, text, value in (
            (str, "7", "7"),
            (int, "-7", -7),
            (int | None, "7", 7),
            (float, "1e3", 1000.0),
            (bool, "FALSE", False),
            (Size, "1", Size.small),
            (list[int], "7", [7]),
            (tuple[str, ...], ["a", "b"], ("a", "b")),
            (str | None, "null", "null"),
            (bytes, "YWI=", b"ab"),
        ):
            self.assertEqual(TextReader(kind).read("a", text), value)

    def test_absent(self) -> None:
        """An absent value is the default, or a mistake."""
        self.assertEqual(TextReader(int, 5).readOr("a", None), 5)
        error = self.assertRaises(ServiceError, TextReader(int).readOr, "a", None)
        self.assertEqual(error.details, [{"path": "a", "message": "is required"}])

    def test_constraints(self) -> None:
        """Constraints hold, also for items of a list."""
        reader = TextReader(Annotated[list[Annotated[int, Meta(ge=1)]], Meta(max_length=2)])
        self.assertEqual(reader.read("a", ["1", "2"]), [1, 2])
        for texts, path in ((["1", "0"], "a[1]"), (["1", "2", "3"], "a")):
            error = self.assertRaises(ServiceError, reader.read, "a", texts)
            self.assertEqual(error.details[0]["path"], path)
