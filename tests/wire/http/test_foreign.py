"""Stock Twisted resources on our channel, over real sockets."""

import os
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.web.iweb import IRequest
from twisted.web.pages import notFound
from twisted.web.proxy import ReverseProxyResource
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from twisted.web.static import Data, File
from twisted.web.util import DeferredResource, Redirect
from twisted.web.wsgi import WSGIResource
from zope.interface.verify import verifyObject

from storagegate.net.http.message import ChannelRequest
from storagegate.net.http.site import CoroutineResource
from tests.net.support import Boom, describeError, statuses
from tests.wire.http.support import Rendering, ServedCase, get, post


class TreeTests(ServedCase):
    """Resources of all kinds under one root."""

    def setUp(self) -> None:
        """Make a root."""
        super().setUp()
        self.root = Resource()

    async def ask(self, *requests: bytes, **limits: Any) -> bytes:
        """Send requests on one connection that closes at the end, and return what comes back."""
        port = await self.serve(self.root, **limits)
        client = await self.connect(port)
        *firsts, last = requests
        for number, request in enumerate(firsts):
            client.write(request)
            await client.until(lambda got, wanted=number + 1: len(statuses(got)) >= wanted)
        client.write(last.replace(b"Host: x\r\n", b"Host: x\r\nConnection: close\r\n"))
        return await client.closed

    async def test_data(self) -> None:
        """A resource that returns bytes answers with its length and type; HEAD has no body."""
        self.root.putChild(b"a", Data(b"hello", "text/plain"))
        received = await self.ask(get(b"/a"), get(b"/a", method=b"HEAD"))
        first, second = received.split(b"HTTP/1.1 200 OK")[1:]
        for part in (first, second):
            self.assertIn(b"\r\nContent-Type: text/plain\r\n", part)
            self.assertIn(b"\r\nContent-Length: 5\r\n", part)
        self.assertTrue(first.endswith(b"\r\n\r\nhello"))
        self.assertTrue(second.endswith(b"\r\n\r\n"))

    async def test_traversal(self) -> None:
        """Segments are unquoted one by one, and the rest is the leaf's."""

        def show(request: Any) -> bytes:
            return repr((request.prepath, request.postpath, request.uri)).encode("ascii")

        self.root.putChild(b"a b", Rendering(show))
        received = await self.ask(get(b"/a%20b/c%2Fd/?e"))
        self.assertIn(b"([b'a b'], [b'c/d', b''], b'/a%20b/c%2Fd/?e')", received)

    async def test_notFound(self) -> None:
        """What is not there is 404, as the stock pages say it."""
        self.root.putChild(b"gone", notFound())
        self.assertEqual(statuses(await self.ask(get(b"/nope"), get(b"/gone"))), [404, 404])

    async def test_notAllowed(self) -> None:
        """A method that a resource does not know is 405 with C{Allow}."""
        self.root.putChild(b"a", Data(b"", "text/plain"))
        received = await self.ask(post(b"/a", b""))
        self.assertEqual(statuses(received), [405])
        self.assertIn(b"\r\nAllow: HEAD, GET\r\n", received)

    async def test_file(self) -> None:
        """C{static.File} serves files, ranges, revalidations and directories."""
        directory = self.mktemp()
        os.makedirs(directory)
        content = b"0123456789" * 100_000
        with open(os.path.join(directory, "f.txt"), "wb") as file:
            file.write(content)
        self.root.putChild(b"d", File(directory))
        received = await self.ask(get(b"/d/f.txt"))
        self.assertEqual(received.partition(b"\r\n\r\n")[2], content)
        date = received.partition(b"Last-Modified: ")[2].partition(b"\r\n")[0]
        received = await self.ask(
            get(b"/d/f.txt", b"Range: bytes=5-14"),
            get(b"/d/f.txt", b"If-Modified-Since: " + date),
            get(b"/d/f.txt", method=b"HEAD"),
            get(b"/d/../../x"),
            get(b"/d"),
        )
        self.assertEqual(statuses(received), [206, 304, 200, 404, 302])
        self.assertIn(b"\r\n\r\n5678901234HTTP/1.1 304", received)
        self.assertIn(b"Content-Range: bytes 5-14/1000000\r\n", received)

    async def test_slowFile(self) -> None:
        """A client that reads in its own time gets the whole file, which is not held in memory."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(b"x" * 20_000_000)
        self.root.putChild(b"f", File(path))
        port = await self.serve(self.root)
        client = await self.connect(port)
        client.pause()
        client.write(get(b"/f", b"Connection: close"))
        channel = await self.channelOf(port)
        await self.turnUntil(lambda: channel.isPaused)
        transport: Any = channel.transport
        self.assertLess(len(transport.dataBuffer) + transport._tempDataLen, 1 << 20)
        client.resume()
        self.assertEqual(len((await client.closed).partition(b"\r\n\r\n")[2]), 20_000_000)

    async def test_fileToNobody(self) -> None:
        """A file whose client goes away is not read any further, and nothing is logged."""
        path = self.mktemp()
        with open(path, "wb") as file:
            file.write(b"x" * 20_000_000)
        self.root.putChild(b"f", File(path))
        client = await self.connect(await self.serve(self.root))
        client.write(get(b"/f"))
        await client.until(lambda received: len(received) > 100_000)
        client.drop()
        await self.turnUntil(lambda: not self.sites[0]._channels)

    async def test_form(self) -> None:
        """Arguments come from the query and the form, cookies and headers from the head."""

        def show(request: Any) -> bytes:
            found = (
                request.args[b"a"],
                request.getCookie(b"k"),
                request.getHeader(b"x-one"),
                request.content.read(),
                request.getClientAddress().host,
                request.isSecure(),
                request.getRequestHostname(),
                request.clientproto,
            )
            return repr(found).encode("ascii")

        self.root.putChild(b"f", Rendering(show))
        form = b"Content-Type: application/x-www-form-urlencoded"
        received = await self.ask(post(b"/f?a=1", b"a=2", form, b"Cookie: k=v", b"X-One: 1"))
        self.assertIn(
            b"([b'2'], b'v', b'1', b'a=2', '127.0.0.1', False, b'x', b'HTTP/1.1')", received
        )

    async def test_badForm(self) -> None:
        """A multipart form that cannot be read is 400, and closes."""
        self.root.putChild(b"f", Rendering(lambda request: b"reached"))
        form = b"Content-Type: multipart/form-data; boundary=\xff"
        received = await self.ask(post(b"/f", b"x", form))
        self.assertEqual(statuses(received), [400])

    async def test_lateBody(self) -> None:
        """A body that comes in pieces is whole when the resource sees it."""
        self.root.putChild(b"f", Rendering(lambda request: request.content.read()[::-1]))
        client = await self.connect(await self.serve(self.root))
        wire = post(b"/f", b"abcdefgh", b"Expect: 100-continue")
        client.write(wire[:-8])
        await client.until(b"100 Continue")
        await self.sendSlowly(client, [wire[-8:-4], wire[-4:]])
        await client.until(b"hgfedcba")

    async def test_tooLarge(self) -> None:
        """A body over the limit is 413; one that says so is refused before it is read."""
        self.root.putChild(b"f", Rendering(lambda request: b"reached"))
        chunked = get(b"/f", b"Transfer-Encoding: chunked", method=b"POST")
        for request in (
            get(b"/f", b"Content-Length: 11", b"Expect: 100-continue", method=b"POST"),
            post(b"/f", b"x" * 11),
            chunked + b"b\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n",
        ):
            self.assertEqual(statuses(await self.ask(request, webBodySize=10)), [413])

    async def test_response(self) -> None:
        """What a resource sets on its response goes out: code, phrase, headers, cookies, tags."""

        def render(request: Any) -> bytes:
            request.setResponseCode(299, b"Almost")
            request.setHeader(b"X-One", b"1")
            request.addCookie(b"k", b"v", path=b"/")
            request.setETag(b'"e"')
            request.setLastModified(0)
            return b"body"

        self.root.putChild(b"f", Rendering(render))
        received = await self.ask(get(b"/f"))
        for part in (
            b"HTTP/1.1 299 Almost\r\n",
            b"\r\nX-One: 1\r\n",
            b"\r\nSet-Cookie: k=v; Path=/\r\n",
            b'\r\nETag: "e"\r\n',
            b"\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
            b"\r\n\r\nbody",
        ):
            self.assertIn(part, received)

    async def test_redirect(self) -> None:
        """Redirections and the URLs of requests work."""
        self.root.putChild(b"r", Redirect(b"/elsewhere"))
        self.root.putChild(b"u", Rendering(lambda request: request.prePathURL()))
        port = await self.serve(self.root)
        address: Any = port.getHost()
        client = await self.connect(port)
        client.write(get(b"/r") + get(b"/u/x", b"Connection: close"))
        received = await client.closed
        self.assertEqual(statuses(received), [302, 200])
        self.assertIn(b"\r\nLocation: /elsewhere\r\n", received)
        self.assertTrue(received.endswith(b"http://x:%d/u" % address.port))

    async def test_session(self) -> None:
        """A session is found again by its cookie."""

        def count(request: Any) -> bytes:
            session = request.getSession()
            if not hasattr(session, "visits"):
                self.addCleanup(session.expire)
                session.visits = 0
            session.visits += 1
            return b"visits=%d" % session.visits

        self.root.putChild(b"s", Rendering(count))
        port = await self.serve(self.root)
        client = await self.connect(port)
        client.write(get(b"/s"))
        received = await client.until(b"visits=1")
        cookie = received.partition(b"Set-Cookie: ")[2].partition(b";")[0]
        client.write(get(b"/s", b"Cookie: " + cookie))
        await client.until(b"visits=2")

    async def test_later(self) -> None:
        """A resource may answer later, in parts of unknown length."""

        def render(request: Any) -> int:
            def more() -> None:
                request.write(b"two")
                request.finish()

            finished = request.notifyFinish()
            finished.addCallback(done.append)
            request.write(b"one")
            self.reactor.callLater(0.001, more)
            return NOT_DONE_YET

        done: list[Any] = []
        self.root.putChild(b"l", Rendering(render))
        received = await self.ask(get(b"/l"))
        self.assertTrue(received.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"))
        self.assertEqual(received.count(b"Transfer-Encoding: chunked"), 1)
        self.assertEqual(done, [None])

    async def test_lost(self) -> None:
        """A resource that asked hears that its client has gone."""
        lost: Deferred[Any] = Deferred()

        def render(request: Any) -> int:
            request.notifyFinish().addErrback(lambda reason: lost.callback(None))
            request.write(b"one")
            return NOT_DONE_YET

        self.root.putChild(b"l", Rendering(render))
        client = await self.connect(await self.serve(self.root))
        client.write(get(b"/l"))
        await client.until(b"one")
        client.drop()
        await lost

    async def test_deferred(self) -> None:
        """A resource that comes later renders when it comes; ours too, with the body."""
        self.root.putChild(b"d", DeferredResource(succeed(Data(b"hello", "text/plain"))))
        self.root.putChild(b"c", DeferredResource(succeed(self.ours())))
        received = await self.ask(get(b"/d"), post(b"/c", b"body"))
        self.assertEqual(statuses(received), [200, 200])
        self.assertIn(b"\r\n\r\nhello", received)
        self.assertTrue(received.endswith(b"ours: /c body"))

    async def test_ours(self) -> None:
        """One of ours in a stock tree gets its raw request, and its body as it comes."""
        self.root.putChild(b"c", self.ours())
        client = await self.connect(await self.serve(self.root))
        wire = post(b"/c", b"body", b"Expect: 100-continue")
        client.write(wire[:-4])
        await client.until(b"100 Continue")
        client.write(wire[-4:])
        await client.until(b"ours: /c body")

    def ours(self) -> CoroutineResource:
        """Make a resource of ours."""

        async def handle(request: ChannelRequest) -> None:
            body = await request.body.read(100)
            # What is not raw is there too.
            verifyObject(IRequest, request)
            request.respond(200, [], b"ours: %b %b" % (request.path, body))

        return CoroutineResource(handle, describeError)

    async def test_broken(self) -> None:
        """A resource that raises is 500 and a log entry; in mid-response it is dropped."""

        def late(request: Any) -> None:
            request.write(b"one")
            raise Boom()

        def early(request: Any) -> None:
            raise Boom()

        self.root.putChild(b"e", Rendering(early))
        self.root.putChild(b"l", Rendering(late))
        received = await self.ask(get(b"/e"))
        self.assertEqual(statuses(received), [500])
        self.assertNotIn(b"Boom", received)
        received = await self.ask(get(b"/l"))
        self.assertFalse(received.endswith(b"0\r\n\r\n"))
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 2)

    async def test_brokenTree(self) -> None:
        """So is one that raises while it looks for a child."""

        class Broken(Resource):
            def getChild(self, path: bytes, request: Any) -> Any:
                raise Boom()

        self.root.putChild(b"b", Broken())
        self.assertEqual(statuses(await self.ask(get(b"/b/c"))), [500])
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)

    async def test_star(self) -> None:
        """C{OPTIONS *} is answered for the server as a whole."""
        self.assertEqual(statuses(await self.ask(get(b"*", method=b"OPTIONS"))), [200])

    async def test_wsgi(self) -> None:
        """A WSGI application in a thread gets its environment and body, and answers."""

        def application(environ: Any, startResponse: Any) -> list[bytes]:
            startResponse("201 Made", [("X-Path", environ["PATH_INFO"])])
            return [environ["wsgi.input"].read(), b" ", environ["QUERY_STRING"].encode("ascii")]

        self.root.putChild(
            b"w", WSGIResource(self.reactor, self.reactor.getThreadPool(), application)
        )
        received = await self.ask(post(b"/w/x%20y?q", b"body"))
        self.assertIn(b"HTTP/1.1 201 Made\r\n", received)
        self.assertIn(b"\r\nX-Path: /x y\r\n", received)
        self.assertIn(b"body q", received.replace(b"\r\n2\r\n", b"").replace(b"\r\n1\r\n", b""))

    async def test_proxy(self) -> None:
        """A reverse proxy passes requests on, and answers back."""
        self.root.putChild(b"data", Data(b"hello", "text/plain"))
        address: Any = (await self.serve(self.root)).getHost()
        proxy = Resource()
        proxy.putChild(b"p", ReverseProxyResource("127.0.0.1", address.port, b"", self.reactor))
        port = await self.serve(proxy)
        client = await self.connect(port)
        client.write(get(b"/p/data"))
        await client.until(b"hello")

    async def channelOf(self, port: Any) -> Any:
        """Wait for the only connection of the only site."""
        await self.turnUntil(lambda: bool(self.sites[0]._channels))
        return next(iter(self.sites[0]._channels))
