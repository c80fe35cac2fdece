"""Where applications listen, and how they stop."""

import os
import socket
from typing import Any

from twisted.internet.defer import gatherResults
from twisted.internet.error import CannotListenError

from storagegate import server
from tests.net.support import statuses
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.support import get


class ClosingTests(AppServedCase):
    """An application that closes while clients ask."""

    def setUp(self) -> None:
        """Answer."""
        super().setUp()
        self.app.get("/*", self.answer)

    def hasHalf(self) -> bool:
        """Say whether half a head has come."""
        sites = [site for _, site in self.app._serving]
        return any(channel._headSeen for site in sites for channel in site._channels)

    async def test_sent(self) -> None:
        """Whoever has sent a request before is answered, also those not yet accepted."""
        port = await self.listen()
        address: Any = port.getHost()
        idle = await self.connect(port)
        idle.write(get(b"/before"))
        await idle.until(b"served")
        idle.write(get(b"/kept"))
        waiting = [socket.create_connection((address.host, address.port)) for _ in range(150)]
        for each in waiting:
            self.addCleanup(each.close)
            each.sendall(get(b"/new"))
        closed = self.app.close(self.timeout * 1000)
        received = await idle.closed
        self.assertEqual(statuses(received), [200, 200])
        self.assertIn(b"Connection: close", received)
        await closed
        for each in waiting:
            answer = each.recv(10_000)
            self.assertEqual(statuses(answer), [200])
            self.assertIn(b"Connection: close", answer)
        self.assertRaises(
            ConnectionRefusedError, socket.create_connection, (address.host, address.port)
        )

    async def test_half(self) -> None:
        """Who has sent half a request may send the rest; who is idle is closed at once."""
        port = await self.listen()
        half, idle = await self.connect(port), await self.connect(port)
        half.write(get(b"/half")[:-2])
        await self.turnUntil(self.hasHalf)
        closed = self.app.close(self.timeout * 1000)
        self.assertEqual(await idle.closed, b"")
        half.write(b"\r\n")
        self.assertEqual(statuses(await half.closed), [200])
        await closed

    async def test_stubborn(self) -> None:
        """Who never ends is dropped when the grace is over, and half a head keeps nobody."""
        port = await self.listen()
        half = await self.connect(port)
        half.write(b"GET / HT")
        await self.turnUntil(self.hasHalf)
        await self.app.close(50)
        self.assertEqual(await half.closed, b"")

    async def test_again(self) -> None:
        """A closed application can listen again, on the same port."""
        port = await self.listen()
        number = port.getHost().port  # type: ignore[attr-defined]
        await self.app.close()
        again = await self.app.listen(number)
        received = await self.exchange(again, get(b"/", b"Connection: close"))
        self.assertEqual(statuses(received), [200])


class ListeningTests(AppServedCase):
    """Several listeners."""

    async def test_taken(self) -> None:
        """A port that is taken is an error that names it."""
        port = await self.listen()
        number = port.getHost().port  # type: ignore[attr-defined]
        error = await self.assertFailure(server.http().listen(number), CannotListenError)
        self.assertIn(str(number), str(error))

    async def test_twice(self) -> None:
        """An application may listen on TCP and on a UNIX socket; closing it closes both."""
        self.app.use(lambda req, res: res.send(f"from {req.ip or 'nowhere'}"))
        path = os.path.relpath(self.mktemp())
        port = await self.listen()
        unix = await self.app.listen(f"unix:{path}")
        near = await self.connect(unix, f"unix:{path}")
        far = await self.connect(port)
        for client in (near, far):
            client.write(get(b"/"))
        await gatherResults([near.until(b"from nowhere"), far.until(b"from 127.0.0.1")])
        await self.app.close()
        await gatherResults([near.closed, far.closed])
        self.assertFalse(os.path.exists(path))

    async def test_twoApplications(self) -> None:
        """Two applications in a process know nothing of one another, also when one closes."""
        other = server.http()
        other.use(lambda req, res: res.send("other"))
        self.app.use(lambda req, res: res.send("this"))
        await self.listen()
        second = await other.listen(0)
        self.addCleanup(other.close, 0)
        await self.app.close()
        client = await self.connect(second)
        client.write(get(b"/"))
        await client.until(b"other")
