"""Reading the document of a form's policy; what it means is in C{postpolicy}."""

import json
import re
from base64 import b64decode
from datetime import datetime
from typing import Any, NoReturn

from attrs import frozen

from storagegate.core.scalars import parseDecimal
from storagegate.s3.errors import S3Error

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
        """Give the limits within these and some others."""
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
