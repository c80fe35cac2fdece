"""What every L{ISessionStore} of ours must keep; mixed into a case for each implementation."""

from typing import Any

from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from storagegate.http.sessions import DAY_MS, IBoundStore, IReplacingStore

MINUTE_MS = 60_000


async def settled(result: Any) -> Any:
    """Give the result of a store, now or later."""
    return await result if hasattr(result, "__await__") else result


class SessionStoreContract:
    """
    The promises of L{IReplacingStore}.

    Mix into a trial C{TestCase} whose C{setUp} sets C{self.store} and the C{self.clock} that is
    its time.

    @ivar moment: Seconds, within which the clock goes on by itself.
    """

    store: Any
    clock: Clock
    moment = 0.0

    async def get(self, id: str) -> Any:
        """Give what is kept."""
        return await settled(self.store.get(id))

    async def test_provides(self: Any) -> None:
        """A store provides its interfaces."""
        self.assertTrue(verifyObject(IReplacingStore, self.store))
        self.assertTrue(verifyObject(IBoundStore, self.store))

    async def test_nothing(self: Any) -> None:
        """An id that was never seen has no session."""
        self.assertIsNone(await self.get("unknown"))

    async def test_keeps(self: Any) -> None:
        """What is kept comes back as it was, all that JSON has."""
        data = {
            "cookie": {"originalMaxAge": None, "expires": 1.5},
            "user": {"name": "J\u00fcrgen \U0001f600", "ids": [1, 2**70, -0.5], "none": None},
            "": True,
        }
        await settled(self.store.set("id", data))
        self.assertEqual(await self.get("id"), data)

    async def test_copies(self: Any) -> None:
        """Changing what was kept, or what was given, does not change what is kept."""
        data: dict[str, Any] = {"cookie": {}, "list": [1]}
        keeping = self.store.set("id", data)
        data["list"].append(2)
        await settled(keeping)
        given = await self.get("id")
        self.assertEqual(given["list"], [1])
        given["list"].append(3)
        self.assertEqual((await self.get("id"))["list"], [1])

    async def test_overwrites(self: Any) -> None:
        """The last that is kept wins, as a whole."""
        await settled(self.store.set("id", {"cookie": {}, "a": 1}))
        await settled(self.store.set("id", {"cookie": {}, "b": 2}))
        self.assertEqual(await self.get("id"), {"cookie": {}, "b": 2})

    async def test_apart(self: Any) -> None:
        """Sessions have nothing to do with one another; ids are compared as they are."""
        await settled(self.store.set("a", {"cookie": {}, "n": 1}))
        await settled(self.store.set("A", {"cookie": {}, "n": 2}))
        await settled(self.store.destroy("a"))
        self.assertIsNone(await self.get("a"))
        self.assertEqual((await self.get("A"))["n"], 2)

    async def test_destroys(self: Any) -> None:
        """What was destroyed is gone; destroying it again, or nothing, is no error."""
        await settled(self.store.set("id", {"cookie": {}}))
        await settled(self.store.destroy("id"))
        await settled(self.store.destroy("id"))
        self.assertIsNone(await self.get("id"))

    async def test_expires(self: Any) -> None:
        """A session is there until its time is over, and not a moment longer."""
        await settled(self.store.set("id", {"cookie": {}}, MINUTE_MS))
        self.clock.advance(59.9 - self.moment)
        self.assertIsNotNone(await self.get("id"))
        self.clock.advance(0.1 + self.moment)
        self.assertIsNone(await self.get("id"))

    async def test_dayLong(self: Any) -> None:
        """Where no time is named, it is a day."""
        await settled(self.store.set("id", {"cookie": {}}))
        self.clock.advance(DAY_MS / 1000 - 1 - self.moment)
        self.assertIsNotNone(await self.get("id"))
        self.clock.advance(1 + self.moment)
        self.assertIsNone(await self.get("id"))

    async def test_readingIsNoUse(self: Any) -> None:
        """Looking at a session does not let it last longer."""
        await settled(self.store.set("id", {"cookie": {}}, MINUTE_MS))
        for _ in range(3):
            self.clock.advance(20)
            found = await self.get("id")
        self.assertIsNone(found)

    async def test_noTime(self: Any) -> None:
        """A session whose time is over when it comes is not kept, nor what was there before."""
        await settled(self.store.set("id", {"cookie": {}}))
        await settled(self.store.set("id", {"cookie": {}}, 0))
        self.assertIsNone(await self.get("id"))

    async def test_touch(self: Any) -> None:
        """Touching gives more time and takes the cookie over; the content stays as it is kept."""
        await settled(self.store.set("id", {"cookie": {"expires": 1}, "n": 1}, MINUTE_MS))
        self.clock.advance(50)
        await settled(self.store.touch("id", {"cookie": {"expires": 2}, "n": 99}, MINUTE_MS))
        self.clock.advance(50)
        self.assertEqual(await self.get("id"), {"cookie": {"expires": 2}, "n": 1})

    async def test_touchNothing(self: Any) -> None:
        """Touching what is not there, or not any more, makes nothing."""
        await settled(self.store.touch("never", {"cookie": {}, "n": 1}))
        self.assertIsNone(await self.get("never"))
        await settled(self.store.set("id", {"cookie": {}}, MINUTE_MS))
        self.clock.advance(60)
        await settled(self.store.touch("id", {"cookie": {}}))
        self.assertIsNone(await self.get("id"))

    async def test_replace(self: Any) -> None:
        """Replacing changes what is there."""
        await settled(self.store.set("id", {"cookie": {}, "n": 1}, MINUTE_MS))
        await settled(self.store.replace("id", {"cookie": {}, "n": 2}, 2 * MINUTE_MS))
        self.clock.advance(90)
        self.assertEqual(await self.get("id"), {"cookie": {}, "n": 2})

    async def test_replaceNothing(self: Any) -> None:
        """Replacing what was destroyed or has expired does not bring it back."""
        await settled(self.store.set("destroyed", {"cookie": {}}))
        await settled(self.store.destroy("destroyed"))
        await settled(self.store.replace("destroyed", {"cookie": {}}))
        self.assertIsNone(await self.get("destroyed"))
        await settled(self.store.set("expired", {"cookie": {}}, MINUTE_MS))
        self.clock.advance(60)
        await settled(self.store.replace("expired", {"cookie": {}}))
        self.assertIsNone(await self.get("expired"))

    async def test_strangeIds(self: Any) -> None:
        """An id is any text."""
        for id in ("", "'; DROP TABLE sessions; --", "\u00e4\0b", "x" * 10_000):
            await settled(self.store.set(id, {"cookie": {}, "id": id}))
            self.assertEqual((await self.get(id))["id"], id)
