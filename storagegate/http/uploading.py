"""One upload on its way in: parts become fields and files, within limits."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from storagegate.http.errors import HTTPError
from storagegate.http.fieldtree import DEPTH_LIMIT, FieldTree, TooDeep
from storagegate.http.middleware.multipart import (
    PART_END,
    Event,
    MultipartDecoder,
    boundaryOf,
)
from storagegate.http.middleware.parthead import BadMultipart, PartHead
from storagegate.http.uploadlimits import UploadLimits, malformed, uploadError
from storagegate.http.uploadstores import IFileStore, UploadedFile
from storagegate.net.httperrors import BodyLost, ClientLost

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
            message = f"The name of a field nests deeper than {DEPTH_LIMIT}"
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
        if request.lean.disconnected:
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
