"""Names in URLs, and files opened below a root."""

import errno
import os
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from storagegate.http import files
from storagegate.http.errors import HTTPError
from storagegate.http.files import (
    IsDirectory,
    OpenFile,
    checkDotfiles,
    httpErrorFor,
    inThread,
    openBelow,
    openCached,
    openResolved,
    readName,
)
from tests.support.openfiles import openFiles


class NameTests(SynchronousTestCase):
    """Names in URLs."""

    def assertRefused(self, status: int, path: str) -> None:
        """Assert a path is refused."""
        error = self.assertRaises(HTTPError, readName, path)
        self.assertEqual(error.statusCode, status, path)

    def test_names(self) -> None:
        """A path is decoded once; empty segments and those of one dot are nothing."""
        for path, name in (
            ("/a.txt", "a.txt"),
            ("/a/b.txt", "a/b.txt"),
            ("/a%20b%C3%A9", "a bé"),
            ("/a%2Fb", "a/b"),
            ("//a//./b", "a/b"),
            ("/", "/"),
            ("", ""),
            ("/.", ""),
            ("/a/", "a/"),
            ("/a%2f", "a/"),
            ("/%252e%252e%252fx", "%2e%2e%2fx"),
            ("/...", "..."),
            ("/a..b", "a..b"),
            ("/C:\\a", "C:\\a"),
            ("/%5cb", "\\b"),
        ):
            self.assertEqual(readName(path), name, path)

    def test_malformed(self) -> None:
        """What is no percent-encoded UTF-8, or has a NUL, is malformed."""
        for path in ("/%", "/%1", "/%zz", "/%ff", "/%c0%ae", "/%ed%a0%80", "/a%00", "/%00.txt"):
            self.assertRefused(400, path)

    def test_up(self) -> None:
        """Two dots lead out, whatever parts them from the rest."""
        for path in (
            "/..",
            "/../x",
            "/a/../b",
            "/..%2fx",
            "/%2e%2e/x",
            "/%2E%2E%2Fx",
            "/..%5cx",
            "/a%5c..%5c..",
            "/a/..",
            "/..\\x",
        ):
            self.assertRefused(403, path)

    @given(st.text("/.%2fFeE5cC\\a0\0é", max_size=20))
    def test_neverUp(self, path: str) -> None:
        """Whatever comes, the name stays below."""
        try:
            name = readName(path)
        except HTTPError as error:
            self.assertIn(error.statusCode, (400, 403))
            return
        self.assertNotIn("\0", name)
        self.assertNotIn("..", name.replace("\\", "/").split("/"))
        self.assertTrue(name == "/" or not name.startswith("/"))

    def test_dotfiles(self) -> None:
        """A dot in front of any segment hides a file."""
        for name in (".git", ".git/config", "a/.b/c", "a/.b"):
            checkDotfiles(name, "allow")
            for dotfiles, status in (("ignore", 404), ("deny", 403)):
                error = self.assertRaises(HTTPError, checkDotfiles, name, dotfiles)
                self.assertEqual(error.statusCode, status)
        for dotfiles in ("allow", "deny", "ignore"):
            checkDotfiles("a.b/c.", dotfiles)


class TreeCase(SynchronousTestCase):
    """A directory with files, and one beside it."""

    def setUp(self) -> None:
        """Make them."""
        self.top = os.path.abspath(self.mktemp())
        self.root = os.fsencode(os.path.join(self.top, "root"))
        self.outside = os.fsencode(os.path.join(self.top, "outside"))
        for directory in (self.root, self.root + b"/sub", self.outside):
            os.makedirs(directory)
        for directory in (self.root, self.root + b"/sub", self.outside):
            with open(directory + b"/file", "wb") as file:
                file.write(directory)

    def link(self, name: bytes, target: bytes) -> None:
        """Make a symbolic link in the root."""
        os.symlink(target, self.root + b"/" + name)

    def content(self, file: OpenFile) -> bytes:
        """Read a file and close it."""
        try:
            return os.pread(file.fd, 1000, 0)
        finally:
            file.close()


class OpenBelowMixin:
    """Files below a root, whatever finds them."""

    def open(self, name: bytes) -> OpenFile:
        """Open a file below the root."""
        raise NotImplementedError

    def opens(self: Any, name: bytes, content: bytes) -> None:
        """Assert what a name leads to."""
        self.assertEqual(self.content(self.open(name)), content, name)

    def refuses(self: Any, number: int, name: bytes) -> None:
        """Assert an error."""
        before = openFiles(self.top)
        error = self.assertRaises(OSError, self.open, name)
        self.assertEqual(error.errno, number, name[:50])
        self.assertEqual(openFiles(self.top), before)

    def test_file(self: Any) -> None:
        """A file is open for reading, and what it is is known."""
        file = self.open(b"sub/file")
        self.assertEqual(file.name, self.root + b"/sub/file")
        self.assertEqual(file.status.st_size, len(self.root + b"/sub"))
        self.assertEqual(self.content(file), self.root + b"/sub")

    def test_missing(self: Any) -> None:
        """What is not there, or could not be, is missing."""
        self.refuses(errno.ENOENT, b"nothing")
        self.refuses(errno.ENOTDIR, b"file/x")
        self.refuses(errno.ENOTDIR, b"file/")
        self.refuses(errno.ENAMETOOLONG, b"n" * 300)
        error = self.assertRaises(OSError, self.open, b"n/" * 3000)
        self.assertIn(error.errno, (errno.ENAMETOOLONG, errno.ENOENT))

    def test_directory(self: Any) -> None:
        """A directory is none; the root itself is one."""
        for name in (b"sub", b"sub/", b""):
            self.assertRaises(IsDirectory, self.open, name)

    def test_special(self: Any) -> None:
        """A FIFO without a writer does not hang, and is no file."""
        os.mkfifo(self.root + b"/fifo")
        self.refuses(errno.ENOENT, b"fifo")

    def test_up(self: Any) -> None:
        """Nothing leads out, whoever forgot to check the name."""
        self.refuses(errno.EXDEV, b"../outside/file")
        self.refuses(errno.EXDEV, b"sub/../../outside/file")

    def test_linksWithin(self: Any) -> None:
        """A link to somewhere below the root is followed, however it is written."""
        self.link(b"relative", b"sub/file")
        self.link(b"absolute", self.root + b"/sub/file")
        self.link(b"directory", b"sub")
        self.link(b"sub/up", b"../file")
        self.opens(b"relative", self.root + b"/sub")
        self.opens(b"absolute", self.root + b"/sub")
        self.opens(b"directory/file", self.root + b"/sub")
        self.opens(b"sub/up", self.root)
        self.refuses(errno.ENOTDIR, b"relative/")

    def test_linksOut(self: Any) -> None:
        """A link to anywhere else is a way out."""
        self.link(b"absolute", self.outside + b"/file")
        self.link(b"relative", b"../outside/file")
        self.link(b"directory", b"../outside")
        self.link(b"twice", b"absolute")
        self.link(b"parent", b"..")
        for name in (b"absolute", b"relative", b"directory/file", b"twice", b"parent/outside/file"):
            self.refuses(errno.EXDEV, name)

    def test_loop(self: Any) -> None:
        """A link to itself leads nowhere."""
        self.link(b"loop", b"loop")
        self.refuses(errno.ELOOP, b"loop")

    def test_linkedRoot(self: Any) -> None:
        """The root may be a link, and may be moved from one moment to the next."""
        self.link(b"current", self.root + b"/sub")
        root, self.root = self.root, self.root + b"/current"
        self.opens(b"file", root + b"/sub")
        os.unlink(self.root)
        os.symlink(self.outside, self.root)
        self.opens(b"file", self.outside)


class OpenBelowTests(OpenBelowMixin, TreeCase):
    """As a thread opens them."""

    def open(self, name: bytes) -> OpenFile:
        """Open a file below the root."""
        return openBelow(self.root, name)

    def test_anywhere(self) -> None:
        """Without a root a path may lead anywhere."""
        self.link(b"out", self.outside + b"/file")
        self.assertEqual(self.content(openBelow(None, self.root + b"/out")), self.outside)

    def test_nul(self) -> None:
        """A NUL does not end a name early."""
        self.assertRaises(ValueError, self.open, b"file\0.txt")
        self.assertRaises(ValueError, openCached, self.root, b"file\0.txt")


class ResolvedTests(OpenBelowMixin, TreeCase):
    """As a system without C{openat2} opens them."""

    def setUp(self) -> None:
        """Take the call away."""
        super().setUp()
        self.patch(files, "_SUPPORTED", False)

    def open(self, name: bytes) -> OpenFile:
        """Open a file below the root."""
        return openBelow(self.root, name)

    def test_cannotTell(self) -> None:
        """Nothing is opened in the reactor."""
        self.assertRaises(BlockingIOError, openCached, self.root, b"file")

    def test_wholeDisk(self) -> None:
        """The root may be that of the file system."""
        fd = openResolved(b"/", self.root[1:] + b"/file")
        self.assertEqual(os.pread(fd, 1000, 0), self.root)
        os.close(fd)


class CachedTests(OpenBelowMixin, TreeCase):
    """As the reactor opens them: what it leaves to a thread is opened as by one."""

    def setUp(self) -> None:
        """Let the reactor open what it can."""
        super().setUp()
        self.left: list[bytes] = []

    def open(self, name: bytes) -> OpenFile:
        """Open a file below the root."""
        try:
            return openCached(self.root, name)
        except BlockingIOError:
            self.left.append(name)
            return openBelow(self.root, name)

    def test_atOnce(self) -> None:
        """What was opened a moment ago needs no thread, nor does what was missing."""
        self.content(openBelow(self.root, b"sub/file"))
        self.assertRaises(FileNotFoundError, openBelow, self.root, b"sub/nothing")
        self.opens(b"sub/file", self.root + b"/sub")
        self.refuses(errno.ENOENT, b"sub/nothing")
        self.assertEqual(self.left, [])

    def test_anywhere(self) -> None:
        """Without a root a path may lead anywhere."""
        self.link(b"out", self.outside + b"/file")
        self.content(openBelow(None, self.root + b"/out"))
        self.assertEqual(self.content(openCached(None, self.root + b"/out")), self.outside)


class RaceTests(TreeCase):
    """Links that are changed while files are opened."""

    def test_swapped(self) -> None:
        """A directory that turns into a link out, and back, never leads out."""
        fine, out, name = (self.root + b"/" + part for part in (b"fine", b"out", b"name"))
        os.mkdir(fine)
        with open(fine + b"/file", "wb") as file:
            file.write(b"fine")
        os.symlink(self.outside, out)
        stop = threading.Event()

        def swap() -> None:
            while not stop.is_set():
                for one in (fine, out):
                    os.rename(one, name)
                    os.rename(name, one)

        swapper = threading.Thread(target=swap)
        swapper.start()
        got = set()
        try:
            for number in range(400):
                try:
                    if number % 2:
                        fd = openResolved(self.root, b"name/file")
                    else:
                        fd = openBelow(self.root, b"name/file").fd
                except OSError:
                    continue
                got.add(os.pread(fd, 1000, 0))
                os.close(fd)
        finally:
            stop.set()
            swapper.join()
        self.assertTrue(got <= {b"fine"}, got)


class ErrorTests(SynchronousTestCase):
    """What the client is told."""

    def test_statuses(self) -> None:
        """Missing is 404, a way out 403; what is wrong with the server is no answer."""
        for number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO):
            error = httpErrorFor(OSError(number, ""))
            assert error is not None
            self.assertEqual(error.statusCode, 404)
        error = httpErrorFor(OSError(errno.EXDEV, ""))
        assert error is not None
        self.assertEqual(error.statusCode, 403)
        for number in (errno.EACCES, errno.EMFILE, errno.EIO):
            self.assertIsNone(httpErrorFor(OSError(number, "")))


class Closable:
    """Something that a thread opens."""

    closed = False

    def close(self) -> None:
        """Close it."""
        self.closed = True


class InThreadTests(SynchronousTestCase):
    """What a thread opens has an owner."""

    def setUp(self) -> None:
        """Ask for it."""
        self.job: Deferred[Any] = Deferred()
        self.waiting = inThread(lambda *call: self.job, str, "x")

    def test_opened(self) -> None:
        """Who waits gets it, open."""
        file = Closable()
        self.job.callback(file)
        self.assertIs(self.successResultOf(self.waiting), file)
        self.assertFalse(file.closed)

    def test_failed(self) -> None:
        """Who waits gets the error."""
        self.job.errback(Failure(FileNotFoundError()))
        self.failureResultOf(self.waiting, FileNotFoundError)

    def test_cancelled(self) -> None:
        """If nobody waits any more it is closed when it comes."""
        self.waiting.cancel()
        self.failureResultOf(self.waiting)
        file = Closable()
        self.job.callback(file)
        self.assertTrue(file.closed)

    def test_cancelledAndFailed(self) -> None:
        """An error that comes then is nobody's."""
        self.waiting.cancel()
        self.failureResultOf(self.waiting)
        self.job.errback(Failure(FileNotFoundError()))
        self.assertIsNone(self.successResultOf(self.job))
