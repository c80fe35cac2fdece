"""Uploads as users of multer know them: what comes through, what is refused."""

import os
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.http import HTTPError, upload
from tests.http.middleware.uploads import (
    CONTENT_TYPE,
    UploadCase,
    chunked,
    field,
    file,
    form,
    post,
)

OCTETS = b"Content-Type: application/octet-stream"


class TakingTests(UploadCase):
    """What handlers see."""

    async def test_single(self) -> None:
        """One file is on the disk under 32 random hex digits, and described in C{req.file}."""
        single = upload(self.directory).single("a")
        body = form(
            file("a", b"con\r\ntent", "../r\xe9sum\xe9.PDF", b"Content-Type: Application/PDF")
        )
        answer = await self.ask(single, body)
        name = answer.body["file"]["filename"]
        self.assertRegex(name, r"\A[0-9a-f]{32}\Z")
        self.assertEqual(
            list(answer.body["file"].items()),
            [
                ("fieldname", "a"),
                ("originalname", "r\xe9sum\xe9.PDF"),
                ("encoding", "7bit"),
                ("mimetype", "application/pdf"),
                ("destination", self.directory),
                ("filename", name),
                ("path", os.path.join(self.directory, name)),
                ("size", 9),
            ],
        )
        with open(answer.body["file"]["path"], "rb") as stored:
            self.assertEqual(stored.read(), b"con\r\ntent")
        self.assertEqual((answer.body["body"], answer.body["files"]), ({}, None))

    async def test_memory(self) -> None:
        """Without C{dest} the file is in C{buffer}; the members are attributes, too."""
        await self.ask(upload().single("a"), form(file("a", b"\0\xff")))
        taken = self.seen[0].file
        self.assertEqual(
            list(taken), ["fieldname", "originalname", "encoding", "mimetype", "buffer", "size"]
        )
        self.assertEqual((taken.buffer, taken["buffer"]), (b"\0\xff", b"\0\xff"))
        self.assertEqual((taken.size, taken.mimetype), (2, "text/plain"))
        self.assertRaises(AttributeError, getattr, taken, "path")
        taken.path = "elsewhere"
        self.assertEqual(taken["path"], "elsewhere")
        del taken.path
        self.assertNotIn("path", taken)

    async def test_encoding(self) -> None:
        """A transfer encoding is told; the bytes are those that came."""
        part = file("a", b"aGk=", "f", b"Content-Transfer-Encoding: base64")
        await self.ask(upload().single("a"), form(part))
        self.assertEqual(self.seen[0].file.encoding, "base64")
        self.assertEqual(self.seen[0].file.buffer, b"aGk=")

    async def test_empty(self) -> None:
        """A file of no bytes is a file; an empty file name is none, whatever field it is of."""
        parts = (file("a", b""), file("b", b"", "", OCTETS), file("a", b"x", "dir/", OCTETS))
        answer = await self.ask(upload(self.directory).single("a"), form(*parts))
        self.assertEqual(answer.body["file"]["size"], 0)
        self.assertEqual(self.stored(), [answer.body["file"]["filename"]])
        answer = await self.ask(upload().single("a"), form(file("a", b"")))
        self.assertEqual(self.seen[1].file.buffer, b"")

    async def test_noFile(self) -> None:
        """A form without a file, or without a part at all, is no error."""
        answer = await self.ask(upload().single("a"), form(field("b", b"1")))
        self.assertEqual(answer.body, {"body": {"b": "1"}, "file": None, "files": None})
        answer = await self.ask(upload().array("a"), form())
        self.assertEqual(answer.body, {"body": {}, "file": None, "files": []})

    async def test_array(self) -> None:
        """Several files of one field are a list, in their order."""
        parts = [file("a", b"x" * size, f"{size}.txt") for size in (3, 0, 1)]
        answer = await self.ask(upload(self.directory).array("a", 3), form(*parts))
        files = [(entry["originalname"], entry["size"]) for entry in answer.body["files"]]
        self.assertEqual(files, [("3.txt", 3), ("0.txt", 0), ("1.txt", 1)])
        self.assertEqual(len(self.stored()), 3)

    async def test_fields(self) -> None:
        """Files of several fields are lists by field."""
        several = upload().fields([{"name": "a", "maxCount": 2}, {"name": "b"}, {"name": "c"}])
        await self.ask(several, form(file("b", b"1"), file("a", b"2"), file("b", b"3")))
        contents = {
            name: [entry.buffer for entry in files] for name, files in self.seen[0].files.items()
        }
        self.assertEqual(contents, {"b": [b"1", b"3"], "a": [b"2"]})

    async def test_anyAndNone(self) -> None:
        """C{any} takes files of every field, C{none} text only."""
        body = form(file("x", b"1"), field("t", b"2"), file("y", b"3"))
        await self.ask(upload().any(), body)
        self.assertEqual([entry.fieldname for entry in self.seen[0].files], ["x", "y"])
        answer = await self.ask(upload().none(), form(field("t", b"2")))
        self.assertEqual(answer.body, {"body": {"t": "2"}, "file": None, "files": None})

    async def test_body(self) -> None:
        """Text fields are in C{req.body} in their order, repeated and nested as in multer."""
        fields = (("z", b"1"), ("a", b"2"), ("z", b"3"), ("o[k]", b"4"), ("l[]", b"5"))
        answer = await self.ask(upload().none(), form(*(field(*entry) for entry in fields)))
        self.assertEqual(
            list(answer.body["body"].items()),
            [("z", ["1", "3"]), ("a", "2"), ("o", {"k": "4"}), ("l", ["5"])],
        )

    async def test_charsets(self) -> None:
        """Text is UTF-8 unless the field names another; what cannot be decoded is marked."""
        parts = (
            field("a", "\u20ac".encode()),
            field("b", b"\xe9\x80", b"Content-Type: text/plain; charset=ISO-8859-1"),
            field("c", b"\xff"),
            field("d", b"x", OCTETS),
        )
        answer = await self.ask(upload().none(), form(*parts))
        self.assertEqual(
            answer.body["body"], {"a": "\u20ac", "b": "\xe9\u20ac", "c": "\ufffd", "d": "x"}
        )
        part = field("a", b"x", b"Content-Type: text/plain; charset=utf-7")
        self.seen.clear()
        await self.assertRefused(upload().none(), form(part), 415, "charset.unsupported")

    async def test_otherTypes(self) -> None:
        """What is no multipart form passes untouched, its body unread."""
        read: list[bytes] = []

        async def readIt(req: Any, res: Any, next: Any) -> None:
            read.append(await req.read())
            await next()

        port = await self.serve(upload().single("a"), readIt)
        for contentType in (b"application/json", b"text/plain", b"xmultipart/form-data"):
            answer = await self.send(port, post(b"{}", contentType=contentType))
            self.assertEqual(answer.body, {"body": None, "file": None, "files": None})
        self.assertEqual(read, [b"{}"] * 3)
        noBody = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %b\r\n\r\n"
        answer = await self.send(port, noBody % CONTENT_TYPE)
        self.assertEqual(answer.body["body"], None)

    async def test_bytewise(self) -> None:
        """A form that comes a byte at a time, or in chunks, is the same form."""
        body = form(field("t", b"1"), file("a", b"x\r\n--aB3\r\ny"))
        single = upload(self.directory).single("a")
        port = await self.serve(single)
        wire = post(body)
        await self.send(port, *(wire[i : i + 1] for i in range(len(wire))))
        await self.send(port, chunked([body[i : i + 1] for i in range(len(body))]))
        for request in self.seen:
            with open(request.file.path, "rb") as stored:
                self.assertEqual(stored.read(), b"x\r\n--aB3\r\ny")
            self.assertEqual(request.body, {"t": "1"})
        self.assertEqual(len(self.seen), 2)

    async def test_large(self) -> None:
        """A file of many writes is on the disk byte for byte."""
        content = os.urandom(1 << 20) * 9
        answer = await self.ask(upload(self.directory).single("a"), form(file("a", content)))
        with open(answer.body["file"]["path"], "rb") as stored:
            self.assertTrue(stored.read() == content)
        self.assertEqual(answer.body["file"]["size"], len(content))

    async def test_keepAlive(self) -> None:
        """The connection can be used again after an upload, sized or chunked."""
        port = await self.serve(upload(self.directory).single("a"))
        client = await self.connect(port)
        body = form(file("a", b"x"))
        for wire in (post(body), chunked([body])):
            client.write(wire.replace(b"Connection: close\r\n", b""))
        client.write(post(body))
        received = await client.closed
        self.assertEqual(received.count(b"HTTP/1.1 200 OK"), 3)


class FilterTests(UploadCase):
    """The application decides."""

    async def test_callback(self) -> None:
        """C{cb} takes or skips a file; a skipped one is nowhere and does not count."""

        def onlyText(req: Any, upload: Any, cb: Any) -> None:
            cb(None, upload.originalname.endswith(".txt"))

        parts = [file("a", b"1", name) for name in ("a.exe", "b.txt")]
        answer = await self.ask(
            upload(self.directory, fileFilter=onlyText).single("a"), form(*parts)
        )
        self.assertEqual(answer.body["file"]["originalname"], "b.txt")
        self.assertEqual(self.stored(), [answer.body["file"]["filename"]])

    async def test_sees(self) -> None:
        """A filter sees the request, the fields before the file, and what is known of the file."""
        seen: list[Any] = []

        def look(req: Any, upload: Any, cb: Any) -> None:
            seen.append((req.body, dict(upload)))
            cb(None, True)

        body = form(
            field("t", b"1"), file("a", b"x", "n.txt", b"Content-Type: a/b"), field("u", b"2")
        )
        await self.ask(upload(fileFilter=look).single("a"), body)
        about = {"fieldname": "a", "originalname": "n.txt", "encoding": "7bit", "mimetype": "a/b"}
        self.assertEqual(seen, [({"t": "1"}, about)])
        self.assertEqual(self.seen[0].body, {"t": "1", "u": "2"})

    async def test_results(self) -> None:
        """A bool will do, from a function, a coroutine or a Deferred."""

        async def coroutine(req: Any, upload: Any, cb: Any) -> bool:
            await succeed(None)
            return upload.originalname == "yes"

        def function(req: Any, upload: Any, cb: Any) -> bool:
            return bool(upload.originalname == "yes")

        def deferred(req: Any, upload: Any, cb: Any) -> Deferred[bool]:
            return succeed(upload.originalname == "yes")

        for decide in (coroutine, function, deferred):
            takes = upload(fileFilter=decide).array("a")
            await self.ask(takes, form(file("a", b"1", "no"), file("a", b"2", "yes")))
            self.assertEqual([entry.buffer for entry in self.seen.pop().files], [b"2"])

    async def test_later(self) -> None:
        """Reading waits for a filter that takes its time, and goes on where it was."""
        waiting: list[Any] = []

        def later(req: Any, upload: Any, cb: Any) -> None:
            self.reactor.callLater(0, cb, None, True)
            waiting.append(cb)

        body = form(file("a", b"1" * 100_000), file("a", b"2"))
        answer = await self.ask(upload(self.directory, fileFilter=later).array("a"), body)
        self.assertEqual([entry["size"] for entry in answer.body["files"]], [100_000, 1])
        # A filter that changes its mind is too late.
        waiting[0](HTTPError(400, "too late"))
        waiting[1](None, False)

    async def test_errors(self) -> None:
        """An error keeps its own status, 500 without one; earlier files are removed."""

        def refuse(error: Any) -> Any:
            def decide(req: Any, upload: Any, cb: Any) -> None:
                if upload.originalname == "good":
                    cb(None, True)
                else:
                    cb(error, None)

            return decide

        def raising(req: Any, upload: Any, cb: Any) -> None:
            if upload.originalname != "good":
                raise HTTPError(418, "teapot")
            cb(None, True)

        async def failing(req: Any, upload: Any, cb: Any) -> bool:
            raising(req, upload, lambda *decision: None)
            return True

        body = form(file("a", b"1", "good"), file("a", b"2", "bad"))
        for decide, status in (
            (refuse(HTTPError(418, "teapot")), 418),
            (refuse(ValueError("secret")), 500),
            (refuse("not an exception"), 500),
            (raising, 418),
            (failing, 418),
        ):
            answer = await self.ask(upload(self.directory, fileFilter=decide).array("a"), body)
            self.assertEqual((answer.status, self.stored(), self.seen), (status, [], []))
            self.assertNotIn("secret", answer.body["error"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError, HTTPError)), 2)


class SetUpTests(SynchronousTestCase):
    """Mistakes are found when the application is made."""

    def test_limits(self) -> None:
        """A limit that does not exist or has no value is an error that names it."""
        for limits in (
            {"filesize": 1},
            {"fileSize": "much"},
            {"fileSize": -1},
            {"fileSize": 1.5},
            {"files": "1"},
            {"fields": -1},
            {"parts": True},
            {"fieldNameSize": None},
        ):
            error = self.assertRaises(OptionError, upload, limits=limits)
            self.assertIn(next(iter(limits)), str(error))
        upload(limits={"fileSize": "1.5mb", "files": 0, "parts": None})

    def test_fields(self) -> None:
        """A field has a name, and perhaps a largest count."""
        takes = upload()
        self.assertRaises(OptionError, takes.single, "")
        self.assertRaises(OptionError, takes.array, "a", -1)
        self.assertRaises(OptionError, takes.fields, [{"maxCount": 1}])
        self.assertRaises(OptionError, takes.fields, [{"name": "a", "maxcount": 1}])
        self.assertRaises(OptionError, upload, fileFilter="*.txt")

    def test_directory(self) -> None:
        """The directory is made, with those above it; one that cannot be is an error at once."""
        directory = os.path.join(self.mktemp(), "a", "b")
        upload(directory)
        upload(directory)
        self.assertTrue(os.path.isdir(directory))
        path = self.mktemp()
        with open(path, "wb"):
            pass
        self.assertRaises(OSError, upload, path)
