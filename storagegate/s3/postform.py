"""
The browser's upload form: C{multipart/form-data} whose last field is the file::

    form   = *field file
    field  = a part with a name; its value is text, small
    file   = the part named "file"; S3 takes nothing after it

The fields are read whole before a byte of the file is passed on, for they carry the signature.

Reading the document of a form's policy; what it means is in C{postpolicy}.

The policy of a browser form: what it may contain::

    policy    = Base64 of {"expiration": "2030-01-01T00:00:00Z", "conditions": [*condition]}
    condition = {"field": "value"} / ["eq" / "starts-with", "$field", "value"]
              / ["content-length-range", smallest, largest]

Names of fields and operators may be written in any case. A condition holds or the form is refused;
a field without a condition is refused too, and so is a form whose policy leaves the bucket open.
Who signed the policy is for C{sigv4post}.
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

    def readAvailable(self) -> bytes | None:
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


POLICY_LIMIT = 20_000
"""Characters of a policy in Base64: S3 takes no more than 20 kB before the file."""

CONDITION_LIMIT = 200
"""Conditions of a policy; a form has some twenty fields."""

SIZE_LIMIT = 1 << 63
"""The largest bound of a size, so that it stays a number for every store."""

_EXPIRATION = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z", re.ASCII
)


@frozen
class Comparison:
    """
    A condition on a field.

    @ivar operator: C{"eq"} or C{"starts-with"}.
    @ivar field: A lower-case name.
    """

    operator: str
    field: str
    value: str


@frozen
class SizeLimits:
    """Sizes that a file may have; the largest may be used to cut an upload short."""

    smallest: int = 0
    largest: int = SIZE_LIMIT

    def check(self, size: int) -> None:
        """
        Check the size of a file.

        @raise S3Error: C{EntityTooSmall} or C{EntityTooLarge}.
        """
        if size < self.smallest:
            fields = {"ProposedSize": str(size), "MinSizeAllowed": str(self.smallest)}
            raise S3Error("EntityTooSmall", fields=fields)
        if size > self.largest:
            fields = {"ProposedSize": str(size), "MaxSizeAllowed": str(self.largest)}
            raise S3Error("EntityTooLarge", fields=fields)

    def narrow(self, smallest: int, largest: int) -> "SizeLimits":
        """Return the limits within these and some others."""
        return SizeLimits(max(self.smallest, smallest), min(self.largest, largest))


@frozen
class Policy:
    """
    A policy that was read.

    @ivar expiration: Seconds since the epoch.
    """

    expiration: float
    comparisons: tuple[Comparison, ...]
    sizes: SizeLimits


def parsePolicy(policyBase64: str) -> Policy:
    """
    Read a policy.

    @raise S3Error: C{InvalidPolicyDocument}.
    """
    document = _parseJSON(policyBase64)
    if "expiration" not in document:
        raise _invalid("Policy missing expiration.")
    if "conditions" not in document:
        raise _invalid("Policy missing conditions.")
    conditions = document["conditions"]
    if not isinstance(conditions, list):
        raise _invalid("Invalid 'conditions' value: must be a List.")
    if len(conditions) > CONDITION_LIMIT:
        raise _invalid("too many conditions.")
    comparisons = []
    sizes = SizeLimits()
    for condition in conditions:
        parsed = _parseCondition(condition)
        if isinstance(parsed, Comparison):
            comparisons.append(parsed)
        else:
            sizes = sizes.narrow(parsed.smallest, parsed.largest)
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


def _parseCondition(condition: Any) -> Comparison | SizeLimits:
    if isinstance(condition, dict):
        if len(condition) != 1:
            raise _invalid(
                "Invalid Simple-Condition: Simple-Conditions must have exactly one property "
                "specified."
            )
        [(field, value)] = condition.items()
        if not isinstance(value, str):
            raise _invalid("Invalid Simple-Condition: value must be a string.")
        return Comparison("eq", field.lower(), value)
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
    return Comparison(operator, field[1:].lower(), value)


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
_IGNORED = "x-ignore-"
"""Fields that begin with this are for others and need no condition."""


def checkPolicy(
    policyBase64: str | None, fields: Mapping[str, str], bucket: str, now: float
) -> SizeLimits:
    """
    Hold a form against its policy.

    @param policyBase64: The field C{policy}; L{None} if the form has none.
    @param fields: Values by lower-case name, with the C{key} under which the file will be stored:
        what C{${filename}} stands for has to be put in before, or a file's name could lead out of
        what the policy allows.
    @param bucket: The one that the form was sent to.
    @param now: Seconds since the epoch.
    @return: Which sizes the file may have.
    @raise S3Error: C{AccessDenied} if the policy is not there, is over or does not allow the form,
        C{InvalidPolicyDocument} if it cannot be read.
    """
    if not policyBase64:
        raise S3Error("AccessDenied")
    policy = parsePolicy(policyBase64)
    if now > policy.expiration:
        raise _refuse("Policy expired.")
    values = {**fields, "bucket": bucket}
    covered = set()
    for condition in policy.comparisons:
        if not _holds(condition, values.get(condition.field, "")):
            raise _refuse(f"Policy Condition failed: {_show(condition)}")
        covered.add(condition.field)
    extra = [name for name in values if name not in covered and not _needsNone(name)]
    if extra:
        raise _refuse(f"Extra input fields: {', '.join(extra)}")
    return policy.sizes


def _needsNone(name: str) -> bool:
    return name in _EXEMPT or name.startswith(_IGNORED)


def _holds(condition: Comparison, value: str) -> bool:
    if condition.operator == "eq":
        return value == condition.value
    if condition.field == "content-type":
        # A list of types: each of them has to begin so.
        return all(part.strip().startswith(condition.value) for part in value.split(","))
    return value.startswith(condition.value)


def _show(condition: Comparison) -> str:
    return json.dumps([condition.operator, f"${condition.field}", condition.value])


def _refuse(detail: str) -> S3Error:
    return S3Error("AccessDenied", f"Invalid according to Policy: {detail}")
