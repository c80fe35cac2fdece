"""The corpus over HTTP/2, against real listeners."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http.message import ChannelRequest
from tests.support.selection import long
from tests.wire.http.appcase import AppServedCase
from tests.wire.http.corpus import CORPUS
from tests.wire.http.h2corpus import (
    CLOSED,
    DATA,
    END,
    FORMS,
    H2_CORPUS,
    NO_ERROR,
    REASONS,
    H2Case,
    frame,
)
from tests.wire.http.h2replaying import HELLO, Reading, answered, isUnended, read, request
from tests.wire.http.replaying import SMUGGLED, Cut, byByte
from tests.wire.http.support import RawClient, ServedCase
from tests.wire.s3.fixture import makeDaemon, ownDirectory

_GOOD = request(b"/second", 3)


class FormTests(SynchronousTestCase):
    """What the cases of HTTP/1.1 become."""

    def test_complete(self) -> None:
        """Each case of HTTP/1.1 has forms over HTTP/2, or a known reason to have none."""
        self.assertEqual(list(FORMS), [case.name for case in CORPUS])
        for name, forms in FORMS.items():
            self.assertTrue(forms in REASONS if isinstance(forms, str) else forms, name)

    def test_distinct(self) -> None:
        """No case stands twice."""
        self.assertEqual(len({case.name for case in H2_CORPUS}), len(H2_CORPUS))
        self.assertEqual(len({case.form.wire for case in H2_CORPUS}), len(H2_CORPUS))


class Replaying(ServedCase):
    """Replays the corpus. A subclass serves C{GET /second} only."""

    goodStatus = 200

    async def replayAll(
        self, port: Any, cut: Cut, behind: bytes = b"", description: str = ""
    ) -> None:
        """
        Send each case on a connection of its own, and a good request behind it.

        @param cut: Gives the pieces in which a case is sent.
        @param behind: Further frames of the case's stream.
        @param description: The endpoint of a listener of another process, in place of the port.
        """
        wrong: list[str] = []
        for case in H2_CORPUS:
            client = await self.connect(port, description)
            client.write(HELLO)
            await self.sendSlowly(client, cut(case.form.wire + behind))
            problem = await self.judge(client, case)
            if problem:
                wrong.append(f"{case.name}: {problem}")
            client.drop()
            await client.closed
        self.assertEqual(wrong, [])

    async def judge(self, client: RawClient, case: H2Case) -> object:
        """Return what is not as it should be."""
        outcome = case.form.outcome
        client.write(_GOOD)
        if outcome.kind == "goaway":
            reading = read(await client.closed)
            return (reading.goAways != [outcome.code] or reading.streams) and reading
        reading = await answered(client, 1, 3)
        first, second = reading.stream(1), reading.stream(3)
        # The rest of a request that has its response is refused, and changes nothing.
        rest = first.resets if outcome.kind == "status" else first.resets[1:]
        isRight = (
            first.outcome() == outcome
            and rest in ([], [NO_ERROR], [CLOSED])
            and (outcome.kind != "status" or self.isRefusal(reading, outcome.code))
            and second.outcome() is not None
            and second.heads[0][":status"] == str(self.goodStatus)
            and not reading.goAways
            and not client.closed.called
        )
        return None if isRight else reading

    def isRefusal(self, reading: Reading, code: int) -> bool:
        """Say whether the answer is whole."""
        first = reading.stream(1)
        head = first.heads[0]
        return (
            head["content-length"] == str(len(first.body))
            and ("allow" in head) == (code == 405)
            and not {"connection", "transfer-encoding", "keep-alive"} & set(head)
        )


class ListenerTests(Replaying):
    """A listener with a handler."""

    async def replay(self, cut: Cut, behind: bytes = b"") -> None:
        """Serve all that arrives, which is only what is good."""
        served: list[bytes] = []

        async def handle(request: ChannelRequest) -> None:
            await request.body.read(1 << 20)
            served.append(request.uri)
            request.respond(200, [], b"served")

        await self.replayAll(await self.serve(handle), cut, behind)
        good = [case for case in H2_CORPUS if case.form.outcome.kind != "goaway"]
        self.assertEqual(served, [b"/second"] * len(good))
        # And nothing in the log: trial fails a test that has logged an error.

    async def test_whole(self) -> None:
        """Each has its outcome when it comes in one piece."""
        await self.replay(lambda wire: [wire])

    async def test_byByte(self) -> None:
        """Each has its outcome when it comes byte by byte."""
        await self.replay(byByte)

    async def test_trailing(self) -> None:
        """Each has its outcome with a request of HTTP/1.1 in DATA behind it, which is not read."""
        await self.replay(lambda wire: [wire], frame(DATA, END, 1, SMUGGLED))


class ApplicationTests(AppServedCase, Replaying):
    """An application."""

    async def test_whole(self) -> None:
        """Each is refused in the application's shape, and reaches no handler."""
        self.app.use(self.answer)
        await self.replayAll(await self.listen(), lambda wire: [wire])
        self.assertEqual(set(self.served), {("GET", "/second")})

    def isRefusal(self, reading: Any, codes: Any) -> bool:
        """Say whether the answer is JSON that says why."""
        first = reading.stream(1)
        shape = json.loads(first.body)
        return (
            Replaying.isRefusal(self, reading, codes)
            and first.heads[0]["content-type"] == "application/json; charset=utf-8"
            and set(shape) == {"error"}
            and 0 < len(shape["error"]) < 100
        )


@long("starts a daemon")
class S3Tests(Replaying):
    """The S3 listener of a daemon."""

    # Its bucket does not exist.
    goodStatus = 404
    timeout = 20

    async def test_heads(self) -> None:
        """Each has the same outcome, as far as its head decides, and none leaves a traceback."""
        daemon = makeDaemon(ownDirectory("h2corpus") / "data")
        daemon.start()
        self.addCleanup(daemon.kill)
        host, port = daemon.address("s3")
        await self.replayAll(None, lambda wire: [wire], b"", f"tcp:{host}:{port}")
        self.assertNotIn("Traceback", daemon.log)

    async def judge(self, client: RawClient, case: H2Case) -> object:
        """Accept that a request without a signature is refused before its body is looked at."""
        problem = await super().judge(client, case)
        if not (isinstance(problem, Reading) and isUnended(case.form.wire)):
            return problem
        heads, good = problem.stream(1).heads, problem.stream(3).heads
        isRefused = [head[":status"] for head in heads] == ["403"]
        outcome = case.form.outcome
        if outcome.kind == "goaway":
            return None if isRefused and problem.goAways == [outcome.code] else problem
        isGood = [head[":status"] for head in good] == [str(self.goodStatus)]
        return None if isRefused and isGood and not problem.goAways else problem
