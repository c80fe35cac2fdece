"""The JSON of policies: the elements that the policies of buckets, identities and roles share."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from storagegate.objects import errors
from storagegate.objects.access.conditions import Condition
from storagegate.objects.access.patterns import shownText

VERSIONS = ("2008-10-17", "2012-10-17")
"""The versions of the language; only the second has variables."""


def malformed(message: str, place: Mapping[str, int | str] | None = None) -> errors.MalformedPolicy:
    """
    Make the error for an invalid policy.

    @param place: See L{errors.MalformedPolicy}.
    """
    return errors.MalformedPolicy(shownText(message[:400]), place)


def statementsOf(policy: Mapping[str, Any]) -> list[Any]:
    """Return the statements of a policy, of which there is at least one."""
    statements = policy.get("Statement")
    if isinstance(statements, dict):
        statements = [statements]
    if not isinstance(statements, list) or not statements:
        raise malformed("Missing required field Statement")
    return statements


def parsePolicy(document: bytes, limit: int) -> dict[str, Any]:
    """
    Parse a policy, without validating its elements.

    @param limit: The most bytes.
    @raise MalformedPolicy: The document is too long, or not a JSON object.
    """
    if len(document) > limit:
        raise malformed(f"The policy has {len(document)} bytes; it must not have more than {limit}")
    try:
        text = document.decode("utf-8")
        policy = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except UnicodeDecodeError:
        raise malformed("This policy contains invalid Json: it is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise malformed(f"This policy contains invalid Json: {error}") from None
    if not isinstance(policy, dict):
        raise malformed("Policies must be valid JSON and the first byte must be '{'")
    return policy


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!a:.80} comes twice")
    return found


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no value of JSON")


def checkElements(
    found: Mapping[str, Any], known: frozenset[str], place: Mapping[str, int | str] | None = None
) -> None:
    """
    Refuse unknown elements.

    @param place: See L{errors.MalformedPolicy}.
    @raise MalformedPolicy: The error names the element.
    """
    for name in found:
        if name not in known:
            raise malformed(f"Unknown field {name}", place)


def readTexts(value: Any, what: str) -> list[str]:
    """Return one text, or a non-empty list of texts, as a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        raise ValueError(f"{what} must be a string or a list of strings")
    return texts


def oneOf(statement: Mapping[str, Any], name: str) -> tuple[Any, bool]:
    """Return the value of an element or of its negation, and whether it is the negation."""
    negation = f"Not{name}"
    if name in statement and negation in statement:
        raise ValueError(f"{name} and {negation} must not be in one statement")
    if negation in statement:
        return statement[negation], True
    if name not in statement:
        raise ValueError(f"Missing required field {name}")
    return statement[name], False


def readConditions(value: Any) -> Iterable[Condition]:
    """
    Read the conditions of a statement.

    @raise ValueError: A condition has another form; the text names it.
    """
    if not isinstance(value, dict):
        raise ValueError("Condition must be an object")
    for operator, keys in value.items():
        if not isinstance(keys, dict) or not keys:
            raise ValueError(f"Condition {operator!a:.80} must be an object of keys and values")
        for key, values in keys.items():
            listed = values if isinstance(values, list) else [values]
            if not listed:
                raise ValueError(f"Condition {operator!a:.80} has no value for {key!a:.80}")
            condition = Condition(operator, key, tuple(_scalar(each, key) for each in listed))
            condition.parts()
            yield condition


def _scalar(value: Any, key: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if not isinstance(value, str):
        raise ValueError(f"A value of {key!a:.80} must be a string, a number or a boolean")
    return value
