"""The streams that handlers make, of every kind."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from storagegate.core.schemas import ResultStream


class Plain:
    """An asynchronous stream without a method to close it."""

    def __aiter__(self) -> AsyncIterator[int]:
        return numbers([])


async def numbers(left: list[str]) -> AsyncIterator[int]:
    """Count, and take note of the end."""
    try:
        for number in range(3):
            yield number
    finally:
        left.append("closed")


def plainNumbers(left: list[str]) -> Iterator[int]:
    """Count, and take note of the end."""
    try:
        yield from range(3)
    finally:
        left.append("closed")


class ResultStreamTests(TestCase):
    """How any stream is walked through."""

    async def test_kinds(self) -> None:
        """Whatever can be iterated is a stream, now or later."""
        kinds: list[Any] = [numbers([]), Plain(), plainNumbers([]), [0, 1, 2], range(3), {0, 1, 2}]
        for kind in kinds:
            async with ResultStream(kind, "Probe.stream") as items:
                self.assertEqual([item async for item in items], [0, 1, 2], repr(kind))

    def test_refused(self) -> None:
        """Text and mappings are no streams, though they could be iterated."""
        for value in ({"a": 1}, "abc", b"abc", 7, None):
            error = self.assertRaises(TypeError, ResultStream, value, "Probe.stream")
            name = type(value).__name__
            self.assertEqual(str(error), f"Probe.stream gives a stream, not {name}")

    async def test_closed(self) -> None:
        """A stream whose reader leaves is closed, even if the reader fails."""
        for make in (numbers, plainNumbers):
            left: list[str] = []
            with self.assertRaises(KeyError):
                async with ResultStream(make(left), "Probe.stream") as items:
                    async for _ in items:
                        self.assertEqual(left, [])
                        raise KeyError
            self.assertEqual(left, ["closed"], make.__name__)

    async def test_failing(self) -> None:
        """The error of a stream is that of its reader."""

        def fail() -> Iterator[int]:
            yield 1
            raise KeyError

        seen = []
        with self.assertRaises(KeyError):
            async with ResultStream(fail(), "Probe.stream") as items:
                async for item in items:
                    seen.append(item)
        self.assertEqual(seen, [1])

    async def test_itself(self) -> None:
        """Nothing stands between an asynchronous stream and its reader."""
        stream = numbers([])
        async with ResultStream(stream, "Probe.stream") as items:
            self.assertIs(items, stream)
