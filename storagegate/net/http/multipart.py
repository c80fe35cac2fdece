"""
A streaming parser of multipart forms (RFC 2046 section 5.1.1, RFC 7578)::

    body      = [preamble CRLF] "--" boundary 1*part "--" [epilogue]
    part      = CRLF head CRLF CRLF content CRLF "--" boundary
    delimiter = CRLF "--" boundary
    head        = *( field-name ":" value CRLF )
    disposition = "form-data" *( ";" parameter )
    parameter   = token "=" ( quoted-string / unquoted )

Bytes in, events out: a L{PartHead}, the part's content as C{bytes} in pieces, L{PART_END}. The
events do not depend on how the bytes are split. The parser of the package C{multipart} is not used:
its treatment of bytes before the first boundary, after the last one and around a lone LF in a head
depends on how the bytes are split, and it does not support C{filename*}.

Only C{Content-Disposition}, C{Content-Type} and C{Content-Transfer-Encoding} are used; other fields
are ignored, as in RFC 7578 section 4.8. Ambiguous input is refused: a filter in front of the server
may interpret a repeated field or parameter differently.
"""

import enum
import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from attrs import frozen

HEAD_LINES = 32
"""RFC 7578 defines three fields; mail programs and gateways add a few."""

PARAMETERS = 32
"""A part has three; a head full of semicolons would take long to split."""

# The alternatives do not overlap, so that a match takes linear time.
_PARAMETER = re.compile(
    r"""[ \t]*;[ \t]*(?:([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^";]*))?"""
)
_ESCAPED = re.compile(r'\\(["\\])')
# The escapes that HTML makes browsers use in names; a bare % stays.
_FORM_ESCAPE = re.compile("%0A|%0D|%22", re.IGNORECASE)
_EXTENDED = re.compile(
    r"(utf-8|iso-8859-1)'[A-Za-z0-9-]*'((?:[!#$&+\-.^_`|~0-9A-Za-z]|%[0-9A-Fa-f]{2})*)",
    re.IGNORECASE,
)
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MEDIA_TYPE = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+/[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

_READ = frozenset({"content-disposition", "content-type", "content-transfer-encoding"})
# The last two are not control characters, but end a line where the name is shown or logged.
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")


class BadMultipart(ValueError):
    """
    The form is malformed or exceeds a limit.

    @ivar isTooLarge: Whether it exceeds a limit.
    """

    def __init__(self, message: str, isTooLarge: bool = False) -> None:
        super().__init__(message)
        self.isTooLarge = isTooLarge


@frozen
class PartHead:
    """
    The head of a part.

    @ivar name: The form field's name, or an empty string.
    @ivar fileName: The file's base name; C{None} if the part is not a file. Browsers send a part
        with an empty file name for an empty file input.
    @ivar mimeType: The media type in lower case, without parameters.
    @ivar charset: The charset in lower case, or C{None}.
    @ivar encoding: C{Content-Transfer-Encoding} in lower case. It is not decoded, as RFC 7578
        section 4.7 deprecates it.
    """

    name: str
    fileName: str | None = None
    mimeType: str = "text/plain"
    charset: str | None = None
    encoding: str = "7bit"


def _parseParameters(text: str) -> tuple[str, dict[str, str]]:
    """
    Split a field such as C{Content-Type} into its value and its parameters.

    @return: The value, and quoted or unquoted parameters by name in lower case.
    @raise BadMultipart: If it is malformed, or a parameter is repeated.
    """
    value = text.partition(";")[0]
    parameters: dict[str, str] = {}
    position, count = len(value), 0
    while position < len(text):
        match = _PARAMETER.match(text, position)
        count += 1
        if match is None or count > PARAMETERS:
            raise BadMultipart("a header field has parameters that cannot be read")
        position = match.end()
        name, parameter = match.groups()
        if name is None:
            continue
        name = name.lower()
        if name in parameters:
            raise BadMultipart(f"a header field has the parameter {name} twice")
        if parameter[:1] == '"':
            # A backslash before any other character is literal: old browsers send C:\dir\file.
            parameters[name] = _ESCAPED.sub(r"\1", parameter[1:-1])
        else:
            parameters[name] = parameter.rstrip(" \t")
    return value.strip(" \t").lower(), parameters


def _unescape(text: str) -> str:
    """Decode the escapes that HTML makes browsers use in field and file names."""
    if "%" not in text:
        return text
    return _FORM_ESCAPE.sub(lambda match: chr(int(match[0][1:], 16)), text)


def _extended(text: str) -> str | None:
    """Decode an C{ext-value} of RFC 8187, C{UTF-8''na%C3%AFve}; return C{None} if malformed."""
    match = _EXTENDED.fullmatch(text)
    if match is None:
        return None
    try:
        return unquote_to_bytes(match[2]).decode(match[1])
    except UnicodeDecodeError:
        return None


def _baseName(path: str) -> str:
    """
    Return the last part of a client's path, without control characters.

    Slashes and backslashes separate. The name of a directory becomes an empty name.
    """
    name = _CONTROL.sub("", re.split(r"[/\\]", path)[-1])
    return "" if name in (".", "..") else name


def _fileName(parameters: dict[str, str]) -> str | None:
    plain, extended = parameters.get("filename"), parameters.get("filename*")
    if extended is not None:
        name = _extended(extended)
        if name is not None:
            return _baseName(name)
        if plain is None:
            # Otherwise the file would turn into a text field.
            raise BadMultipart("the name of a file cannot be decoded")
    return None if plain is None else _baseName(_unescape(plain))


def _fields(block: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    # File names are UTF-8 (RFC 7578 section 5.1); other bytes must not fail the upload.
    lines = block.decode("utf-8", "replace").split("\r\n") if block else []
    if len(lines) > HEAD_LINES:
        raise BadMultipart(f"the head of a part has more than {HEAD_LINES} lines", True)
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _FIELD_NAME.fullmatch(name):
            raise BadMultipart("the head of a part has a line that is no header field")
        if "\r" in value or "\n" in value or "\0" in value:
            raise BadMultipart("the head of a part has a bare CR, LF or NUL")
        name = name.lower()
        if name in _READ:
            if name in fields:
                raise BadMultipart(f"a part has {name} twice")
            fields[name] = value.strip(" \t")
    return fields


def _parsePartHead(block: bytes) -> PartHead:
    """
    Parse the head of a part.

    @param block: The lines of the head, without the last CRLF.
    @raise BadMultipart: If it is malformed, or not C{form-data}. A missing name is accepted.
    """
    fields = _fields(block)
    disposition = fields.get("content-disposition")
    name, fileName = "", None
    if disposition is not None:
        kind, parameters = _parseParameters(disposition)
        if kind != "form-data":
            raise BadMultipart("a part is no form-data")
        name, fileName = _unescape(parameters.get("name", "")), _fileName(parameters)
    mimeType, parameters = _parseParameters(fields.get("content-type", ""))
    if not _MEDIA_TYPE.fullmatch(mimeType):
        mimeType = "text/plain"  # RFC 7578 section 4.4
    charset = parameters.get("charset")
    return PartHead(
        name,
        fileName,
        mimeType,
        None if charset is None else charset.lower(),
        fields.get("content-transfer-encoding", "7bit").lower(),
    )


BOUNDARY_SIZE = 70
"""RFC 2046 section 5.1.1."""

HEAD_SIZE = 16 * 1024
"""The same limit as the head of a request; a long file name, percent-encoded, takes 1 KiB."""

PADDING_SIZE = 16 * 1024
"""Maximum number of bytes before the first boundary and after the last one. Clients send at most a
line end there, and a body without the boundary is refused early."""


class PartEnd(enum.Enum):
    """The end of a part."""

    PART_END = "end"


PART_END = PartEnd.PART_END

Event = PartHead | bytes | PartEnd

_State = enum.Enum("_State", "PREAMBLE HEAD CONTENT EPILOGUE")


def boundaryOf(contentType: str) -> str:
    """
    Return the boundary named by a C{Content-Type}.

    @param contentType: The value of the field.
    @raise BadMultipart: If the boundary is missing or invalid.
    """
    kind, parameters = _parseParameters(contentType)
    if kind != "multipart/form-data":
        raise BadMultipart(f"{kind[:80]} is no form")
    boundary = parameters.get("boundary", "")
    if not boundary:
        raise BadMultipart("the form names no boundary")
    if len(boundary) > BOUNDARY_SIZE:
        raise BadMultipart(f"the form's boundary is longer than {BOUNDARY_SIZE} characters")
    # Accepts more than RFC 2046, as clients do not keep to its list. Line ends are not allowed.
    if not (boundary.isascii() and boundary.isprintable()) or boundary.endswith(" "):
        raise BadMultipart("the form's boundary has characters that it must not have")
    return boundary


class MultipartDecoder:
    """
    Splits one body into events.

    @ivar isComplete: Whether the last boundary has been received.
    """

    __slots__ = ("_delimiter", "_padding", "_rest", "_state", "isComplete")

    def __init__(self, boundary: str) -> None:
        self.isComplete = False
        self._delimiter = b"\r\n--" + boundary.encode("ascii")
        self._state = _State.PREAMBLE
        # A virtual line end before the body makes the first delimiter like the others.
        self._rest = b"\r\n"
        self._padding = 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """
        Process bytes, and yield the resulting events. Exhaust the iterator before the next call.

        @param data: Received bytes, in pieces of any size.
        @raise BadMultipart: If the form is malformed, after the preceding events. Feed nothing more
            after it.
        """
        buffer = self._rest + data
        position = 0
        while True:
            state = self._state
            if state is _State.CONTENT or state is _State.PREAMBLE:
                found = buffer.find(self._delimiter, position)
                end = found if found >= 0 else self._certain(buffer, position)
                if state is _State.PREAMBLE:
                    self._pad(end - position)
                elif end > position:
                    yield buffer[position:end]
                position = end
                if found < 0:
                    break
                if len(buffer) < found + len(self._delimiter) + 2:
                    break
                position += len(self._delimiter)
                self._delimited(buffer[position : position + 2])
                if state is _State.CONTENT:
                    yield PART_END
            elif state is _State.HEAD:
                # The line end after the boundary is still in the buffer, as a head may be empty.
                end = buffer.find(b"\r\n\r\n", position)
                size = (end if end >= 0 else len(buffer) - 3) - position - 2
                if size > HEAD_SIZE:
                    raise BadMultipart(f"the head of a part is over {HEAD_SIZE} bytes", True)
                if end < 0:
                    break
                yield _parsePartHead(buffer[position + 2 : end])
                position = end + 4
                self._state = _State.CONTENT
            else:
                self._pad(len(buffer) - position)
                position = len(buffer)
                break
        self._rest = buffer[position:]

    def close(self) -> None:
        """
        Check that the form is complete at the end of the body.

        @raise BadMultipart: If it is not.
        """
        if not self.isComplete:
            raise BadMultipart("the form ends before its last boundary")

    def _certain(self, buffer: bytes, position: int) -> int:
        """Return the position where an incomplete delimiter may begin."""
        # A boundary has no CR, so only the last CR can begin the delimiter.
        start = max(position, len(buffer) - len(self._delimiter) + 1)
        candidate = buffer.rfind(b"\r", start)
        if candidate >= 0 and self._delimiter.startswith(buffer[candidate:]):
            return candidate
        return len(buffer)

    def _delimited(self, mark: bytes) -> None:
        if mark == b"\r\n":
            self._state = _State.HEAD
        elif mark == b"--":
            self._state = _State.EPILOGUE
            self._padding = 0
            self.isComplete = True
        else:
            raise BadMultipart("a boundary is followed by something else than its line's end")

    def _pad(self, count: int) -> None:
        self._padding += count
        if self._padding > PADDING_SIZE:
            where = "after its last" if self.isComplete else "before its first"
            raise BadMultipart(f"the form has over {PADDING_SIZE} bytes {where} boundary")
