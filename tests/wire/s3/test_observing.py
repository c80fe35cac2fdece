"""What observers of S3 are told, of requests over real sockets."""

import socket
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from attrs import Factory, define
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from storagegate.net.endpoints import listen
from storagegate.net.http.interfaces import HTTPLimits
from storagegate.net.http.site import Site
from storagegate.s3.observers import (
    BATCH_SECONDS,
    BATCH_SIZE,
    UNKNOWN,
    RequestObservers,
    S3Metrics,
    S3RequestRecord,
)
from storagegate.s3.resource import makeS3Resource
from storagegate.storage.embedded.opening import openStore
from storagegate.telemetry.metrics import MetricsRegistry
from tests.support.clients import REGION, ROOT
from tests.support.s3records import TRACE, makeRecord
from tests.support.s3signer import (
    ANSWER_SECONDS,
    Answer,
    Outgoing,
    Signer,
    exchange,
    wireBytes,
)

BIG = 32 * 1024 * 1024


@define(eq=False)
class Witness:
    """An observer that remembers."""

    over: list[S3RequestRecord] = Factory(list)

    def observe(self, records: Sequence[S3RequestRecord]) -> None:
        """Remember the end."""
        self.over.extend(records)


class Clumsy:
    """An observer that fails whenever it can."""

    def observe(self, records: Sequence[S3RequestRecord]) -> None:
        """Fail."""
        raise ZeroDivisionError


class ObservingCase(TestCase):
    """A test with a store, S3 on it, and an observer."""

    timeout = 180

    async def setUp(self) -> None:
        """Open them."""
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.store = openStore(self.mktemp(), reactor, durability="os")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        self.resource = makeS3Resource(
            self.store,
            region=REGION,
            s3Domain=None,
            rootAccessKey=ROOT.accessKey,
            rootSecretKey=ROOT.secretKey,
            reactor=self.reactor,
        )
        self.site = Site(self.resource, HTTPLimits(), self.reactor)
        port = await listen(self.reactor, "tcp:0:interface=127.0.0.1", self.site)
        self.addCleanup(self.site.drain, 0)
        self.addCleanup(port.stopListening)
        self.address = ("127.0.0.1", port.getHost().port)
        self.witness = Witness()
        self.addCleanup(self.resource.observers.stop)

    async def ask(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Make a request; as root unless headers are given."""
        fields = ROOT.plainHeaders() if headers is None else headers
        outgoing = Outgoing(method, target, fields, body)
        answer: Answer = await deferToThread(exchange, self.address, outgoing)
        self.resource.observers.flush()
        return answer

    def last(self) -> S3RequestRecord:
        """Give the last exchange."""
        return self.witness.over[-1]


class ObservingTests(ObservingCase):
    """Observers, and what they are told."""

    async def setUp(self) -> None:
        """Observe."""
        await super().setUp()
        self.resource.observers.add(self.witness)

    async def test_facts(self) -> None:
        """Each request is told by operation, status, bytes and key; the id is the answer's."""
        body = b"x" * 100_000
        for method, target, sent, operation, status, received in (
            ("PUT", "/bkt", b"", "CreateBucket", 200, 0),
            ("PUT", "/bkt/k", body, "PutObject", 200, 0),
            ("GET", "/bkt/k", b"", "GetObject", 200, 100_000),
            ("HEAD", "/bkt/k", b"", "HeadObject", 200, 0),
            ("DELETE", "/bkt/k", b"", "DeleteObject", 204, 0),
        ):
            answer = await self.ask(method, target, sent)
            found = self.last()
            self.assertEqual(answer.status, status)
            facts = (found.operation, found.status, found.bytesIn, found.bytesOut)
            self.assertEqual(facts, (operation, status, len(sent), received))
            self.assertEqual((found.accessKey, found.errorCode), (ROOT.accessKey, None))
            self.assertEqual(answer.headers["x-amz-request-id"], found.requestId.decode())
        self.assertEqual(len(self.witness.over), 5)
        self.assertGreater(min(found.seconds for found in self.witness.over), 0)

    async def test_errors(self) -> None:
        """An error tells its code and the operation that failed; its document counts as sent."""
        answer = await self.ask("GET", "/bkt/nothing")
        found = self.last()
        self.assertEqual(
            (found.operation, found.status, found.errorCode), ("GetObject", 404, "NoSuchBucket")
        )
        self.assertEqual(found.bytesOut, len(answer.body))
        self.assertEqual(answer.headers["x-amz-request-id"], found.requestId.decode())
        self.assertIn(found.requestId, answer.body)

    async def test_refused(self) -> None:
        """Who does not pass the gate is told with no key, and perhaps no operation."""
        await self.ask("GET", "/bkt/k", headers={})
        found = self.last()
        self.assertEqual((found.operation, found.accessKey), ("GetObject", None))
        self.assertEqual((found.status, found.errorCode), (404, "NoSuchBucket"))
        await self.ask("GET", "/bkt/k", headers={"authorization": "AWS4-HMAC-SHA256 broken"})
        found = self.last()
        self.assertEqual((found.operation, found.accessKey, found.status), (UNKNOWN, None, 400))
        await self.ask("PATCH", "/bkt/k", headers={})
        found = self.last()
        self.assertEqual((found.operation, found.accessKey), (UNKNOWN, None))
        self.assertEqual((found.status, found.errorCode), (403, "AccessDenied"))

    async def test_iam(self) -> None:
        """Calls to IAM are told by their operations, keys, statuses and codes, as those to S3."""
        signer = Signer(f"127.0.0.1:{self.address[1]}", service="iam")
        form = {"Content-Type": "application/x-www-form-urlencoded", "User-Agent": "<b>\\"}
        for action, operation, status, code in (
            ("CreateUser&UserName=ann", "CreateUser", 200, None),
            ("CreateUser&UserName=ANN", "CreateUser", 409, "EntityAlreadyExists"),
            ("GetUser&UserName=bob", "GetUser", 404, "NoSuchEntity"),
            ("CreateUser", "CreateUser", 400, "ValidationError"),
            ("<script>", UNKNOWN, 501, "NotImplemented"),
        ):
            body = f"Version=2010-05-08&Action={action}".encode()
            signed = signer.sign(Outgoing("POST", "/", form, body))
            answer = await deferToThread(exchange, self.address, signed)
            self.resource.observers.flush()
            found = self.last()
            self.assertEqual(
                (found.operation, found.status, found.errorCode), (operation, status, code)
            )
            self.assertEqual((answer.status, found.accessKey), (status, ROOT.accessKey))
            self.assertEqual(answer.headers["x-amz-request-id"], found.requestId.decode())
            self.assertIn(found.requestId, answer.body)
            self.assertEqual((found.bytesIn, found.bytesOut), (len(body), len(answer.body)))
            self.assertEqual(answer.headers["x-trace-id"], found.traceId.decode())

    async def test_tracing(self) -> None:
        """A caller's trace goes on, and the answer names it; without one there is a new one."""
        headers = {**ROOT.plainHeaders(), "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        for target in ("/", "/bkt/nothing"):
            answer = await self.ask("GET", target, headers=headers)
            found = self.last()
            assert found.tracing is not None
            self.assertEqual((found.traceId, found.tracing.sampled), (TRACE.encode(), True))
            self.assertEqual(answer.headers["x-trace-id"], TRACE)
        answer = await self.ask("GET", "/")
        found = self.last()
        self.assertIsNone(found.tracing)
        self.assertNotEqual(found.traceId, TRACE.encode())
        self.assertEqual(answer.headers["x-trace-id"], found.traceId.decode())

    async def test_lost(self) -> None:
        """A client that goes in the middle of an object is told as 499, with what it got."""
        await self.ask("PUT", "/bkt")
        await self.ask("PUT", "/bkt/big", bytes(BIG))
        outgoing = Outgoing("GET", "/bkt/big", ROOT.plainHeaders(), b"")

        def leave() -> None:
            with socket.create_connection(self.address) as client:
                client.sendall(wireBytes(outgoing, "localhost"))
                client.recv(1000)

        ended = len(self.witness.over)
        await deferToThread(leave)
        while len(self.witness.over) == ended:
            await deferToThread(lambda: None)
        found = self.last()
        self.assertEqual((found.operation, found.status), ("GetObject", 499))
        self.assertGreater(found.bytesOut, 0)
        self.assertLess(found.bytesOut, BIG)
        self.assertEqual(self.resource.observers.inFlight, 0)

    async def test_brokenBody(self) -> None:
        """A body that is framed wrongly ends the request with the status of its refusal."""
        await self.ask("PUT", "/bkt")
        fields = "".join(f"{name}: {value}\r\n" for name, value in ROOT.plainHeaders().items())
        head = f"PUT /bkt/k HTTP/1.1\r\nHost: x\r\n{fields}Transfer-Encoding: chunked\r\n"
        head += "x-amz-decoded-content-length: 5\r\n"
        head += "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n\r\n"

        with socket.create_connection(self.address) as client:
            client.settimeout(ANSWER_SECONDS)
            client.sendall(head.encode())
            while not self.resource.observers.inFlight:
                await deferToThread(lambda: None)
            client.sendall(b"zz\r\n")
            answer = await deferToThread(client.recv, 1000)
            self.resource.observers.flush()
        self.assertTrue(answer.startswith(b"HTTP/1.1 400"), answer)
        self.assertEqual([over.status for over in self.witness.over], [200, 400])

    async def test_failing(self) -> None:
        """An observer that fails is logged; the request and the other observers go on."""
        self.resource.observers.add(Clumsy())
        later = Witness()
        self.resource.observers.add(later)
        answer = await self.ask("PUT", "/bkt")
        self.assertEqual(answer.status, 200)
        self.assertEqual((len(self.witness.over), len(later.over)), (1, 1))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_together(self) -> None:
        """Of requests that end at one time observers are told together, of one alone soon."""
        clock = Clock()
        observation = RequestObservers(clock)
        observation.add(self.witness)
        request: Any = self.request()
        for _ in range(BATCH_SIZE + 1):
            observation.inFlight += 1
            observation.completed(makeRecord(), request)
        self.assertEqual(len(self.witness.over), BATCH_SIZE)
        clock.advance(BATCH_SECONDS)
        self.assertEqual(len(self.witness.over), BATCH_SIZE + 1)
        self.assertEqual((observation.inFlight, clock.getDelayedCalls()), (0, []))

    def test_stop(self) -> None:
        """At the end nothing waits."""
        clock = Clock()
        observation = RequestObservers(clock)
        observation.add(self.witness)
        observation.completed(makeRecord(), self.request())
        observation.stop()
        self.assertEqual((len(self.witness.over), clock.getDelayedCalls()), (1, []))

    def request(self) -> Any:
        """Make what is left of a request that has been answered."""
        body = SimpleNamespace(taken=0)
        return SimpleNamespace(
            finished=True, disconnected=False, status=200, body=body, bodySent=0, headers={}
        )


class UnobservedTests(ObservingCase):
    """Without observers."""

    async def test_nothing(self) -> None:
        """Nobody traces, and ids are made as ever."""
        first, second = await self.ask("PUT", "/bkt"), await self.ask("GET", "/bkt/nothing")
        self.assertNotIn("x-trace-id", first.headers)
        ids = {each.headers["x-amz-request-id"] for each in (first, second)}
        self.assertEqual(len(ids), 2)


class S3MetricsTests(ObservingCase):
    """The meters of S3."""

    async def test_meters(self) -> None:
        """Requests, bytes, times and errors are counted; what is made up is not a label."""
        meters = MetricsRegistry()
        self.resource.observers.add(S3Metrics(meters, self.resource.observers))
        await self.ask("PUT", "/bkt")
        await self.ask("PUT", "/bkt/k", b"12345")
        await self.ask("GET", "/bkt/k")
        await self.ask("GET", "/bkt/none")
        values = {
            family.name.removeprefix("storagegate_s3_"): dict(family.samples)
            for family in meters.snapshot()
        }
        self.assertEqual(
            values["requests_total"],
            {
                ("CreateBucket", "200"): 1,
                ("PutObject", "200"): 1,
                ("GetObject", "200"): 1,
                ("GetObject", "404"): 1,
            },
        )
        sizes = values["bytes_total"]
        self.assertEqual(sizes["PutObject", "in"], 5)
        self.assertGreater(sizes["GetObject", "out"], 5)
        self.assertEqual(values["errors_total"], {("NoSuchKey",): 1})
        self.assertEqual(values["requests_in_flight"], {(): 0})
        durations = values["request_duration_seconds"]
        counts = {labels: sum(each[:-1]) for labels, each in durations.items()}
        self.assertEqual(counts, {("CreateBucket",): 1, ("PutObject",): 1, ("GetObject",): 2})
