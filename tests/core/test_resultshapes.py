"""What leaves of a result has the shape of its declared type."""

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.core.typeschemas import TypeSchema, documentOf
from tests.support.resultforms import (
    SECRET,
    TYPES,
    Address,
    AttrsUser,
    Cat,
    Dog,
    Holder,
    Person,
    StoredUser,
    StructUser,
    User,
)


def checked(declared: Any, value: Any) -> Any:
    """Return what leaves of a value."""
    return TypeSchema(declared, documentOf(declared, isResult=True)).check(value)


class ShapeTests(SynchronousTestCase):
    """Only the fields of the declared type leave."""

    def test_forms(self) -> None:
        """So it is in every form of a type, at every depth."""
        for name, declared, make, wanted in TYPES:
            found = checked(declared, make())
            self.assertNotIn(SECRET, repr(found), name)
            self.assertEqual(
                str(found).replace("(", "[").replace(",)", "]").replace(")", "]"), str(wanted), name
            )

    def test_lists(self) -> None:
        """A list of models is declared as well, of instances and of mappings."""
        found = checked(list[User], [StoredUser("a"), {"name": "b", "done": True, "x": SECRET}])
        self.assertEqual(
            found,
            [{"name": "a", "done": False, "level": 5}, {"name": "b", "done": True, "level": 5}],
        )

    def test_described(self) -> None:
        """The description has the same fields: a private one of attrs is not among them."""
        self.assertEqual(list(documentOf(AttrsUser, isResult=True)["properties"]), ["name"])
        self.assertEqual(
            list(documentOf(User, isResult=True)["properties"]), ["name", "done", "level"]
        )

    def violation(self, declared: Any, value: Any) -> str:
        """Return the path and the message of a value that does not fit."""
        error = self.assertRaises(ServiceError, checked, declared, value)
        self.assertIsNone(error.__context__)
        self.assertNotIn(SECRET, f"{error} {error.details}")
        [detail] = error.details
        return f"{detail['path']}: {detail['message']}"

    def test_violations(self) -> None:
        """An error has the path, and nothing of the value, not even the key of a mapping."""
        self.assertEqual(self.violation(StructUser, {}), "name: is required")
        self.assertEqual(self.violation(StructUser, Cat(1)), "name: is required")
        self.assertEqual(
            self.violation(dict[str, StructUser], {SECRET: {"name": 1}}),
            "[...].name: expected str, got int",
        )
        self.assertEqual(
            self.violation(list[Cat | Dog], [{"type": SECRET}]),
            "[0].type: is none of the declared values",
        )
        self.assertEqual(
            self.violation(list[Cat | Dog], [Cat(SECRET)]),  # type: ignore[arg-type]
            "[0].lives: expected int, got str",
        )
        user = User("a")
        user.done = SECRET  # type: ignore[assignment]
        self.assertEqual(
            self.violation(Holder, {"one": user, "many": [], "byName": {}}),
            "one.done: expected bool, got str",
        )

    def test_assigned(self) -> None:
        """What was assigned to a model of pydantic unchecked is an error, and does not leave."""
        person = Person(home=Address(street="x"))
        person.home = {"street": "x", "password": SECRET}  # type: ignore[assignment]
        self.assertIn("has a field of another type", self.violation(Person, person))
        self.assertEqual(
            self.violation(Person, {"home": {"street": [SECRET]}}),
            "home.street: is invalid: string_type",
        )
