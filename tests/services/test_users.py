"""The UserService: users one at a time."""

from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from storagegate.core.definitions import readService
from storagegate.core.schemas import Schema
from storagegate.services.users import LINE, PHONE, ROLE, ROLES
from tests.services.usercase import ADA, FIRST, UNKNOWN, UserCase

KINDS = {
    "GetUser": "none",
    "CreateUser": "none",
    "UpdateUser": "none",
    "DeleteUser": "none",
    "ListUsers": "server",
    "SearchUsers": "server",
    "CreateMultipleUsers": "client",
    "ChatWithUsers": "bidirectional",
    "StreamUserUpdates": "server",
    "UploadUserData": "client",
    "Chat": "bidirectional",
    "StreamData": "bidirectional",
}

NO_IDS = ("", None, 5, "0" * 31, "0" * 33, "g" * 32, "0" * 31 + "\n", "0" * 31 + "٣", ["0" * 32])

NO_TEXTS = (5, True, ["x"], {"x": "y"}, b"x", "a\nb", "a\x00b", "\ud800")


class DefinitionTests(UserCase):
    """What the service is."""

    def test_methods(self) -> None:
        """The methods have the names of the RPCs and stream as the RPCs do."""
        self.assertEqual(self.definition.name, "UserService")
        kinds = {name: method.streaming for name, method in self.definition.methods.items()}
        self.assertEqual(kinds, KINDS)
        self.assertIs(readService(self.definition), self.definition)

    async def test_described(self) -> None:
        """Descriptions have schemas that messages fit; they enforce nothing, so errors stay."""
        methods = self.definition.methods
        undescribed = {name for name, each in methods.items() if each.shownInput is None}
        self.assertEqual(undescribed, {"StreamData"})
        self.assertEqual({each.input or each.output for each in methods.values()}, {None})
        method = methods["CreateUser"]
        input = Schema(method.shownInput or {}, "the request")
        output = Schema(method.shownOutput or {}, "the response")
        self.assertEqual(input.document["required"], ["name", "email"])
        created = await self.call("CreateUser", input.read(input.document["examples"][0]))
        self.assertEqual(output.check(created), created)
        whole = await self.create()
        self.assertEqual(output.check(whole), whole)
        for name, each in methods.items():
            for schema in (each.shownInput, each.shownOutput):
                Schema(schema or {}, name)


class CreateUserTests(UserCase):
    """C{CreateUser} and C{GetUser}."""

    async def test_create(self) -> None:
        """A user has what was asked for, an id of 32 hexadecimal digits and the time."""
        created = await self.create()
        self.assertRegex(created["id"], "[0-9a-f]{32}")
        times = {"createdAt": FIRST, "updatedAt": FIRST}
        self.assertEqual(created, {**ADA, "id": created["id"], **times})
        self.assertEqual(await self.call("GetUser", {"id": created["id"]}), created)
        self.assertEqual(await self.call("GetUser", {"id": created["id"].upper()}), created)

    async def test_least(self) -> None:
        """Name and email are enough; what is not there is left out, but for the roles."""
        request = {"name": "Ada", "email": "ada@example.org", "phone": None, "unknown": 5}
        created = await self.call("CreateUser", request)
        self.assertEqual(
            sorted(created), ["createdAt", "email", "id", "name", "roles", "updatedAt"]
        )
        self.assertEqual(created["roles"], [])
        self.assertEqual(await self.call("GetUser", {"id": created["id"]}), created)
        request = {"name": "Alan", "email": "alan@example.org", "phone": "", "address": {}}
        created = await self.call("CreateUser", {**request, "roles": []})
        self.assertNotIn("phone", created)
        self.assertNotIn("address", created)

    async def test_unicode(self) -> None:
        """Names and addresses of any script come back as they were written."""
        changes = {
            "name": "Ærøskøbing 山田 👩🏽‍🚀 O'Neil; DROP TABLE",
            "email": "josé.müller@bücher.example",
            "address": {"street": "Straße 1", "city": "東京", "state": "%_", "zipCode": "0"},
        }
        created = await self.create(**changes)
        for name, value in changes.items():
            self.assertEqual(created[name], value)
        self.assertEqual(await self.call("GetUser", {"id": created["id"]}), created)

    async def test_emailTaken(self) -> None:
        """A second user with an email address is ALREADY_EXISTS, however it is written."""
        await self.create(email="José@Example.org")
        for email in ("José@Example.org", "JOSÉ@example.ORG", "jose\u0301@example.org"):
            error = await self.refused("CreateUser", {**ADA, "email": email})
            self.assertEqual(
                (error.code, error.statusCode, error.grpcStatus), ("ALREADY_EXISTS", 409, 6)
            )
        await self.create(email="jose@example.org")

    async def test_race(self) -> None:
        """Of many who take one address at the same time, one gets it."""
        calls = [
            Deferred.fromCoroutine(self.call("CreateUser", ADA)).addErrback(lambda f: f.value.code)
            for _ in range(50)
        ]
        outcomes = await gatherResults(calls)
        self.assertEqual(outcomes.count("ALREADY_EXISTS"), 49)

    async def test_invalid(self) -> None:
        """Each mistake has its path, and all are told at once."""
        self.assertEqual(await self.mistakes("CreateUser", {}), ["name", "email"])
        everything = {
            "name": "",
            "email": "no",
            "phone": 5,
            "address": {"city": 5, "zipCode": "x" * (LINE + 1)},
            "roles": ["a", "", "x" * (ROLE + 1), None],
        }
        mistakes = await self.mistakes("CreateUser", everything)
        self.assertEqual(mistakes[:3], ["name", "email", "phone"])
        self.assertEqual(mistakes[3:5], ["address.city", "address.zipCode"])
        self.assertEqual(mistakes[5:], ["roles[1]", "roles[2]", "roles[3]"])

    async def test_invalidFields(self) -> None:
        """Every field has a type and bounds."""
        wrong: dict[str, tuple[Any, ...]] = {
            "name": ("", " \t ", None, "x" * (LINE + 1), *NO_TEXTS),
            "email": ("", None, "x", "a@b", "a b@example.org", "a@example.org\n", *NO_TEXTS),
            "phone": ("5" * (PHONE + 1), *NO_TEXTS),
            "address": ("London", ["London"], 5, True),
            "roles": ("admin", {"admin": True}, 5, ["x"] * (ROLES + 1)),
        }
        for field, values in wrong.items():
            for value in values:
                mistakes = await self.mistakes("CreateUser", {**ADA, field: value})
                self.assertEqual(mistakes, [field], value)
        for value in NO_TEXTS:
            for field, path in (("address", "address.street"), ("roles", "roles[0]")):
                nested = {"street": value} if field == "address" else [value]
                mistakes = await self.mistakes("CreateUser", {**ADA, field: nested})
                self.assertEqual(mistakes, [path], value)

    async def test_longest(self) -> None:
        """What is just within the bounds is taken."""
        largest = {
            "name": "山" * LINE,
            "email": f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 61}",
            "phone": "5" * PHONE,
            "address": dict.fromkeys(("street", "city", "state", "zipCode", "country"), "x" * LINE),
            "roles": ["x" * ROLE] * ROLES,
        }
        created = await self.call("CreateUser", largest)
        self.assertEqual({name: created[name] for name in largest}, largest)

    async def test_noObject(self) -> None:
        """A request that is no object is INVALID_ARGUMENT, whatever the method."""
        for method in ("GetUser", "CreateUser", "UpdateUser", "DeleteUser"):
            for request in (None, [], "x", 5):
                self.assertEqual(await self.mistakes(method, request), [""])
        for method in ("ListUsers", "SearchUsers", "StreamUserUpdates"):
            self.assertEqual(await self.mistakes(method, []), [""])

    async def test_ids(self) -> None:
        """A malformed id is INVALID_ARGUMENT, an unknown one NOT_FOUND."""
        for method in ("GetUser", "UpdateUser", "DeleteUser"):
            for id in NO_IDS:
                self.assertEqual(await self.mistakes(method, {"id": id}), ["id"])
            self.assertEqual(await self.mistakes(method, {}), ["id"])
            error = await self.refused(method, {"id": UNKNOWN})
            self.assertEqual((error.code, error.statusCode), ("NOT_FOUND", 404))
            self.assertEqual(error.grpcStatus, 5)
        self.assertEqual(await self.mistakes("StreamUserUpdates", {"userId": "x"}), ["userId"])


class UpdateUserTests(UserCase):
    """C{UpdateUser}."""

    async def update(self, user: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """Update a user."""
        updated: dict[str, Any] = await self.call("UpdateUser", {"id": user["id"], **changes})
        self.assertEqual(await self.call("GetUser", {"id": user["id"]}), updated)
        return updated

    async def test_presence(self) -> None:
        """What the request has is changed, all the rest stays; the time of the change is told."""
        user = await self.create()
        changes: tuple[dict[str, Any], ...] = (
            {"name": "Augusta"},
            {"email": "augusta@example.org"},
            {"phone": "1"},
            {"address": {"state": "NY", "zipCode": "10001"}},
            {"roles": ["reader"]},
            {"name": "Ada", "roles": ["b", "a"]},
        )
        for seconds, change in enumerate(changes, 1):
            self.now += 1
            updated = await self.update(user, **change)
            time = f"2023-11-14T22:13:2{seconds}.000000Z"
            self.assertEqual(updated, {**user, **change, "updatedAt": time})
            user = updated

    async def test_empty(self) -> None:
        """Empty phone and address go away; empty and absent roles, and nulls, change nothing."""
        user = await self.create()
        nulls = dict.fromkeys(("name", "email", "phone", "address", "roles"))
        self.assertEqual(await self.update(user, **{**nulls, "roles": []}), user)
        self.assertEqual(await self.update(user, **nulls), user)
        self.assertEqual(await self.update(user), user)
        updated = await self.update(user, phone="", address={})
        self.assertNotIn("phone", updated)
        self.assertNotIn("address", updated)
        self.assertEqual(updated["roles"], ADA["roles"])

    async def test_same(self) -> None:
        """An update that changes nothing leaves the time of the last change."""
        user = await self.create()
        self.now += 1
        self.assertEqual(await self.update(user, **ADA), user)

    async def test_emailTaken(self) -> None:
        """The address of another user is ALREADY_EXISTS, and nothing changes; one's own is not."""
        user = await self.create()
        await self.create(email="alan@example.org")
        request = {"id": user["id"], "email": "ALAN@example.org", "name": "Alan"}
        error = await self.refused("UpdateUser", request)
        self.assertEqual((error.code, error.grpcStatus), ("ALREADY_EXISTS", 6))
        self.assertEqual(await self.call("GetUser", {"id": user["id"]}), user)
        updated = await self.update(user, email="ADA@example.org")
        self.assertEqual(updated["email"], "ADA@example.org")

    async def test_freed(self) -> None:
        """An address that was given up can be taken by others."""
        user = await self.create()
        await self.update(user, email="other@example.org")
        await self.create()

    async def test_invalid(self) -> None:
        """What is there has to be valid: name and email cannot be emptied."""
        user = await self.create()
        request = {"id": user["id"], "name": "", "email": "", "roles": [""], "phone": 5}
        mistakes = await self.mistakes("UpdateUser", {**request, "address": "x"})
        self.assertEqual(mistakes, ["name", "email", "phone", "address", "roles[0]"])
        self.assertEqual(await self.call("GetUser", {"id": user["id"]}), user)


class DeleteUserTests(UserCase):
    """C{DeleteUser}."""

    async def test_delete(self) -> None:
        """A user is gone when it is deleted, and cannot be deleted twice; the email is free."""
        user = await self.create()
        self.assertEqual(await self.call("DeleteUser", {"id": user["id"]}), {"success": True})
        for method in ("GetUser", "UpdateUser", "DeleteUser"):
            self.assertEqual((await self.refused(method, {"id": user["id"]})).code, "NOT_FOUND")
        await self.create()
