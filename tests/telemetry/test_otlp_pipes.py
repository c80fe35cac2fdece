"""Messages between the daemon and the process that exports."""

import os
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.otlp import Pipe, PipeTimeout

_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda values: st.lists(values, max_size=4),
    max_leaves=20,
)


class PipeTests(SynchronousTestCase):
    """A pipe whose both ends are the test's."""

    timeout = 60

    def setUp(self) -> None:
        """Make one."""
        self.reading, self.writing = os.pipe()
        self.addCleanup(os.close, self.reading)
        self.pipe = Pipe(self.reading, self.writing)

    @given(st.lists(_VALUES, min_size=1, max_size=4))
    def test_values(self, values: list[Any]) -> None:
        """What is written is read, in its order."""
        reading, writing = os.pipe()
        try:
            pipe = Pipe(reading, writing)
            for value in values:
                pipe.write(value)
            self.assertEqual([pipe.read(20) for _ in values], values)
        finally:
            os.close(reading)
            os.close(writing)

    def test_end(self) -> None:
        """The end of the other side is an end, in the midst of a message too."""
        os.write(self.writing, b"\0\0\0\5ab")
        os.close(self.writing)
        self.assertRaises(EOFError, self.pipe.read, 20)
        self.assertRaises(EOFError, self.pipe.read)

    def test_late(self) -> None:
        """Nobody waits longer than he said, for the rest of a message either."""
        self.addCleanup(os.close, self.writing)
        self.assertRaises(PipeTimeout, self.pipe.read, 0.01)
        os.write(self.writing, b"\0\0\0\5ab")
        self.assertRaises(PipeTimeout, self.pipe.read, 0.01)
