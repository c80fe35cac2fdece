"""S3 requests are gone when they have ended, without a garbage collector."""

import socket
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from hashlib import md5
from threading import Event
from typing import Any

from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tests.support.clients import ROOT
from tests.support.garbage import findCycles, withoutCollector
from tests.support.s3signer import Outgoing, wireBytes
from tests.support.selection import long
from tests.wire.s3.test_observing import ObservingCase

BODIES = (b"x" * 1000, b"x" * 3_000_000)
"""One that stands in the catalog, and one that is a file."""


class LifetimeTests(ObservingCase):
    """No request and no body is part of a reference cycle when it has ended."""

    async def assertFreed(self, act: Callable[[], Any]) -> None:
        """Do something twice: the first time makes caches."""
        await act()
        await deferLater(self.reactor, 0.05)
        with withoutCollector(self):
            await act()
            self.resource.observers.flush()
            await deferLater(self.reactor, 0.05)
            cycles = findCycles()
        self.assertEqual(cycles, [])

    async def asked(
        self, status: int, method: str, target: str, body: bytes = b"", **fields: str
    ) -> None:
        """Send a request, and see its status."""
        headers = {**ROOT.plainHeaders(), **{k.replace("_", "-"): v for k, v in fields.items()}}

        async def act() -> None:
            answer = await self.ask(method, target, body, headers)
            self.assertEqual(answer.status, status, answer.body)

        await self.assertFreed(act)

    @long("takes seconds")
    async def test_success(self) -> None:
        """After requests that succeed."""
        await self.ask("PUT", "/bkt")
        for body in BODIES:
            await self.asked(200, "PUT", "/bkt/k", body)
            await self.asked(200, "GET", "/bkt/k")
            await self.asked(206, "GET", "/bkt/k", range="bytes=1-")
            await self.asked(200, "HEAD", "/bkt/k")
            await self.asked(200, "PUT", "/bkt/copy", x_amz_copy_source="/bkt/k")
        await self.asked(200, "GET", "/bkt?list-type=2")
        await self.asked(200, "POST", "/bkt/k?uploads")
        document = b"<Delete><Object><Key>z</Key></Object></Delete>"
        await self.asked(200, "POST", "/bkt?delete", document, content_md5=_md5(document))

    @long("takes seconds")
    async def test_refused(self) -> None:
        """After errors."""
        await self.ask("PUT", "/bkt")
        await self.asked(404, "GET", "/bkt/none")
        await self.asked(404, "PUT", "/none/k", BODIES[1])
        for body in BODIES:
            await self.asked(400, "PUT", "/bkt/k", body, Authorization="AWS x:y")
            await self.asked(400, "PUT", "/bkt/k", body, content_md5="AAAAAAAAAAAAAAAAAAAAAA==")
            await self.asked(400, "PUT", "/bkt/k", body, x_amz_checksum_crc32="AAAAAA==")
        await self.asked(400, "POST", "/bkt?delete", b"<Delete", content_md5=_md5(b"<Delete"))

    @long("takes seconds")
    async def test_aborted(self) -> None:
        """After clients that hang up in mid-body, and in the middle of a response."""
        await self.ask("PUT", "/bkt")
        await self.ask("PUT", "/bkt/k", BODIES[1] * 8)

        def hangUp(method: str, body: bytes) -> None:
            signed = Outgoing(method, "/bkt/k", ROOT.plainHeaders(), body)
            wire = wireBytes(signed, "127.0.0.1")
            with socket.create_connection(self.address) as connection:
                connection.sendall(wire[: len(wire) - len(body) // 2])
                if method == "GET":
                    connection.recv(1000)
                else:
                    begun.wait()

        async def act(method: str, body: bytes) -> None:
            hanging = deferToThread(hangUp, method, body)
            while method == "PUT" and not self.site.requests:
                await deferLater(self.reactor, 0.001)
            begun.set()
            await hanging
            while self.site.requests:
                await deferLater(self.reactor, 0.001)
            begun.clear()

        begun = Event()
        for body in BODIES:
            await self.assertFreed(partial(act, "PUT", body))
        await self.assertFreed(partial(act, "GET", b""))


def _md5(document: bytes) -> str:
    return b64encode(md5(document).digest()).decode("ascii")
