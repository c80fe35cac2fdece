"""
The browser's upload form: C{multipart/form-data} whose last field is the file::

    form   = *field file
    field  = a part with a name; its value is text, small
    file   = the part named "file"; S3 takes nothing after it

The fields are read whole before a byte of the file is passed on, for they carry the signature.
"""

from collections.abc import AsyncIterator

from attrs import frozen
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from storagegate.s3.errors import S3Error

FIELDS_LIMIT = 20_000
"""Bytes of all fields before the file: S3's own limit."""

FIELD_COUNT = 100
"""As many as a request may have header fields; S3 names about thirty."""


@frozen
class FormHead:
    """
    All fields of a form.

    @ivar fields: Lower-case name to value.
    @ivar fileName: The base name that the browser gave the file.
    """

    fields: dict[str, str]
    fileName: str


def formBoundary(contentType: bytes) -> str | None:
    """The boundary that a C{Content-Type} names, or L{None} where it is no form."""
    kind, options = parse_options_header(contentType.decode("latin-1"))
    return (options.get("boundary") or None) if kind == "multipart/form-data" else None


def _malformed(why: str) -> S3Error:
    return S3Error("MalformedPOSTRequest", f"The form cannot be read: {why}.")


class PostForm:
    """
    A form as it comes in: first L{readHead}, then iterate over the file's bytes.

    @param chunks: The request's body.
    @raise S3Error: C{MalformedPOSTRequest} for a boundary that cannot be one.
    """

    def __init__(self, chunks: AsyncIterator[bytes], boundary: str) -> None:
        self._chunks = chunks
        try:
            self._parser = PushMultipartParser(
                boundary, max_segment_count=FIELD_COUNT, header_charset="utf8", strict=True
            )
        except MultipartError as error:
            raise _malformed(str(error)) from error
        self._pieces: list[bytes] = []
        self._fields: dict[str, str] = {}
        self._fieldBytes = 0
        self._segment: MultipartSegment | None = None
        self._value: list[bytes] = []
        self._fileName: str | None = None
        self._fileEnded = False
        self._head: FormHead | None = None

    async def readHead(self) -> FormHead:
        """
        Read all fields; a second call gives them again.

        @raise S3Error: C{MalformedPOSTRequest}, C{MaxPostPreDataLengthExceededError},
            C{IncorrectNumberOfFilesInPostRequest} where no file comes.
        """
        while self._fileName is None:
            if not await self._more():
                raise S3Error("IncorrectNumberOfFilesInPostRequest")
        if self._head is None:
            self._head = FormHead(self._fields, self._fileName)
        return self._head

    def takeReady(self) -> bytes | None:
        """A form's file always comes in pieces."""
        return None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """
        Pass the file's bytes on.

        @raise S3Error: C{MalformedPOSTRequest} where the form does not end with the file.
        """
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if not await self._more():
                break
        if not self._fileEnded:
            raise _malformed("it ends before its last boundary")
        for piece in self._pieces:
            yield piece

    async def _more(self) -> bool:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            try:
                self._parser.close()
            except MultipartError as error:
                raise _malformed(str(error)) from error
            return False
        if self._fileEnded and not chunk.strip(b"\r\n"):
            return True  # the line's end behind the last boundary, in a piece of its own
        try:
            for event in self._parser.parse(chunk):
                self._take(event)
        except MultipartError as error:
            raise _malformed(str(error)) from error
        return True

    def _take(self, event: MultipartSegment | bytes | bytearray | None) -> None:
        if isinstance(event, MultipartSegment):
            if self._fileEnded:
                raise _malformed("the file must be the last field")
            self._segment = event
            if event.name == "file":
                name = (event.filename or "").replace("\\", "/")
                self._fileName = name.rpartition("/")[2]
        elif event is None:
            if self._fileName is not None:
                self._fileEnded = True
            else:
                self._endField()
        elif self._fileName is not None:
            self._pieces.append(bytes(event))
        else:
            self._fieldBytes += len(event)
            if self._fieldBytes > FIELDS_LIMIT:
                raise S3Error("MaxPostPreDataLengthExceededError")
            self._value.append(bytes(event))

    def _endField(self) -> None:
        segment, value = self._segment, b"".join(self._value)
        self._value = []
        name = segment.name.lower() if segment is not None and segment.name else ""
        if not name:
            raise _malformed("a field has no name")
        if name in self._fields:
            raise S3Error("InvalidArgument", "POST requires exactly one value for each field.")
        try:
            self._fields[name] = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed("a field is not UTF-8") from error
