"""
The head of one part of a form (RFC 7578 section 4)::

    head        = *( field-name ":" value CRLF )
    disposition = "form-data" *( ";" parameter )
    parameter   = token "=" ( quoted-string / unquoted )

Three fields count: C{Content-Disposition}, C{Content-Type} and C{Content-Transfer-Encoding}; others
are ignored, as RFC 7578 section 4.8 has it. What can be read in two ways is refused: a field or a
parameter that comes twice may mean one thing to a filter in front of us and another to us.
"""

import re
from urllib.parse import unquote_to_bytes

from attrs import frozen

HEAD_LINES = 32
"""RFC 7578 knows three fields; mail programs and gateways add a few."""

PARAMETERS = 32
"""A part has three; a head full of semicolons would take long to split."""

# No alternative overlaps another, so that a match takes time in proportion to the text.
_PARAMETER = re.compile(
    r"""[ \t]*;[ \t]*(?:([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^";]*))?"""
)
_ESCAPED = re.compile(r'\\(["\\])')
# What HTML has browsers escape in names, and nothing else: a bare % stays.
_FORM_ESCAPE = re.compile("%0A|%0D|%22", re.IGNORECASE)
_EXTENDED = re.compile(
    r"(utf-8|iso-8859-1)'[A-Za-z0-9-]*'((?:[!#$&+\-.^_`|~0-9A-Za-z]|%[0-9A-Fa-f]{2})*)",
    re.IGNORECASE,
)
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MEDIA_TYPE = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+/[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

_READ = frozenset({"content-disposition", "content-type", "content-transfer-encoding"})
# The last two are no control characters, but end a line for whoever shows or logs the name.
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")


class BadMultipart(ValueError):
    """
    A form that cannot be read.

    @ivar isTooLarge: Whether it is well formed, perhaps, but over a limit.
    """

    def __init__(self, message: str, isTooLarge: bool = False) -> None:
        super().__init__(message)
        self.isTooLarge = isTooLarge


@frozen
class PartHead:
    """
    What the head of a part says.

    @ivar name: The form field's name; empty if there is none.
    @ivar fileName: The file's base name, L{None} if the part is no file. Empty if somebody chose
        none: a browser sends such a part for each empty file input.
    @ivar mimeType: In lower case, without parameters.
    @ivar charset: As given, in lower case; L{None} if it is not.
    @ivar encoding: C{Content-Transfer-Encoding} in lower case. It is told and not undone, as RFC
        7578 section 4.7 deprecates it.
    """

    name: str
    fileName: str | None = None
    mimeType: str = "text/plain"
    charset: str | None = None
    encoding: str = "7bit"


def parseParameters(text: str) -> tuple[str, dict[str, str]]:
    """
    Split a field such as C{Content-Type} into its value and its parameters.

    @return: The value, and quoted or unquoted parameters by name; all names in lower case.
    @raise BadMultipart: If it cannot be split, or a parameter comes twice.
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
        parameters[name] = _unquote(parameter)
    return value.strip(" \t").lower(), parameters


def _unquote(text: str) -> str:
    # A backslash before anything else is itself: old browsers send C:\dir\file.
    return _ESCAPED.sub(r"\1", text[1:-1]) if text[:1] == '"' else text.rstrip(" \t")


def _unescape(text: str) -> str:
    """Undo what HTML has browsers do to field and file names in multipart/form-data."""
    if "%" not in text:
        return text
    return _FORM_ESCAPE.sub(lambda match: chr(int(match[0][1:], 16)), text)


def _extended(text: str) -> str | None:
    """Decode an C{ext-value} of RFC 8187, C{UTF-8''na%C3%AFve}; L{None} if it is none."""
    match = _EXTENDED.fullmatch(text)
    if match is None:
        return None
    try:
        return unquote_to_bytes(match[2]).decode(match[1])
    except UnicodeDecodeError:
        return None


def baseName(path: str) -> str:
    """
    Give the last part of a client's path, without control characters.

    Both slashes separate. A name that means a directory gives the empty name.
    """
    name = _CONTROL.sub("", re.split(r"[/\\]", path)[-1])
    return "" if name in (".", "..") else name


def _fileName(parameters: dict[str, str]) -> str | None:
    plain, extended = parameters.get("filename"), parameters.get("filename*")
    if extended is not None:
        name = _extended(extended)
        if name is not None:
            return baseName(name)
        if plain is None:
            # Not even the name of a file: else it would turn into a text field.
            raise BadMultipart("the name of a file cannot be decoded")
    return None if plain is None else baseName(_unescape(plain))


def _fields(block: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    # The names of files are UTF-8 (RFC 7578 section 5.1); what is not must not cost the upload.
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


def parsePartHead(block: bytes) -> PartHead:
    """
    Read the head of a part.

    @param block: Its lines, without the CRLF of the last.
    @raise BadMultipart: If it is malformed, or no C{form-data}. A missing name is not.
    """
    fields = _fields(block)
    disposition = fields.get("content-disposition")
    name, fileName = "", None
    if disposition is not None:
        kind, parameters = parseParameters(disposition)
        if kind != "form-data":
            raise BadMultipart("a part is no form-data")
        name, fileName = _unescape(parameters.get("name", "")), _fileName(parameters)
    mimeType, parameters = parseParameters(fields.get("content-type", ""))
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
