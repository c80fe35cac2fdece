"""
A second evaluator of bucket policies: slow, plain, and read from the JSON for each request.

It shares nothing with L{storagegate.objects.access.policy} but the names of actions and keys. A
request is a dictionary of the values of its condition keys, by lower-case name.
"""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Any

from attrs import frozen


@frozen
class Asked:
    """
    A request.

    @ivar account: L{None} for an anonymous one.
    @ivar resource: C{bucket} or C{bucket/key}.
    @ivar values: Of condition keys; of several values a list.
    """

    account: str | None
    accessKey: str
    action: str
    resource: str
    values: Mapping[str, str | list[str]]


def matchesWild(pattern: Sequence[str], text: str) -> bool:
    """Match by the table of all prefixes; a wildcard is the token C{**} or C{??}."""
    row = [True] + [False] * len(text)
    for token in pattern:
        if token == "**":
            following = [row[0]]
            for i in range(len(text)):
                following.append(following[-1] or row[i + 1])
        else:
            following = [False]
            for i, character in enumerate(text):
                following.append(row[i] and token in ("??", character))
        row = following
    return row[-1]


def tokensOf(text: str, asked: Asked, wild: bool, variables: bool) -> list[str] | None:
    """Split a pattern into characters and wildcards, with values in the place of variables."""
    tokens: list[str] = []
    while text:
        if variables and text.startswith("${"):
            inner, _, text = text[2:].partition("}")
            if inner in ("*", "?", "$"):
                tokens.append(inner)
                continue
            name, comma, default = inner.partition(",")
            value = asked.values.get(name.strip().lower())
            if value is None:
                if not comma:
                    return None
                value = default.strip()[1:-1]
            assert isinstance(value, str)
            tokens += value
            continue
        first, text = text[0], text[1:]
        tokens.append(first * 2 if wild and first in "*?" else first)
    return tokens


def listed(value: Any) -> list[Any]:
    """Return a list of one or of several."""
    return value if isinstance(value, list) else [value]


def isPrincipal(principal: Any, asked: Asked) -> bool:
    """Return whether a principal names who asks."""
    if principal == "*":
        return True
    for kind, names in principal.items():
        for name in listed(names):
            if kind == "AWS" and name == "*":
                return True
            if asked.account is None:
                continue
            arn = f"arn:aws:iam::{asked.account}"
            if kind == "AWS" and name in (
                asked.account,
                f"{arn}:root",
                f"{arn}:user/{asked.accessKey}",
            ):
                return True
            digits = sha256(b"storagegate account " + asked.account.encode()).hexdigest()
            if kind == "CanonicalUser" and name == digits:
                return True
    return False


def dateOf(text: str) -> Decimal:
    """Return seconds since the epoch."""
    if text.isdigit():
        return Decimal(text)
    found = datetime.fromisoformat(text)
    return Decimal(str((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()))


def isEqual(kind: str, found: str, value: str, asked: Asked, variables: bool) -> bool:
    """Compare a value of the request with one of the policy; C{kind} is a bare operator."""
    if kind.startswith("String"):
        tokens = tokensOf(value, asked, "Like" in kind, variables)
        if tokens is None:
            return False
        if "IgnoreCase" in kind:
            return found.lower() == "".join(tokens).lower()
        return matchesWild(tokens, found)
    if kind.startswith("Arn"):
        tokens = tokensOf(value, asked, True, variables)
        if tokens is None:
            return False
        parts: list[list[str]] = [[]]
        # Only the colons of the pattern itself separate: tests have none in values.
        for token in tokens:
            if token == ":" and len(parts) < 6:
                parts.append([])
            else:
                parts[-1].append(token)
        split = found.split(":", 5)
        return len(split) == len(parts) == 6 and all(map(matchesWild, parts, split))
    try:
        if kind == "IpAddress":
            return ip_address(found) in ip_network(value, strict=False)
        if kind == "Bool":
            return found.lower() == value.lower()
        if kind == "BinaryEquals":
            return b64decode(found, validate=True) == b64decode(value)
        number = dateOf if kind.startswith("Date") else Decimal
        left, right = number(found), number(value)
    except (ValueError, ArithmeticError):
        return False
    return {
        "Equals": left == right,
        "LessThan": left < right,
        "LessThanEquals": left <= right,
        "GreaterThan": left > right,
        "GreaterThanEquals": left >= right,
    }[kind.removeprefix("Date").removeprefix("Numeric")]


def conditionHolds(
    operator: str, key: str, wanted: list[Any], asked: Asked, variables: bool
) -> bool:
    """Return whether one condition holds."""
    values = [str(each).lower() if isinstance(each, bool) else str(each) for each in wanted]
    found = asked.values.get(key.lower())
    several = [] if found is None else listed(found)
    if operator == "Null":
        return ("false" if several else "true") in [value.lower() for value in values]
    qualifier, _, rest = operator.rpartition(":")
    kind = rest.removesuffix("IfExists")
    isNegated = "Not" in kind
    kind = kind.replace("NotEquals", "Equals").replace("NotLike", "Like").replace("NotIp", "Ip")
    judged = [
        any(isEqual(kind, each, value, asked, variables) for value in values) for each in several
    ]
    if qualifier == "ForAllValues":
        return all(each != isNegated for each in judged)
    if not judged:
        return rest.endswith("IfExists") or (isNegated and not qualifier)
    if qualifier == "ForAnyValue":
        return any(each != isNegated for each in judged)
    return any(judged) != isNegated


def statementHolds(statement: Mapping[str, Any], asked: Asked, variables: bool) -> bool:
    """Return whether a statement applies to a request."""
    for name in ("Principal", "Action", "Resource"):
        isNot = f"Not{name}" in statement
        value = statement[f"Not{name}" if isNot else name]
        if name == "Principal":
            found = isPrincipal(value, asked)
        elif name == "Action":
            found = any(
                matchesWild(tokensOf(each.lower(), asked, True, False) or [], asked.action.lower())
                for each in listed(value)
            )
        else:
            patterns = [
                tokensOf(each.removeprefix("arn:aws:s3:::"), asked, True, variables)
                for each in listed(value)
            ]
            found = any(each is not None and matchesWild(each, asked.resource) for each in patterns)
        if found == isNot:
            return False
    return all(
        conditionHolds(operator, key, listed(values), asked, variables)
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def evaluate(document: bytes, asked: Asked) -> bool | None:
    """Return L{False} for what is denied, L{True} for what is allowed, else L{None}."""
    policy = json.loads(document)
    variables = policy.get("Version") == "2012-10-17"
    holding = [
        statement["Effect"]
        for statement in listed(policy["Statement"])
        if statementHolds(statement, asked, variables)
    ]
    return False if "Deny" in holding else True if holding else None
