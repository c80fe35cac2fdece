"""The store's own file operations."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.transport import writeAll
from storagegate.storage.files import Files
from tests.support.selection import rounds


class WriteAllTests(SynchronousTestCase):
    """L{writeAll}."""

    @given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 50))
    @settings(max_examples=rounds(12, 60), deadline=None)
    def test_everyByte(self, buffers: list[bytes], most: int) -> None:
        """However few bytes a write takes, all arrive, once and in order."""
        taken = bytearray()

        class Reluctant(Files):
            """Takes a few bytes at a time."""

            def write(self, fd, given):  # type: ignore[no-untyped-def]
                """Take some."""
                part = b"".join(given)[:most]
                taken.extend(part)
                return len(part)

        writeAll(partial(Reluctant().write, 0), buffers)
        self.assertEqual(bytes(taken), b"".join(buffers))

    def test_manyBuffers(self) -> None:
        """More buffers than the system takes in one call are no error."""
        path = self.mktemp()
        files = Files()
        fd = files.create(path)
        writeAll(partial(files.write, fd), [b"ab"] * 3000)
        files.close(fd)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), b"ab" * 3000)
