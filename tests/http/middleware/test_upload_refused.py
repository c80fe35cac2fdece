"""Uploads that are too large, malformed or cut short: an answer, and no file left."""

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from storagegate.http import HTTPError, upload
from storagegate.http.options import Runtime
from tests.http.middleware.uploads import END, UploadCase, chunked, field, file, form, post


class LimitTests(UploadCase):
    """What is too much, and what is not expected."""

    def single(self, **limits: Any) -> Any:
        """Take one file with some limits."""
        return upload(self.directory, limits).single("a")

    async def test_fileSize(self) -> None:
        """A file of the limit is taken; one byte more is 413 and leaves nothing."""
        for limit, content in ((3, b"xyz"), ("1kb", b"x" * 1024), (0, b"")):
            answer = await self.ask(self.single(fileSize=limit), form(file("a", content)))
            self.assertEqual((answer.status, answer.body["file"]["size"]), (200, len(content)))
            os.unlink(answer.body["file"]["path"])
            self.seen.clear()
            await self.assertRefused(
                self.single(fileSize=limit),
                form(file("a", content + b"x")),
                413,
                "LIMIT_FILE_SIZE",
                "a",
            )

    async def test_fileSizeWritten(self) -> None:
        """A file that is too large after much of it was written is removed."""
        body = form(file("a", bytes(3 << 20)))
        await self.assertRefused(self.single(fileSize="2mb"), body, 413, "LIMIT_FILE_SIZE", "a")

    async def test_memorySize(self) -> None:
        """Files in memory together have what the application takes whole, or C{fileSize}."""
        body = form(file("a", bytes(6 << 20)), file("a", bytes(6 << 20)))
        for middleware, status in (
            (upload().array("a"), 413),
            (upload(limits={"fileSize": "20mb"}).array("a"), 200),
            (upload(self.directory).array("a"), 200),
        ):
            port = await self.serve(middleware)
            client = await self.connect(port)
            client.write(post(body))
            received = await client.closed
            self.assertIn(b"HTTP/1.1 %d" % status, received[:20])
        self.assertEqual(self.errors[0].code, "LIMIT_FILE_SIZE")

    async def test_counts(self) -> None:
        """Files, fields and parts are counted."""
        fields = [field(f"f{number}", b"") for number in range(3)]
        files = [file("a", b"x"), file("a", b"y")]
        for limits, parts, code, about in (
            ({"files": 1}, files, "LIMIT_FILE_COUNT", "a"),
            ({"fields": 2}, fields, "LIMIT_FIELD_COUNT", "f2"),
            ({"parts": 2}, fields, "LIMIT_PART_COUNT", None),
            ({"parts": 2}, [*files, file("a", b"", "")], "LIMIT_PART_COUNT", None),
            ({"files": 0}, files, "LIMIT_FILE_COUNT", "a"),
        ):
            middleware = upload(self.directory, limits).any()
            await self.assertRefused(middleware, form(*parts), 413, code, about)
        enough = upload(self.directory, {"files": 2, "fields": 3, "parts": 5}).any()
        self.assertEqual((await self.ask(enough, form(*fields, *files))).status, 200)

    async def test_defaults(self) -> None:
        """Nothing is unbounded: 10,000 parts are refused, fields or files or neither."""
        for part, code, about in (
            (field("a", b""), "LIMIT_FIELD_COUNT", "a"),
            (file("a", b""), "LIMIT_FILE_COUNT", "a"),
            (file("a", b"", ""), "LIMIT_PART_COUNT", None),
        ):
            middleware = upload(self.directory).any()
            await self.assertRefused(middleware, form(*[part] * 10_000), 413, code, about)

    async def test_fieldName(self) -> None:
        """A field's name may have 100 bytes."""
        answer = await self.ask(self.single(), form(field("x" * 100, b"")))
        self.assertEqual(answer.status, 200)
        self.seen.clear()
        for part in (field("x" * 101, b""), file("x" * 101, b"")):
            await self.assertRefused(self.single(), form(part), 413, "LIMIT_FIELD_KEY", "x" * 100)
        part = field("\u20ac" * 2, b"")
        await self.assertRefused(
            self.single(fieldNameSize=5), form(part), 413, "LIMIT_FIELD_KEY", "\u20ac" * 2
        )

    async def test_fieldValue(self) -> None:
        """A field's value may have C{fieldSize}, a mebibyte by default."""
        for limits, size in (({"fieldSize": 5}, 5), ({}, 1 << 20)):
            answer = await self.ask(self.single(**limits), form(field("x", b"v" * size)))
            self.assertEqual((answer.status, len(answer.body["body"]["x"])), (200, size))
            self.seen.clear()
            body = form(field("x", b"v" * (size + 1)))
            await self.assertRefused(self.single(**limits), body, 413, "LIMIT_FIELD_VALUE", "x")

    async def test_fieldValues(self) -> None:
        """Fields together have what the application takes whole."""
        body = form(*[field("x", bytes(1 << 20))] * 11)
        await self.assertRefused(self.single(), body, 413, "LIMIT_FIELD_VALUE", "x")

    async def test_nesting(self) -> None:
        """A name nests 32 deep."""
        part = field("a" + "[b]" * 33, b"")
        await self.assertRefused(
            self.single(fieldNameSize=200), form(part), 400, "LIMIT_FIELD_NESTING", "a" + "[b]" * 33
        )

    async def test_unexpected(self) -> None:
        """A second file, one of another field, or one too many is not expected."""
        takes = upload(self.directory)
        two = [{"name": "a", "maxCount": 1}, {"name": "b"}]
        for middleware, parts, about in (
            (takes.single("a"), [file("a", b"1"), file("a", b"2")], "a"),
            (takes.single("a"), [file("b", b"1")], "b"),
            (takes.array("a", 2), [file("a", b"1")] * 3, "a"),
            (takes.array("a"), [file("a", b"1"), file("b", b"1")], "b"),
            (takes.fields(two), [file("b", b"1"), file("a", b"1"), file("a", b"2")], "a"),
            (takes.fields(two), [file("c", b"1")], "c"),
            (takes.none(), [file("a", b"1")], "a"),
        ):
            await self.assertRefused(middleware, form(*parts), 400, "LIMIT_UNEXPECTED_FILE", about)

    async def test_bodySize(self) -> None:
        """An application's own limit on bodies holds for uploads."""
        takes = upload(self.directory).single("a")
        port = await self.serve(takes, maxRequestBodySize=1000)
        body = form(file("a", bytes(2000)))
        for wire in (post(body), chunked([body])):
            answer = await self.send(port, wire)
            self.assertEqual((answer.status, self.stored()), (413, []))


class MalformedTests(UploadCase):
    """What cannot be read."""

    async def test_boundaries(self) -> None:
        """A boundary that is missing, empty or too long is 400 before the body is read."""
        port = await self.serve(upload(self.directory).single("a"))
        for contentType in (
            b"multipart/form-data",
            b"multipart/form-data; boundary=",
            b'multipart/form-data; boundary=""',
            b"multipart/form-data; boundary=" + b"x" * 71,
            b"multipart/form-data; boundary=" + b"x" * 1024,
            b"multipart/mixed; boundary=aB3x",
        ):
            head = post(b"", b"Expect: 100-continue", contentType=contentType, length=100)
            answer = await self.send(port, head)
            self.assertEqual((answer.status, self.seen), (400, []), contentType)
            self.assertEqual(self.errors.pop().code, "entity.parse.failed")

    async def test_truncated(self) -> None:
        """A form without its end is 400, its files are removed, those that were complete, too."""
        body = form(file("a", b"1"), file("b", bytes(1 << 20)))
        takes = upload(self.directory).any()
        for size in (len(body) - len(END), len(body) - 1000, len(file("a", b"1")), 5, 0):
            await self.assertRefused(takes, body[:size], 400, "entity.parse.failed")

    async def test_parts(self) -> None:
        """Nameless parts, heads that are too large and broken ones are refused."""
        takes = upload(self.directory).any()
        first = file("a", b"complete")
        nameless = first.replace(b' name="a";', b"")
        bare = b"--aB3x\r\nContent-Type: text/plain\r\n\r\nx\r\n"
        malformed = "entity.parse.failed"
        for part, status, code in (
            (nameless, 400, "MISSING_FIELD_NAME"),
            (field("", b"x"), 400, "MISSING_FIELD_NAME"),
            (bare, 400, "MISSING_FIELD_NAME"),
            (field("x", b"", b"X: " + b"y" * (1 << 20)), 413, malformed),
            (field("x", b"", *[b"X: y"] * 100), 413, malformed),
            (field("x", b"", b'Content-Disposition: form-data; name="y"'), 400, malformed),
            (field("x", b"", b"no colon"), 400, malformed),
            (file("x", b"", "nul\0"), 400, malformed),
            (file("x", b"", "line\nend"), 400, malformed),
            (first.replace(b"\r\n", b"\n"), 400, malformed),
        ):
            await self.assertRefused(takes, form(first, part), status, code)

    async def test_contentEncoding(self) -> None:
        """A compressed form is 415; C{identity} is no compression."""
        port = await self.serve(upload(self.directory).single("a"))
        body = form(file("a", b"x"))
        answer = await self.send(port, post(body, b"Content-Encoding: gzip"))
        self.assertEqual((answer.status, self.stored(), self.seen), (415, [], []))
        self.assertEqual(self.errors.pop().code, "encoding.unsupported")
        answer = await self.send(port, post(body, b"Content-Encoding: Identity"))
        self.assertEqual(answer.status, 200)

    async def test_fileNames(self) -> None:
        """Whatever a file is called, it is stored under a name of ours."""
        names = (
            "../x",
            "..\\x",
            "/etc/passwd",
            "a%0D%0Ab",
            "C:\\x",
            "a" * 5000,
            "\x01x",
            ".htaccess",
        )
        parts = [file("a", b"", name) for name in names]
        answer = await self.ask(upload(self.directory).array("a"), form(*parts))
        self.assertEqual(
            [entry["originalname"] for entry in answer.body["files"]],
            ["x", "x", "passwd", "ab", "x", "a" * 5000, "x", ".htaccess"],
        )
        for name in self.stored():
            self.assertRegex(name, r"\A[0-9a-f]{32}\Z")
        self.assertEqual(os.listdir(os.path.dirname(self.directory)), ["uploads"])


class LossTests(UploadCase):
    """Clients that go away, disks that fail."""

    async def test_lostClient(self) -> None:
        """A client that goes away in the middle of a file leaves nothing."""
        port = await self.serve(upload(self.directory).any())
        client = await self.connect(port)
        body = form(file("a", b"complete"), file("b", bytes(2 << 20)))
        client.write(post(body, length=len(body) + (4 << 20))[: -len(END)])
        await self.until(lambda: len(self.stored()) == 2)
        client.drop()
        await self.until(lambda: self.stored() == [])
        self.assertEqual((self.seen, self.errors), ([], []))

    async def test_lostWhileJudged(self) -> None:
        """A client that goes away while a filter thinks leaves nothing, however long that takes."""
        judged: list[Any] = []

        def think(req: Any, upload: Any, cb: Any) -> None:
            if judged:
                judged.append(cb)
            else:
                judged.append(cb)
                cb(None, True)

        port = await self.serve(upload(self.directory, fileFilter=think).any())
        client = await self.connect(port)
        client.write(post(form(file("a", b"complete"), file("b", b"2"))))
        await self.until(lambda: len(judged) == 2)
        self.assertEqual(len(self.stored()), 1)
        client.drop()
        await self.until(lambda: self.stored() == [])
        judged[1](None, True)
        self.assertEqual((self.seen, self.errors, self.stored()), ([], [], []))

    async def test_failingDisk(self) -> None:
        """A directory that went away is an error of ours, and the other files are removed."""
        takes = upload(self.directory).any()
        os.rmdir(self.directory)
        answer = await self.ask(takes, form(file("a", bytes(1 << 20))))
        self.assertEqual((answer.status, self.seen), (500, []))
        self.assertNotIn(self.directory, answer.body["error"])
        self.assertEqual(len(self.flushLoggedErrors(FileNotFoundError)), 1)

    async def test_handlerKeeps(self) -> None:
        """Once the next handler runs, the files are the application's, whatever it does."""

        def fail(req: Any, res: Any, next: Any) -> None:
            raise HTTPError(400, "the handler refuses")

        port = await self.serve(upload(self.directory).single("a"), fail)
        answer = await self.send(port, post(form(file("a", b"x"))))
        self.assertEqual((answer.status, len(self.stored())), (400, 1))

    async def test_refusalReaches(self) -> None:
        """A client that sends everything before it reads gets the answer to a refused upload."""
        body = form(file("b", bytes(8 << 20)))
        port = await self.serve(upload(self.directory).single("a"))
        client = await self.connect(port)
        client.pause()
        client.write(post(body))
        await self.until(lambda: not client.transport.dataBuffer and self.errors)  # type: ignore
        client.resume()
        received = await client.closed
        self.assertIn(b"HTTP/1.1 400", received)
        self.assertFalse(client.reset)

    async def test_refusalAtOnce(self) -> None:
        """A client that declares far more than is read of a refused upload is answered at once."""
        port = await self.serve(upload(self.directory).single("a"))
        refused = file("b", b"")
        client = await self.connect(port)
        client.write(post(refused, length=100 << 20))
        self.assertIn(b"HTTP/1.1 400", await client.until(b"}"))
        # What does not declare anything is read up to what the application takes of a body.
        client = await self.connect(port)
        head, _, _ = chunked([refused]).partition(b"0\r\n\r\n")
        client.write(head)
        client.write(b"100000\r\n%b\r\n" % bytes(1 << 20) * 9)
        await self.until(lambda: not client.transport.dataBuffer)  # type: ignore[union-attr]
        self.assertEqual(client.received, b"")
        client.write(b"100000\r\n%b\r\n" % bytes(1 << 20) * 2)
        self.assertIn(b"HTTP/1.1 400", await client.until(b"}"))

    async def test_lostWhileWritten(self) -> None:
        """
        A client that goes away while the end of its file is being written leaves nothing.

        Nothing is removed before the thread has done with it, and the handler is not reached.
        """
        jobs: list[tuple[Deferred[Any], Any, Any]] = []

        def hold(function: Any, *arguments: Any) -> Deferred[Any]:
            jobs.append((Deferred(), function, arguments))
            return jobs[-1][0]

        def work() -> None:
            deferred, function, arguments = jobs.pop(0)
            deferred.callback(function(*arguments))

        self.runtime = Runtime(self.reactor, hold)
        port = await self.serve(upload(self.directory).any())
        client = await self.connect(port)
        client.write(post(form(file("a", b"x"))))
        await self.until(lambda: len(jobs) == 1)
        client.drop()
        await client.closed
        # A request of another client is answered after the server has seen the first one go.
        self.assertEqual((await self.send(port, post(b"", contentType=b"a/b"))).status, 200)
        self.seen.clear()
        self.assertEqual(len(jobs), 1)
        work()
        self.assertEqual((len(self.stored()), len(jobs)), (1, 1))
        work()
        self.assertEqual((self.stored(), self.seen, self.errors, jobs), ([], [], [], []))

    async def test_gathered(self) -> None:
        """While the disk is busy the client waits, and no more is held than one more write."""
        jobs: list[Any] = []
        largest = 0

        def hold(function: Any, *arguments: Any) -> Deferred[Any]:
            nonlocal largest
            pieces = arguments[2] if len(arguments) > 2 else ()
            largest = max(largest, sum(map(len, pieces)))
            job: Deferred[Any] = Deferred()
            jobs.append(job)
            return deferLater(self.reactor, 0, function, *arguments).addBoth(self._done, jobs, job)

        self.runtime = Runtime(self.reactor, hold)
        answer = await self.ask(upload(self.directory).any(), form(file("a", bytes(5 << 20))))
        self.assertEqual(answer.body["files"][0]["size"], 5 << 20)
        self.assertLessEqual(largest, 1 << 20)
        self.assertEqual(jobs, [])

    def _done(self, result: Any, jobs: list[Any], job: Any) -> Any:
        self.assertEqual(jobs, [job])
        jobs.clear()
        return result
