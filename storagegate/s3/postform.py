"""
The browser's upload form: C{multipart/form-data} whose last field is the file::

    form   = *field file
    field  = a part with a name; its value is text, small
    file   = the part named "file"; S3 takes nothing after it

All fields are read before any byte of the file is passed on, because they carry the signature. The
policy limits the contents of the form::

    policy    = Base64 of {"expiration": "2030-01-01T00:00:00Z", "conditions": [*condition]}
    condition = {"field": "value"} / ["eq" / "starts-with", "$field", "value"]
              / ["content-length-range", smallest, largest]

The case of field names and operators does not matter. A form is refused if a condition fails, if a
field has no condition, or if the policy has no condition on the bucket.
"""

import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from attrs import frozen
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from storagegate.core.options import parseDecimal
from storagegate.s3.errors import S3Error

FIELDS_LIMIT = 20_000
"""Bytes of all fields before the file: S3's own limit."""

FIELD_COUNT = 100
"""Largest number of fields, the same as for header fields of a request; S3 defines about thirty."""


@frozen
class FormHead:
    """
    All fields of a form.

    @ivar fields: Values by lower-case name.
    @ivar fileName: The base name of the file in the browser.
    """

    fields: dict[str, str]
    fileName: str


def formBoundary(contentType: bytes) -> str | None:
    """Return the boundary in a C{Content-Type}; L{None} if it is not a form's."""
    kind, options = parse_options_header(contentType.decode("latin-1"))
    return (options.get("boundary") or None) if kind == "multipart/form-data" else None


def _malformed(why: str) -> S3Error:
    return S3Error("MalformedPOSTRequest", f"The form cannot be read: {why}.")


class PostForm:
    """A form as it arrives: call L{readHead}, then iterate over the file's bytes."""

    def __init__(self, chunks: AsyncIterator[bytes], boundary: str) -> None:
        """
        @param chunks: The body of the request.
        @raise S3Error: C{MalformedPOSTRequest} for an invalid boundary.
        """
        try:
            parser = PushMultipartParser(
                boundary, max_segment_count=FIELD_COUNT, header_charset="utf8", strict=True
            )
        except MultipartError as error:
            raise _malformed(str(error)) from error
        self._events = self._parse(parser, chunks)
        self._head: FormHead | None = None
        self._isOver = False

    async def _parse(
        self, parser: PushMultipartParser, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[MultipartSegment | bytes | bytearray | None]:
        """Iterate over field heads, pieces of values, and L{None} at the end of each field."""
        try:
            async for chunk in chunks:
                # The line end after the last boundary may arrive as a separate piece.
                if not self._isOver or chunk.strip(b"\r\n"):
                    for event in parser.parse(chunk):
                        yield event
            parser.close()
        except MultipartError as error:
            raise _malformed(str(error)) from error

    async def readHead(self) -> FormHead:
        """
        Read all fields; a repeated call returns the same fields.

        @raise S3Error: C{MalformedPOSTRequest}, C{MaxPostPreDataLengthExceededError},
            C{IncorrectNumberOfFilesInPostRequest} if there is no file.
        """
        if self._head is None:
            self._head = await self._readHead()
        return self._head

    async def _readHead(self) -> FormHead:
        fields: dict[str, str] = {}
        size, name, value = 0, "", b""
        async for event in self._events:
            if isinstance(event, MultipartSegment):
                if event.name == "file":
                    fileName = (event.filename or "").replace("\\", "/")
                    return FormHead(fields, fileName.rpartition("/")[2])
                name, value = (event.name or "").lower(), b""
            elif event is not None:
                size += len(event)
                if size > FIELDS_LIMIT:
                    raise S3Error("MaxPostPreDataLengthExceededError")
                value += event
            elif not name:
                raise _malformed("a field has no name")
            elif name in fields:
                raise S3Error("InvalidArgument", "POST requires exactly one value for each field.")
            else:
                try:
                    fields[name] = value.decode()
                except UnicodeDecodeError as error:
                    raise _malformed("a field is not UTF-8") from error
        raise S3Error("IncorrectNumberOfFilesInPostRequest")

    def readAvailable(self) -> bytes | None:
        """Return L{None}: a form's file always arrives in pieces."""
        return None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the bytes of the file, which must end the form."""
        async for event in self._events:
            if isinstance(event, MultipartSegment):
                raise _malformed("the file must be the last field")
            if event is None:
                self._isOver = True
            else:
                yield bytes(event)
        if not self._isOver:
            raise _malformed("it ends before its last boundary")


POLICY_LIMIT = 20_000
"""Characters of a policy in Base64: S3 accepts at most 20 kB before the file."""

CONDITION_LIMIT = 200
"""Conditions per policy; a form has some twenty fields."""

SIZE_LIMIT = 1 << 63
"""The largest size bound, so that it stays a number for every store."""

_EXPIRATION = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z", re.ASCII
)


@frozen
class SizeLimits:
    """The allowed sizes of a file; the largest size may be used to end an upload early."""

    smallest: int = 0
    largest: int = SIZE_LIMIT

    def check(self, size: int) -> None:
        """Raise C{EntityTooSmall} or C{EntityTooLarge} if the size of a file is not allowed."""
        if size < self.smallest:
            fields = {"ProposedSize": str(size), "MinSizeAllowed": str(self.smallest)}
            raise S3Error("EntityTooSmall", fields=fields)
        if size > self.largest:
            fields = {"ProposedSize": str(size), "MaxSizeAllowed": str(self.largest)}
            raise S3Error("EntityTooLarge", fields=fields)


@frozen
class Policy:
    """
    A parsed policy.

    @ivar expiration: Seconds since the epoch.
    @ivar comparisons: Operators (C{"eq"}, C{"starts-with"}), lower-case fields and values.
    """

    expiration: float
    comparisons: tuple[tuple[str, str, str], ...]
    sizes: SizeLimits


def parsePolicy(policyBase64: str) -> Policy:
    """Parse a policy; raise C{InvalidPolicyDocument} if it is invalid."""
    document = _parseJSON(policyBase64)
    for name in ("expiration", "conditions"):
        if name not in document:
            raise _invalid(f"Policy missing {name}.")
    conditions = document["conditions"]
    if not isinstance(conditions, list):
        raise _invalid("Invalid 'conditions' value: must be a List.")
    if len(conditions) > CONDITION_LIMIT:
        raise _invalid("too many conditions.")
    comparisons = []
    sizes = SizeLimits()
    for parsed in map(_parseCondition, conditions):
        if isinstance(parsed, SizeLimits):
            sizes = SizeLimits(
                max(sizes.smallest, parsed.smallest), min(sizes.largest, parsed.largest)
            )
        else:
            comparisons.append(parsed)
    return Policy(_expiration(document["expiration"]), tuple(comparisons), sizes)


def _parseJSON(policyBase64: str) -> dict[str, Any]:
    if len(policyBase64) > POLICY_LIMIT:
        raise _invalid("it is too long.")
    try:
        raw = b64decode("".join(policyBase64.split()), validate=True)
    except ValueError:
        raise _invalid("invalid Base64 encoding.") from None
    try:
        document = json.loads(
            raw.decode(), object_pairs_hook=_object, parse_constant=_constant, parse_float=_constant
        )
    except (ValueError, RecursionError):
        raise _invalid("Invalid JSON.") from None
    if not isinstance(document, dict):
        raise _invalid("Invalid JSON.")
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a name comes twice")
    return document


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of a policy")


def _parseCondition(condition: Any) -> tuple[str, str, str] | SizeLimits:
    if isinstance(condition, dict):
        if len(condition) != 1:
            raise _invalid(
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property "
                "specified."
            )
        [(field, value)] = condition.items()
        if not isinstance(value, str):
            raise _invalid("Invalid Simple-Condition: value must be a string.")
        return "eq", field.lower(), value
    if not isinstance(condition, list):
        raise _invalid("Invalid condition test: must be a List or Object.")
    if not condition or not isinstance(condition[0], str):
        raise _invalid("Invalid Condition: missing operation identifier.")
    operator = condition[0].lower()
    if operator not in ("eq", "starts-with", "content-length-range"):
        raise _invalid(f"Invalid Condition: unknown operation {condition[0]!a}.")
    if len(condition) != 3:
        raise _invalid(f"Invalid {operator}: wrong number of arguments.")
    if operator == "content-length-range":
        return SizeLimits(_bound(condition[1]), _bound(condition[2]))
    field, value = condition[1:]
    if not isinstance(field, str) or not field.startswith("$") or not isinstance(value, str):
        raise _invalid(f"Invalid {operator}: a $field and a string are expected.")
    return operator, field[1:].lower(), value


def _bound(value: Any) -> int:
    if isinstance(value, int | str):
        try:
            return parseDecimal(str(value), SIZE_LIMIT)
        except ValueError:
            pass
    raise _invalid("Invalid content-length-range: bounds must be whole numbers.")


def _expiration(value: Any) -> float:
    if isinstance(value, str) and _EXPIRATION.fullmatch(value):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            pass
    raise _invalid(f"Invalid 'expiration' value: {value!a}")


def _invalid(detail: str) -> S3Error:
    return S3Error("InvalidPolicyDocument", f"Invalid Policy: {detail}")


_EXEMPT = frozenset({"file", "policy", "x-amz-signature", "awsaccesskeyid", "signature"})


def checkPolicy(
    policyBase64: str | None, fields: Mapping[str, str], bucket: str, now: float
) -> SizeLimits:
    """
    Check a form against its policy.

    @param policyBase64: The field C{policy}; L{None} if the form has none.
    @param fields: Values by lower-case name. C{key} must be the final key, with C{${filename}}
        already replaced, or else a file name could escape the limits of the policy.
    @param bucket: The bucket to which the form was sent.
    @param now: Seconds since the epoch.
    @return: The allowed sizes of the file.
    @raise S3Error: C{AccessDenied} if the policy is absent, has expired or does not allow the form,
        C{InvalidPolicyDocument} if it is invalid.
    """
    if not policyBase64:
        raise S3Error("AccessDenied")
    policy = parsePolicy(policyBase64)
    if now > policy.expiration:
        raise _refuse("Policy expired.")
    values = {**fields, "bucket": bucket}
    covered = set(_EXEMPT)
    for operator, field, wanted in policy.comparisons:
        value = values.get(field, "")
        if operator == "eq":
            holds = value == wanted
        elif field == "content-type":
            # In a list of types, each must begin with the value.
            holds = all(part.strip().startswith(wanted) for part in value.split(","))
        else:
            holds = value.startswith(wanted)
        if not holds:
            shown = json.dumps([operator, f"${field}", wanted])
            raise _refuse(f"Policy Condition failed: {shown}")
        covered.add(field)
    # Fields that begin with x-ignore- are for other programs and need no condition.
    extra = [name for name in values if name not in covered and not name.startswith("x-ignore-")]
    if extra:
        raise _refuse(f"Extra input fields: {', '.join(extra)}")
    return policy.sizes


def _refuse(detail: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {detail}")
