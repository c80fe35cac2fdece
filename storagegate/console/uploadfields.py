"""The header fields with which a client describes an object that it uploads to the console."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from storagegate.core.errors import ServiceError, codedError
from storagegate.objects import errors
from storagegate.objects.attributes import isFieldText, makeAttributes
from storagegate.objects.checksums import BodyExpectation, ExpectedChecksum
from storagegate.objects.documents import fields
from storagegate.storage.records import Attributes, WriteCondition

_DESCRIBING = frozenset(
    {
        b"content-type",
        b"content-disposition",
        b"content-encoding",
        b"content-language",
        fields.TAGGING,
    }
)
"""
The request fields that describe an object, besides its metadata. C{Cache-Control} is not among
them: a browser sends its own.
"""

Headers = Mapping[bytes, bytes]


def _invalid(message: str) -> ServiceError:
    return codedError("INVALID_ARGUMENT", message)


@contextmanager
def _refusing() -> Iterator[None]:
    """Refuse malformed fields with the console's own code."""
    try:
        yield
    except errors.InvalidArgument as error:
        raise _invalid(f"{error.details['name']}: {error.message}") from error
    except errors.InvalidRequest as error:
        raise _invalid(error.message) from error
    except errors.UnsupportedFeature as error:
        raise _invalid(f"{error.details['argument']} must be * or a list of ETags") from error


def writeCondition(headers: Headers) -> WriteCondition:
    """
    Read C{If-Match} and C{If-None-Match}.

    @param headers: Values by lower-case name.
    @raise ServiceError: C{INVALID_ARGUMENT}.
    """
    with _refusing():
        return fields.writeCondition(headers)


def uploadAttributes(headers: Headers) -> Attributes:
    """
    Read the attributes of an object: its type, stored fields, metadata and tags.

    @param headers: Values by lower-case name.
    @raise ServiceError: C{INVALID_ARGUMENT}: the tags are malformed.
    @raise DomainError: The attributes break a rule.
    """
    described = {
        name: value
        for name, value in headers.items()
        if name in _DESCRIBING or name.startswith(fields.METADATA_PREFIX)
    }
    with _refusing():
        return fields.attributesFrom(described)


def uploadExpectation(headers: Headers, length: int | None, algorithm: str) -> BodyExpectation:
    """
    Read the declarations about the body: C{Content-MD5} and C{x-amz-checksum-*}.

    @param headers: Values by lower-case name.
    @param length: Bytes of the body, if declared.
    @param algorithm: The checksum to compute if the request names none.
    @raise ServiceError: C{INVALID_ARGUMENT}.
    @raise InvalidDigest: C{Content-MD5} is malformed.
    """
    if b"x-amz-trailer" in headers:
        raise _invalid("The checksum must be in a header, not in a trailer")
    with _refusing():
        found = fields.declared(headers)
    checksum = None if found is None else ExpectedChecksum(*found)
    md5 = fields.contentMD5(headers)
    return BodyExpectation(length, md5, checksum=checksum, algorithm=algorithm)


def attributesOf(
    contentType: str, metadata: Mapping[str, str], headers: Mapping[str, str]
) -> Attributes:
    """
    Make attributes from JSON, with the checks of header fields.

    @param metadata: Values by name.
    @param headers: The stored fields.
    @raise ServiceError: C{INVALID_ARGUMENT}: a name or a value is invalid in a header field.
    """
    for name, value in {"content-type": contentType, **headers, **metadata}.items():
        isName = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not isName or not isFieldText(value):
            raise _invalid("A name or a value is not valid in a header field")
    return makeAttributes(
        contentType,
        {name.lower(): value for name, value in metadata.items()},
        {name.lower(): value for name, value in headers.items()},
    )
