"""What every L{IReplyCache} must keep; mixed into a case for each implementation."""

from typing import Any

from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from storagegate.gateway.transports.udp.replycache import IReplyCache
from tests.contract.ratelimitstore import settled

SECONDS = 247
"""How long the caches under test keep an answer."""

KEY = (("127.0.0.1", 40_000), "1")


class AnswerCacheContract:
    """
    The promises of L{IReplyCache}.

    Mix into a trial C{TestCase} whose C{setUp} sets C{self.clock} and C{self.cache}, whose time is
    the clock's.

    @ivar moment: Seconds, within which the clock goes on by itself.
    """

    clock: Clock
    cache: Any
    moment = 0.0

    async def begin(self, key: Any = KEY, size: int = 100) -> Any:
        """Begin a request; give answer, size, and whether it was known who calls."""
        known = await settled(self.cache.begin(key, size))
        return None if known is None else (known.reply, known.size, known.isKnown)

    async def end(self, key: Any, answer: bytes, isKnown: bool = False) -> None:
        """End a request."""
        await settled(self.cache.end(key, answer, isKnown))

    def test_provides(self: Any) -> None:
        """The cache provides its interface."""
        self.assertTrue(verifyObject(IReplyCache, self.cache))

    async def test_new(self: Any) -> None:
        """A request is new once; under way it has no answer yet."""
        self.assertIsNone(await self.begin(size=80))
        self.assertEqual(await self.begin(size=90), (None, 80, False))
        self.assertEqual(await self.begin(size=100), (None, 80, False))

    async def test_answered(self: Any) -> None:
        """Once it has ended it has its answer, and it is told whether the caller was known."""
        for number, (answer, isKnown) in enumerate(((b"", False), (b"x" * 1200, True))):
            key = (KEY[0], number)
            await self.begin(key, number)
            await self.end(key, answer, isKnown)
            self.assertEqual(await self.begin(key), (answer, number, isKnown))

    async def test_large(self: Any) -> None:
        """An answer of any size is kept for whoever gave it."""
        await self.begin(size=70)
        await self.end(KEY, b"x" * 60_000, True)
        self.assertEqual(await self.begin(), (b"x" * 60_000, 70, True))

    async def test_keysApart(self: Any) -> None:
        """Another address, another port and another id are other requests; so is a number."""
        keys = [
            (("127.0.0.1", 40_000), 1),
            (("127.0.0.1", 40_000), "1"),
            (("127.0.0.1", 40_000), 11),
            (("127.0.0.1", 40_001), 1),
            (("127.0.0.2", 40_000), 1),
            (("127.0.0.1", 40_000), "\ud800"),
            (("127.0.0.1", 40_000), "\\ud800"),
            (("127.0.0.1", 40_000), "1'), 'x'"),
            (("::1", 40_000), 2**70),
        ]
        for number, key in enumerate(keys):
            self.assertIsNone(await self.begin(key), key)
            await self.end(key, b"%d" % number)
        for number, key in enumerate(keys):
            self.assertEqual(await self.begin(key), (b"%d" % number, 100, False))

    async def test_forgotten(self: Any) -> None:
        """So long after it came a request is forgotten, however often it has come since."""
        await self.begin()
        await self.end(KEY, b"x")
        self.clock.advance(SECONDS - 1 - self.moment)
        self.assertIsNotNone(await self.begin())
        self.clock.advance(1 + self.moment)
        self.assertIsNone(await self.begin())
        self.assertEqual(await self.begin(), (None, 100, False))

    async def test_endedLate(self: Any) -> None:
        """An answer to what is not remembered is let go of."""
        await self.end(KEY, b"x")
        self.assertIsNone(await self.begin())
        self.clock.advance(SECONDS)
        await self.end(KEY, b"x")
        self.assertIsNone(await self.begin())
