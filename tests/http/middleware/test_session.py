"""The cookie of a session: when it is sent, what it says, which ones are believed."""

from typing import Any
from urllib.parse import unquote

from storagegate.http import HTTPError
from tests.http.middleware.browser import START, Browser
from tests.http.middleware.sessioncase import SessionCase, signed


class CookieTests(SessionCase):
    """What is sent."""

    def test_value(self) -> None:
        """The cookie is C{s:<id>.<HMAC-SHA256 in base64 without =>}, percent-encoded."""
        browser = self.use()
        (cookie,) = browser.get("/look").cookies
        name, value = cookie.partition(";")[0].split("=")
        self.assertEqual(name, "connect.sid")
        self.assertTrue(value.startswith("s%3A"))
        id, _, signature = unquote(value)[2:].partition(".")
        self.assertRegex(id, r"\A[A-Za-z0-9_-]{32}\Z")
        self.assertRegex(signature, r"\A[A-Za-z0-9+/]{43}\Z")
        self.assertEqual(self.look()["id"], id)

    def test_knownVector(self) -> None:
        """Cookie and signature are those that express-session makes of this id and secret."""
        browser = self.use(genid=lambda req: "abc")
        browser.get("/look")
        self.assertEqual(
            browser.cookie,
            "connect.sid=s%3Aabc.BpxCrWRpvZMh%2Fwk%2Fdjl34N%2Bm%2BVQEU7K%2F5WenLwJCgFU",
        )

    def test_defaults(self) -> None:
        """By default a cookie is for every path, hidden from scripts, and has no end."""
        browser = self.use()
        (cookie,) = browser.get("/look").cookies
        self.assertEqual(cookie.split("; ")[1:], ["Path=/", "HttpOnly"])

    def test_options(self) -> None:
        """What the options say is in the cookie."""
        browser = self.use(
            name="sid",
            cookie={"httpOnly": False, "sameSite": "lax", "domain": "example.com", "path": "/look"},
        )
        (cookie,) = browser.get("/look").cookies
        self.assertTrue(cookie.startswith("sid=s%3A"))
        self.assertEqual(
            set(cookie.split("; ")[1:]), {"Domain=example.com", "Path=/look", "SameSite=Lax"}
        )

    def test_maxAge(self) -> None:
        """C{maxAge} counts in milliseconds and sets C{Expires}."""
        browser = self.use(cookie={"maxAge": 60_000})
        browser.clock.advance(10)
        (cookie,) = browser.get("/look").cookies
        self.assertIn("Expires=Tue, 14 Nov 2023 22:14:30 GMT", cookie.split("; "))
        self.assertNotIn("Max-Age", cookie)

    def test_expires(self) -> None:
        """A fixed end stays where it is, and the session with it."""
        browser = self.use(cookie={"expires": START + 60})
        browser.clock.advance(10)
        (cookie,) = browser.get("/count").cookies
        self.assertIn("Expires=Tue, 14 Nov 2023 22:14:20 GMT", cookie.split("; "))
        browser.clock.advance(49)
        self.assertEqual(browser.get("/count").text, "2")
        browser.clock.advance(1)
        self.assertEqual(browser.get("/count").text, "1")

    def test_oncePerSession(self) -> None:
        """A browser that sent the cookie does not get it again."""
        browser = self.use()
        self.assertEqual(len(browser.get("/count").cookies), 1)
        self.assertEqual(browser.get("/count").cookies, [])
        self.assertEqual(browser.get("/look").cookies, [])

    def test_renewedByChange(self) -> None:
        """One that has an end is sent again when the session was changed, with a new end."""
        browser = self.use(cookie={"maxAge": 60_000})
        browser.get("/count")
        browser.clock.advance(30)
        (cookie,) = browser.get("/count").cookies
        self.assertIn("Expires=Tue, 14 Nov 2023 22:14:50 GMT", cookie)
        self.assertEqual(browser.get("/look").cookies, [])

    def test_rolling(self) -> None:
        """With C{rolling} it is sent with every response of a session, but of no empty new one."""
        browser = self.use(rolling=True, saveUninitialized=False, cookie={"maxAge": 60_000})
        self.assertEqual(browser.get("/look").cookies, [])
        browser.get("/count")
        browser.clock.advance(30)
        (cookie,) = browser.get("/look").cookies
        self.assertIn("Expires=Tue, 14 Nov 2023 22:14:50 GMT", cookie)

    def test_tooLong(self) -> None:
        """A cookie of more than 4096 bytes is an error, and no session is kept under it."""
        browser = self.use(genid=lambda req: "x" * 4096)
        answer = browser.get("/look")
        self.assertEqual((answer.status, answer.cookies), (500, []))
        self.assertEqual(self.store.calls, [])
        (error,) = self.flushLoggedErrors(ValueError)
        self.assertIn("4096", str(error.value))

    def test_besideOthers(self) -> None:
        """Cookies of the handler are sent, too."""
        browser = self.use()

        @self.app.get("/own")
        def own(req: Any, res: Any) -> None:
            res.append("Set-Cookie", "own=1")
            res.send("")

        wire = browser.start("GET", "/own").received()
        self.assertEqual(wire.lower().count(b"set-cookie: "), 2)

    def test_streams(self) -> None:
        """A response in parts has the cookie in its head."""
        browser = self.use()

        @self.app.get("/parts")
        async def parts(req: Any, res: Any) -> None:
            req.session["n"] = 1
            await res.write("a")
            req.session["n"] = 2
            res.end("b")

        self.assertIsNotNone(browser.get("/parts").cookie)
        self.assertEqual(self.look()["content"], {"n": 2})

    def test_onErrors(self) -> None:
        """An error that is answered has the cookie, and the session is kept."""
        browser = self.use()

        @self.app.get("/fails")
        def fails(req: Any, res: Any) -> None:
            req.session.tries = 1
            raise HTTPError(418, "no")

        answer = browser.get("/fails")
        self.assertEqual(answer.status, 418)
        self.assertIsNotNone(answer.cookie)
        self.assertEqual(self.look()["content"], {"tries": 1})


class SecureTests(SessionCase):
    """Cookies for encrypted connections alone."""

    def use(self, **options: Any) -> Browser:
        """Make an application behind a proxy that is believed."""
        browser = super().use(**options)
        self.app.withOptions(trustProxy=True)
        return browser

    def test_onTLS(self) -> None:
        """A secure cookie is sent where the proxy says https."""
        browser = self.use(cookie={"secure": True})
        self.assertEqual(browser.get("/look", x_forwarded_proto="http").cookies, [])
        self.assertEqual(browser.get("/look").cookies, [])
        (cookie,) = browser.get("/look", x_forwarded_proto="https").cookies
        self.assertIn("Secure", cookie.split("; "))

    def test_untrusted(self) -> None:
        """What a client says of itself does not count."""
        browser = self.use(cookie={"secure": True})
        self.app.withOptions(trustProxy=False)
        self.assertEqual(browser.get("/look", x_forwarded_proto="https").cookies, [])

    def test_auto(self) -> None:
        """C{auto} follows the request."""
        browser = self.use(cookie={"secure": "auto"}, rolling=True)
        (plain,) = browser.get("/count").cookies
        self.assertNotIn("Secure", plain.split("; "))
        (secure,) = browser.get("/count", x_forwarded_proto="https").cookies
        self.assertIn("Secure", secure.split("; "))
        (plain,) = browser.get("/count").cookies
        self.assertNotIn("Secure", plain.split("; "))
        self.assertEqual(self.look()["content"], {"count": 3})

    def test_sameSiteNone(self) -> None:
        """C{SameSite=None} goes with C{Secure}."""
        browser = self.use(cookie={"secure": True, "sameSite": "none"})
        (cookie,) = browser.get("/look", x_forwarded_proto="https").cookies
        self.assertTrue({"Secure", "SameSite=None"} <= set(cookie.split("; ")))


class HostileCookieTests(SessionCase):
    """Cookies that are not ours."""

    def test_badSignatures(self) -> None:
        """Any change to a cookie makes a new session, without asking the store; never an error."""
        browser = self.use(saveUninitialized=False)
        browser.get("/count")
        good = browser.cookie
        assert good is not None
        name, value = good.split("=")
        id = self.look()["id"]
        bad = [value[:end] for end in range(len(value) - 2)]
        flipped = [
            value[:at] + ("A" if value[at] != "A" else "B") + value[at + 1 :]
            for at in range(4, len(value) - 1)
            if value[at] not in "%" and "%" not in value[max(0, at - 2) : at]
        ]
        others = ["s%3A", "s%3A.", "j%3A%7B%7D", id, f"s%3A{id}", "%", "%FF%FE", '"', "s:" + id]
        self.store.calls.clear()
        for one in [*bad, *flipped, *others, "x" * 10_000, value + "A", "\u00e4"]:
            answer = browser.get("/look", cookie=f"{name}={one}")
            self.assertEqual(answer.status, 200, one)
            self.assertNotEqual(answer.json()["id"], id, one)
            self.assertEqual(answer.json()["content"], {}, one)
        self.assertEqual(self.store.calls, [])
        self.assertEqual(self.look(cookie=good)["id"], id)

    def test_otherKey(self) -> None:
        """A cookie that another secret has signed is none of ours."""
        self.use(saveUninitialized=False)
        self.assertNotEqual(self.look(cookie=signed("fixed", "other"))["id"], "fixed")
        self.assertEqual(self.store.calls, [])

    def test_unknownId(self) -> None:
        """An id with a good signature that the store does not know is replaced by a new one."""
        browser = self.use()
        answer = browser.get("/look", cookie=signed("fixed"))
        id = answer.json()["id"]
        self.assertNotEqual(id, "fixed")
        self.assertEqual(answer.cookie, signed(id))
        self.assertEqual(self.store.calls, [("get", "fixed"), ("set", id)])

    def test_rotation(self) -> None:
        """Of several secrets the first signs, and all verify."""
        browser = self.use(secret=["new", "old"])
        self.store.set("mine", {"cookie": {}, "n": 1})
        for secret in ("new", "old"):
            self.assertEqual(self.look(cookie=signed("mine", secret))["content"], {"n": 1})
        id = browser.get("/look").json()["id"]
        self.assertEqual(browser.cookie, signed(id, "new"))

    def test_twoOfOneName(self) -> None:
        """Of two cookies of one name the first counts: the browser puts the closer path first."""
        self.use(saveUninitialized=False)
        for id in ("a", "b"):
            self.store.set(id, {"cookie": {}, "me": id})
        found = self.look(cookie=f"x=1; {signed('a')}; {signed('b')}")
        self.assertEqual(found["content"], {"me": "a"})
        found = self.look(cookie=f"connect.sid=s%3Abad; {signed('b')}")
        self.assertEqual(found["content"], {})

    def test_otherNames(self) -> None:
        """Only the cookie of the whole name counts."""
        self.use(name="sid", saveUninitialized=False)
        self.store.set("a", {"cookie": {}, "me": "a"})
        for name in ("connect.sid", "sid2", "xsid", "Sid"):
            self.assertEqual(self.look(cookie=signed("a", name=name))["content"], {})
        self.assertEqual(self.look(cookie=signed("a", name="sid"))["content"], {"me": "a"})

    def test_otherPath(self) -> None:
        """Where the browser would not send the cookie there is no session."""
        browser = self.use(cookie={"path": "/app"})

        @self.app.all("/*")
        def has(req: Any, res: Any) -> None:
            res.send(f"{req.session is not None}")

        paths = ("/app", "/app/", "/app/x", "/app?x", "/application", "/", "/x/app")
        self.assertEqual(
            [browser.get(path).text for path in paths],
            ["True", "True", "True", "True", "False", "False", "False"],
        )
