"""
The parameters of a call to IAM or STS, and its operation.

A call is a form::

    call   = "Action=" name "&Version=2010-05-08" *("&" parameter)
    scalar = Name "=" text                        ; UserName=ann
    list   = Name ".member." number "=" text      ; TagKeys.member.1=team
    tags   = "Tags.member." number ".Key=" text, "Tags.member." number ".Value=" text
    rows   = Name ".member." number "." Field "=" text / Name ".member." number "." list

A parameter is the field of the operation whose name has a small first letter, so operations of
L{storagegate.objects.identities.operations} need no table here.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from storagegate.core.options import parseDecimal
from storagegate.objects.errors import ValidationError
from storagegate.objects.identities.operations import IdentityOperation
from storagegate.objects.identities.validation import invalid
from storagegate.s3.errors import S3Error
from storagegate.s3.iam.apis import QueryAPI

CALL_LIMIT = 1 << 20
"""Bytes of a call: a policy of 131,072 characters, escaped, and as many tags."""

_MOST_PARAMETERS = 1000
"""Parameters of a call; an operation has at most 50 tags, which are 100."""

_MOST_NUMBER = 2**31 - 1

# The parameters of every call, and of a signature in the query.
_COMMON = frozenset({"Action", "Version"})
_SIGNATURE = "X-Amz-"

Parameters = Mapping[str, str]
"""The parameters of a call by name."""


def parseCall(text: bytes) -> Parameters:
    """
    Parse the form of a call.

    @raise ValidationError: It is no form in UTF-8, has too many parameters, or repeats one.
    """
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:
        raise ValidationError("The parameters of the call are no form in UTF-8") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValidationError("The call repeats a parameter")
    return found


def readOperation(parameters: Parameters, api: QueryAPI) -> IdentityOperation[Any]:
    """
    Return the operation of a call.

    @raise S3Error: C{InvalidAction} for another version of the API; C{NotImplemented} for an
        operation or a parameter that this server does not have.
    @raise ValidationError: A parameter is absent or malformed.
    """
    name = parameters.get("Action", "")
    if parameters.get("Version") != api.version or not name:
        raise S3Error("InvalidAction", f"The call needs an Action, and Version={api.version}.")
    kind = api.operations.get(name)
    if kind is None:
        raise S3Error("NotImplemented", "The action is not implemented.")
    known = _parametersOf(kind)
    found = _values(parameters, known)
    missing = [field for field in known.values() if field.required and field.name not in found]
    if missing:
        raise invalid(None, missing[0].name, "Member must not be null")
    return kind(**found)


@cache
def _parametersOf(kind: type[Struct]) -> Mapping[str, FieldInfo]:
    """Return the fields of an operation, or of a member, by the names of their parameters."""
    return {amazonName(field.name): field for field in fields(kind)}


def amazonName(name: str) -> str:
    """Return Amazon's name of a field: with a capital first letter."""
    return name[0].upper() + name[1:]


def _values(parameters: Parameters, known: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Read the values of fields by name."""
    found: dict[str, Any] = {}
    members: dict[str, dict[int, dict[str, str]]] = {}
    for name, text in parameters.items():
        if name in _COMMON or name.startswith(_SIGNATURE):
            continue
        first, *rest = name.split(".")
        field = known.get(first)
        if field is None:
            raise S3Error("NotImplemented", f"The parameter {first:.100} is not implemented.")
        kind = str(field.type)
        if not kind.startswith("tuple"):
            if rest:
                raise invalid(text, name[:100], "Member must be a single value")
            found[field.name] = _scalar(field, kind, text)
        elif not rest:
            # An SDK sends an empty list like this.
            if text:
                raise invalid(text, field.name, "Member must be a list")
            members.setdefault(field.name, {})
        else:
            number, part = _place(name, rest, _rowOf(field))
            members.setdefault(field.name, {}).setdefault(number, {})[part] = text
    for name, rows in members.items():
        row = _rowOf(known[amazonName(name)])
        found[name] = tuple(_member(name, row, rows[number]) for number in sorted(rows))
    return found


def _rowOf(field: FieldInfo) -> type[Struct] | None:
    """Return the type of the members of a list; L{None} for texts."""
    (member, *_) = get_args(field.type)
    return member if isinstance(member, type) and issubclass(member, Struct) else None


def _scalar(field: FieldInfo, kind: str, text: str) -> Any:
    if "bool" in kind:
        if text.lower() not in ("true", "false"):
            raise invalid(text, field.name, "Member must be true or false")
        return text.lower() == "true"
    if "int" in kind:
        try:
            return parseDecimal(text, _MOST_NUMBER)
        except ValueError:
            raise invalid(text, field.name, "Member must be an integer") from None
    return text


def _place(name: str, rest: list[str], row: type[Struct] | None) -> tuple[int, str]:
    """
    Return the number of a member, and the rest of the name; empty for a text.

    @param row: The type of the members; L{None} for texts.
    """
    try:
        if rest[0] == "member" and (len(rest) == 2 if row is None else len(rest) > 2):
            part = ".".join(rest[2:])
            if row is None or part.partition(".")[0] in _parametersOf(row):
                return parseDecimal(rest[1], _MOST_NUMBER), part
    except ValueError:
        pass
    raise invalid(None, name[:100], "Member must be numbered, as in Name.member.1")


def _member(name: str, row: type[Struct] | None, parts: Mapping[str, str]) -> Any:
    if row is None:
        return parts[""]
    known = _parametersOf(row)
    values = _values(parts, known)
    for field in known.values():
        if field.required and field.name not in values:
            raise invalid(None, f"{name}.member.{field.name}", "Member must not be null")
    return row(**values)
