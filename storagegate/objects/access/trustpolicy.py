"""
Trust policies of roles, which say who may assume a role::

    statement = {["Sid"], "Effect", "Principal", "Action": "sts:..." / [*"sts:..."], ["Condition"]}
    Principal = {"AWS": ARN / "*" / [*ARN], "Federated": issuer / [*issuer]} / "*"

A policy is only validated here.
"""

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

_STATEMENT_ELEMENTS = frozenset({"Sid", "Effect", "Principal", "Action", "Condition"})


def readTrustPolicy(document: str) -> None:
    """
    Read and validate a trust policy.

    @raise MalformedPolicy: The error names the problem.
    """
    policy = parsePolicy(document.encode(), _LIMIT)
    checkElements(policy, frozenset({"Version", "Id", "Statement"}))
    if policy.get("Version", VERSIONS[0]) not in VERSIONS:
        raise malformed("The policy must contain a valid version string")
    for number, statement in enumerate(statementsOf(policy), 1):
        try:
            _checkStatement(statement)
        except ValueError as error:
            raise malformed(str(error), {"statement": number}) from None


def _checkStatement(statement: object) -> None:
    if not isinstance(statement, dict):
        raise ValueError("Statement must be an object or a list of objects")
    if "Resource" in statement or "NotResource" in statement:
        raise ValueError("Has prohibited field Resource")
    checkElements(statement, _STATEMENT_ELEMENTS)
    effect, _ = oneOf(statement, "Effect")
    if effect not in ("Allow", "Deny"):
        raise ValueError(f"Invalid effect: {effect!a:.80}")
    principal, _ = oneOf(statement, "Principal")
    if principal != "*":
        if not isinstance(principal, dict) or not principal:
            raise ValueError(f"Invalid principal in policy: {principal!a:.200}")
        for kind, names in principal.items():
            if kind not in ("AWS", "Federated"):
                raise ValueError(f"Invalid principal in policy: {kind!a:.80}")
            readTexts(names, "Principal")
    actions, _ = oneOf(statement, "Action")
    for action in readTexts(actions, "Action"):
        if action != "*" and not action.startswith("sts:"):
            raise ValueError("AssumeRole policy may only specify STS AssumeRole actions.")
    for _ in readConditions(statement.get("Condition", {})):
        pass
