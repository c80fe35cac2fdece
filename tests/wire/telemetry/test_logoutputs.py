"""What the log is written to: real pipes, sockets and files."""

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.log import PIECE_BYTES, BufferedLogWriter, DescriptorOutput, FileOutput


class DescriptorTests(SynchronousTestCase):
    """Descriptors that others hold as well."""

    timeout = 60

    def filled(self, descriptor: int) -> int:
        """Write until there is no room; give how many bytes that took."""
        output = DescriptorOutput(descriptor)
        line = memoryview(b"x" * 999 + b"\n")
        total = 0
        while written := output.write(line):
            total += written
            self.assertLess(total, 1 << 24)
        return total

    def test_pipe(self) -> None:
        """A pipe without a reader is full, not a reason to wait; its own flags stay."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        self.assertGreaterEqual(self.filled(writing), 1 << 15)
        self.assertTrue(os.get_blocking(writing))
        os.read(reading, 1 << 16)
        self.assertEqual(DescriptorOutput(writing).write(memoryview(b"on\n")), 3)

    def test_socket(self) -> None:
        """A socket, as systemd gives one, is no different."""
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        self.assertGreaterEqual(self.filled(ours.fileno()), PIECE_BYTES)
        self.assertTrue(os.get_blocking(ours.fileno()))

    def test_lost(self) -> None:
        """A reader that has gone is an error that can be handled."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, writing)
        output = DescriptorOutput(writing)
        os.close(reading)
        self.assertRaises(OSError, output.write, memoryview(b"x\n"))

    def test_file(self) -> None:
        """Into a file that standard output is, everything goes at once and where it stands."""
        path = Path(self.mktemp())
        with path.open("wb") as file:
            file.write(b"before\n")
            file.flush()
            lines = b"line\n" * PIECE_BYTES
            self.assertEqual(DescriptorOutput(file.fileno()).write(memoryview(lines)), len(lines))
        self.assertEqual(path.read_bytes(), b"before\n" + lines)

    def test_together(self) -> None:
        """Lines of several processes in one pipe do not run into each other."""
        program = (
            "import sys\n"
            "from storagegate.telemetry.log import BufferedLogWriter, DescriptorOutput\n"
            "from twisted.internet.task import Clock\n"
            "writer = BufferedLogWriter(DescriptorOutput(1))\n"
            "writer.buffer(Clock())\n"
            "for _ in range(2000): writer.write(sys.argv[1].encode() * 150)\n"
            "writer.finish(60)\n"
        )
        path = os.pathsep.join(item for item in sys.path if item)
        reading, writing = os.pipe()
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", program, letter],
                stdout=writing,
                env={**os.environ, "PYTHONPATH": path},
            )
            for letter in "ab"
        ]
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            lines = pipe.read().splitlines()
        self.assertEqual([process.wait() for process in processes], [0, 0])
        self.assertEqual(len(lines), 4000)
        self.assertEqual(set(lines), {b"a" * 150, b"b" * 150})


class FileTests(SynchronousTestCase):
    """Files that are moved aside."""

    def setUp(self) -> None:
        """Make an output that moves its file from ten bytes on."""
        self.path = Path(self.mktemp()).absolute()
        self.output = FileOutput(str(self.path), limit=10, kept=2)
        self.addCleanup(self.output.close)

    def write(self, *lines: bytes) -> None:
        """Write lines."""
        for line in lines:
            self.output.write(memoryview(line + b"\n"))

    def text(self, number: int = 0) -> str | None:
        """Read a file; C{None} if there is none."""
        path = self.path if not number else Path(f"{self.path}.{number}")
        return path.read_text() if path.exists() else None

    def test_full(self) -> None:
        """A file that is full is moved aside, and only so many are kept."""
        self.write(b"12345", b"6789")
        self.assertIsNone(self.text(1))
        self.write(b"second---", b"third----", b"now")
        self.assertEqual(
            [self.text(number) for number in range(4)],
            ["now\n", "third----\n", "second---\n", None],
        )

    def test_asked(self) -> None:
        """It is moved before the next line when a rotation is due, once."""
        self.write(b"old")
        self.output.isRotationDue = True
        self.write(b"new", b"er")
        self.assertEqual((self.text(), self.text(1)), ("new\ner\n", "old\n"))

    def test_moved(self) -> None:
        """Who moves it with another program finds a new one, without asking for it."""
        self.write(b"old")
        number = self.output.descriptor
        os.replace(self.path, f"{self.path}.1")
        self.write(b"new")
        self.assertEqual((self.text(), self.text(1)), ("new\n", "old\n"))
        # Processes that are started later inherit it by this number.
        self.assertEqual(self.output.descriptor, number)

    def test_inherited(self) -> None:
        """A process that inherited the file follows it, and leaves the moving to the other."""
        theirs = FileOutput(str(self.path), 1, descriptor=os.dup(self.output.descriptor))
        self.addCleanup(theirs.close)
        self.write(b"1234567890")
        theirs.write(memoryview(b"theirs\n"))
        self.assertEqual(self.text(), "1234567890\ntheirs\n")
        self.write(b"new")
        theirs.write(memoryview(b"theirs\n"))
        self.assertEqual(self.text(), "new\ntheirs\n")

    def test_directory(self) -> None:
        """A directory that takes no new files costs no line."""
        self.write(b"old")
        os.unlink(self.path)
        os.mkdir(self.path)
        self.write(b"new")
        os.rmdir(self.path)
        self.write(b"there")
        self.assertEqual(self.text(), "there\n")

    def test_diskFull(self) -> None:
        """A full disk is no error to the logging code; what does not fit is counted."""
        output = FileOutput("/dev/full")
        self.addCleanup(output.close)
        writer = BufferedLogWriter(output, limit=100)
        for _ in range(30):
            writer.write(b"123456789")
        self.assertEqual(writer.dropped, 20)

    def test_cut(self) -> None:
        """A disk that takes a part of some lines has no half of one, and gets each once."""
        output = FileOutput(str(self.path))
        self.addCleanup(output.close)
        data = memoryview(b"first\nsecond\n")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9, hard))
        try:
            written = output.write(data)
            with self.assertRaises(OSError):
                output.write(data[written:])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        self.assertEqual(self.text(), "first\n")
        output.write(data[written:])
        self.assertEqual(self.text(), "first\nsecond\n")

    def test_mode(self) -> None:
        """Others on the machine do not read it."""
        self.assertEqual(self.path.stat().st_mode & 0o007, 0)
