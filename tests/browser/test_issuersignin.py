"""Signing in at an issuer in Chromium: the button, the issuer's page, the console, and back."""

import atexit
import json
from functools import cache
from typing import Any

from attrs import frozen

from tests.browser.fixture import ConsoleBrowser
from tests.console.test_issuersignin import CONFIGURATION, IssuerCase, Nodes, startNodes
from tests.support.clients import ROOT
from tests.support.daemon import Daemon
from tests.support.issuer import NodeIssuer
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.s3.fixture import eventually, makeDaemon, ownDirectory


@cache
def _nodeServers() -> tuple[NodeIssuer, Daemon]:
    """Start npm's issuer and a daemon, which run until the run ends."""
    issuer = NodeIssuer()
    directory = ownDirectory("node-issuer")
    file = directory / "storagegate.toml"
    file.write_text(CONFIGURATION.format(url=issuer.url).replace("realm.groups", "groups"))
    daemon = makeDaemon(directory / "data", "--config", str(file))
    atexit.register(daemon.kill)
    daemon.start()
    host, port = daemon.address("admin")
    issuer.start(f"http://{host}:{port}/console/")
    return issuer, daemon


class PageCase(IssuerCase):
    """The sign-in page in Chromium."""

    def setUp(self) -> None:
        """Open the page in a new session of the browser."""
        super().setUp()
        self.page = ConsoleBrowser(self.daemon).__enter__()
        self.addCleanup(self.page.__exit__, None, None, None)
        # Pages of issuers ask for style sheets of other hosts.
        self.page.allowed += [self.issuer.url, "cdn.jsdelivr.net", "fonts.googleapis.com"]
        self.page.visit()

    def holds(self, expression: str) -> bool:
        """Return whether an expression is true; false while the browser goes to another page."""
        try:
            return bool(self.page.evaluate(f"!!({expression})"))
        except AssertionError:
            return False

    def arrive(self, expression: str) -> None:
        """Wait until an expression is true on the next page."""
        self.assertTrue(eventually(lambda: self.holds(expression)), expression)

    def arriveText(self, text: str) -> None:
        """Wait until the next page has a text."""
        found = f"document.body.innerText.includes({json.dumps(text)})"
        self.arrive(f"location.origin === {json.dumps(self.page.origin)} && {found}")

    def goToIssuer(self, field: str) -> None:
        """Click the button of the issuer, whose page has a field."""
        self.page.press("Sign in with Example Corp")
        self.arrive(
            f"location.origin === {json.dumps(self.issuer.url)}"
            f" && document.querySelector('input[name={field}]')"
        )


@long("drives Chromium")
@needs("chromium")
class IssuerSignInPageTests(PageCase):
    """People of an issuer that accepts each person."""

    def authorize(self, subject: str) -> None:
        """Go to the issuer, and sign in there."""
        self.goToIssuer("sub")
        self.page.fill("input[name=sub]", subject)
        self.page.press("Authorize")

    def test_signIn(self) -> None:
        """A person of a group comes back to its place, makes a key, and signs out."""
        self.issuer.put("gil", {"realm": {"groups": ["engineers"]}})
        self.page.evaluate("location.hash = '#/keys'")
        self.authorize("gil")
        self.arriveText("user/corporate/gil")
        self.assertEqual(self.page.evaluate("location.search"), "")
        self.assertEqual(self.page.evaluate("location.hash"), "#/keys")
        self.page.press("New key")
        self.page.wait("document.querySelector('#secretKey')")
        self.page.press("I have stored it")
        self.page.evaluate("location.hash = '#/sessions'")
        self.page.waitText("by corporate")
        self.assertNotIn("You are signed in as", self.page.evaluate("document.body.innerText"))
        self.page.press("Sign out")
        self.page.waitText("Sign in with Example Corp")

    def test_noGroup(self) -> None:
        """A person without a group reads why there is nothing to see."""
        self.issuer.put("hal", {"realm": {"groups": ["<b>strangers"]}})
        self.authorize("hal")
        self.arriveText("names only groups that do not exist here: <b>strangers")

    def test_denied(self) -> None:
        """The refusal of the issuer is text on the sign-in page; key pairs still sign in."""
        self.goToIssuer("sub")
        self.page.press("Deny")
        self.arriveText("The issuer refused the sign-in: access_denied")
        self.page.fill("input[name=username]", ROOT.accessKey)
        self.page.fill("input[name=password]", ROOT.secretKey)
        self.page.press("Sign in")
        self.page.wait("document.querySelector('.who')")

    def test_otherTab(self) -> None:
        """A sign-in that this tab did not begin ends without a session, whatever the cookie is."""
        self.issuer.put("eve", {"realm": {"groups": ["engineers"]}})
        self.page.evaluate(
            "fetch('api/v1/session/issuers/corporate', {method: 'POST'})"
            ".then((response) => response.json()).then(({url}) => location.assign(url)); undefined"
        )
        self.arrive(
            f"location.origin === {json.dumps(self.issuer.url)}"
            " && document.querySelector('input[name=sub]')"
        )
        self.page.fill("input[name=sub]", "eve")
        self.page.press("Authorize")
        self.arriveText("The sign-in did not begin in this browser")

    def test_link(self) -> None:
        """A link with a response that this browser did not ask for shows none of its text."""
        self.page.visit("/console/?state=x&error=%3Cb%3Ecall%20555&error_description=now")
        self.page.waitText("The sign-in did not begin in this browser")
        self.assertNotIn("555", self.page.evaluate("document.body.innerText"))


@frozen
class _Balancer:
    """The proxy before the nodes, in the place of a daemon."""

    _servers: Nodes

    def address(self, name: str) -> tuple[str, int]:
        """Return the address of the proxy."""
        return "127.0.0.1", self._servers.port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._servers.nodes[0], name)


@long("drives Chromium, and starts PostgreSQL, HAProxy and an issuer")
@needs("chromium", "haproxy")
class NodesPageTests(PageCase):
    """The console of two nodes behind a proxy that sends each request to the next node."""

    def startDaemon(self) -> Any:
        """Return the proxy."""
        self.issuer, servers = startNodes()
        return _Balancer(servers)

    def test_signIn(self) -> None:
        """
        A person signs in, makes a key, reloads the page, sees its session and signs out, though
        no two requests reach the same node.
        """
        self.issuer.put("jim", {"realm": {"groups": ["engineers"]}})
        self.page.evaluate("location.hash = '#/keys'")
        self.goToIssuer("sub")
        self.page.fill("input[name=sub]", "jim")
        self.page.press("Authorize")
        self.arriveText("user/corporate/jim")
        self.page.press("New key")
        self.page.wait("document.querySelector('#secretKey')")
        self.page.press("I have stored it")
        for _ in range(3):
            self.page.evaluate("location.reload(); undefined")
            self.arriveText("user/corporate/jim")
        self.page.evaluate("location.hash = '#/sessions'")
        self.page.waitText("by corporate")
        self.page.press("Sign out")
        self.page.waitText("Sign in with Example Corp")


@long("drives Chromium")
@needs("chromium", "node", "npm")
class NodeIssuerTests(PageCase):
    """An issuer that requires PKCE."""

    def startDaemon(self) -> Daemon:
        """Return the daemon with this issuer."""
        self.issuer, daemon = _nodeServers()
        return daemon

    def test_signIn(self) -> None:
        """A person has the groups of the userinfo endpoint."""
        self.goToIssuer("login")
        self.page.fill("input[name=login]", "ida")
        self.page.fill("input[name=password]", "any")
        self.page.press("Sign-in")
        consent = (
            "[...document.querySelectorAll('button')].find((each) => each.innerText === 'Continue')"
        )
        self.arrive(consent)
        self.page.evaluate(f"{consent}.click()")
        self.arriveText("user/corporate/ida")
        self.page.evaluate("location.hash = '#/buckets'")
        self.page.wait("document.querySelector('main h1')")
        self.assertNotIn("You are signed in as", self.page.evaluate("document.body.innerText"))
