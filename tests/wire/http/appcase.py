"""An application on a real listener."""

import json
from typing import Any

from twisted.internet.interfaces import IListeningPort

from storagegate import server
from tests.net.support import statuses
from tests.wire.http.support import RawClient, ServedCase, get


class AppServedCase(ServedCase):
    """
    A test with an application on a real listener.

    @ivar served: The method and path of every request that a handler has seen the end of.
    """

    def setUp(self) -> None:
        """Make an application that answers everything, also what it should never see."""
        super().setUp()
        self.served: list[tuple[str, str]] = []
        self.app = server.http()

    async def answer(self, req: Any, res: Any) -> None:
        """Read the body and answer."""
        await req.read()
        self.served.append((req.method, req.originalUrl))
        res.send("served")

    async def listen(self, **options: Any) -> IListeningPort:
        """Serve the application, with some options; see C{serve} for what it does without them."""
        self.app.withOptions(**{"keepAliveTimeout": self.timeout * 1000, **options})
        port = await self.app.listen(0, reactor=self.reactor)
        self.addCleanup(self.app.close, 0)
        return port

    async def assertUnharmed(self, client: RawClient, path: bytes = b"/second") -> None:
        """Check that a client that was there before is answered, on its connection."""
        before = len(client.received)
        client.write(get(path))
        await client.until(lambda received: received.endswith(b"served") and len(received) > before)
        self.assertEqual(statuses(client.received[before:]), [200])
        self.assertEqual(self.served.pop(), ("GET", path.decode("ascii")))

    def isRefusal(self, received: bytes, codes: tuple[int, ...]) -> bool:
        """Say whether this is exactly one refusal, whole, and as JSON that says why."""
        head, _, body = received.partition(b"\r\n\r\n")
        if len(statuses(received)) != 1 or statuses(received)[0] not in codes:
            return False
        fields = head.lower()
        shape = json.loads(body)
        return (
            b"\r\nconnection: close" in fields
            and b"\r\ncontent-length: %d" % len(body) in fields
            and b"\r\ncontent-type: application/json; charset=utf-8" in fields
            and set(shape) == {"error"}
            and isinstance(shape["error"], str)
            and 0 < len(shape["error"]) < 100
            and (b"\r\nallow: " in fields) == (statuses(received) == [405])
        )
