"""C{res.sendFile} and C{res.download}."""

import os
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from storagegate import server
from storagegate.http import files
from storagegate.http.errors import HTTPError
from storagegate.http.options import Runtime
from storagegate.http.testing import Client
from tests.http.filesupport import FileCase
from tests.support.openfiles import openFiles


class SendFileTests(FileCase):
    """C{res.sendFile}."""

    def setUp(self) -> None:
        """Make a few files."""
        super().setUp()
        self.path = self.write("sub/file.txt", b"content")
        self.write(".hidden/file", b"hidden")
        self.write(".dot", b"dot")
        with open(os.path.join(self.top, "secret"), "wb") as file:
            file.write(b"secret")
        self.outcomes: list[Any] = []

    def send(self, *arguments: Any, **options: Any) -> tuple[int, bytes]:
        """Let a handler send a file, and give what the client got."""

        async def answer(res: Any) -> None:
            try:
                self.outcomes.append(await res.sendFile(*arguments, **options))
            except Exception as error:
                self.outcomes.append(error)
                raise

        self.handle(answer)
        response = self.get()
        return response.status, response.body

    def refuses(self, status: int, *arguments: Any, **options: Any) -> None:
        """Assert that the handler gets an error, and the client its status."""
        self.assertEqual(self.send(*arguments, **options)[0], status, arguments)
        error = self.outcomes.pop()
        self.assertIsInstance(error, HTTPError)
        self.assertEqual(error.statusCode, status)

    def test_absolute(self) -> None:
        """An absolute path is sent, whether it is text or a path object."""
        for path in (self.path, Path(self.path)):
            self.assertEqual(self.send(path), (200, b"content"))
            self.assertIsNone(self.outcomes.pop())

    def test_root(self) -> None:
        """A path below a root is sent, with a slash in front or without."""
        for path in ("sub/file.txt", "/sub/file.txt", "./sub//file.txt", Path("sub/file.txt")):
            self.assertEqual(self.send(path, root=self.root), (200, b"content"))
        self.assertEqual(self.send("file.txt", Path(self.root) / "sub"), (200, b"content"))
        self.assertEqual(
            self.send("sub/file.txt", root=os.path.relpath(self.root)), (200, b"content")
        )

    def test_relative(self) -> None:
        """A relative path without a root is an error at once."""

        def answer(res: Any) -> None:
            self.assertRaises(ValueError, res.sendFile, "file.txt")
            self.assertRaises(ValueError, res.sendFile, "")
            self.assertRaises(TypeError, res.sendFile, None)
            self.assertRaises(ValueError, res.sendFile, self.path, dotfiles="maybe")
            self.assertRaises(ValueError, res.sendFile, self.path, maxAge="soon")
            self.assertRaises(TypeError, res.sendFile, self.path, maxage=1)
            res.send("done")

        self.handle(answer)
        self.assertEqual(self.get().text, "done")

    def test_badFields(self) -> None:
        """A field that cannot be set is the handler's error, and leaves no file open."""
        for fields in ({"X-A": None}, {"X-A": "\n"}, {1: "a"}):
            self.assertEqual(self.send(self.path, headers=fields)[0], 500)
            self.assertEqual(openFiles(self.top), [])
        self.flushLoggedErrors(TypeError, ValueError, AttributeError)

    def test_missing(self) -> None:
        """What is not there is a 404, and so is a directory."""
        for path in (
            "nothing",
            "sub",
            "sub/",
            "",
            "/",
            "sub/file.txt/",
            "n" * 300,
            "sub/file.txt/x",
        ):
            self.refuses(404, path, root=self.root)
            self.refuses(404, os.path.join(self.root, path.strip("/") or "nothing") + "/x")

    def test_escape(self) -> None:
        """A path that leads up is refused, below a root and without."""
        for path in ("../secret", "sub/../../secret", "/../secret", "sub/..", "..\\secret"):
            self.refuses(403, path, root=self.root)
        self.refuses(403, os.path.join(self.root, "..", "secret"))
        self.refuses(400, "a\0b", root=self.root)
        self.refuses(400, self.path + "\0")

    def test_links(self) -> None:
        """A link out of the root is refused; without a root it leads anywhere."""
        link = os.path.join(self.root, "link")
        os.symlink(os.path.join(self.top, "secret"), link)
        self.refuses(403, "link", root=self.root)
        self.assertEqual(self.send(link), (200, b"secret"))

    def test_dotfiles(self) -> None:
        """Names with a dot in front are there for those who allow it."""
        for path in (".dot", ".hidden/file"):
            self.refuses(404, path, root=self.root)
            self.refuses(403, path, root=self.root, dotfiles="deny")
            self.refuses(404, os.path.join(self.root, path))
            self.assertEqual(self.send(path, root=self.root, dotfiles="allow")[0], 200)
        # Dots in the root are the application's own business.
        hidden = os.path.join(self.root, ".hidden")
        self.assertEqual(self.send("file", root=hidden), (200, b"hidden"))

    def test_headers(self) -> None:
        """Fields come with the file, and only with it."""
        headers = {"X-File": "yes", "Content-Type": "text/x-own"}

        async def answer(res: Any) -> None:
            try:
                await res.sendFile(name, self.root, headers=headers)
            except HTTPError:
                res.status(404).send("none")

        self.handle(answer)
        name = "sub/file.txt"
        self.assertFields(self.get(), x_file="yes", content_type="text/x-own; charset=utf-8")
        failed = self.get(if_match='"x"')
        self.assertEqual(failed.status, 404)
        self.assertFields(failed, x_file=None, content_type="text/html; charset=utf-8")
        name = "nothing"
        self.assertFields(self.get(), x_file=None, content_type="text/html; charset=utf-8")

    def test_badHeader(self) -> None:
        """A field that can be none is the handler's error, and no file stays open."""
        headers = {"X-File": "a\r\nSet-Cookie: b"}
        self.handle(lambda res: res.sendFile(self.path, headers=headers))
        self.assertEqual(self.get().status, 500)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_started(self) -> None:
        """The file is on its way when the call returns, and need not be waited for."""
        seen = []

        def answer(res: Any) -> None:
            res.sendFile(self.path)
            seen.append(res.finished)

        self.handle(answer)
        self.assertEqual(self.get().body, b"content")
        self.assertEqual(seen, [True])

    def test_unheard(self) -> None:
        """A failure that nobody waits for is answered all the same."""

        def answer(res: Any) -> None:
            res.sendFile("nothing", root=self.root)

        self.handle(answer)
        self.assertEqual(self.get().status, 404)

    def test_heard(self) -> None:
        """A failure that somebody has dealt with is not answered twice."""

        def answer(res: Any) -> None:
            sending = res.sendFile("nothing", root=self.root)
            sending.addErrback(lambda reason: res.send("instead"))

        async def waiting(res: Any) -> None:
            try:
                await res.sendFile("nothing", root=self.root)
            except HTTPError:
                res.send("instead")

        for each in (answer, waiting):
            self.handle(each)
            self.assertEqual(self.get().text, "instead")
            self.client.flush()
            self.assertEqual(self.flushLoggedErrors(), [])

    def test_second(self) -> None:
        """There is one response only."""

        async def answer(res: Any) -> None:
            res.send("first")
            await res.sendFile(self.path)

        self.handle(answer)
        self.assertEqual(self.get().text, "first")
        self.assertEqual(len(self.flushLoggedErrors()), 1)


class ThreadTests(FileCase):
    """Files that take a thread to open."""

    def setUp(self) -> None:
        """Hold back what threads do."""
        super().setUp()
        self.jobs: list[tuple[Deferred[Any], Any]] = []
        self.outcomes: list[Any] = []

        def answer(req: Any, res: Any) -> None:
            self.sending = res.sendFile(self.path).addBoth(self.outcomes.append)

        app = server.http()
        app.get("/*", answer)
        self.client = Client(app)

        def run(function: Any, *arguments: Any) -> Deferred[Any]:
            job: Deferred[Any] = Deferred()
            self.jobs.append((job, lambda: function(*arguments)))
            return job

        app.runtime = Runtime(self.client.clock, run, self.client.now)
        self.patch(files, "_SUPPORTED", False)
        self.path = self.write("file.txt", b"content")

    def work(self) -> None:
        """Let a thread open the file."""
        ((job, function),) = self.jobs
        job.callback(function())

    def test_opened(self) -> None:
        """What a thread has opened is sent."""
        call = self.client.start("GET", "/")
        self.work()
        self.assertEqual(call.response.body, b"content")
        self.assertEqual(self.outcomes, [None])

    def test_abort(self) -> None:
        """A client that goes away is not an error, and no file stays open."""
        call = self.client.start("GET", "/")
        call.disconnect()
        self.work()
        self.assertEqual(self.outcomes, [None])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_cancelled(self) -> None:
        """A handler may stop waiting; what is opened then is closed."""
        self.client.start("GET", "/")
        self.sending.cancel()
        self.work()
        self.assertIsInstance(self.outcomes.pop(), Failure)


class DownloadTests(FileCase):
    """C{res.download}."""

    def setUp(self) -> None:
        """Make a file."""
        super().setUp()
        self.path = self.write("plans.txt", b"content")

    def test_name(self) -> None:
        """The client is told to save the file, by its name or another."""
        for arguments, disposition in (
            ((), 'attachment; filename="plans.txt"'),
            (("other.pdf",), 'attachment; filename="other.pdf"'),
            (("dir/o.pdf",), 'attachment; filename="o.pdf"'),
            (("é.pdf",), "attachment; filename=\"?.pdf\"; filename*=UTF-8''%C3%A9.pdf"),
        ):
            self.handle(lambda res, arguments=arguments: res.download(self.path, *arguments))
            response = self.get()
            self.assertEqual((response.status, response.body), (200, b"content"))
            self.assertFields(
                response,
                content_disposition=disposition,
                content_type="text/plain; charset=utf-8",
            )

    def test_relative(self) -> None:
        """A relative path begins where the process runs, or at the root."""
        relative = os.path.relpath(self.path)
        self.handle(lambda res: res.download(relative))
        self.assertEqual(self.get().body, b"content")
        self.handle(lambda res: res.download("plans.txt", "a.txt", root=self.root))
        self.assertFields(self.get(), content_disposition='attachment; filename="a.txt"')

    def test_headers(self) -> None:
        """Other fields and options go along; the disposition is the download's own."""
        headers = {"content-disposition": "inline", "X-File": "yes"}
        self.handle(lambda res: res.download(self.path, headers=headers, maxAge="1h"))
        self.assertFields(
            self.get(),
            content_disposition='attachment; filename="plans.txt"',
            x_file="yes",
            cache_control="public, max-age=3600",
        )

    def test_failure(self) -> None:
        """Where it fails there is no disposition left."""
        seen = []

        async def answer(res: Any) -> None:
            try:
                await res.download(path)
            except HTTPError as error:
                seen.append((error.statusCode, res.get("Content-Disposition")))
                res.status(error.statusCode).send("sorry")

        self.handle(answer)
        path = os.path.join(self.root, "nothing")
        self.assertFields(self.get(), content_disposition=None)
        path = self.path
        self.assertFields(self.get(if_match='"x"'), content_disposition=None)
        self.assertFields(self.get(range="bytes=99-"), content_disposition=None)
        self.assertEqual(seen, [(404, None), (412, None), (416, None)])

    def test_control(self) -> None:
        """A name with a line end is an error at once."""

        def answer(res: Any) -> None:
            self.assertRaises(ValueError, res.download, self.path, "a\r\nSet-Cookie: b")
            res.send("done")

        self.handle(answer)
        self.assertEqual(self.get().text, "done")
