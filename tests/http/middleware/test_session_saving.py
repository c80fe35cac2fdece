"""When a session is kept, touched or left alone, and what happens where requests overlap."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer
from zope.interface.verify import verifyObject

from storagegate.http import MemorySessionStore, session
from storagegate.http.sessions import ISessionStore
from tests.http.middleware.browser import Browser, read
from tests.http.middleware.sessioncase import SECRET, SessionCase, signed


class SavingTests(SessionCase):
    """What the store is asked for."""

    def calls(self) -> list[str]:
        """Give what was asked for since the last time."""
        calls, self.store.calls = self.store.calls, []
        return [name for name, _ in calls]

    def test_all(self) -> None:
        """By default every session is kept by every request, new or not, changed or not."""
        browser = self.use()
        browser.get("/look")
        self.assertEqual(self.calls(), ["set"])
        browser.get("/look")
        self.assertEqual(self.calls(), ["get", "replace"])
        browser.get("/count")
        self.assertEqual(self.calls(), ["get", "replace"])

    def test_uninitialized(self) -> None:
        """Without C{saveUninitialized} a new session leaves no trace until something is in it."""
        browser = self.use(saveUninitialized=False)
        self.assertEqual(browser.get("/look").cookies, [])
        self.assertEqual(self.calls(), [])
        self.assertEqual(len(browser.get("/count").cookies), 1)
        self.assertEqual(self.calls(), ["set"])

    def test_putAndTaken(self) -> None:
        """What was put in and taken out again is no change."""
        browser = self.use(saveUninitialized=False)

        @self.app.get("/both")
        def both(req: Any, res: Any) -> None:
            req.session.n = 1
            del req.session.n
            res.send("")

        self.assertEqual(browser.get("/both").cookies, [])
        self.assertEqual(self.calls(), [])

    def test_resave(self) -> None:
        """Without C{resave} a session that was not changed is touched only."""
        browser = self.use(resave=False)
        browser.get("/count")
        self.assertEqual(self.calls(), ["set"])
        browser.get("/look")
        self.assertEqual(self.calls(), ["get", "touch"])
        browser.get("/count")
        self.assertEqual(self.calls(), ["get", "replace"])

    def test_nested(self) -> None:
        """A change inside of a value counts."""
        browser = self.use(resave=False)

        @self.app.get("/add")
        def add(req: Any, res: Any) -> None:
            req.session.setdefault("user", {"roles": []})["roles"].append("x")
            res.send("")

        for expected in (["set"], ["get", "replace"], ["get", "replace"]):
            browser.get("/add")
            self.assertEqual(self.calls(), expected)
        self.assertEqual(self.look()["content"], {"user": {"roles": ["x", "x", "x"]}})

    def test_savedByHand(self) -> None:
        """What a handler has saved is not saved again, unless it was changed since."""
        browser = self.use(resave=False)

        @self.app.get("/save/:again")
        async def save(req: Any, res: Any) -> None:
            req.session.n = req.session.get("n", 0) + 1
            await req.session.save()
            if req.params["again"] == "yes":
                req.session.n += 1
            res.send("")

        browser.get("/save/no")
        self.assertEqual(self.calls(), ["set"])
        browser.get("/save/yes")
        self.assertEqual(self.calls(), ["get", "replace", "replace"])
        self.assertEqual(self.look()["content"], {"n": 3})

    def test_idle(self) -> None:
        """A session lasts for C{maxAge} after its last use, changed or not."""
        for resave in (True, False):
            browser = self.use(resave=resave, cookie={"maxAge": 60_000})
            browser.get("/count")
            cookie = browser.cookie
            for _ in range(3):
                browser.clock.advance(59)
                self.assertEqual(self.look(cookie=cookie)["content"], {"count": 1})
            browser.clock.advance(60)
            self.assertEqual(self.look(cookie=cookie)["content"], {})

    def test_day(self) -> None:
        """A session whose cookie has no end is kept for a day after its last use."""
        browser = self.use(saveUninitialized=False)
        browser.get("/count")
        browser.clock.advance(86_399)
        self.assertEqual(browser.get("/count").text, "2")
        browser.clock.advance(86_400)
        self.assertEqual(browser.get("/count").text, "1")

    def test_absolute(self) -> None:
        """C{absoluteMaxAge} ends a session however often it is used, and its cookie with it."""
        browser = self.use(absoluteMaxAge=100_000, rolling=True, cookie={"maxAge": 60_000})
        browser.get("/count")
        first = browser.cookie
        browser.clock.advance(50)
        (cookie,) = browser.get("/count").cookies
        self.assertIn("Expires=Tue, 14 Nov 2023 22:15:00 GMT", cookie)
        browser.clock.advance(49)
        self.assertEqual(browser.get("/count").text, "3")
        browser.clock.advance(1)
        self.assertEqual(browser.get("/count").text, "1")
        self.assertNotEqual(browser.cookie, first)

    def test_absoluteTurnedOn(self) -> None:
        """It holds for sessions that began before it was set, whatever the store thinks."""
        browser = self.use()
        browser.get("/count")
        cookie = browser.cookie
        assert cookie is not None
        browser.clock.advance(100)
        later = Browser()
        later.clock.advance(100)
        later.app.use(session(secret=SECRET, store=self.store, absoluteMaxAge=100_000))
        later.app.get("/", lambda req, res: res.json(req.session))
        self.assertEqual(later.get(cookie=cookie).json(), {})

    def test_failingStore(self) -> None:
        """A store that fails to read or to write is a 500; the next request may do better."""
        browser = self.use()
        browser.get("/count")
        for name in ("get", "replace"):
            setattr(self.store, name, lambda *arguments: fail(OSError("no disk")))
            self.assertEqual(browser.get("/count").status, 500)
            self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
            setattr(self.store, name, failing)
            self.assertEqual(browser.get("/count").status, 500)
            self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
            delattr(self.store, name)
        self.assertEqual(browser.get("/count").text, "2")

    def test_strangeRecords(self) -> None:
        """What another program left in the store is taken as far as it can be."""
        self.use(cookie={"maxAge": 60_000})
        odd: list[Any] = [
            {"n": 1},
            {"cookie": None, "n": 1},
            {"cookie": {"expires": "2099-01-01T00:00:00.000Z", "originalMaxAge": "x"}, "n": 1},
            {"cookie": {"createdAt": "x", "expires": True, "originalMaxAge": -5}, "n": 1},
        ]
        for data in odd:
            self.store.set("odd", data)
            self.assertEqual(self.look(cookie=signed("odd"))["content"], {"n": 1})


def failing(*arguments: Any) -> None:
    """Fail at once."""
    raise OSError("no disk")


@implementer(ISessionStore)
class UserStore:
    """
    A store as a user writes one: four coroutine functions and nothing else.

    @ivar waiting: If it is a list, every call waits in it.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, dict[str, Any]] = {}
        self.waiting: list[Deferred[None]] | None = None

    async def get(self, id: str) -> dict[str, Any] | None:
        """Give a session."""
        await self._pass()
        found = self.sessions.get(id)
        return None if found is None else dict(found)

    async def set(self, id: str, data: Mapping[str, Any], maxAgeMs: float = 0) -> None:
        """Keep a session."""
        await self._pass()
        self.sessions[id] = dict(data)

    async def destroy(self, id: str) -> None:
        """Forget a session."""
        await self._pass()
        self.sessions.pop(id, None)

    async def touch(self, id: str, data: Mapping[str, Any], maxAgeMs: float = 0) -> None:
        """Keep a session for longer."""
        await self._pass()

    async def _pass(self) -> None:
        if self.waiting is not None:
            waiting: Deferred[None] = Deferred()
            self.waiting.append(waiting)
            await waiting


class UserStoreTests(SessionCase):
    """A store that takes its time."""

    def setUp(self) -> None:
        """Use one."""
        self.slow = UserStore()
        self.use(store=self.slow, resave=False)

    def test_works(self) -> None:
        """Four coroutine functions are enough."""
        self.assertTrue(verifyObject(ISessionStore, self.slow))
        self.assertEqual([self.browser.get("/count").text for _ in range(3)], ["1", "2", "3"])

    def test_waits(self) -> None:
        """The handler runs when the session is there, and the response ends after the save."""
        self.browser.get("/count")
        self.slow.waiting = waiting = []
        connection = self.browser.start("GET", "/count")
        # To read; then, for the save, to look whether it is still there, and to write.
        for _ in range(3):
            self.assertEqual(connection.received(), b"")
            self.assertEqual([kept["count"] for kept in self.slow.sessions.values()], [1])
            waiting.pop().callback(None)
        self.assertEqual([kept["count"] for kept in self.slow.sessions.values()], [2])
        self.assertEqual(read(connection.received()).text, "2")

    def test_clientGone(self) -> None:
        """A client that goes away while the store reads harms nobody."""
        self.browser.get("/count")
        self.slow.waiting = waiting = []
        self.browser.start("GET", "/count").lose()
        self.slow.waiting = None
        waiting.pop().callback(None)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.browser.get("/look").status, 200)


class OverlapTests(SessionCase):
    """Requests of one session at one time."""

    def overlapping(self, store: Any = None, **options: Any) -> None:
        """Make an application with a handler that waits, and some that do not."""
        self.held: list[Deferred[None]] = []
        self.use(**({"store": store} if store else {}), **options)

        @self.app.get("/slow")
        async def slow(req: Any, res: Any) -> None:
            waiting: Deferred[None] = Deferred()
            self.held.append(waiting)
            await waiting
            req.session.slow = True
            res.send("")

        @self.app.get("/slowlook")
        async def slowLook(req: Any, res: Any) -> None:
            waiting: Deferred[None] = Deferred()
            self.held.append(waiting)
            await waiting
            res.send("")

        @self.app.get("/out")
        async def out(req: Any, res: Any) -> None:
            await req.session.destroy()
            res.send("")

        @self.app.get("/again")
        async def again(req: Any, res: Any) -> None:
            await req.session.regenerate()
            req.session.new = True
            res.send("")

        self.browser.get("/count")

    def test_lastWins(self) -> None:
        """The request that is saved last wins as a whole."""
        self.overlapping()
        self.browser.start("GET", "/slow")
        self.browser.get("/count")
        self.held.pop().callback(None)
        self.assertEqual(self.look()["content"], {"count": 1, "slow": True})

    def test_readersWriteNothing(self) -> None:
        """Without C{resave} a request that changed nothing undoes nothing."""
        self.overlapping(resave=False)
        self.browser.start("GET", "/slowlook")
        self.browser.get("/count")
        self.held.pop().callback(None)
        self.assertEqual(self.look()["content"], {"count": 2})

    def test_destroyedMeanwhile(self) -> None:
        """A session that was destroyed during a slow request stays destroyed."""
        for path in ("/slow", "/slowlook"):
            for store in (None, UserStore()):
                for resave in (True, False):
                    self.overlapping(store, resave=resave)
                    cookie = self.browser.cookie
                    slow = self.browser.start("GET", path)
                    self.browser.get("/out")
                    self.held.pop().callback(None)
                    self.assertEqual(read(slow.received()).status, 200)
                    self.assertEqual(self.look(cookie=cookie)["content"], {})

    def test_regeneratedMeanwhile(self) -> None:
        """A login during a slow request does not bring the old id back."""
        self.overlapping()
        old = self.browser.cookie
        self.browser.start("GET", "/slow")
        self.browser.get("/again")
        self.held.pop().callback(None)
        self.assertEqual(self.look(cookie=old)["content"], {})
        self.assertEqual(self.look()["content"], {})

    def test_savedAfterDestruction(self) -> None:
        """Nor does saving by hand."""
        self.overlapping()

        @self.app.get("/slowsave")
        async def slowSave(req: Any, res: Any) -> None:
            waiting: Deferred[None] = Deferred()
            self.held.append(waiting)
            await waiting
            await req.session.save()
            res.send("")

        cookie = self.browser.cookie
        self.browser.start("GET", "/slowsave")
        self.browser.get("/out")
        self.held.pop().callback(None)
        self.assertEqual(self.look(cookie=cookie)["content"], {})

    def test_clientGone(self) -> None:
        """What a handler did for a client that went away is kept."""
        self.overlapping()
        connection = self.browser.start("GET", "/slow")
        connection.lose()
        self.held.pop().callback(None)
        self.assertEqual(self.look()["content"], {"count": 1, "slow": True})

    def test_clientGoneCookie(self) -> None:
        """It is kept, too, where the response would have set a cookie."""
        for options in ({"rolling": True}, {"cookie": {"maxAge": 60_000}}):
            self.overlapping(**options)
            connection = self.browser.start("GET", "/slow")
            connection.lose()
            self.held.pop().callback(None)
            self.assertEqual(self.look()["content"], {"count": 1, "slow": True})

    def test_clientGoneNew(self) -> None:
        """A new session of a client that went away fails no handler."""
        self.overlapping(saveUninitialized=False)
        self.browser.cookie = None
        connection = self.browser.start("GET", "/slow")
        connection.lose()
        self.held.pop().callback(None)
        self.assertEqual(self.store.calls[-1][0], "set")


class DefaultStoreTests(SessionCase):
    """Without a store."""

    def test_memory(self) -> None:
        """Sessions are kept in memory, each middleware's apart, by the time of the application."""
        browser = self.use(store=None, cookie={"maxAge": 60_000})
        self.assertEqual([browser.get("/count").text for _ in range(2)], ["1", "2"])
        cookie = browser.cookie
        browser.clock.advance(60)
        self.assertEqual(browser.get("/count", cookie=cookie or "").text, "1")
        other = self.use(store=None)
        self.assertEqual(other.get("/count", cookie=cookie or "").text, "1")

    def test_export(self) -> None:
        """The store is a public name."""
        self.assertEqual(MemorySessionStore.__module__, "storagegate.http.sessions.stores")
