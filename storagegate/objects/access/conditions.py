"""
The conditions of policies: operators, and the tests to which conditions are compiled.

An operator compares the value of a condition key with each value in the policy. One equal value is
enough; for a negated operator, no value may be equal. If the request has no value, only negated
operators and operators with C{IfExists} hold. C{ForAllValues:} and C{ForAnyValue:} compare each
value of a multi-valued key.

A request value that is not a number, date or address equals no policy value.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import frozen

from storagegate.core.addresses import LONGEST_ADDRESS, readAddress, readNetwork
from storagegate.objects.access.context import (
    AccessContext,
    ConditionKey,
    Value,
    findKey,
    sentValue,
    valueOf,
)
from storagegate.objects.access.patterns import (
    Tokens,
    Variable,
    hasVariables,
    matcher,
    resolve,
    tokenise,
)
from storagegate.objects.dates import parseDate

Test = Callable[[AccessContext], bool]
"""A compiled condition."""

_Match = Callable[[str, AccessContext], bool]
"""Whether a request value equals a value of the policy."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?", re.ASCII)


def parseNumber(text: str) -> Fraction | int:
    """
    Read a number.

    @raise ValueError: The text is not a number.
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!a:.80} is no number")
    return Fraction(text) if "." in text else int(text)


def parseBool(text: str) -> bool:
    """
    Read a truth value.

    @raise ValueError: The text is neither C{true} nor C{false}, in any case.
    """
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!a:.80} is neither true nor false")
    return text.lower() == "true"


def parseBinary(text: str) -> bytes:
    """
    Read bytes in Base64.

    @raise ValueError: The text is not Base64.
    """
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!a:.80} is not Base64") from None


_KNOWN_ADDRESSES = 64
"""Cached addresses per condition; further clients take longer."""


def _variableValue(context: AccessContext) -> Callable[[str], str | None]:
    def value(name: str) -> str | None:
        key = findKey(name)
        found = None if key is None else valueOf(key, context)
        return found if isinstance(found, str) else None

    return value


def resolved(tokens: Tokens, context: AccessContext) -> Tokens | None:
    """Replace a pattern's variables with values of a request; L{None} if a value is missing."""
    return resolve(tokens, _variableValue(context))


def checkVariables(tokens: Tokens) -> None:
    """
    Check the names of variables.

    @raise ValueError: A name is not a condition key, or names a multi-valued key.
    """
    for token in tokens:
        if isinstance(token, Variable):
            key = findKey(token.key)
            if key is None or key.isMultiple:
                raise ValueError(f"the variable ${{{token.key}}} is not known")


def _patterns(values: Sequence[str], variables: bool, wildcards: bool) -> list[Tokens]:
    found = [tokenise(value, wildcards=wildcards, variables=variables) for value in values]
    for tokens in found:
        checkVariables(tokens)
    return found


def _anyOf(patterns: Sequence[Tokens]) -> _Match:
    """Match a text against patterns, which may have variables."""
    fixed = [matcher(tokens) for tokens in patterns if not hasVariables(tokens)]
    varying = [tokens for tokens in patterns if hasVariables(tokens)]

    def matches(text: str, context: AccessContext) -> bool:
        for test in fixed:
            if test(text):
                return True
        for tokens in varying:
            known = resolved(tokens, context)
            if known is not None and matcher(known)(text):
                return True
        return False

    return matches


def _text(values: Sequence[str], variables: bool) -> _Match:
    patterns = _patterns(values, variables, wildcards=False)
    if any(map(hasVariables, patterns)):
        return _anyOf(patterns)
    wanted = frozenset("".join(str(token) for token in tokens) for tokens in patterns)
    return lambda text, context: text in wanted


def _textInAnyCase(values: Sequence[str], variables: bool) -> _Match:
    patterns = _patterns(values, variables, wildcards=False)

    def matches(text: str, context: AccessContext) -> bool:
        for tokens in patterns:
            known = resolved(tokens, context)
            if known is not None and "".join(map(str, known)).lower() == text.lower():
                return True
        return False

    return matches


def _like(values: Sequence[str], variables: bool) -> _Match:
    return _anyOf(_patterns(values, variables, wildcards=True))


_ARN_PARTS = 6


def _arn(values: Sequence[str], variables: bool) -> _Match:
    """Match ARNs: each of the six parts separately, so that no star spans a colon."""
    split: list[list[Tokens]] = []
    for tokens in _patterns(values, variables, wildcards=True):
        parts: list[list[Any]] = [[]]
        for token in tokens:
            if not isinstance(token, str):
                parts[-1].append(token)
                continue
            first, *more = token.split(":", _ARN_PARTS - len(parts))
            if first:
                parts[-1].append(first)
            parts += [[each] if each else [] for each in more]
        if len(parts) != _ARN_PARTS or parts[0] != ["arn"]:
            raise ValueError(f"{values[len(split)]!a:.200} is no ARN")
        split.append([tuple(part) for part in parts])
    tests = [[_anyOf([part]) for part in parts] for parts in split]

    def matches(text: str, context: AccessContext) -> bool:
        found = text.split(":", _ARN_PARTS - 1)
        return len(found) == _ARN_PARTS and any(
            all(test(part, context) for test, part in zip(each, found, strict=True))
            for each in tests
        )

    return matches


def _parsed(parse: Callable[[str], Any], holds: Callable[[Any, Any], bool]) -> Any:
    """Make the factory of a test that parses values and compares them."""

    def make(values: Sequence[str], variables: bool) -> _Match:
        wanted = [parse(value) for value in values]

        def matches(text: str, context: AccessContext) -> bool:
            try:
                found = parse(text)
            except ValueError:
                return False
            return any(holds(found, each) for each in wanted)

        return matches

    return make


def _addresses(values: Sequence[str], variables: bool) -> _Match:
    networks = []
    for value in values:
        try:
            networks.append(readNetwork(value, strict=False))
        except ValueError:
            raise ValueError(f"{value!a:.80} is no network") from None

    # Clients are few, and an address takes 3 microseconds to parse and compare.
    known: dict[str, bool] = {}

    def matches(text: str, context: AccessContext) -> bool:
        try:
            return known[text]
        except KeyError:
            pass
        if len(text) > LONGEST_ADDRESS:
            return False
        try:
            address = readAddress(text)
            found = any(address in network for network in networks)
        except ValueError:
            found = False
        if len(known) >= _KNOWN_ADDRESSES:
            known.clear()
        known[text] = found
        return found

    return matches


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "Equals": lambda found, wanted: bool(found == wanted),
    "LessThan": lambda found, wanted: bool(found < wanted),
    "LessThanEquals": lambda found, wanted: bool(found <= wanted),
    "GreaterThan": lambda found, wanted: bool(found > wanted),
    "GreaterThanEquals": lambda found, wanted: bool(found >= wanted),
}
_equal = _COMPARISONS["Equals"]


@frozen
class Operator:
    """
    A condition operator.

    @ivar make: Compiles the values of a policy; raises L{ValueError} for an invalid value.
    @ivar isNegated: Whether the operator holds for unequal values.
    """

    make: Callable[[Sequence[str], bool], _Match]
    isNegated: bool = False


OPERATORS: Mapping[str, Operator] = {
    "StringEquals": Operator(_text),
    "StringNotEquals": Operator(_text, True),
    "StringEqualsIgnoreCase": Operator(_textInAnyCase),
    "StringNotEqualsIgnoreCase": Operator(_textInAnyCase, True),
    "StringLike": Operator(_like),
    "StringNotLike": Operator(_like, True),
    **{
        kind + name: Operator(_parsed(parse, holds))
        for kind, parse in (("Numeric", parseNumber), ("Date", parseDate))
        for name, holds in _COMPARISONS.items()
    },
    "NumericNotEquals": Operator(_parsed(parseNumber, _equal), True),
    "DateNotEquals": Operator(_parsed(parseDate, _equal), True),
    "Bool": Operator(_parsed(parseBool, _equal)),
    "BinaryEquals": Operator(_parsed(parseBinary, _equal)),
    "IpAddress": Operator(_addresses),
    "NotIpAddress": Operator(_addresses, True),
    "ArnEquals": Operator(_arn),
    "ArnLike": Operator(_arn),
    "ArnNotEquals": Operator(_arn, True),
    "ArnNotLike": Operator(_arn, True),
}
"""Every operator except C{Null}, without qualifier and suffix."""

_QUALIFIERS = ("ForAllValues", "ForAnyValue")
_SUFFIX = "IfExists"


@frozen
class Condition:
    """
    A condition as written in the policy.

    @ivar operator: The operator with its qualifier and suffix.
    @ivar key: The condition key as written.
    """

    operator: str
    key: str
    values: tuple[str, ...]

    def parts(self) -> tuple[str, str, bool]:
        """Return the qualifier, if any, the bare operator, and whether the suffix is present."""
        qualifier, colon, rest = self.operator.rpartition(":")
        if colon and qualifier not in _QUALIFIERS:
            raise ValueError(f"Invalid Condition type : {self.operator}")
        bare = rest.removesuffix(_SUFFIX)
        isNull = rest == "Null" and not colon
        if bare not in OPERATORS and not isNull:
            raise ValueError(f"Invalid Condition type : {self.operator}")
        return qualifier, bare, bare != rest

    def compiled(self, variables: bool) -> Test:
        """
        Compile the condition.

        @param variables: Whether the version of the policy has variables.
        @raise ValueError: The operator, the key or a value is invalid; the text names it.
        """
        qualifier, bare, ifExists = self.parts()
        key = findKey(self.key)
        if key is None:
            raise ValueError(f"Policy has an invalid condition key: {self.key}")
        if bare == "Null":
            return _null(key, {parseBool(value) for value in self.values})
        operator = OPERATORS[bare]
        values = [key.canonical(value) for value in self.values]
        match = operator.make(values, variables)
        if qualifier:
            return _ofSet(key, match, operator.isNegated, qualifier == "ForAllValues", ifExists)
        if key.isMultiple or key.isClaim:
            return _ofAny(key, match, operator.isNegated, ifExists)
        return _single(key, match, operator.isNegated, ifExists)


def _several(value: Value) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else value


def _null(key: ConditionKey, wanted: set[bool]) -> Test:
    return lambda context: (not _several(sentValue(key, context))) in wanted


def _single(key: ConditionKey, match: _Match, isNegated: bool, ifExists: bool) -> Test:
    name = key.name
    read: Callable[[AccessContext], Any] = key.read
    whenAbsent = isNegated or ifExists

    def holds(context: AccessContext) -> bool:
        # Many statements read the same key.
        try:
            value = context.values[name]
        except KeyError:
            value = context.values[name] = read(context)
        return whenAbsent if value is None else match(value, context) is not isNegated

    return holds


def _ofAny(key: ConditionKey, match: _Match, isNegated: bool, ifExists: bool) -> Test:
    """Compare a multi-valued key without a qualifier: one equal value is enough."""

    def holds(context: AccessContext) -> bool:
        values = _several(valueOf(key, context))
        if not values:
            return isNegated or ifExists
        return any(match(value, context) for value in values) is not isNegated

    return holds


def _ofSet(
    key: ConditionKey, match: _Match, isNegated: bool, isForAll: bool, ifExists: bool
) -> Test:
    def holds(context: AccessContext) -> bool:
        values = _several(valueOf(key, context))
        if not values:
            return isForAll or ifExists
        judged = (match(value, context) is not isNegated for value in values)
        return all(judged) if isForAll else any(judged)

    return holds
