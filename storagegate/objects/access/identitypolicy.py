"""
Policies of identities: the inline and managed policies of users, groups and roles, and the session
policies of service keys.

The document is the one of L{storagegate.objects.access.policy} without principals::

    statement = {["Sid"], "Effect": "Allow" / "Deny", action, resource, ["Condition"]}
    action    = "Action" / "NotAction": pattern / [*pattern]
    resource  = "Resource" / "NotResource": "*" / ARN / [*ARN]

A pattern names C{SERVICE:ACTION}, and its resources may be in any bucket or account. As at Amazon,
actions of other services are valid, and no request needs them. A condition key that this store does
not know is refused.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from attrs import frozen

from storagegate.objects.access.actions import ACTIONS, OPERATION_ACTIONS
from storagegate.objects.access.conditions import Test, checkVariables
from storagegate.objects.access.patterns import ANY, Tokens, Variable, matcher, tokenise
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
from storagegate.objects.access.rules import Row, Rules, makeRules, prefixesOf, resourceTest

POLICY_LIMIT = 20 * 1024
"""Bytes of a policy: twice Amazon's largest, 10,240 characters, which may have two bytes each."""

_POLICY_ELEMENTS = frozenset({"Version", "Id", "Statement"})
_STATEMENT_ELEMENTS = frozenset(
    {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}
)

_ARN_PARTS = 6
_OWN_ACCOUNT = Variable("aws:PrincipalAccount")

# The service in the ARN of the resources of a service's actions, if it differs.
_ARN_SERVICES = {"sts": "iam"}


def resourceOf(action: str, bucket: str, key: str) -> str:
    """
    Return the resource of an S3 action in the form that L{Rules.hold} compares.

    @param key: Empty for the bucket itself; ignored if the action concerns a bucket.
    """
    return f"{bucket}/{key}" if ACTIONS.get(action) == "object" else bucket


@frozen
class _Resource:
    """
    The pattern of a resource.

    @ivar head: The patterns of partition, service, region and account; L{None} for C{*}.
    @ivar account: The pattern of the account as text.
    @ivar name: The pattern of the rest.
    """

    head: tuple[Callable[[str], bool], ...] | None
    account: str
    name: str

    def pattern(self, service: str, variables: bool) -> Tokens | None:
        """
        Return the pattern of the resources of a service; L{None} if it has none of them.

        The resources of S3 are compared without the account, which is empty there, and the others
        as C{ACCOUNT:NAME}. An empty account is the one of the identity, as in a trust policy.
        """
        if self.head is None:
            return (ANY,)
        partition, of, region, account = self.head
        if not (partition("aws") and of(service) and region("")):
            return None
        if service == "s3":
            return self._tokens(self.name, variables) if account("") else None
        if not self.account:
            return (_OWN_ACCOUNT, *self._tokens(f":{self.name}", variables))
        return self._tokens(f"{self.account}:{self.name}", variables)

    def _tokens(self, text: str, variables: bool) -> Tokens:
        return tokenise(text, wildcards=True, variables=variables)


def _readResource(text: str, variables: bool) -> _Resource:
    if text == "*":
        return _Resource(None, "", "")
    parts = text.split(":", _ARN_PARTS - 1)
    if len(parts) != _ARN_PARTS or parts[0] != "arn" or not parts[-1]:
        raise ValueError(f'Resource {text!a:.200} must be in ARN format or "*".')
    head = tuple(matcher(tokenise(part, wildcards=True, variables=False)) for part in parts[1:-1])
    checkVariables(tokenise(parts[-1], wildcards=True, variables=variables))
    return _Resource(head, parts[4], parts[-1])


def _readAction(text: str) -> Callable[[str], bool]:
    """Compile the pattern of an action to a test of its name in lower case."""
    service, colon, name = text.partition(":")
    if text != "*" and not (service and colon and name and " " not in text):
        raise ValueError(
            "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc."
        )
    return matcher(tokenise(text.lower(), wildcards=True, variables=False))


def _canMatch(pattern: Tokens, action: str) -> bool:
    """
    Return whether a pattern could match a resource of an action. Most policies list a bucket and
    its objects together, and only one of them concerns an action; without the other, most
    statements are a prefix, which takes 1 microsecond less.
    """
    match ACTIONS.get(action):
        case "object":
            return len(pattern) != 1 or not isinstance(pattern[0], str) or "/" in pattern[0]
        case "bucket":
            return not any(isinstance(token, str) and "/" in token for token in pattern)
    return True


@frozen
class _Statement:
    isAllow: bool
    actions: tuple[Callable[[str], bool], ...]
    isNotAction: bool
    resources: tuple[_Resource, ...]
    isNotResource: bool
    tests: tuple[Test, ...]
    variables: bool

    def concerns(self, action: str) -> bool:
        """Return whether the statement names an action."""
        lower = action.lower()
        return any(matches(lower) for matches in self.actions) is not self.isNotAction

    def row(self, action: str) -> Row | None:
        """Compile the statement for an action; L{None} if it has no resource of its service."""
        service = action.partition(":")[0]
        found = (
            each.pattern(_ARN_SERVICES.get(service, service), self.variables)
            for each in self.resources
        )
        patterns = [each for each in found if each is not None and _canMatch(each, action)]
        if not patterns and not self.isNotResource:
            return None
        test = resourceTest(patterns, self.isNotResource)
        starts = None if test is None else prefixesOf(patterns, self.isNotResource)
        return starts, test, None, self.tests


class IdentityPolicy:
    """
    A compiled policy.

    @ivar document: The original document.
    """

    def __init__(self, document: str, statements: Iterable[_Statement]) -> None:
        self.document = document
        self._statements = tuple(statements)

    def alone(self) -> "Iterator[IdentityPolicy]":
        """Give each statement as a policy of its own."""
        for statement in self._statements:
            yield IdentityPolicy(self.document, (statement,))

    def rows(self, action: str, isAllow: bool) -> Iterator[Row]:
        """Compile the statements with one effect on an action."""
        for statement in self._statements:
            if statement.isAllow is isAllow and statement.concerns(action):
                row = statement.row(action)
                if row is not None:
                    yield row


class PolicyRules(dict[str, tuple[Rules, Rules]]):
    """
    The deny and allow statements of several policies by action, compiled on first look-up.

    Actions are few, because they are names in this program.
    """

    def __init__(self, policies: Iterable[IdentityPolicy]) -> None:
        """@param policies: The policies, whose statements apply together."""
        super().__init__()
        self._policies = tuple(policies)

    def __missing__(self, action: str) -> tuple[Rules, Rules]:
        denies, allows = (
            makeRules(row for policy in self._policies for row in policy.rows(action, isAllow))
            for isAllow in (False, True)
        )
        self[action] = denies, allows
        return denies, allows


Coverage = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""
Prefixes of the keys on which an operation is allowed without regard to the rest of the request, and
prefixes of the keys on which a statement may deny it.
"""

_UNKNOWN: Coverage = (), ()

_MOST_PREFIXES = 64
"""With more prefixes, a comparison takes as long as an evaluation of the policies."""


def coverageOf(policies: Iterable[PolicyRules], operation: str, bucket: str) -> Coverage:
    """
    Find the keys in a bucket on which all of some policies allow an operation, from the statements
    without conditions whose resources are prefixes.

    @param operation: Amazon's name of the operation.
    @return: Without prefixes if the operation does not concern an object, or if a deny statement
        has other resources.
    """
    actions = OPERATION_ACTIONS.get(operation, ())
    if not actions or any(ACTIONS.get(action) != "object" for action in actions):
        return _UNKNOWN
    allowed: set[bytes] = {b""}
    denied: set[bytes] = set()
    for denies, allows in [rules[action] for rules in policies for action in actions]:
        for starts, *_ in denies.rows:
            if starts is None:
                return _UNKNOWN
            denied.update(_keyPrefixes(starts, bucket))
        found: set[bytes] = set()
        for starts, test, _, conditions in allows.rows:
            if not conditions and (starts is not None or test is None):
                found.update(_keyPrefixes(("",) if starts is None else starts, bucket))
        if max(len(allowed), len(found), len(denied)) > _MOST_PREFIXES:
            return _UNKNOWN
        allowed = {
            max(one, other, key=len)
            for one in allowed
            for other in found
            if one.startswith(other) or other.startswith(one)
        }
    return tuple(allowed), tuple(denied)


def _keyPrefixes(starts: Iterable[str], bucket: str) -> Iterator[bytes]:
    """Turn prefixes of resources into prefixes of the keys in a bucket."""
    beginning = f"{bucket}/"
    for each in starts:
        if beginning.startswith(each):
            yield b""
        elif each.startswith(beginning):
            # Half of a surrogate pair, which JSON can escape, is in no key.
            yield each.removeprefix(beginning).encode("utf-8", "surrogatepass")


# Most users have the policies of few groups; a policy in use is also kept by its rights.
@lru_cache(maxsize=256)
def compileIdentityPolicy(document: str) -> IdentityPolicy:
    """
    Read, validate and compile a policy.

    @raise MalformedPolicy: The error names the problem.
    """
    policy = parsePolicy(document.encode(), POLICY_LIMIT)
    checkElements(policy, _POLICY_ELEMENTS)
    version = policy.get("Version", VERSIONS[0])
    if version not in VERSIONS:
        raise malformed(f"The policy must contain a valid version string: {version!a:.80}")
    variables = version == VERSIONS[1]
    sids: set[str] = set()
    found: list[_Statement] = []
    for number, statement in enumerate(statementsOf(policy), 1):
        try:
            found.append(_readStatement(statement, variables, sids))
        except ValueError as error:
            raise malformed(str(error), {"statement": number}) from None
    return IdentityPolicy(document, found)


def _readStatement(statement: Any, variables: bool, sids: set[str]) -> _Statement:
    """
    Validate a statement.

    @param sids: The C{Sid}s of earlier statements, modified in place.
    @raise ValueError: It is invalid; the text names the problem.
    """
    if not isinstance(statement, dict):
        raise ValueError("Statement must be an object or a list of objects")
    if "Principal" in statement or "NotPrincipal" in statement:
        raise ValueError("Policy document should not specify a principal.")
    checkElements(statement, _STATEMENT_ELEMENTS)
    sid = statement.get("Sid", "")
    if not isinstance(sid, str):
        raise ValueError("Sid must be a string")
    if sid and sid in sids:
        raise ValueError(f"Statement IDs (SID) in a single policy must be unique: {sid!a:.80}")
    sids.add(sid)
    effect, isNot = oneOf(statement, "Effect")
    if isNot or effect not in ("Allow", "Deny"):
        raise ValueError(f"Invalid effect: {effect!a:.80}")
    actions, isNotAction = oneOf(statement, "Action")
    resources, isNotResource = oneOf(statement, "Resource")
    conditions = list(readConditions(statement.get("Condition", {})))
    return _Statement(
        isAllow=effect == "Allow",
        actions=tuple(_readAction(each) for each in readTexts(actions, "Action")),
        isNotAction=isNotAction,
        resources=tuple(
            _readResource(each, variables) for each in readTexts(resources, "Resource")
        ),
        isNotResource=isNotResource,
        tests=tuple(each.compiled(variables) for each in conditions),
        variables=variables,
    )
