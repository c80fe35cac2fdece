"""
C{upload}: files in multipart forms, with the options and errors of C{multer}.

A file is written to a directory under a random name as it arrives, or kept in memory. C{req.body}
holds the text fields, nested by the brackets in their names (see L{storagegate.http.querystring}).
Once the next handler runs, the files belong to the application; if the request fails earlier, they
are removed.
"""

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any

from attrs import field, frozen
from attrs.converters import optional
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from storagegate.core.options import OptionError, makeOptions, readSize, takesMapping
from storagegate.core.streams import SharedFuture
from storagegate.core.task import fromCoroutine, resolve
from storagegate.http.dispatch import MiddlewareHandler
from storagegate.http.errors import HTTPError
from storagegate.http.querystring import FIELD_DEPTH_LIMIT, FieldTree, TooDeep
from storagegate.net.http.interfaces import BodyLost, ClientLost
from storagegate.net.http.multipart import (
    BadMultipart,
    MultipartDecoder,
    PartHead,
    boundaryOf,
)
from storagegate.net.transport import writeAll

_WRITE_SIZE = 256 * 1024
"""Bytes of one write: smaller writes need more thread switches, larger ones more memory."""

_WRITE_PIECES = 512
"""Pieces of one write: the kernel accepts 1024, and a client may send a byte at a time."""

_log = Logger()


class UploadedFile(dict[str, Any]):
    """
    An uploaded file; its members are both keys and attributes.

    The members are C{fieldname originalname encoding mimetype}, and once it is stored, C{size} and
    either C{destination filename path} or C{buffer}.
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


class MemoryStore:
    """Keeps the files of one request in memory, one after another. The caller bounds their size."""

    def __init__(self) -> None:
        self._content = bytearray()

    def begin(self) -> None:
        """Begin a file."""
        self._content = bytearray()

    def write(self, payload: bytes) -> None:
        """Append to the file."""
        self._content += payload

    async def end(self, file: UploadedFile) -> None:
        """End the file, and set the members of C{file} that describe its storage."""
        file.update(buffer=bytes(self._content), size=len(self._content))
        self._content = bytearray()

    def discard(self) -> Deferred[None]:
        """Remove all files, including unfinished ones. Fires when they are removed."""
        self._content = bytearray()
        return succeed(None)


class DirectoryStore:
    """
    Writes the files of one request to a directory under random names, so that no path contains
    client data.

    One write at a time runs in a thread while the next bytes are collected, so that network and
    disk are both busy; at L{_WRITE_SIZE} bytes the reader waits.
    """

    def __init__(self, run: Callable[..., Deferred[Any]], directory: str) -> None:
        self._run = run
        self._directory = directory
        self._paths: list[str] = []
        self._descriptor: int | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._size = 0
        # The last write, whose result is the open file.
        self._write: SharedFuture[int | None] | None = None

    def begin(self) -> None:
        """See L{MemoryStore.begin}."""
        self._paths.append(os.path.join(self._directory, secrets.token_hex(16)))
        self._size = 0

    def write(self, payload: bytes) -> Awaitable[None] | None:
        """
        Append to the file.

        @param payload: The next bytes of the file.
        @return: An awaitable that must be done before the next call, or C{None}.
        """
        self._pieces.append(payload)
        self._held += len(payload)
        if self._held < _WRITE_SIZE and len(self._pieces) < _WRITE_PIECES:
            return None
        return self._flush(isLast=False)

    async def end(self, file: UploadedFile) -> None:
        """See L{MemoryStore.end}."""
        await self._flush(isLast=True)
        await self._idle()
        path = self._paths[-1]
        file.update(
            destination=self._directory, filename=os.path.basename(path), path=path, size=self._size
        )

    def discard(self) -> Deferred[None]:
        """See L{MemoryStore.discard}."""
        # A separate Deferred: the wait may be cancelled, but not the removal.
        discarded: Deferred[None] = Deferred()
        Deferred.fromCoroutine(self._discard()).addBoth(discarded.callback)
        return discarded

    async def _discard(self) -> None:
        self._pieces, self._held = [], 0
        # A failed write has closed the file.
        with suppress(Exception):
            await self._idle()
        paths, self._paths = self._paths, []
        descriptor, self._descriptor = self._descriptor, None
        if paths:
            try:
                await self._run(_remove, descriptor, paths)
            except Exception:
                # The caller reports the error that made it discard the files.
                _log.failure("uploaded files could not be removed: {paths}", paths=paths)

    async def _flush(self, isLast: bool) -> None:
        await self._idle()
        pieces, self._pieces = self._pieces, []
        self._size += self._held
        self._held = 0
        # The wait may be cancelled, but not the write.
        write: SharedFuture[int | None] = SharedFuture()
        self._write = write
        job = self._run(_write, self._descriptor, self._paths[-1], pieces, isLast)
        self._descriptor = None
        job.addCallbacks(write.set, lambda failure: write.fail(failure.value))

    async def _idle(self) -> None:
        """Wait for the end of the last write, and take over its result."""
        write = self._write
        if write is not None:
            try:
                self._descriptor = await write.wait()
            finally:
                if write.isKnown:
                    self._write = None


def _write(descriptor: int | None, path: str, pieces: Sequence[bytes], isLast: bool) -> int | None:
    """
    Append to a file, creating it if it is not open yet. Runs in a thread.

    @return: The descriptor; C{None} once the file is complete and closed.
    @raise OSError: The file is closed on failure.
    """
    if descriptor is None:
        # The process's default file mode, as users of multer expect.
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
        # The file may not have been created yet.
        with suppress(FileNotFoundError):
            os.unlink(path)


_MALFORMED = ("LIMIT_FIELD_NESTING", "LIMIT_UNEXPECTED_FILE", "MISSING_FIELD_NAME")


def uploadError(code: str, message: str, fieldName: str | None = None) -> HTTPError:
    """
    Make the error for one of C{multer}'s codes.

    @param code: The name of the error, such as C{LIMIT_FILE_SIZE}.
    @param message: The text for the client.
    @param fieldName: The form field that caused it; becomes the error's C{field}.
    """
    return HTTPError(400 if code in _MALFORMED else 413, message, code, field=fieldName)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("is a whole number from 0")
    return value


@frozen(kw_only=True)
class UploadLimits:
    """
    The limits of one upload.

    @ivar fieldNameSize: Bytes of a field's name, also for files; C{multer}'s default.
    @ivar fieldSize: Bytes of a text field's value; C{multer}'s default.
    @ivar fileSize: Bytes of a file. By default a file on disk is unlimited, as in C{multer}; files
        in memory together have the application's limit of a body held in memory.
    @ivar files: Files, including skipped ones: a directory of pictures has a hundred, and each is
        an inode.
    @ivar fields: Text fields, as many as in a URL-encoded form.
    @ivar parts: Files, fields and empty file inputs together; by default C{files + fields}.
    """

    fieldNameSize: int = field(default=100, converter=readSize)
    fieldSize: int = field(default=1024 * 1024, converter=readSize)
    fileSize: int | None = field(default=None, converter=optional(readSize))
    files: int = field(default=100, converter=_count)
    fields: int = field(default=1000, converter=_count)
    parts: int | None = field(default=None, converter=optional(_count))


FileFilter = Callable[[Any, UploadedFile, Callable[..., None]], Any]
"""C{fileFilter(req, file, cb)}: calls C{cb(error, accept)}, or returns a bool or an awaitable."""

# Charsets of text fields: the charsets of the Encoding Standard that forms use.
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


class UploadReader:
    """
    Reads the form of one request.

    @ivar fields: The text fields.
    @ivar files: The complete files, in order of arrival.
    @ivar received: Bytes read of the body.
    """

    def __init__(
        self,
        request: Any,
        store: MemoryStore | DirectoryStore,
        limits: UploadLimits,
        fileFilter: FileFilter | None,
        allowed: Mapping[str, int | None] | None,
    ) -> None:
        """
        @param allowed: Maximum number of files by field, where C{None} sets no limit; other fields
            may not have files. C{None} if any field may have files.
        """
        self.fields = FieldTree()
        self.files: list[UploadedFile] = []
        self.received = 0
        self._request = request
        self._store = store
        self._limits = limits
        self._fileFilter = fileFilter
        self._allowed = allowed
        # The part being received: a field or a file; neither if it is skipped.
        self._field: PartHead | None = None
        self._file: UploadedFile | None = None
        self._value = bytearray()
        self._size = 0
        self._parts = self._fieldCount = self._fileCount = 0
        self._taken: dict[str, int] = {}
        self._holdsFiles = isinstance(store, MemoryStore)
        # Bytes that may still be kept in memory.
        whole: int = request.app.settings.wholeBodySize
        self._budget = max(whole, limits.fileSize or 0) if self._holdsFiles else whole

    async def read(self) -> None:
        """
        Read the form.

        @raise HTTPError: If the form is malformed or exceeds a limit.
        @raise BodyLost: If the client disconnects.
        """
        request = self._request
        try:
            decoder = MultipartDecoder(boundaryOf(request.get("content-type")))
            async for chunk in request:
                self.received += len(chunk)
                for event in decoder.feed(chunk):
                    if isinstance(event, bytes):
                        waiting = self._write(event)
                        if waiting is not None:
                            await waiting
                    elif isinstance(event, PartHead):
                        await self._begin(event)
                    else:
                        await self._end()
                if isinstance(self._store, MemoryStore):
                    request.raw.body.hold(self.received)
            decoder.close()
        except BadMultipart as error:
            status = 413 if error.isTooLarge else 400
            message = f"The upload cannot be read: {error}"
            raise HTTPError(status, message, "entity.parse.failed") from None
        if request.raw.disconnected:
            # It disconnected while the last file was written.
            raise ClientLost()

    async def _begin(self, head: PartHead) -> None:
        limits, name = self._limits, head.name
        maxParts = limits.files + limits.fields if limits.parts is None else limits.parts
        self._parts += 1
        if self._parts > maxParts:
            raise uploadError("LIMIT_PART_COUNT", "The form has too many parts")
        if not name:
            raise uploadError("MISSING_FIELD_NAME", "A field has no name")
        if len(name.encode()) > limits.fieldNameSize:
            message = "The name of a field is too long"
            raise uploadError("LIMIT_FIELD_KEY", message, name[: limits.fieldNameSize])
        self._size = 0
        if head.fileName is None:
            self._fieldCount += 1
            if self._fieldCount > limits.fields:
                raise uploadError("LIMIT_FIELD_COUNT", "The form has too many fields", name)
            if (head.charset or "utf-8") not in _CODECS:
                message = "The charset of a field is not supported"
                raise HTTPError(415, message, "charset.unsupported")
            self._field = head
            self._value = bytearray()
        elif head.fileName:
            self._fileCount += 1
            if self._fileCount > limits.files:
                raise uploadError("LIMIT_FILE_COUNT", "The form has too many files", name)
            await self._beginFile(head)

    async def _beginFile(self, head: PartHead) -> None:
        name = head.name
        taken = self._taken.get(name, 0)
        allowed = None if self._allowed is None else self._allowed.get(name, 0)
        if allowed is not None and taken >= allowed:
            raise uploadError("LIMIT_UNEXPECTED_FILE", "A file is not expected", name)
        file = UploadedFile(
            fieldname=name,
            originalname=head.fileName,
            encoding=head.encoding,
            mimetype=head.mimeType,
        )
        if self._fileFilter is not None:
            # The fields so far: filters can use the fields that precede the file.
            self._request.body = self.fields.build()
            if not await self._filter(file, self._fileFilter):
                return
        self._taken[name] = taken + 1
        self._file = file
        self._store.begin()

    def _filter(self, file: UploadedFile, fileFilter: FileFilter) -> Deferred[bool]:
        """
        Call the filter. The first of its callback, its result and the end of the request decides.
        """
        decided: SharedFuture[bool] = SharedFuture()

        def called(error: Any = None, accept: Any = None) -> None:
            if isinstance(error, Failure):
                error = error.value
            if error is None:
                decided.set(bool(accept))
            else:
                isError = isinstance(error, BaseException)
                decided.fail(error if isError else HTTPError(500, str(error)))

        def returned(result: Any) -> None:
            if isinstance(result, bool):
                decided.set(result)

        lost = BodyLost("the request ended while a file was filtered")
        self._request.raw.onEnd(lambda: decided.fail(lost))
        result = fileFilter(self._request, file, called)
        if isawaitable(result):
            fromCoroutine(resolve(result)).addCallbacks(returned, called)
        else:
            returned(result)
        return decided.wait()

    def _write(self, payload: bytes) -> Awaitable[None] | None:
        """Receive bytes of a part."""
        limits = self._limits
        self._size += len(payload)
        if self._field is not None:
            self._budget -= len(payload)
            if self._size > limits.fieldSize or self._budget < 0:
                raise uploadError("LIMIT_FIELD_VALUE", "A field is too long", self._field.name)
            self._value += payload
        elif self._file is not None:
            name = self._file.fieldname
            if self._holdsFiles:
                self._budget -= len(payload)
            if limits.fileSize is not None and self._size > limits.fileSize:
                raise uploadError("LIMIT_FILE_SIZE", "A file is too large", name)
            if self._budget < 0:
                raise uploadError("LIMIT_FILE_SIZE", "The files are too large", name)
            return self._store.write(payload)
        return None

    async def _end(self) -> None:
        """Store the complete part."""
        head, self._field = self._field, None
        file, self._file = self._file, None
        if head is not None:
            try:
                value = self._value.decode(_CODECS[head.charset or "utf-8"], "replace")
                self.fields.add(head.name, value)
            except TooDeep:
                message = f"The name of a field nests deeper than {FIELD_DEPTH_LIMIT}"
                raise uploadError("LIMIT_FIELD_NESTING", message, head.name) from None
        elif file is not None:
            await self._store.end(file)
            self.files.append(file)


class Upload:
    """
    The options of uploads, with methods that make the middleware of a route.

    Requests other than multipart forms pass unchanged.
    """

    def __init__(
        self,
        dest: str | os.PathLike[str] | None,
        limits: Mapping[str, Any],
        fileFilter: FileFilter | None,
    ) -> None:
        if fileFilter is not None and not callable(fileFilter):
            raise OptionError("the upload option fileFilter is a function (req, file, cb)")
        self._limits = makeOptions(UploadLimits, limits, "limits.")
        self._filter = fileFilter
        self._directory = None if dest is None else os.fspath(dest)
        if self._directory is not None:
            os.makedirs(self._directory, exist_ok=True)

    def single(self, field: str) -> MiddlewareHandler:
        """
        Accept one file of one field, as C{req.file}.

        @param field: The name of the form field; a file in any other is refused.
        """
        return self._make({_fieldName(field): 1}, _setFile)

    def array(self, field: str, n: int | None = None) -> MiddlewareHandler:
        """
        Accept up to C{n} files of one field, as the list C{req.files}.

        @param n: Maximum number of files, or C{None}.
        """
        return self._make({_fieldName(field): _maximum(n)}, _setList)

    def fields(self, fields: Sequence[Mapping[str, Any]]) -> MiddlewareHandler:
        """
        Accept files of several fields, as lists by field in C{req.files}.

        @param fields: Mappings with C{name} and optionally C{maxCount}.
        """
        allowed: dict[str, int | None] = {}
        for entry in fields:
            unknown = entry.keys() - {"name", "maxCount"}
            if unknown:
                raise OptionError(f"an upload field has name and maxCount, not {sorted(unknown)}")
            allowed[_fieldName(entry.get("name"))] = _maximum(entry.get("maxCount"))
        return self._make(allowed, _setLists)

    def none(self) -> MiddlewareHandler:
        """Accept text fields only."""
        return self._make({}, lambda request, files: None)

    def any(self) -> MiddlewareHandler:
        """Accept files of any field, as the list C{req.files}."""
        return self._make(None, _setList)

    def _make(
        self,
        allowed: Mapping[str, int | None] | None,
        setFiles: Callable[[Any, list[UploadedFile]], None],
    ) -> MiddlewareHandler:
        def takeUpload(req: Any, res: Any, next: Callable[..., Any]) -> Any:
            kind = req.get("content-type") or ""
            if not kind.lstrip().lower().startswith("multipart/") or not req.hasBody:
                return next()
            return self._receive(req, allowed, setFiles, next)

        return takeUpload

    async def _receive(
        self,
        request: Any,
        allowed: Mapping[str, int | None] | None,
        setFiles: Callable[[Any, list[UploadedFile]], None],
        next: Callable[[], Awaitable[None]],
    ) -> None:
        coding = (request.get("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            message = "A compressed upload is not supported"
            raise HTTPError(415, message, "encoding.unsupported", encoding=coding)
        store: MemoryStore | DirectoryStore = MemoryStore()
        if self._directory is not None:
            store = DirectoryStore(request.app.runtime.run, self._directory)
        reader = UploadReader(request, store, self._limits, self._filter, allowed)
        try:
            await reader.read()
        except GeneratorExit:
            # The coroutine was dropped, so the files are removed without waiting.
            store.discard()
            raise
        except Exception as error:
            await store.discard()
            if not isinstance(error, BodyLost | ClientLost):
                await _readOn(request, reader.received)
            raise
        request.body = reader.fields.build()
        setFiles(request, reader.files)
        await next()


async def _readOn(request: Any, received: int) -> None:
    """
    Read the rest of a refused upload.

    Most clients do not read a response before they have sent everything, and report an earlier
    close of the connection as a network error. The application's limit of a body held in memory
    applies; a client that declares more, or expects C{100 Continue}, gets its response immediately.

    @raise BodyLost: If the client disconnects.
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
    request.files = {}
    for file in files:
        request.files.setdefault(file.fieldname, []).append(file)


def _fieldName(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise OptionError("an upload field has a name")
    return name


def _maximum(count: Any) -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise OptionError("maxCount of an upload field is a whole number")
    return count


@takesMapping
def upload(
    dest: str | os.PathLike[str] | None = None,
    limits: Mapping[str, Any] = {},
    fileFilter: FileFilter | None = None,
) -> Upload:
    """
    Accept uploads.

    @param dest: The directory for files, created if absent; by default they are kept in memory.
    @param limits: See L{UploadLimits<storagegate.http.middleware.upload.UploadLimits>}.
    @param fileFilter: C{fileFilter(req, file, cb)} decides on each file: it calls C{cb(error,
        accept)}, now or later, or returns a bool or an awaitable of one. Reading waits for it.
        C{cb(error, None)} refuses the request, C{cb(None, False)} skips the file.
    @raise OptionError: If a limit is unknown or invalid.
    """
    return Upload(dest, limits, fileFilter)
