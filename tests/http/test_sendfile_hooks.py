"""What may happen to a file on its way out."""

import os
from typing import Any

from storagegate.http.fetch.handler import ResponseLost
from storagegate.http.files import openBelow
from storagegate.http.sendfile import readOptions, replyWithFile
from storagegate.net.sendfile import TruncatedFile
from tests.http.filesupport import DIGITS, ReplyCase, tagOf


class Upper:
    """An encoder that anybody can check."""

    flushes = False

    def feed(self, chunk: bytes) -> bytes:
        """Encode."""
        return chunk.replace(b"0", b"zero")

    def flush(self) -> bytes:
        """Give what is left."""
        return b""

    def finish(self) -> bytes:
        """Give the end."""
        return b"!"


class HookTests(ReplyCase):
    """What middleware does to files."""

    def test_beforeHead(self) -> None:
        """A callback sees and changes the fields, whatever the file's size."""
        seen = []

        def prepare(res: Any) -> None:
            def callback() -> None:
                seen.append((res.get("ETag"), res.statusCode))
                res.header("X-Seen", "yes")

            res.beforeHead(callback)

        for path, size in ((self.small, 10), (self.large, 300_000)):
            self.serve(path, prepare)
            self.assertFields(self.get(), x_seen="yes", content_length=str(size))
            self.assertEqual(seen.pop(), (tagOf(size), 200))

    def test_encoded(self) -> None:
        """An encoder gets the whole body, and is told how long it is."""
        for path, content in ((self.small, DIGITS), (self.large, self.content)):
            lengths = []
            self.serve(
                path,
                lambda res, lengths=lengths: res.encodeBody(
                    lambda length: (lengths.append(length), Upper())[1]
                ),
            )
            response = self.get()
            self.assertEqual(response.body, content.replace(b"0", b"zero") + b"!")
            self.assertEqual(lengths, [len(content)])
            self.assertFields(response, content_encoding=None, etag=tagOf(len(content)))

    def test_holdEnd(self) -> None:
        """The end waits for who holds it."""
        held = []
        self.serve(self.large, lambda res: res.holdEnd(lambda: held.append(True)))
        self.assertEqual(self.get().body, self.content)
        self.assertEqual(held, [True])

    def test_finish(self) -> None:
        """C{finish} is told of files, too."""
        told: list[str] = []
        for path in (self.small, self.large):
            self.serve(path, lambda res: res.on("finish", lambda: told.append("finish")))
            self.get()
            self.assertEqual(told.pop(), "finish")

    def test_failingHook(self) -> None:
        """A hook that fails is a 500, and no file stays open."""

        def prepare(res: Any) -> None:
            res.beforeHead(lambda: 1 / 0)

        for path in (self.small, self.large):
            self.serve(path, prepare)
            self.assertEqual(self.get().status, 500)
            self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class ChangingTests(ReplyCase):
    """Files that change between their opening and their sending."""

    def reply(self, path: str, change: Any, prepare: Any = None) -> None:
        """Open a file, let it change, and answer with it."""
        options = readOptions()

        def answer(res: Any) -> Any:
            file = openBelow(None, os.fsencode(path))
            change()
            if prepare is not None:
                prepare(res)
            return replyWithFile(res, file, options)

        self.handle(answer)

    def test_grown(self) -> None:
        """Of a file that has grown comes what was promised."""
        for path, content in ((self.small, DIGITS), (self.large, self.content)):

            def grow(path: str = path) -> None:
                with open(path, "ab") as file:
                    file.write(b"more")

            self.reply(path, grow)
            response = self.get()
            self.assertEqual(response.body, content)
            self.assertFields(response, content_length=str(len(content)))

    def test_grownEncoded(self) -> None:
        """So it is if it is encoded."""

        def grow() -> None:
            with open(self.large, "ab") as file:
                file.write(b"more")

        self.reply(self.large, grow, lambda res: res.encodeBody(lambda length: Upper()))
        self.assertEqual(self.get().body, self.content.replace(b"0", b"zero") + b"!")

    def test_shrunkEncoded(self) -> None:
        """One that has shrunk is cut off where its client sees it."""
        self.reply(
            self.large,
            lambda: os.truncate(self.large, 1000),
            lambda res: res.encodeBody(lambda length: Upper()),
        )
        call = self.client.start("GET", "/")
        self.client.flush()
        self.assertRaises(ResponseLost, lambda: call.response)
        self.assertEqual(len(self.flushLoggedErrors(TruncatedFile)), 1)

    def test_deleted(self) -> None:
        """A file that was deleted is still sent."""
        for path, content in ((self.small, DIGITS), (self.large, self.content)):
            self.reply(path, lambda path=path: os.unlink(path))
            self.assertEqual(self.get().body, content)
