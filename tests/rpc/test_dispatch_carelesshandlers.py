"""Handlers, middleware and errors as careless authors write them, on a wire in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred

from storagegate.core.errors import GrpcError, ServiceError
from storagegate.rpc.call import Call
from tests.support.rpccallcase import Boom, CallCase

CANCELLED, NOT_FOUND, INTERNAL = 1, 5, 13


def escapes() -> list[BaseException]:
    """Make what would end a process, a loop or a generator, if it got out of a call."""
    return [
        SystemExit(3),
        GeneratorExit(),
        KeyboardInterrupt(),
        StopIteration(5),
        StopAsyncIteration(),
        MemoryError(),
        RecursionError(),
        BaseExceptionGroup("several", [SystemExit()]),
    ]


def raising(error: BaseException) -> list[tuple[str, Callable[[Call], Any]]]:
    """Make handlers of all forms that raise, each with how it streams."""

    def plain(call: Call) -> Any:
        raise error

    async def coroutine(call: Call) -> Any:
        raise error

    def generator(call: Call) -> Iterator[str]:
        yield "first"
        raise error

    async def asyncGenerator(call: Call) -> AsyncIterator[str]:
        yield "first"
        raise error

    return [
        ("none", plain),
        ("none", coroutine),
        ("server", plain),
        ("server", coroutine),
        ("server", generator),
        ("server", asyncGenerator),
    ]


class Unspeakable:
    """What cannot be made text."""

    def __str__(self) -> str:
        raise Boom


class NamelessError(Exception):
    """An error whose own properties fail."""

    @property
    def name(self) -> str:
        """Fail."""
        raise Boom


class RaiseTests(CallCase):
    """What handlers raise."""

    def test_escapes(self) -> None:
        """Exceptions that would end the process end only their call."""
        for error in escapes():
            for streaming, handler in raising(error):
                self.begin(handler, b"", None, streaming=streaming)
                self.assertStatus(INTERNAL, "Internal error")
                self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_asyncioCancelled(self) -> None:
        """The CancelledError of asyncio is one, though no Exception."""
        for streaming, handler in raising(asyncio.CancelledError()):
            self.begin(handler, b"", None, streaming=streaming)
            self.assertStatus(CANCELLED, "The call was cancelled")

    def test_untellable(self) -> None:
        """An error that cannot be told ends its call all the same."""
        for error in (
            NamelessError(),
            GrpcError(NOT_FOUND, Unspeakable()),  # type: ignore[arg-type]
            ServiceError("A", Unspeakable()),  # type: ignore[arg-type]
            ServiceError("A", "of a status", []),  # type: ignore[arg-type]
        ):
            self.begin(raising(error)[0][1], b"")
            self.assertStatus(INTERNAL, "Internal error")
            self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_recursiveDetails(self) -> None:
        """Details that hold themselves stay behind; the error does not."""
        mapping: dict[str, Any] = {}
        mapping["self"] = mapping
        items: list[Any] = []
        items.append(items)
        for details in (mapping, items, {"deep": [mapping]}):
            self.begin(raising(GrpcError(NOT_FOUND, "gone", details))[0][1], b"")
            self.assertStatus(NOT_FOUND, "gone")


class OddIterable:
    """Iterables that do not keep their promise, by what fails."""

    def __init__(self, fails: str) -> None:
        self._fails = fails

    def __aiter__(self) -> Any:
        return 5 if self._fails == "aiter" else self

    def __anext__(self) -> Any:
        if self._fails == "anext":
            return 5
        raise StopAsyncIteration

    def aclose(self) -> Any:
        """Close, or not."""
        if self._fails == "close":
            raise Boom
        return 5


class OddAwaitable:
    """Something to wait for that waits for nothing there is."""

    def __await__(self) -> Iterator[int]:
        yield 5


class ResultTests(CallCase):
    """What handlers give."""

    def test_wrong(self) -> None:
        """A result of any wrong kind is INTERNAL, for one response and for a stream of them."""
        recursive: dict[str, Any] = {}
        recursive["self"] = recursive
        for result in (
            None,
            5,
            b"bytes",
            object(),
            {},
            recursive,
            Boom(),
            Boom,
            [5],
            OddAwaitable(),
            OddIterable("aiter"),
            OddIterable("anext"),
            OddIterable("close"),
            OddIterable(""),
        ):
            for streaming in ("none", "server"):
                self.begin(lambda call, result=result: result, b"", None, streaming=streaming)
                self.assertStatus(INTERNAL, "Internal error")
                self.assertEqual(len(self.flushLoggedErrors()), 1)

    def test_closeFails(self) -> None:
        """A generator that fails when it is closed is logged; its client has gone."""

        async def answer(call: Call) -> AsyncIterator[str]:
            try:
                yield "first"
                await Deferred()
            finally:
                raise Boom

        self.begin(answer, b"", streaming="server").leave()
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 1)
        self.assertEqual(self.ended, 1)

    def test_cleanupWaits(self) -> None:
        """What a generator waits for while it cleans up is not cancelled: it was told once."""
        cleaning: Deferred[None] = Deferred()
        seen: list[str] = []

        async def answer(call: Call) -> AsyncIterator[str]:
            try:
                while True:
                    yield "more"
            finally:
                await cleaning
                seen.append("clean")

        wire = self.begin(answer, streaming="server")
        wire.isStalled = True
        wire.arrive(b"")
        wire.leave()
        self.assertEqual((seen, self.ended), ([], 0))
        cleaning.callback(None)
        self.assertEqual((seen, self.ended), (["clean"], 1))


class MiddlewareTests(CallCase):
    """Middleware that does not do as it should."""

    def answer(self, call: Call) -> str:
        """Answer."""
        return "answer"

    async def stream(self, call: Call) -> AsyncIterator[str]:
        """Answer twice."""
        yield "a"
        yield "b"

    def test_neverNext(self) -> None:
        """One that neither goes on nor answers is an error, in a stream as well."""

        async def forgets(call: Call, next: Any) -> None:
            pass

        self.begin(self.answer, b"", middleware=(forgets,))
        self.assertStatus(INTERNAL, "Internal error")
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        wire = self.begin(self.stream, b"", streaming="server", middleware=(forgets,))
        self.assertStatus(INTERNAL, "Internal error")
        self.assertEqual(wire.messages, [])
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), 1)

    def test_replaceStream(self) -> None:
        """One that would put something in the place of a stream is told that it cannot."""

        async def replaces(call: Call, next: Any) -> list[str]:
            await next()
            return ["c"]

        wire = self.begin(self.stream, b"", streaming="server", middleware=(replaces,))
        self.assertStatus(INTERNAL, "Internal error")
        self.assertEqual(wire.messages, [b"a", b"b"])
        [failure] = self.flushLoggedErrors(TypeError)
        self.assertIn("a middleware returned a list for the stream", str(failure.value))

    def test_returnNext(self) -> None:
        """One that returns C{next()} without waiting for it goes on, as in JavaScript."""

        async def returns(call: Call, next: Any) -> Any:
            return next()

        wire = self.begin(self.answer, b"", middleware=(returns, returns))
        self.assertStatus(0)
        self.assertEqual(wire.messages, [b"answer"])
        wire = self.begin(self.stream, b"", streaming="server", middleware=(returns, returns))
        self.assertStatus(0)
        self.assertEqual(wire.messages, [b"a", b"b"])

    def test_raisesLate(self) -> None:
        """One that raises after C{next} takes the place of an answer, not of a stream's items."""

        async def raises(call: Call, next: Any) -> Any:
            await next()
            raise Boom

        wire = self.begin(self.answer, b"", middleware=(raises,))
        self.assertStatus(INTERNAL, "Internal error")
        self.assertEqual(wire.messages, [])
        wire = self.begin(self.stream, b"", streaming="server", middleware=(raises,))
        self.assertStatus(INTERNAL, "Internal error")
        self.assertEqual(wire.messages, [b"a", b"b"])
        self.assertEqual(len(self.flushLoggedErrors(Boom)), 2)
