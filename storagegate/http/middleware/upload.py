"""
C{upload}: files in multipart forms, with the options and errors of C{multer}.

A file goes to a directory as it arrives, under a random name, or into memory. Text fields are in
C{req.body}, nested by the brackets in their names (see L{storagegate.http.querystring}). Once the
next handler runs, the files belong to the application; if the request fails before, they are
removed.
"""

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any

from attrs import evolve, field, fields, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from storagegate.core.options import OptionError, readSize, takesMapping
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.errors import HTTPError
from storagegate.http.querystring import FIELD_DEPTH_LIMIT, FieldTree, TooDeep
from storagegate.net.http.interfaces import BodyLost, ClientLost
from storagegate.net.http.multipart import (
    PART_END,
    BadMultipart,
    Event,
    MultipartDecoder,
    PartHead,
    boundaryOf,
)
from storagegate.net.transport import writeAll

_WRITE_SIZE = 256 * 1024
"""Bytes of one write: fewer cost a change of threads each, more cost memory."""

_WRITE_PIECES = 512
"""Pieces of one write: the kernel takes 1024, and a client may send a byte at a time."""

_log = Logger()


class UploadedFile(dict[str, Any]):
    """
    A file as handlers see it; its members are keys and attributes.

    C{fieldname originalname encoding mimetype}, and once it is stored C{size} and either
    C{destination filename path} or C{buffer}.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an uploaded file has no {name}; it has {list(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self.__getattr__(name)
        del self[name]


class IFileStore(Interface):
    """The files of one request, one after another."""

    def begin() -> None:
        """Begin a file."""

    def write(payload: bytes) -> Awaitable[None] | None:
        """
        Take some of its bytes.

        @return: What to wait for before there may be more; C{None} for nothing.
        """

    def end(file: UploadedFile) -> Awaitable[None] | None:
        """End it, and tell in C{file} where it is."""

    def discard() -> Deferred[None]:
        """Remove all files, whatever has become of them. Fires when they are gone."""


@implementer(IFileStore)
class MemoryStore:
    """Files in memory. How much of them there may be is for the caller to count."""

    def __init__(self) -> None:
        self._content = bytearray()

    def begin(self) -> None:
        """See L{IFileStore.begin}."""
        self._content = bytearray()

    def write(self, payload: bytes) -> None:
        """See L{IFileStore.write}."""
        self._content += payload

    def end(self, file: UploadedFile) -> None:
        """See L{IFileStore.end}."""
        file.update(buffer=bytes(self._content), size=len(self._content))
        self._content = bytearray()

    def discard(self) -> Deferred[None]:
        """See L{IFileStore.discard}."""
        self._content = bytearray()
        return succeed(None)


@implementer(IFileStore)
class DirectoryStore:
    """
    Files in a directory, under random names: nothing that the client says is in a path.

    One job is in a thread at a time. Meanwhile the next bytes are gathered, so that the network and
    the disk both work; when there are enough, the reader waits.
    """

    def __init__(self, run: Callable[..., Deferred[Any]], directory: str) -> None:
        """
        @param run: Calls a function in a thread.
        """
        self._run = run
        self._directory = directory
        self._paths: list[str] = []
        self._descriptor: int | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._size = 0
        # The job: whether there is one, who waits for its end, what went wrong in it.
        self._working = False
        self._waiter: Deferred[None] | None = None
        self._failure: Failure | None = None

    def begin(self) -> None:
        """See L{IFileStore.begin}."""
        self._paths.append(os.path.join(self._directory, secrets.token_hex(16)))
        self._size = 0

    def write(self, payload: bytes) -> Awaitable[None] | None:
        """See L{IFileStore.write}."""
        self._pieces.append(payload)
        self._held += len(payload)
        if self._held < _WRITE_SIZE and len(self._pieces) < _WRITE_PIECES:
            return None
        return self._flush(isLast=False)

    async def end(self, file: UploadedFile) -> None:
        """See L{IFileStore.end}."""
        await self._flush(isLast=True)
        await self._idle()
        path = self._paths[-1]
        file.update(
            destination=self._directory, filename=os.path.basename(path), path=path, size=self._size
        )

    def discard(self) -> Deferred[None]:
        """See L{IFileStore.discard}."""
        # Its own: whoever waits may be cancelled, which must not keep the files.
        discarded: Deferred[None] = Deferred()
        Deferred.fromCoroutine(self._discard()).addBoth(discarded.callback)
        return discarded

    async def _discard(self) -> None:
        self._pieces, self._held = [], 0
        while self._working:
            await self._worked()
        self._failure = None
        paths, self._paths = self._paths, []
        descriptor, self._descriptor = self._descriptor, None
        if paths:
            try:
                await self._run(_remove, descriptor, paths)
            except Exception:
                # Whatever made them unwanted is what the caller should hear of.
                _log.failure("uploaded files stay behind: {paths}", paths=paths)

    async def _flush(self, isLast: bool) -> None:
        await self._idle()
        pieces, self._pieces = self._pieces, []
        self._size += self._held
        self._held = 0
        self._working = True
        job = self._run(_write, self._descriptor, self._paths[-1], pieces, isLast)
        job.addCallbacks(self._written, self._failed)

    def _written(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._end()

    def _failed(self, failure: Failure) -> None:
        # The thread has closed it.
        self._descriptor = None
        self._failure = failure
        self._end()

    def _end(self) -> None:
        self._working = False
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.callback(None)

    def _worked(self) -> Deferred[None]:
        """Wait for the end of the job; the waiting may be cancelled, the job may not."""
        self._waiter = Deferred()
        return self._waiter

    async def _idle(self) -> None:
        while self._working:
            await self._worked()
        failure, self._failure = self._failure, None
        if failure is not None:
            failure.raiseException()


def _write(descriptor: int | None, path: str, pieces: Sequence[bytes], isLast: bool) -> int | None:
    """
    Append to a file, which is made if it is not open yet. Runs in a thread.

    @return: The open file; C{None} if this was the last of it.
    @raise OSError: The file is closed then.
    """
    if descriptor is None:
        # The rights that the process gives to any file, as the framework's users know it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o666)
    try:
        writeAll(partial(os.writev, descriptor), pieces)
    except OSError:
        os.close(descriptor)
        raise
    if not isLast:
        return descriptor
    os.close(descriptor)
    return None


def _remove(descriptor: int | None, paths: Sequence[str]) -> None:
    """Close and remove files. Runs in a thread."""
    if descriptor is not None:
        os.close(descriptor)
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            # It was not made yet.
            pass


_STATUSES = {
    "LIMIT_PART_COUNT": 413,
    "LIMIT_FILE_SIZE": 413,
    "LIMIT_FILE_COUNT": 413,
    "LIMIT_FIELD_KEY": 413,
    "LIMIT_FIELD_VALUE": 413,
    "LIMIT_FIELD_COUNT": 413,
    "LIMIT_FIELD_NESTING": 400,
    "LIMIT_UNEXPECTED_FILE": 400,
    "MISSING_FIELD_NAME": 400,
}


def uploadError(code: str, message: str, fieldName: str | None = None) -> HTTPError:
    """
    Make the error for one of C{multer}'s codes.

    @param fieldName: The form field that it is about; the error's C{field}.
    """
    return HTTPError(_STATUSES[code], message, code, field=fieldName)


def malformed(error: BadMultipart) -> HTTPError:
    """Make the error for a form that cannot be read; its code is that of the other parsers."""
    status = 413 if error.isTooLarge else 400
    return HTTPError(status, f"The upload cannot be read: {error}", "entity.parse.failed")


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("is a whole number from 0")
    return value


@frozen(kw_only=True)
class UploadLimits:
    """
    The limits of one upload.

    @ivar fieldNameSize: Bytes of a field's name, of files too; what C{multer} documents.
    @ivar fieldSize: Bytes of a text field's value; the same.
    @ivar fileSize: Bytes of a file. Without it one on disk has no limit, as in C{multer}; files in
        memory together may have what the application takes of a body that it holds whole.
    @ivar files: Files, also those that a filter skips: a directory of pictures has a hundred, and
        each is an inode.
    @ivar fields: Text fields: as many as a URL-encoded form may have.
    @ivar parts: Both and empty file inputs together. Without it, room for each to reach its limit.
    """

    fieldNameSize: int = field(default=100, converter=readSize)
    fieldSize: int = field(default=1024 * 1024, converter=readSize)
    fileSize: int | None = field(default=None, converter=optional(readSize))
    files: int = field(default=100, converter=_count)
    fields: int = field(default=1000, converter=_count)
    parts: int | None = field(default=None, converter=optional(_count))

    @property
    def partCount(self) -> int:
        """Give how many parts there may be."""
        return self.files + self.fields if self.parts is None else self.parts


def readLimits(limits: Mapping[str, Any]) -> UploadLimits:
    """
    Read the limits that an application sets.

    @raise OptionError: If there is no such limit, or its value is none.
    """
    known = [attribute.name for attribute in fields(UploadLimits)]
    result = UploadLimits()
    for name, value in limits.items():
        if name not in known:
            raise OptionError(f"there is no upload limit {name}; there are {known}")
        try:
            result = evolve(result, **{name: value})
        except ValueError as error:
            raise OptionError(f"the upload limit {name} {error}") from None
    return result


FileFilter = Callable[[Any, UploadedFile, Callable[..., None]], Any]
"""C{fileFilter(req, file, cb)}: calls C{cb(error, accept)}, or gives a bool, at once or later."""

# Charsets of text fields: those of the Encoding Standard that forms are really in.
_CODECS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "cp1252",
    "ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "windows-1252": "cp1252",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
}


@frozen
class UploadRules:
    """
    What one middleware lets in.

    @ivar allowed: How many files each field may have, C{None} for as many as there may be at all;
        other fields may have none. C{None} if any field may have files.
    """

    limits: UploadLimits
    fileFilter: FileFilter | None
    allowed: Mapping[str, int | None] | None


class _Field:
    """A text field that is coming."""

    def __init__(self, reader: "UploadReader", head: PartHead) -> None:
        codec = _CODECS.get(head.charset or "utf-8")
        if codec is None:
            raise HTTPError(415, "The charset of a field is not supported", "charset.unsupported")
        self._codec = codec
        self._reader = reader
        self._name = head.name
        self._value = bytearray()

    def write(self, payload: bytes) -> None:
        reader = self._reader
        size = len(self._value) + len(payload)
        if size > reader.rules.limits.fieldSize or not reader.hold(len(payload)):
            raise uploadError("LIMIT_FIELD_VALUE", "A field is too long", self._name)
        self._value += payload

    def end(self) -> None:
        try:
            self._reader.fields.add(self._name, self._value.decode(self._codec, "replace"))
        except TooDeep:
            message = f"The name of a field nests deeper than {FIELD_DEPTH_LIMIT}"
            raise uploadError("LIMIT_FIELD_NESTING", message, self._name) from None


class _File:
    """A file that is coming."""

    def __init__(self, reader: "UploadReader", file: UploadedFile) -> None:
        self._reader = reader
        self._file = file
        self._size = 0
        reader.store.begin()

    def write(self, payload: bytes) -> Awaitable[None] | None:
        reader = self._reader
        self._size += len(payload)
        limit = reader.rules.limits.fileSize
        if limit is not None and self._size > limit:
            raise uploadError("LIMIT_FILE_SIZE", "A file is too large", self._file.fieldname)
        if reader.holdsFiles and not reader.hold(len(payload)):
            raise uploadError("LIMIT_FILE_SIZE", "The files are too large", self._file.fieldname)
        waiting: Awaitable[None] | None = reader.store.write(payload)
        return waiting

    async def end(self) -> None:
        waiting = self._reader.store.end(self._file)
        if waiting is not None:
            await waiting
        self._reader.stored(self._file)


class _Skipped:
    """A part whose content nobody wants."""

    def write(self, payload: bytes) -> None: ...

    def end(self) -> None: ...


_SKIPPED = _Skipped()


class UploadReader:
    """
    Reads the form of one request.

    @ivar rules: What it may have.
    @ivar store: Where its files go.
    @ivar holdsFiles: Whether that is memory.
    @ivar fields: Its text fields.
    @ivar files: Its files, in the order in which they came.
    @ivar received: How many bytes of the body have been read.
    """

    def __init__(
        self, request: Any, rules: UploadRules, store: IFileStore, holdsFiles: bool
    ) -> None:
        self.rules = rules
        self.store = store
        self.holdsFiles = holdsFiles
        self.fields = FieldTree()
        self.files: list[UploadedFile] = []
        self.received = 0
        self._request = request
        self._part: _Field | _File | _Skipped = _SKIPPED
        self._parts = self._fieldCount = self._fileCount = 0
        self._taken: dict[str, int] = {}
        self._deciding: Deferred[bool] | None = None
        # What of it may be in memory, all together.
        whole: int = request.app.settings.wholeBodySize
        self._budget = max(whole, rules.limits.fileSize or 0) if holdsFiles else whole

    async def read(self) -> None:
        """
        Read the form.

        @raise HTTPError: If it is malformed or breaks the rules.
        @raise BodyLost: If the client goes away.
        """
        request = self._request
        try:
            decoder = MultipartDecoder(boundaryOf(request.get("content-type")))
            async for chunk in request:
                self.received += len(chunk)
                for event in decoder.feed(chunk):
                    waiting = self._take(event)
                    if waiting is not None:
                        await waiting
            decoder.close()
        except BadMultipart as error:
            raise malformed(error) from None
        if request.raw.disconnected:
            # While the last file was written; nobody would answer for the files.
            raise ClientLost()

    def hold(self, count: int) -> bool:
        """Account for bytes in memory; say whether they may be."""
        self._budget -= count
        return self._budget >= 0

    def stored(self, file: UploadedFile) -> None:
        """Take a file that is complete."""
        self.files.append(file)

    def _take(self, event: Event) -> Awaitable[None] | None:
        if isinstance(event, bytes):
            return self._part.write(event)
        if event is PART_END:
            part, self._part = self._part, _SKIPPED
            return part.end()
        assert isinstance(event, PartHead)
        return self._begin(event)

    def _begin(self, head: PartHead) -> Awaitable[None] | None:
        limits, name = self.rules.limits, head.name
        self._parts += 1
        if self._parts > limits.partCount:
            raise uploadError("LIMIT_PART_COUNT", "The form has too many parts")
        if not name:
            raise uploadError("MISSING_FIELD_NAME", "A field has no name")
        if len(name.encode()) > limits.fieldNameSize:
            message = "The name of a field is too long"
            raise uploadError("LIMIT_FIELD_KEY", message, name[: limits.fieldNameSize])
        if head.fileName is None:
            self._fieldCount += 1
            if self._fieldCount > limits.fields:
                raise uploadError("LIMIT_FIELD_COUNT", "The form has too many fields", name)
            self._part = _Field(self, head)
        elif head.fileName:
            return self._beginFile(head)
        return None

    def _beginFile(self, head: PartHead) -> Awaitable[None] | None:
        rules, name = self.rules, head.name
        self._fileCount += 1
        if self._fileCount > rules.limits.files:
            raise uploadError("LIMIT_FILE_COUNT", "The form has too many files", name)
        taken = self._taken.get(name, 0) + 1
        allowed = None if rules.allowed is None else rules.allowed.get(name, 0)
        if allowed is not None and taken > allowed:
            raise uploadError("LIMIT_UNEXPECTED_FILE", "A file is not expected", name)
        self._taken[name] = taken
        file = UploadedFile(
            fieldname=name,
            originalname=head.fileName,
            encoding=head.encoding,
            mimetype=head.mimeType,
        )
        if rules.fileFilter is not None:
            return self._filter(file, rules.fileFilter)
        self._part = _File(self, file)
        return None

    async def _filter(self, file: UploadedFile, fileFilter: FileFilter) -> None:
        # What has come so far: filters decide by fields that stand before the file.
        self._request.body = self.fields.build()
        if await self._decide(file, fileFilter):
            self._part = _File(self, file)
        else:
            self._taken[file.fieldname] -= 1

    def _decide(self, file: UploadedFile, fileFilter: FileFilter) -> Deferred[bool]:
        """Ask the filter. Whoever goes first decides: its callback, its result, a lost client."""
        decided: Deferred[bool] = Deferred()

        def called(error: Any = None, accept: Any = None) -> None:
            if decided.called:
                return
            if error is None:
                decided.callback(bool(accept))
            else:
                isError = isinstance(error, BaseException | Failure)
                decided.errback(error if isError else HTTPError(500, str(error)))

        def returned(result: Any) -> None:
            if isinstance(result, bool):
                called(None, result)

        if self._deciding is None:
            self._request.on("close", self._clientLost)
        self._deciding = decided
        result = fileFilter(self._request, file, called)
        if isawaitable(result):
            ensureDeferred(result).addCallbacks(returned, called)  # type: ignore[arg-type]
        else:
            returned(result)
        return decided

    def _clientLost(self) -> None:
        decided = self._deciding
        if decided is not None and not decided.called:
            decided.errback(BodyLost("the client went away while a file was judged"))


class Upload:
    """
    A way to take uploads; its methods make the middleware for a route.

    A request that is no multipart form passes untouched.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str] | None,
        limits: Mapping[str, Any],
        fileFilter: FileFilter | None,
    ) -> None:
        if fileFilter is not None and not callable(fileFilter):
            raise OptionError("the upload option fileFilter is a function (req, file, cb)")
        self._limits = readLimits(limits)
        self._filter = fileFilter
        self._directory = None if dest is None else os.fspath(dest)
        if self._directory is not None:
            os.makedirs(self._directory, exist_ok=True)

    def single(self, field: str) -> MiddlewareHandler:
        """Take one file of one field, into C{req.file}."""
        return self._make({_fieldName(field): 1}, _setFile)

    def array(self, field: str, n: int | None = None) -> MiddlewareHandler:
        """Take up to C{n} files of one field, into the list C{req.files}."""
        return self._make({_fieldName(field): _maximum(n)}, _setList)

    def fields(self, fields: Sequence[Mapping[str, Any]]) -> MiddlewareHandler:
        """
        Take files of several fields, into lists by field in C{req.files}.

        @param fields: Mappings with C{name} and perhaps C{maxCount}.
        """
        allowed: dict[str, int | None] = {}
        for entry in fields:
            unknown = entry.keys() - {"name", "maxCount"}
            if unknown:
                raise OptionError(f"an upload field has name and maxCount, no {sorted(unknown)}")
            allowed[_fieldName(entry.get("name"))] = _maximum(entry.get("maxCount"))
        return self._make(allowed, _setLists)

    def none(self) -> MiddlewareHandler:
        """Take text fields only."""
        return self._make({}, _setNothing)

    def any(self) -> MiddlewareHandler:
        """Take files of whatever fields, into the list C{req.files}."""
        return self._make(None, _setList)

    def _make(
        self,
        allowed: Mapping[str, int | None] | None,
        setFiles: Callable[[Any, list[UploadedFile]], None],
    ) -> MiddlewareHandler:
        rules = UploadRules(self._limits, self._filter, allowed)

        def takeUpload(req: Any, res: Any, next: Callable[..., Any]) -> Any:
            kind = req.get("content-type") or ""
            if not kind.lstrip().lower().startswith("multipart/") or not req.hasBody:
                return next()
            return self._receive(req, rules, setFiles, next)

        return takeUpload

    async def _receive(
        self,
        request: Any,
        rules: UploadRules,
        setFiles: Callable[[Any, list[UploadedFile]], None],
        next: Callable[[], Awaitable[None]],
    ) -> None:
        coding = (request.get("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            message = "A compressed upload is not supported"
            raise HTTPError(415, message, "encoding.unsupported", encoding=coding)
        directory = self._directory
        if directory is None:
            reader = UploadReader(request, rules, MemoryStore(), holdsFiles=True)
        else:
            store = DirectoryStore(request.app.runtime.run, directory)
            reader = UploadReader(request, rules, store, holdsFiles=False)
        try:
            await reader.read()
        except GeneratorExit:
            # Nobody runs this any more: the files go all the same, while nobody waits.
            reader.store.discard()
            raise
        except Exception as error:
            await reader.store.discard()
            if not isinstance(error, BodyLost | ClientLost):
                await _readOn(request, reader.received)
            raise
        request.body = reader.fields.build()
        setFiles(request, reader.files)
        await next()


async def _readOn(request: Any, received: int) -> None:
    """
    Read what else a client is sending whose upload was refused.

    Most clients read no answer before they have sent everything, and take a connection that is
    closed before that for an error of the network. What an application takes of any body is read;
    a client that declares more, or has asked before it sends, is answered at once.

    @raise BodyLost: If there is nobody left to answer.
    """
    bound: int = request.app.settings.wholeBodySize
    length = request.contentLength
    if length is not None and length - received > bound:
        return
    if not received and request.get("expect"):
        return
    async for chunk in request.raw.body:
        bound -= len(chunk)
        if bound < 0:
            return


def _setFile(request: Any, files: list[UploadedFile]) -> None:
    request.file = files[0] if files else None


def _setList(request: Any, files: list[UploadedFile]) -> None:
    request.files = files


def _setLists(request: Any, files: list[UploadedFile]) -> None:
    byField: dict[str, list[UploadedFile]] = {}
    for file in files:
        byField.setdefault(file.fieldname, []).append(file)
    request.files = byField


def _setNothing(request: Any, files: list[UploadedFile]) -> None: ...


def _fieldName(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise OptionError("an upload field has a name")
    return name


def _maximum(count: Any) -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise OptionError("the most files that an upload field may have is a whole number")
    return count


@takesMapping
def upload(
    dest: str | os.PathLike[str] | None = None,
    limits: Mapping[str, Any] = {},
    fileFilter: FileFilter | None = None,
) -> Upload:
    """
    Make a way to take uploads.

    @param dest: The directory that files go to, made if need be. Without one they are in memory.
    @param limits: See L{UploadLimits<storagegate.http.middleware.upload.UploadLimits>}.
    @param fileFilter: C{fileFilter(req, file, cb)} decides about each file: it calls C{cb(error,
        accept)}, now or later, or gives a bool, perhaps as a coroutine. Reading waits for it.
        C{cb(error, None)} refuses the request, C{cb(None, False)} skips the file.
    @raise OptionError: If a limit is unknown or has no value.
    """
    return Upload(dest, limits, fileFilter)
