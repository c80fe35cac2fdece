"""The UserService: many users at a time."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from storagegate.services.usertable import MonotonicTimestamps, Order, User, UserTable, isoTime
from storagegate.storage.sqlite import MEMORY
from tests.services.usercase import ADA, NOW, Requests, UserCase, ended
from tests.support.selection import rounds

PAGES: tuple[Any, ...] = (-1, 1.5, "x", "-1", "1_0", True, [1], 1 << 31, float("nan"), {})


class ListUsersTests(UserCase):
    """C{ListUsers}."""

    async def fill(self, *names: str) -> None:
        """Create users, each with its name as its address."""
        for name in names:
            await self.create(name=name, email=f"{name}@example.org")

    async def listed(self, **request: Any) -> list[str]:
        """List users by their names."""
        return [user["name"] for user in await self.stream("ListUsers", request)]

    async def test_default(self) -> None:
        """Without more being said all users come whole, in the order of their creation."""
        names = [f"user{number * 7 % 25:02}" for number in range(25)]
        await self.fill(*names)
        self.assertEqual(await self.listed(), names)
        [first] = (await self.stream("ListUsers", {}))[:1]
        self.assertEqual(first, await self.call("GetUser", {"id": first["id"]}))

    async def test_empty(self) -> None:
        """Without users the stream is empty."""
        self.assertEqual(await self.listed(), [])

    async def test_offset(self) -> None:
        """The stream begins at (page - 1) times limit, and does not end with the page."""
        names = [f"user{number:02}" for number in range(25)]
        await self.fill(*names)
        for page, limit, offset in (
            (1, 10, 0),
            (2, 10, 10),
            (3, 10, 20),
            (4, 10, 30),
            (2, 0, 10),
            (0, 7, 0),
            (2, 7, 7),
            (25, 1, 24),
            (26, 1, 25),
            (2, 25, 25),
            (1, 5, 0),
            ("2", "7", 7),
            (2.0, 7.0, 7),
            (1, (1 << 31) - 1, 0),
            ((1 << 31) - 1, (1 << 31) - 1, 25),
        ):
            self.assertEqual(await self.listed(page=page, limit=limit), names[offset:])
        self.assertEqual(await self.listed(page=2), names[10:])
        self.assertEqual(await self.listed(page=None, limit=None), names)

    async def test_order(self) -> None:
        """Users are sorted by what is asked for, both ways."""
        await self.fill("bo", "Al", "ed", "zo\u00e9", "cy")
        await self.call(
            "UpdateUser", {"id": (await self.stream("ListUsers", {}))[0]["id"], "phone": "1"}
        )
        users = await self.stream("ListUsers", {})
        for by in ("id", "name", "email", "createdAt", "updatedAt"):
            ordered = sorted(users, key=lambda user: user[by])
            for direction, expected in (("asc", ordered), ("desc", ordered[::-1])):
                for written in (direction, direction.upper()):
                    request = {"sortBy": by, "sortOrder": written, "limit": 2}
                    self.assertEqual(await self.stream("ListUsers", request), expected)
        for proto, name in (("created_at", "createdAt"), ("updated_at", "updatedAt"), ("", "")):
            expected = await self.listed(sortBy=name)
            self.assertEqual(await self.listed(sortBy=proto, sortOrder=""), expected)

    async def test_ties(self) -> None:
        """Users that are equal by the order are sorted by id, in either direction."""
        for number in range(7):
            await self.create(name="same", email=f"{number}@example.org")
        for direction in ("asc", "desc"):
            request = {"sortBy": "name", "sortOrder": direction, "limit": 2}
            ids = [user["id"] for user in await self.stream("ListUsers", request)]
            self.assertEqual(ids, sorted(ids))
            self.assertEqual(len(ids), 7)

    async def test_invalid(self) -> None:
        """Numbers that are none and orders that there are not are INVALID_ARGUMENT."""
        for number in PAGES:
            for name in ("page", "limit"):
                self.assertEqual(await self.mistakes("ListUsers", {name: number}), [name], number)
        for value in ("phone", "id; DROP TABLE users", "Name", 5, ["name"]):
            self.assertEqual(await self.mistakes("ListUsers", {"sortBy": value}), ["sortBy"])
        for value in ("up", "asc ", 5, True):
            self.assertEqual(await self.mistakes("ListUsers", {"sortOrder": value}), ["sortOrder"])

    async def test_changesMeanwhile(self) -> None:
        """Users that come and go between batches do not repeat or hide another user."""
        names = [f"user{number:02}" for number in range(20)]
        await self.fill(*names)
        users = await self.stream("ListUsers", {})
        listing = self.call("ListUsers", {"limit": 5, "sortBy": "name"})
        seen = [(await anext(listing))["name"] for _ in range(5)]
        # Behind the listing, at its place and before it.
        for number in (0, 4, 7):
            await self.call("DeleteUser", {"id": users[number]["id"]})
        await self.fill("user00a", "user06a")
        seen += [user["name"] async for user in listing]
        expected = sorted({*names, "user06a"} - {"user07"})
        self.assertEqual(seen, expected)

    async def test_noTransaction(self) -> None:
        """An idle listing blocks no other call: others write, and the log is cut back."""
        await self.fill(*(f"user{number:02}" for number in range(10)))
        listing = self.call("ListUsers", {"limit": 2})
        await anext(listing)
        await self.create(email="other@example.org")
        self.assertEqual(self.query("PRAGMA wal_checkpoint(TRUNCATE)")[0], 0)
        await listing.aclose()


class PagingModelTests(SynchronousTestCase):
    """Pages against a sorted list."""

    @settings(max_examples=rounds(30, 150), deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["", "a", "A", "b", "\U0001f600", "\uffff"]), st.integers(0, 3)
            ),
            max_size=12,
        ),
        st.sampled_from(["id", "name", "createdUs", "updatedUs", "email"]),
        st.booleans(),
        st.integers(1, 5),
        st.integers(0, 13),
    )
    def test_pages(
        self, rows: list[tuple[str, int]], by: str, descending: bool, limit: int, offset: int
    ) -> None:
        """Batch after batch gives what sorting gives."""
        users = [
            User(f"{number * 5 % 13:032x}", name, f"{number}@x.y", "", {}, (), us, 3 - us)
            for number, (name, us) in enumerate(rows)
        ]
        expected = sorted(users, key=lambda user: user.id)
        expected.sort(key=lambda user: getattr(user, by), reverse=descending)
        order = Order(by, descending)
        table = UserTable(MEMORY, 0)
        try:
            table.perform([lambda table: table.add(users)], True)
            page = table.page(order, limit, offset)
            listed = list(page)
            while len(page) == limit:
                page = table.pageAfter(order, limit, page[-1])
                listed += page
        finally:
            table.close()
        self.assertEqual(listed, expected[offset:])

    def test_moments(self) -> None:
        """No moment is the same as one before, whatever the clock does."""
        times = iter([NOW, NOW, NOW - 5, NOW + 1])
        moments = MonotonicTimestamps(lambda: next(times))
        shown = [isoTime(moments())[17:] for _ in range(4)]
        self.assertEqual(shown, ["20.000000Z", "20.000001Z", "20.000002Z", "21.000000Z"])


class SearchUsersTests(UserCase):
    """C{SearchUsers}."""

    async def setUp(self) -> None:
        """Create some users."""
        super().setUp()
        for name, email, phone, roles in (
            ("Ada Lovelace", "ada@example.org", "+44 20", ["Admin"]),
            ("Alan Turing", "alan@bletchley.example", "+44 1908", ["author", "reader"]),
            ("Müller, Ada", "M%LLER@example.org", "", []),
            ("Straße_1", "x@example.org", "", ["ad_min"]),
        ):
            await self.create(name=name, email=email, phone=phone, roles=roles)

    async def found(self, query: str, *fields: str, **request: Any) -> list[str]:
        """Search, and give the first letters of the names."""
        if fields:
            request["fields"] = list(fields)
        found = await self.stream("SearchUsers", {"query": query, **request})
        return [user["name"][:2] for user in found]

    async def test_default(self) -> None:
        """A search looks in names and addresses, anywhere in them and without case."""
        self.assertEqual(await self.found("ada"), ["Ad", "Mü"])
        self.assertEqual(await self.found("ADA"), ["Ad", "Mü"])
        self.assertEqual(await self.found("bletchley"), ["Al"])
        self.assertEqual(await self.found("BLETCH", fields=[]), ["Al"])
        self.assertEqual(await self.found("mÜLL"), ["Mü"])
        self.assertEqual(await self.found("mu\u0308ll"), ["Mü"])
        self.assertEqual(await self.found("STRASSE"), ["St"])
        self.assertEqual(await self.found("admin"), [])
        self.assertEqual(await self.found("absent"), [])

    async def test_fields(self) -> None:
        """Only the named fields are looked at."""
        self.assertEqual(await self.found("a", "phone"), [])
        self.assertEqual(await self.found("44", "phone"), ["Ad", "Al"])
        self.assertEqual(await self.found("ADMIN", "roles"), ["Ad"])
        self.assertEqual(await self.found("read", "roles", "roles", "phone"), ["Al"])
        self.assertEqual(await self.found("example", "name"), [])
        self.assertEqual(await self.found("ada", fields="email"), ["Ad"])

    async def test_literally(self) -> None:
        """What is a wildcard elsewhere stands for itself."""
        self.assertEqual(await self.found("%"), ["Mü"])
        self.assertEqual(await self.found("_"), ["St"])
        self.assertEqual(await self.found("*"), [])
        self.assertEqual(await self.found("' OR 1 --"), [])
        self.assertEqual(await self.found("d_m", "roles"), ["St"])

    async def test_rolesApart(self) -> None:
        """Two roles side by side are not one text."""
        self.assertEqual(await self.found("author reader", "roles"), [])
        self.assertEqual(await self.found("authorreader", "roles"), [])

    async def test_updated(self) -> None:
        """A search finds users by what they are now."""
        [user] = await self.stream("SearchUsers", {"query": "alan"})
        changes = {"id": user["id"], "name": "Joan", "email": "joan@example.org"}
        await self.call("UpdateUser", changes)
        self.assertEqual(await self.found("alan"), [])
        self.assertEqual(await self.found("joan"), ["Jo"])

    async def test_limit(self) -> None:
        """The limit is the total; absent and 0 are 10."""
        for number in range(130):
            await self.create(name=f"Many {number}", email=f"many{number}@example.org")
        for limit, count in ((0, 10), (None, 10), (1, 1), (10, 10), (120, 120), (1 << 30, 130)):
            self.assertEqual(len(await self.found("many", limit=limit)), count)
        self.assertEqual(len(await self.found("many")), 10)
        found = await self.stream("SearchUsers", {"query": "many", "limit": 1000})
        self.assertEqual([user["name"] for user in found], [f"Many {n}" for n in range(130)])

    async def test_farApart(self) -> None:
        """A search goes over all users, some thousand rows at a time, and over gaps."""
        users = [
            User(f"{number:032x}", f"n{number}", f"{number}@x.yz", "", {}, (), number, number)
            for number in range(12_000)
        ]
        await self.store.write(lambda table: table.add(users))
        self.query("DELETE FROM users WHERE number BETWEEN 10 AND 11000")
        ada = await self.create(name="The Last", email="last@example.org")
        self.assertEqual(await self.stream("SearchUsers", {"query": "the last"}), [ada])
        found, after = await self.store.read(
            lambda table: table.search(("name",), "the last", 0, 10)
        )
        self.assertEqual((found, after), ([], 5000))
        # Over the gap in one step, and on from what was read, not from what was found.
        found, after = await self.store.read(
            lambda table: table.search(("name",), "11200", after, 10)
        )
        self.assertEqual((len(found), after), (1, None))

    async def test_invalid(self) -> None:
        """An empty query, other fields and numbers that are none are INVALID_ARGUMENT."""
        for query in ("", "  ", None, 5, "x" * 201, "a\nb", "\ud800"):
            self.assertEqual(await self.mistakes("SearchUsers", {"query": query}), ["query"])
        for field in ("id", "address", "nameKey", "Name", "name) --", 5, None):
            request = {"query": "x", "fields": ["name", field]}
            self.assertEqual(await self.mistakes("SearchUsers", request), ["fields[1]"])
        for fields in (5, {"name": 1}):
            request = {"query": "x", "fields": fields}
            self.assertEqual(await self.mistakes("SearchUsers", request), ["fields"])
        for limit in PAGES:
            request = {"query": "x", "limit": limit}
            self.assertEqual(await self.mistakes("SearchUsers", request), ["limit"])


class CreateMultipleUsersTests(UserCase):
    """C{CreateMultipleUsers}."""

    async def test_all(self) -> None:
        """All users are created, in their order; there is no word of errors."""
        requests = [{**ADA, "email": f"{number}@example.org"} for number in range(20)]
        result = await self.call("CreateMultipleUsers", ended(*requests))
        self.assertEqual(sorted(result), ["count", "users"])
        self.assertEqual(result["count"], 20)
        self.assertEqual(
            [user["email"] for user in result["users"]], [r["email"] for r in requests]
        )
        self.assertEqual(await self.stream("ListUsers", {}), result["users"])

    async def test_errors(self) -> None:
        """Requests that failed are listed with their reason, the others have been done."""
        await self.create(email="taken@example.org")
        requests: list[Any] = [
            ADA,
            {**ADA, "email": "TAKEN@example.org"},
            {"name": "", "email": "x"},
            {**ADA, "email": "ADA@example.org"},
            {**ADA, "email": "alan@example.org"},
            None,
        ]
        result = await self.call("CreateMultipleUsers", ended(*requests))
        self.assertEqual(sorted(result), ["count", "errors", "users"])
        self.assertEqual(result["count"], 2)
        emails = [user["email"] for user in result["users"]]
        self.assertEqual(emails, ["ada@example.org", "alan@example.org"])
        taken = "A user with the same email exists"
        self.assertEqual(
            result["errors"],
            [
                {"request": requests[1], "error": taken},
                {"request": requests[2], "error": "name is required; email is no email address"},
                {"request": requests[3], "error": taken},
                {"request": requests[5], "error": "the request is an object"},
            ],
        )

    async def test_none(self) -> None:
        """A stream without requests, or with none that can be done, creates no user."""
        result = await self.call("CreateMultipleUsers", ended())
        self.assertEqual(result, {"count": 0, "users": []})
        result = await self.call("CreateMultipleUsers", ended({}))
        self.assertEqual((result["count"], len(result["errors"])), (0, 1))

    async def test_cut(self) -> None:
        """A stream that is cut or cancelled before its end creates no user."""
        requests = Requests([ADA])
        calling = Deferred.fromCoroutine(self.call("CreateMultipleUsers", requests))
        requests.end(ConnectionError("cut"))
        self.failureResultOf(calling, ConnectionError)
        calling = Deferred.fromCoroutine(self.call("CreateMultipleUsers", Requests([ADA])))
        calling.cancel()
        self.failureResultOf(calling)
        self.assertEqual(await self.stream("ListUsers", {}), [])

    async def test_tooMany(self) -> None:
        """Past the bounds, in number or in size, the call is refused and creates no user."""
        for requests in ([{}] * 10_001, [{"name": "x" * 1_000_000}] * 5):
            error = await self.refused("CreateMultipleUsers", ended(ADA, *requests))
            self.assertEqual((error.code, error.grpcStatus), ("PAYLOAD_TOO_LARGE", 8))
        self.assertEqual(await self.stream("ListUsers", {}), [])
        requests = [{**ADA, "email": f"{number}@example.org"} for number in range(10_000)]
        result = await self.call("CreateMultipleUsers", ended(*requests))
        self.assertEqual(result["count"], 10_000)
