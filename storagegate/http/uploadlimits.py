"""How much of everything an upload may have, and how a refusal of one looks."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, fields, frozen
from attrs.converters import optional

from storagegate.core.optionvalues import OptionError, readSize
from storagegate.http.errors import HTTPError
from storagegate.http.middleware.parthead import BadMultipart

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
