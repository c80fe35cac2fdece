"""The page for people: what it is sent with, and what it does in a browser."""

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate import server
from storagegate.gateway.gateway import createProtocolGateway
from storagegate.http import openapi
from tests.support.browser import Browser
from tests.support.programs import needs
from tests.support.selection import long

SECONDS = 30


@dataclass
class Order:
    """A request."""

    item: str
    count: int = 1


@dataclass
class Receipt:
    """A response."""

    total: int
    user: str


@dataclass
class Basket:
    """A response with a model in it, and with itself."""

    kind: str
    orders: list[Order]
    baskets: "list[Basket]"


@dataclass
class Paging:
    """A query."""

    page: int = 1


async def create(order: Order, context: Any) -> Receipt:
    """Return a receipt."""
    return Receipt(order.count, (context.authentication or {}).get("name", "nobody"))


async def watch(order: Order) -> AsyncIterator[Receipt]:
    """Return as many as were ordered."""
    for number in range(order.count):
        yield Receipt(number, "<b>&")


class PageCase(TestCase):
    """A gateway with a service."""

    timeout = 180
    http: dict[str, Any] = {}

    async def setUp(self) -> None:
        """Serve it."""
        from twisted.internet import reactor

        free = {"port": 0}
        self.gateway = createProtocolGateway(port=0, grpc=free, tcp=free, udp=free, http=self.http)
        self.gateway.configureAuthentication(
            providers={"apikey": {"validate": lambda key, context: {"name": key}}}
        )
        self.gateway.addService("Orders", {"methods": {"create": create, "watch": watch}})
        ports = await self.gateway.listen(reactor=reactor)
        self.addCleanup(self.gateway.stop, 0)
        self.url = f"http://127.0.0.1:{ports['http'].getHost().port}/api/docs"

    async def get(self, address: str) -> tuple[int, Any, bytes]:
        """Get a file: its status, fields and content."""

        def run() -> tuple[int, Any, bytes]:
            try:
                with urllib.request.urlopen(address, timeout=SECONDS) as response:
                    return response.status, response.headers, response.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.headers, error.read()

        return await deferToThread(run)


class FileTests(PageCase):
    """What it is sent with."""

    async def test_files(self) -> None:
        """Three files of its own, and a policy that lets a browser load and call nothing else."""
        for path, kind in (
            ("", "text/html; charset=utf-8"),
            ("/page.js", "text/javascript; charset=utf-8"),
            ("/page.css", "text/css; charset=utf-8"),
        ):
            status, fields, content = await self.get(self.url + path)
            self.assertEqual((status, fields["Content-Type"]), (200, kind))
            self.assertTrue(fields["Content-Security-Policy"].startswith("default-src 'none'; "))
            self.assertNotIn("unsafe", fields["Content-Security-Policy"])
            self.assertNotRegex(content, rb"https?://")
        self.assertEqual((await self.get(self.url + "/none"))[0], 404)


class OffTests(PageCase):
    """Where it is not wanted."""

    http = {"docs": False}

    async def test_off(self) -> None:
        """It is not there."""
        self.assertEqual((await self.get(self.url))[0], 404)


@needs("chromium")
class BrowserTests(PageCase):
    """What it does."""

    @long("takes a second or more")
    async def test_calls(self) -> None:
        """It lists the methods with their schemas, and calls them over HTTP and a WebSocket."""
        await deferToThread(self.drive)

    def drive(self) -> None:
        """Use it as a person would."""
        with Browser() as browser:
            browser.open(self.url)
            names = browser.wait(
                "(found => found.length && found)"
                "([...document.querySelectorAll('details')].map(each => each.id))"
            )
            self.assertEqual(names, ["Orders.create", "Orders.watch"])
            shown = browser.evaluate("document.getElementById('Orders.create').textContent")
            self.assertIn('"required": [\n    "item"\n  ]', shown)
            self.assertEqual(self.call(browser, "create", 0, {}), ["HTTP 200", RECEIPT])
            browser.evaluate("document.getElementById('token').value = 'ann'")
            [_, line] = self.call(browser, "create", 0, {"item": "tea", "count": 2})
            self.assertEqual(json.loads(line)["data"], {"total": 2, "user": "ann"})
            [line] = self.call(browser, "create", 1, {"item": "tea"})
            self.assertEqual(json.loads(line)["data"], {"total": 1, "user": "ann"})
            lines = self.call(browser, "watch", 1, {"item": "tea", "count": 2})
            items = [json.loads(each).get("data") for each in lines]
            self.assertEqual(items, [{"total": n, "user": "<b>&"} for n in range(2)] + [None])
            refused = self.call(browser, "create", 0, {"item": 1})
            self.assertEqual(refused[0], "HTTP 400")
            self.assertIn("item expected str, got int", refused[1])

    @long("takes a second or more")
    async def test_routes(self) -> None:
        """It lists the routes of an application too, and calls them."""
        from twisted.internet import reactor

        app = server.http().use(openapi(title="Shop"))

        @app.put("/orders/:id", body=Order, query=Paging, response=Receipt)
        def put(req: Any, res: Any) -> Receipt:
            """Change an order."""
            return Receipt(req.body.count + req.query.page, req.params["id"])

        @app.post("/notes", response=Basket, openapi={"consumes": ["text/plain"]})
        def note(req: Any, res: Any) -> Basket:
            """Take a note."""
            return Basket(req.get("content-type"), [], [])

        port = await app.listen(0, reactor=reactor)
        self.addCleanup(app.close, 0)
        address = f"http://127.0.0.1:{port.getHost().port}/docs"
        await deferToThread(self.driveRoutes, address)

    def driveRoutes(self, address: str) -> None:
        """Use it as a person would."""
        with Browser() as browser:
            browser.open(address)
            shown = browser.wait(
                "(each => each && each.textContent)(document.getElementById('put'))"
            )
            for text in ("PUT /orders/{id}", "Change an order.", '"required": [\n    "item"\n  ]'):
                self.assertIn(text, shown)
            self.assertTrue(browser.evaluate("document.getElementById('asyncapi').hidden"))
            for number, value in enumerate(("a/b", "2")):
                browser.evaluate(
                    f"document.querySelectorAll('#put input')[{number}].value = '{value}'"
                )
            browser.evaluate("document.querySelector('#put button').click()")
            text = browser.wait(
                "(text => /user/.test(text) && text)"
                "(document.querySelector('#put > pre').textContent)"
            )
            self.assertEqual(text.splitlines(), ["HTTP 200", '{"total":3,"user":"a/b"}'])
            last = "[...document.querySelectorAll('#note .columns pre')].pop().textContent"
            basket = json.loads(browser.evaluate(last))
            order = basket["properties"]["orders"]["items"]
            self.assertEqual(order["properties"]["item"], {"type": "string"})
            inner = basket["properties"]["baskets"]["items"]["properties"]["orders"]["items"]
            self.assertEqual(inner, order)
            browser.evaluate("document.querySelector('#note button').click()")
            text = browser.wait(
                "(text => /kind/.test(text) && text)"
                "(document.querySelector('#note > pre').textContent)"
            )
            self.assertIn('"kind":"text/plain"', text)

    def call(self, browser: Browser, method: str, button: int, request: Any) -> list[str]:
        """Type a request, press a button, and give the lines that come; C{} leaves the example."""
        view = f"document.getElementById('Orders.{method}')"
        if request:
            text = json.dumps(json.dumps(request))
            browser.evaluate(f"{view}.querySelector('textarea').value = {text}")
        browser.evaluate(f"{view}.querySelector(':scope > pre').textContent = ''")
        browser.evaluate(f"{view}.querySelectorAll('button')[{button}].click()")
        ends = "stream_end" if method == "watch" else "total|VALIDATION_ERROR"
        found: str = browser.wait(
            f"(text => /{ends}/.test(text) && text)"
            f"({view}.querySelector(':scope > pre').textContent)"
        )
        return found.splitlines()


RECEIPT = '{"data":{"total":1,"user":"nobody"}}'
