"""HTTP/2 over TLS with Chromium: the console, and a page with a WebSocket."""

from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http import HTTPRequest, HTTPResponse, WebSocket
from tests.browser.fixture import ConsoleBrowser
from tests.support.browser import Browser
from tests.support.certificates import Authority
from tests.support.daemon import ACCESS_KEY, SECRET_KEY, Daemon
from tests.support.programs import needs
from tests.support.selection import long
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.tls import makeCertificate

PROTOCOLS = (
    "[...new Set([...performance.getEntriesByType('navigation'),"
    " ...performance.getEntriesByType('resource')].map((each) => each.nextHopProtocol))]"
)
"""The protocols by which a page and all that it has loaded came."""


@long("drives Chromium")
@needs("chromium")
class ConsoleTests(SynchronousTestCase):
    """The console over TLS."""

    def test_console(self) -> None:
        """The page, its files, its calls and its streams come over HTTP/2."""
        folder = Path(self.mktemp()).absolute()
        certificate, key = Authority(folder).issue(file="served", days=30)
        tls = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
        daemon = Daemon(Path(self.mktemp()).absolute(), "--admin", tls)
        self.addCleanup(daemon.kill)
        daemon.start()
        with ConsoleBrowser(daemon) as page:
            page.send("Security.setIgnoreCertificateErrors", ignore=True)
            page.origin = page.origin.replace("http:", "https:")
            page.visit()
            page.signIn(ACCESS_KEY, SECRET_KEY)
            page.press("Overview")
            page.waitText("Healthy")
            self.assertEqual(page.evaluate(PROTOCOLS), ["h2"])
        self.assertEqual(daemon.stop(), 0)
        self.assertNotRegex(daemon.log, "Traceback|Unhandled")


@long("drives Chromium")
@needs("chromium")
class WebSocketTests(AppServedCase):
    """An application over TLS."""

    async def test_webSocket(self) -> None:
        """Once the page came over HTTP/2, its WebSocket is a stream of the same connection."""

        async def echo(socket: WebSocket) -> None:
            request = socket.request
            await socket.sendJSON([request.httpVersion, request.raw.clientPort])
            async for message in socket:
                await socket.send(message)

        def page(req: HTTPRequest, res: HTTPResponse) -> None:
            ports.append(req.raw.clientPort)
            res.html("<title>page</title>")

        ports: list[int] = []
        self.app.get("/", page)
        self.app.ws("/echo", echo)
        pem = makeCertificate(self.mktemp())
        listening: Any = await self.app.listen(
            f"ssl:0:interface=127.0.0.1:privateKey={pem}", reactor=self.reactor
        )
        self.addCleanup(self.app.close, 0)
        port = listening.getHost().port

        def run() -> Any:
            with Browser() as browser:
                browser.send("Security.setIgnoreCertificateErrors", ignore=True)
                browser.open(f"https://127.0.0.1:{port}/")
                browser.wait("document.title === 'page'")
                # A fetch that ends lets the browser know the settings of the connection.
                browser.evaluate("fetch('/').then((each) => each.text())")
                return browser.evaluate(
                    "new Promise((done, failed) => {"
                    f" const socket = new WebSocket('wss://127.0.0.1:{port}/echo'), got = [];"
                    " socket.onerror = () => failed('an error');"
                    " socket.onopen = () => socket.send('x'.repeat(100000));"
                    " socket.onmessage = (event) => { got.push(event.data);"
                    " if (got.length === 2) socket.close(4001, 'enough') };"
                    " socket.onclose = (event) => done([got[0], got[1].length, event.code]) })"
                )

        first, length, code = await deferToThread(run)
        self.assertEqual((length, code), (100_000, 4001))
        self.assertEqual(first, f'["2.0",{ports[0]}]')
