"""
Trust policies of roles, which say who may assume a role::

    statement = {["Sid"], "Effect", "Principal", "Action": "sts:..." / [*"sts:..."], ["Condition"]}
    Principal = {"AWS": ARN / "*" / [*ARN], "Federated": issuer / [*issuer]} / "*"
    issuer    = the ARN of an OpenID Connect provider, or its URL with or without the scheme

An ARN without an account, C{arn:aws:iam:::user/NAME} or C{arn:aws:sts:::assumed-role/ROLE/SESSION},
names the account of the role.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Any

from attrs import frozen

from storagegate.objects.access.conditions import Test
from storagegate.objects.access.context import AccessContext
from storagegate.objects.access.patterns import matcher, tokenise
from storagegate.objects.access.policy import Principals, readPrincipals
from storagegate.objects.access.policydocument import (
    VERSIONS,
    checkElements,
    malformed,
    oneOf,
    parsePolicy,
    readConditions,
    readTexts,
    statementsOf,
)

_LIMIT = 8 * 1024
"""Bytes of a trust policy: four times Amazon's default limit of 2,048 characters."""

TAG_SESSION = "sts:TagSession"
"""The action that gives tags to a session."""

_STATEMENT_ELEMENTS = frozenset({"Sid", "Effect", "Principal", "Action", "Condition"})
_NO_ACCOUNT = re.compile("(arn:aws:(?:iam|sts)::):")


class Trust(Enum):
    """
    The decision of a trust policy.

    C{ACCOUNT}: it trusts the account of the caller, whose own policies must also allow the request;
    C{CALLER}: it names the caller itself.
    """

    DENIED = "denied"
    NONE = "none"
    ACCOUNT = "account"
    CALLER = "caller"


@frozen
class _TrustStatement:
    isAllow: bool
    principals: Principals
    issuers: frozenset[str]
    actions: tuple[Callable[[str], bool], ...]
    tests: tuple[Test, ...]

    def concerns(self, action: str, context: AccessContext) -> bool:
        """Return whether the statement applies to an action, apart from its principals."""
        lower = action.lower()
        return any(matches(lower) for matches in self.actions) and all(
            test(context) for test in self.tests
        )


class TrustPolicy:
    """A compiled trust policy."""

    def __init__(self, statements: Iterable[_TrustStatement]) -> None:
        self._statements = tuple(statements)

    def evaluate(self, action: str, context: AccessContext) -> Trust:
        """
        Decide on a request of an account's identity.

        @param action: The action with its prefix, such as C{sts:AssumeRole}.
        """
        identity, found = context.identity, Trust.NONE
        for each in self._statements:
            if each.principals.includes(identity) and each.concerns(action, context):
                if not each.isAllow:
                    return Trust.DENIED
                if each.principals.names(identity):
                    found = Trust.CALLER
                elif found is Trust.NONE:
                    found = Trust.ACCOUNT
        return found

    def evaluateFederated(
        self, action: str, context: AccessContext, names: frozenset[str]
    ) -> Trust:
        """
        Decide on a request with the token of an issuer. A denial can also name everyone; an
        allowance must name the issuer.

        @param names: The names of the issuer: its ARN, and its URL with and without the scheme.
        """
        found = Trust.NONE
        for each in self._statements:
            isNamed = not names.isdisjoint(each.issuers)
            isDenial = not each.isAllow and (isNamed or each.principals.isAll)
            if (isNamed or isDenial) and each.concerns(action, context):
                if isDenial:
                    return Trust.DENIED
                found = Trust.CALLER
        return found


# Each new session of a role evaluates its trust policy.
@lru_cache(maxsize=256)
def compileTrustPolicy(document: str, account: str) -> TrustPolicy:
    """
    Read, validate and compile a trust policy.

    @param account: The account of the role.
    @raise MalformedPolicy: The error names the problem.
    """
    policy = parsePolicy(document.encode(), _LIMIT)
    checkElements(policy, frozenset({"Version", "Id", "Statement"}))
    version = policy.get("Version", VERSIONS[0])
    if version not in VERSIONS:
        raise malformed("The policy must contain a valid version string")
    found: list[_TrustStatement] = []
    for number, statement in enumerate(statementsOf(policy), 1):
        try:
            found.append(_readStatement(statement, account, version == VERSIONS[1]))
        except ValueError as error:
            raise malformed(str(error), {"statement": number}) from None
    return TrustPolicy(found)


def _readStatement(statement: Any, account: str, variables: bool) -> _TrustStatement:
    if not isinstance(statement, dict):
        raise ValueError("Statement must be an object or a list of objects")
    if "Resource" in statement or "NotResource" in statement:
        raise ValueError("Has prohibited field Resource")
    checkElements(statement, _STATEMENT_ELEMENTS)
    effect, _ = oneOf(statement, "Effect")
    if effect not in ("Allow", "Deny"):
        raise ValueError(f"Invalid effect: {effect!a:.80}")
    principals, issuers = _readPrincipal(oneOf(statement, "Principal")[0], account)
    actions = readTexts(oneOf(statement, "Action")[0], "Action")
    for action in actions:
        if action != "*" and not action.startswith("sts:"):
            raise ValueError("AssumeRole policy may only specify STS AssumeRole actions.")
    return _TrustStatement(
        isAllow=effect == "Allow",
        principals=principals,
        issuers=issuers,
        actions=tuple(
            matcher(tokenise(each.lower(), wildcards=True, variables=False)) for each in actions
        ),
        tests=tuple(
            each.compiled(variables) for each in readConditions(statement.get("Condition", {}))
        ),
    )


def _readPrincipal(principal: Any, account: str) -> tuple[Principals, frozenset[str]]:
    """Read the identities and the issuers that a statement names."""
    if principal == "*":
        return Principals(isAll=True), frozenset()
    if not isinstance(principal, dict) or not principal:
        raise ValueError(f"Invalid principal in policy: {principal!a:.200}")
    for kind in principal:
        if kind not in ("AWS", "Federated"):
            raise ValueError(f"Invalid principal in policy: {kind!a:.80}")
    issuers = readTexts(principal["Federated"], "Principal") if "Federated" in principal else []
    if "AWS" not in principal:
        return Principals(), frozenset(issuers)
    named = [
        each if found is None else f"{found[1]}{account}:{each[found.end() :]}"
        for each in readTexts(principal["AWS"], "Principal")
        for found in [_NO_ACCOUNT.match(each)]
    ]
    return readPrincipals({"AWS": named}), frozenset(issuers)
