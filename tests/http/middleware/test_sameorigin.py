"""Requests that another site made."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.http import sameOrigin
from storagegate.http.middleware.securityheaders import parseOrigin
from tests.http.middleware.browser import Browser

UNSAFE = ("POST", "PUT", "PATCH", "DELETE")


class SameOriginTests(SynchronousTestCase):
    """An application that serves its own pages, with cookies."""

    def use(self, **options: Any) -> Browser:
        """Make it."""
        browser = Browser()
        browser.cookie = "connect.sid=x"
        browser.app.use(sameOrigin(**options))
        self.done: list[str] = []

        @browser.app.all("/")
        def handle(req: Any, res: Any) -> None:
            self.done.append(req.method)
            res.send("done")

        return browser

    def statusOf(self, browser: Browser, **headers: str) -> int:
        """POST something."""
        return browser.request("POST", "/", **headers).status

    def test_foreign(self) -> None:
        """What another site sent is 403 with an error in JSON, and no handler runs."""
        browser = self.use()
        for method in UNSAFE:
            for headers in ({"sec_fetch_site": "cross-site"}, {"origin": "https://evil.com"}):
                answer = browser.request(method, "/", **headers)
                self.assertEqual(answer.status, 403)
                self.assertEqual(answer.json(), {"error": "This request comes from another site"})
        self.assertEqual(self.done, [])

    def test_fetchSite(self) -> None:
        """C{Sec-Fetch-Site} decides: from here, or typed by the user; all else is foreign."""
        browser = self.use()
        for site, status in {
            "same-origin": 200,
            "none": 200,
            "same-site": 403,
            "cross-site": 403,
            "anything": 403,
            "": 403,
            "same-origin, cross-site": 403,
        }.items():
            self.assertEqual(self.statusOf(browser, sec_fetch_site=site), status, site)

    def test_fetchSiteFirst(self) -> None:
        """It counts more than C{Origin}, which a proxy may have made different from C{Host}."""
        browser = self.use()
        other, own = "https://public.name", "http://example.com"
        self.assertEqual(self.statusOf(browser, sec_fetch_site="same-origin", origin=other), 200)
        self.assertEqual(self.statusOf(browser, sec_fetch_site="cross-site", origin=own), 403)

    def test_origin(self) -> None:
        """Without it, C{Origin} has to name the host that was asked, whatever the scheme."""
        browser = self.use()
        for origin, status in {
            "http://example.com": 200,
            "https://example.com": 200,
            "http://EXAMPLE.com:80": 200,
            "https://example.com:443": 200,
            "http://example.com:8080": 403,
            "http://sub.example.com": 403,
            "http://example.com.evil.com": 403,
            "http://evil.com/example.com": 403,
            "http://example.com@evil.com": 403,
            "http://evil.com#example.com": 403,
            "null": 403,
            "example.com": 403,
            "": 403,
            "http://": 403,
            "http://example.com, http://evil.com": 403,
        }.items():
            self.assertEqual(self.statusOf(browser, origin=origin), status, origin)

    def test_port(self) -> None:
        """The port is part of it."""
        browser = self.use()
        for host, origin, status in (
            ("example.com:8080", "http://example.com:8080", 200),
            ("example.com:8080", "http://example.com", 403),
            ("example.com:443", "https://example.com", 200),
            ("[::1]:3000", "http://[::1]:3000", 200),
            ("[::1]:3000", "http://[::2]:3000", 403),
        ):
            self.assertEqual(self.statusOf(browser, origin=origin, host=host), status, origin)

    def test_safe(self) -> None:
        """GET, HEAD and OPTIONS pass, wherever they come from."""
        browser = self.use()
        for method in ("GET", "HEAD", "OPTIONS"):
            answer = browser.request(method, "/", sec_fetch_site="cross-site", origin="null")
            self.assertEqual(answer.status, 200)

    def test_noCookie(self) -> None:
        """Without a cookie nobody's name is misused."""
        browser = self.use()
        browser.cookie = None
        self.assertEqual(self.statusOf(browser, sec_fetch_site="cross-site"), 200)

    def test_noBrowser(self) -> None:
        """A program that says neither passes."""
        self.assertEqual(self.statusOf(self.use()), 200)

    def test_allowed(self) -> None:
        """Origins that are allowed pass by scheme, host and port."""
        browser = self.use(allow=["https://Admin.example.com", "http://localhost:5173"])
        for origin, status in {
            "https://admin.example.com": 200,
            "https://admin.example.com:443": 200,
            "http://localhost:5173": 200,
            "http://admin.example.com": 403,
            "http://localhost": 403,
            "null": 403,
        }.items():
            for headers in ({}, {"sec_fetch_site": "cross-site"}):
                self.assertEqual(self.statusOf(browser, origin=origin, **headers), status, origin)
        self.assertEqual(self.statusOf(browser, sec_fetch_site="cross-site"), 403)

    def test_setUp(self) -> None:
        """What is not an origin is refused at set-up."""
        for origin in ("*", "null", "example.com", "https://x/", "https://x/y", "", 5, None):
            self.assertRaises(OptionError, sameOrigin, allow=[origin])
        self.assertRaises(OptionError, sameOrigin, allow="https://x")
        self.assertRaises(TypeError, sameOrigin, allowed=[])


class ParseOriginTests(SynchronousTestCase):
    """Reading an origin."""

    @given(st.text(max_size=200))
    def test_anything(self, text: str) -> None:
        """Any text is an origin of three parts or none; no part has a slash, a query or a user."""
        origin = parseOrigin(text)
        if origin is not None:
            scheme, host, port = origin
            self.assertFalse(set(scheme + host + port) & set("/?#@ "))
            self.assertEqual(parseOrigin(f"{scheme}://{host}" + (port and f":{port}")), origin)
