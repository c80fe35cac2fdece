"""C{req.session}, as handlers use it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.http import session
from storagegate.http.sessions import SessionError
from tests.http.middleware.browser import START, Browser
from tests.http.middleware.sessioncase import SECRET, SessionCase


class MemberCase(SessionCase):
    """Handlers in a line."""

    def doing(self, function: Any) -> Any:
        """Let a handler do something with a request, and give what it returned."""
        results: list[Any] = []

        async def handle(req: Any, res: Any) -> None:
            result = function(req)
            results.append(await result if isinstance(result, Deferred) else result)
            res.send("")

        self.browser.app.get(f"/run{id(function)}", handle)
        self.answer = self.browser.get(f"/run{id(function)}")
        return results[0] if results else None


class MappingTests(MemberCase):
    """A mapping whose keys are attributes."""

    def setUp(self) -> None:
        """Make a browser."""
        self.use()

    def test_both(self) -> None:
        """A key and an attribute are the same."""

        def handle(req: Any) -> None:
            req.session.userId = 1
            self.assertEqual(req.session["userId"], 1)
            req.session["name"] = "x"
            self.assertEqual(req.session.name, "x")
            self.assertEqual(dict(req.session), {"userId": 1, "name": "x"})
            del req.session.userId
            self.assertNotIn("userId", req.session)

        self.doing(handle)
        self.assertEqual(self.look()["content"], {"name": "x"})

    def test_absent(self) -> None:
        """What is not there is C{AttributeError} or C{KeyError}, and C{get} gives C{None}."""

        def handle(req: Any) -> None:
            self.assertRaises(AttributeError, getattr, req.session, "userId")
            self.assertRaises(AttributeError, delattr, req.session, "userId")
            self.assertRaises(KeyError, lambda: req.session["userId"])
            self.assertIsNone(req.session.get("userId"))
            self.assertFalse(hasattr(req.session, "userId"))

        self.doing(handle)
        self.assertEqual(self.answer.status, 200)

    def test_members(self) -> None:
        """The members cannot be overwritten, and a key of their name is no attribute."""

        def handle(req: Any) -> None:
            for name in ("id", "cookie", "save", "destroy", "items", "get", "__class__", "__x__"):
                error = self.assertRaises(AttributeError, setattr, req.session, name, 1)
                self.assertIn(name, str(error))
                self.assertRaises(AttributeError, delattr, req.session, name)
            req.session["save"] = req.session["__html__"] = 1
            self.assertTrue(callable(req.session.save))
            self.assertFalse(hasattr(req.session, "__html__"))

        self.doing(handle)
        self.assertEqual(self.look()["content"], {"save": 1, "__html__": 1})

    def test_id(self) -> None:
        """The id is there twice, as in Express."""
        self.assertTrue(self.doing(lambda req: req.session.id == req.sessionID))

    def test_hostileKeys(self) -> None:
        """Keys that mean something elsewhere are plain data here."""
        keys = ["__proto__", "constructor", "__class__", "_request", "__dict__", ""]
        self.doing(lambda req: req.session.update({key: key for key in keys}))
        self.assertEqual(self.look()["content"], {key: key for key in keys})

    def test_twice(self) -> None:
        """Used twice, the first middleware's session stays."""
        self.app.use(session(secret="other", name="other"))
        self.doing(lambda req: req.session.update(n=1))
        self.assertTrue((self.answer.cookie or "").startswith("connect.sid="))


class UnstorableTests(MemberCase):
    """What a session cannot keep."""

    def setUp(self) -> None:
        """Make a browser."""
        self.use(saveUninitialized=False)

    def test_clear(self) -> None:
        """It is a 500 without a cookie, and the log says what and where."""
        self.doing(lambda req: req.session.update(user={"born": datetime.now(UTC)}))
        self.assertEqual((self.answer.status, self.answer.cookies), (500, []))
        (error,) = self.flushLoggedErrors(SessionError)
        self.assertIn('req.session["user"]["born"] is a datetime', str(error.value))
        self.assertEqual(self.store.calls, [])

    def test_loaded(self) -> None:
        """The session stays as it was."""
        self.browser.get("/count")
        self.doing(lambda req: req.session.update(n=float("nan")))
        self.assertEqual(self.answer.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(SessionError)), 1)
        self.assertEqual(self.look()["content"], {"count": 1})

    def test_byHand(self) -> None:
        """C{save()} says so where it is called."""

        async def handle(req: Any, res: Any) -> None:
            req.session.a = {1, 2}
            try:
                await req.session.save()
            except SessionError as error:
                req.session.clear()
                res.send(str(error))

        self.app.get("/", handle)
        self.assertIn('req.session["a"] is a set', self.browser.get("/").text)

    def test_replaced(self) -> None:
        """Putting something else in the place of the session is an error."""
        self.doing(lambda req: setattr(req, "session", {"n": 1}))
        self.assertEqual(self.answer.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(SessionError)), 1)

    def test_badId(self) -> None:
        """C{genid} has to give text."""
        browser = self.use(genid=lambda req: 5)
        self.assertEqual(browser.get("/look").status, 500)
        self.assertEqual(len(self.flushLoggedErrors(SessionError)), 1)


class MethodTests(MemberCase):
    """The methods."""

    def test_fixation(self) -> None:
        """An id that was known before a login is worth nothing after C{regenerate()}."""
        browser = self.use()
        browser.get("/count")
        known = browser.cookie
        before = self.look()["id"]

        async def login(req: Any, res: Any) -> None:
            await req.session.regenerate()
            req.session.user = "ann"
            res.send("")

        self.app.get("/login", login)
        answer = browser.get("/login")
        self.assertNotEqual(answer.cookie, known)
        self.assertEqual(self.look()["content"], {"user": "ann"})
        self.assertNotEqual(self.look()["id"], before)
        self.assertEqual(self.look(cookie=known)["content"], {})

    def test_regenerate(self) -> None:
        """The new session is there at once, is what the result gives, and is kept though empty."""
        browser = self.use(saveUninitialized=False, resave=False)
        browser.get("/count")
        old = self.look()["id"]

        def handle(req: Any) -> Any:
            result = req.session.regenerate()
            self.assertNotEqual(req.session.id, old)
            self.assertEqual(req.session.id, req.sessionID)
            self.assertEqual(req.session, {})
            return result

        new = self.doing(handle)
        self.assertIsNotNone(self.answer.cookie)
        self.assertEqual(self.look()["id"], new.id)

    def test_destroy(self) -> None:
        """After C{destroy()} there is no session, here and in the store."""
        browser = self.use()
        browser.get("/count")
        cookie = browser.cookie

        def handle(req: Any) -> Any:
            result = req.session.destroy()
            self.assertIsNone(req.session)
            return result

        self.doing(handle)
        self.assertEqual(self.answer.cookies, [])
        self.assertEqual(self.look(cookie=cookie)["content"], {})

    def test_afterwards(self) -> None:
        """A session that was destroyed or gave way can be neither saved nor reloaded."""
        for end in ("destroy", "regenerate"):
            self.use()

            async def handle(req: Any, res: Any, end: str = end) -> None:
                old = req.session
                await getattr(old, end)()
                for name in ("save", "reload"):
                    try:
                        await getattr(old, name)()
                    except SessionError as error:
                        res.append("X-Errors", str(error))
                res.send("")

            self.app.get("/", handle)
            wire = self.browser.start("GET", "/").received()
            self.assertEqual(wire.count(b"this session was destroyed"), 2)

    def test_reload(self) -> None:
        """C{reload()} takes what is kept."""
        browser = self.use()
        browser.get("/count")

        def handle(req: Any) -> Any:
            req.session.update(count=50, more=1)
            return req.session.reload().addCallback(lambda _: dict(req.session))

        self.assertEqual(self.doing(handle), {"count": 1})

    def test_reloadNothing(self) -> None:
        """What is not kept cannot be reloaded."""
        self.use()
        self.doing(lambda req: req.session.reload())
        self.assertEqual(self.answer.status, 500)
        self.assertEqual(len(self.flushLoggedErrors(SessionError)), 1)

    def test_unset(self) -> None:
        """C{req.session = None} keeps what is kept, or destroys it with C{unset="destroy"}."""
        for unset, left in (("keep", {"count": 1}), ("destroy", {})):
            browser = self.use(unset=unset)
            browser.get("/count")

            def handle(req: Any) -> None:
                req.session.count = 9
                req.session = None

            self.doing(handle)
            self.assertEqual(self.look()["content"], left)

    def test_unsetNothing(self) -> None:
        """After C{destroy()} there is nothing left to destroy."""
        self.use(unset="destroy")
        self.doing(lambda req: req.session.destroy())
        self.assertEqual(self.answer.status, 200)

    def test_plain(self) -> None:
        """A handler that waits for nothing can use them all the same."""
        browser = self.use()
        browser.get("/count")
        old = browser.cookie

        def handle(req: Any, res: Any) -> None:
            req.session.regenerate()
            req.session.user = "ann"
            res.send("")

        self.app.get("/", handle)
        browser.get("/")
        self.assertEqual(self.look()["content"], {"user": "ann"})
        self.assertEqual(self.look(cookie=old)["content"], {})

    def test_genid(self) -> None:
        """C{genid} is given the request."""
        browser = self.use(genid=lambda req: f"id-of-{req.path}")
        self.assertEqual(browser.get("/look").json()["id"], "id-of-/look")


class SessionCookieTests(MemberCase):
    """C{req.session.cookie}."""

    def test_rememberMe(self) -> None:
        """A handler may give its session a time of its own, which is kept with it."""
        browser = self.use(cookie={"maxAge": 60_000})
        self.doing(lambda req: setattr(req.session.cookie, "maxAge", 3_600_000))
        self.assertIn("Expires=Tue, 14 Nov 2023 23:13:20 GMT", self.answer.cookies[0])
        browser.clock.advance(3_500)
        (cookie,) = browser.get("/count").cookies
        self.assertIn("Expires=Wed, 15 Nov 2023 00:11:40 GMT", cookie)
        self.assertEqual(self.doing(lambda req: req.session.cookie.originalMaxAge), 3_600_000)
        browser.clock.advance(3_500)
        self.assertEqual(browser.get("/count").text, "2")

    def test_left(self) -> None:
        """C{maxAge} counts down, and C{touch()} begins anew."""
        browser = self.use(cookie={"maxAge": 60_000})
        browser.get("/count")
        browser.clock.advance(20)

        def handle(req: Any) -> list[Any]:
            cookie = req.session.cookie
            left = [cookie.maxAge, cookie.expires]
            req.session.touch()
            return [*left, cookie.maxAge]

        end = datetime.fromtimestamp(START + 60, UTC)
        self.assertEqual(self.doing(handle), [40_000, end, 60_000])

    def test_noEnd(self) -> None:
        """C{expires = None} makes it last until the browser is closed."""
        self.use(cookie={"maxAge": 60_000})

        def handle(req: Any) -> None:
            req.session.cookie.expires = None
            self.assertIsNone(req.session.cookie.maxAge)

        self.doing(handle)
        self.assertNotIn("Expires", self.answer.cookies[0])
        self.assertIsNone(self.doing(lambda req: req.session.cookie.expires))

    def test_fixedEnd(self) -> None:
        """A date stays where it is."""
        self.use(rolling=True)
        end = datetime.fromtimestamp(START, UTC) + timedelta(hours=1)
        self.doing(lambda req: setattr(req.session.cookie, "expires", end))
        self.browser.clock.advance(60)
        self.assertEqual(self.doing(lambda req: req.session.cookie.expires), end)
        self.assertIn("Expires=Tue, 14 Nov 2023 23:13:20 GMT", self.answer.cookies[0])

    def test_flags(self) -> None:
        """Flags that a handler changes are kept; all others follow the options as they are now."""
        self.use(rolling=True)
        self.doing(lambda req: setattr(req.session.cookie, "sameSite", "strict"))
        self.assertIn("SameSite=Strict", self.browser.get("/look").cookies[0])
        other = Browser()
        other.app.use(
            session(secret=SECRET, store=self.store, rolling=True, cookie={"httpOnly": False})
        )
        other.app.get("/", lambda req, res: res.send(""))
        other.cookie = self.browser.cookie
        (cookie,) = other.get("/").cookies
        self.assertEqual(set(cookie.split("; ")[1:]), {"Path=/", "SameSite=Strict"})

    def test_nonsense(self) -> None:
        """An age that is none is refused where it is set."""
        self.use()

        def handle(req: Any) -> None:
            for name in ("maxAge", "expires"):
                for value in ("x", True, float("nan"), datetime(2023, 1, 1)):
                    self.assertRaises(ValueError, setattr, req.session.cookie, name, value)

        self.doing(handle)
        self.assertEqual(self.answer.status, 200)
