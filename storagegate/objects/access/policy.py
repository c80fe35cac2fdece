"""
Bucket policies: the document, its errors, and the compiled policy.

The document is Amazon's, version C{2008-10-17} or C{2012-10-17}::

    policy    = {["Version"], ["Id"], "Statement": statement / [*statement]}
    statement = {["Sid"], "Effect": "Allow" / "Deny", principal, action, resource, ["Condition"]}
    principal = "Principal" / "NotPrincipal": "*" / {"AWS" / "CanonicalUser": one / [*one]}
    action    = "Action" / "NotAction": pattern / [*pattern]
    resource  = "Resource" / "NotResource": ARN of the bucket or its objects / [*ARN]
    Condition = {operator: {key: value / [*value]}}

A policy with an unsupported rule is refused, so that no rule is silently ignored.

A statement may name users and roles, C{arn:aws:iam::ACCOUNT:user/PATH/NAME}, and a single session
of a role, C{arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION}. A key of no user is named as a user by
its access key.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from attrs import frozen

from storagegate.core.addresses import readNetwork
from storagegate.objects.access.actions import ACTIONS
from storagegate.objects.access.conditions import Condition, Test, checkVariables
from storagegate.objects.access.context import AccessContext
from storagegate.objects.access.patterns import (
    ANY,
    Tokens,
    derive,
    hasVariables,
    matcher,
    shownText,
    tokenise,
)
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
from storagegate.objects.access.rules import (
    PrincipalTest,
    ResourceTest,
    Row,
    Rules,
    makeRules,
    prefixesOf,
    resourceTest,
)
from storagegate.objects.principals import Identity, canonicalId

POLICY_LIMIT = 20 * 1024
"""Bytes of a policy: Amazon's limit."""

_POLICY_ELEMENTS = frozenset({"Version", "Id", "Statement"})
_STATEMENT_ELEMENTS = frozenset(
    {
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    }
)
_BUCKET_ARN = "arn:aws:s3:::"
_IDENTITY_ARN = "arn:aws:iam::"
_SESSION_ARN = "arn:aws:sts::"


@frozen
class Principals:
    """
    The identities that a principal names.

    @ivar isAll: Whether the principal is C{*}, which includes anonymous requests.
    @ivar accounts: Accounts by name.
    @ivar users: Pairs of account and user: the access key of a key of no user, or the path and name
        of a user without the leading slash.
    @ivar roles: Pairs of account and role: its path and name without the leading slash.
    @ivar ids: Canonical ids of accounts.
    @ivar sessions: Sessions of roles: account, name of the role without its path, name of the
        session.
    """

    isAll: bool = False
    accounts: frozenset[str] = frozenset()
    users: frozenset[tuple[str, str]] = frozenset()
    ids: frozenset[str] = frozenset()
    roles: frozenset[tuple[str, str]] = frozenset()
    sessions: frozenset[tuple[str, str, str]] = frozenset()

    def includes(self, identity: Identity) -> bool:
        """Return whether the principal includes an identity."""
        if self.isAll:
            return True
        account = identity.account
        return not identity.isAnonymous and (
            account in self.accounts
            or self._isNamed(identity)
            or (bool(self.ids) and canonicalId(account) in self.ids)
        )

    def names(self, identity: Identity) -> bool:
        """Return whether the principal names an identity itself, and not only its account."""
        return self.isAll or (not identity.isAnonymous and self._isNamed(identity))

    def _isNamed(self, identity: Identity) -> bool:
        role = None if identity.rights is None else identity.rights.role
        if role is None:
            return (identity.account, identity.principal) in self.users
        if (identity.account, role.resource.removeprefix("role/")) in self.roles:
            return True
        return self.namesSession(identity)

    def namesSession(self, identity: Identity) -> bool:
        """Return whether the principal names the session of a role, and not only its role."""
        rights = identity.rights
        if not self.sessions or rights is None or rights.role is None or rights.session is None:
            return False
        return (identity.account, rights.role.name, rights.session.name) in self.sessions

    def namesServiceKey(self, identity: Identity) -> bool:
        """Return whether the principal names a service key, or one that bounds it."""
        rights = identity.rights
        return rights is not None and any(
            (identity.account, each) in self.users for each in rights.serviceKeys
        )


@frozen
class Statement:
    """
    A validated statement.

    @ivar actions: The actions that it concerns, by full name.
    @ivar onBucket: Whether the bucket itself is a resource.
    @ivar keys: The patterns of the keys that are resources.
    @ivar isNotResource: Whether the statement concerns all other resources instead.
    """

    isAllow: bool
    principals: Principals
    isNotPrincipal: bool
    actions: frozenset[str]
    onBucket: bool
    keys: tuple[Tokens, ...]
    isNotResource: bool
    conditions: tuple[Condition, ...]

    @property
    def isPublic(self) -> bool:
        """
        Whether the statement allows public access, by Amazon's definition.

        It does not if it names its principals, or if a condition requires fixed values of a key
        that identifies the caller or its location.
        """
        if not self.isAllow or not (self.principals.isAll or self.isNotPrincipal):
            return False
        return not any(map(_isFixing, self.conditions))


# The keys that make a statement non-public if their values are fixed, and the operators that fix a
# value.
_FIXING_KEYS = frozenset(
    {
        "aws:principalaccount",
        "aws:principalarn",
        "aws:userid",
        "aws:username",
        "s3:x-amz-server-side-encryption-aws-kms-key-id",
    }
)
_FIXING_OPERATORS = frozenset(
    {
        "StringEquals",
        "StringEqualsIgnoreCase",
        "StringLike",
        "ArnEquals",
        "ArnLike",
    }
)


def _isFixing(condition: Condition) -> bool:
    qualifier, operator, ifExists = condition.parts()
    if ifExists or qualifier == "ForAllValues":
        return False
    key = condition.key.lower()
    if key == "aws:sourceip" and operator == "IpAddress":
        return all(map(_isNarrow, condition.values))
    if key not in _FIXING_KEYS or operator not in _FIXING_OPERATORS:
        return False
    return not any("${" in value or "*" in value or "?" in value for value in condition.values)


def _isNarrow(text: str) -> bool:
    """Return whether a network is narrow enough for Amazon to consider it fixed."""
    network = readNetwork(text, strict=False)
    return network.prefixlen >= (8 if network.version == 4 else 32)


_Compiled = tuple[Statement, PrincipalTest | None, ResourceTest | None, tuple[Test, ...]]


class _RulesByAction(dict[str, tuple[Rules, Rules]]):
    """
    The deny and allow statements of an action, compiled on first look-up.

    Actions are few, and a look-up of a cached action runs no Python code.
    """

    def __init__(self, compiled: Iterable[_Compiled]) -> None:
        """@param compiled: Statements, with the tests of their principals, keys and conditions."""
        super().__init__()
        self._compiled = tuple(compiled)

    def __missing__(self, action: str) -> tuple[Rules, Rules]:
        denies, allows = (makeRules(self._rows(action, each)) for each in (False, True))
        self[action] = denies, allows
        return denies, allows

    def _rows(self, action: str, isAllow: bool) -> Iterator[Row]:
        kind = ACTIONS.get(action)
        for statement, principals, keys, conditions in self._compiled:
            if statement.isAllow is not isAllow or action not in statement.actions:
                continue
            if kind == "object":
                isNot = statement.isNotResource
                starts = None if keys is None else prefixesOf(statement.keys, isNot)
                yield starts, keys, principals, conditions
            elif statement.onBucket is not statement.isNotResource:
                yield None, None, principals, conditions


class BucketPolicy:
    """
    A compiled policy.

    @ivar document: The original document.
    @ivar isPublic: Whether any statement allows public access.
    @ivar hasAllow: Whether any statement allows access.
    @ivar rules: Rules by action.
    @ivar direct: The same rules, in which a principal that names an account names no user of it.
        In its own account, such a principal leaves the decision to the policies of the user.
    @ivar bySession: The allow statements that name single sessions of roles, for these sessions.
    """

    def __init__(self, document: bytes, statements: Iterable[Statement], variables: bool) -> None:
        """
        @param variables: Whether the policy's version supports variables.
        @raise ValueError: A condition cannot be compiled.
        """
        self.document = document
        found = tuple(statements)
        self._compiled = tuple(
            (
                statement,
                _principalTest(statement),
                resourceTest(statement.keys, statement.isNotResource),
                tuple(each.compiled(variables) for each in statement.conditions),
            )
            for statement in found
        )
        self.rules = _RulesByAction(self._compiled)
        self.direct = _RulesByAction(
            (statement, _directTest(statement), keys, conditions)
            for statement, _, keys, conditions in self._compiled
        )
        self.bySession = _RulesByAction(
            (statement, statement.principals.namesSession, keys, conditions)
            for statement, _, keys, conditions in self._compiled
            if statement.isAllow and statement.principals.sessions
        )
        self._alone: tuple[_RulesByAction, ...] = ()
        self.isPublic = any(statement.isPublic for statement in found)
        self.hasAllow = any(statement.isAllow for statement in found)

    @property
    def alone(self) -> tuple[Mapping[str, tuple[Rules, Rules]], ...]:
        """The rules of each statement, made when a decision is first explained."""
        self._alone = self._alone or tuple(_RulesByAction([each]) for each in self._compiled)
        return self._alone

    def evaluate(self, action: str, context: AccessContext) -> bool | None:
        """
        Evaluate the policy for a request: L{False} if a statement denies it, L{True} if one allows
        it, L{None} if no statement applies.
        """
        denies, allows = self.rules[action]
        if denies.hold(context, context.key):
            return False
        return True if allows.hold(context, context.key) else None

    def allowedKeys(
        self, action: str, identity: Identity, *, isPublic: bool = False
    ) -> list[Tokens] | None:
        """
        Return the key patterns for which statements allow an action if their conditions hold;
        L{None} if no statement does.

        @param action: The action with its prefix. For an action on the bucket, the list is empty.
        @param isPublic: Whether only statements count that allow public access.
        """
        found: list[Tokens] | None = None
        for statement, isWhole in self._concerning(action, identity):
            if not statement.isAllow or (isPublic and not statement.isPublic):
                continue
            found = found or []
            if ACTIONS[action] == "object":
                found += ((ANY,),) if isWhole or statement.isNotResource else statement.keys
        return found

    def deniesAll(self, action: str, identity: Identity) -> bool:
        """Return whether a statement denies an action for every key, without a condition."""
        return any(
            isWhole and not statement.isAllow and not statement.conditions
            for statement, isWhole in self._concerning(action, identity)
        )

    def _concerning(self, action: str, identity: Identity) -> Iterator[tuple[Statement, bool]]:
        """
        Find the statements about an action of an identity, before their conditions.

        @return: Each with whether it concerns the bucket, for its actions, or every key.
        """
        isOfObject = ACTIONS[action] == "object"
        for statement, principals, keys, _ in self._compiled:
            if action not in statement.actions:
                continue
            if principals is not None and not principals(identity):
                continue
            if isOfObject and (statement.keys or statement.isNotResource):
                yield statement, keys is None
            elif not isOfObject and statement.onBucket is not statement.isNotResource:
                yield statement, True

    def findDeny(self, action: str, context: AccessContext) -> tuple[int, str] | None:
        """
        Find the first statement that denies a request.

        @return: Its number, from 1, and its C{Sid}, which may be empty; L{None} if none does.
        """
        for place, rules in enumerate(self.alone):
            denies, _ = rules[action]
            if denies.rows and denies.hold(context, context.key):
                statement = statementsOf(parsePolicy(self.document, POLICY_LIMIT))[place]
                return place + 1, shownText(str(statement.get("Sid", "")))
        return None


def _principalTest(statement: Statement) -> PrincipalTest | None:
    principals = statement.principals
    if statement.isNotPrincipal:
        # An exception for an account is no exception for its users, as at Amazon.
        return lambda identity: (
            not (
                principals.includes(identity)
                if identity.rights is None or not identity.rights.isUser
                else principals.names(identity)
            )
        )
    if principals.isAll:
        return None
    if statement.isAllow or not principals.users:
        return principals.includes
    return lambda identity: principals.includes(identity) or principals.namesServiceKey(identity)


def _directTest(statement: Statement) -> PrincipalTest | None:
    """Make the test of L{BucketPolicy.direct}."""
    if statement.isNotPrincipal:
        return _principalTest(statement)
    return None if statement.principals.isAll else statement.principals.names


class PrincipalDirectory(Protocol):
    """The identities that a new policy can name."""

    def isAccountId(self, accountId: str) -> bool:
        """Return whether a canonical id belongs to an account."""

    def hasAccount(self, account: str) -> bool:
        """Return whether an account of this name exists."""

    def hasUser(self, account: str, name: str) -> bool:
        """
        Return whether an account has a user.

        @param name: The access key of a key of no user, or the path and name of a user without the
            leading slash.
        """

    def hasRole(self, account: str, name: str) -> bool:
        """
        Return whether an account has a role.

        @param name: Its path and name without the leading slash.
        """

    def hasRoleNamed(self, account: str, name: str) -> bool:
        """
        Return whether an account has a role of a name, in any path.

        @param name: Its name without the path.
        """


class UnknownPrincipal(ValueError):
    """A new policy names an account or a user that does not exist."""


def compilePolicy(
    document: bytes, bucket: str, directory: PrincipalDirectory | None = None
) -> BucketPolicy:
    """
    Read, validate and compile a policy.

    @param document: The original document.
    @param bucket: The bucket of the policy.
    @param directory: The identities that a new policy can name; L{None} for a stored policy, whose
        principals may have been removed since.
    @raise MalformedPolicy: The error names the problem; it is caused by L{UnknownPrincipal} if the
        directory lacks a principal.
    """
    policy = parsePolicy(document, POLICY_LIMIT)
    checkElements(policy, _POLICY_ELEMENTS)
    version = policy.get("Version", VERSIONS[0])
    if version not in VERSIONS:
        raise malformed(f"The policy must contain a valid version string: {version!a:.80}")
    if not isinstance(policy.get("Id", ""), str):
        raise malformed("Id must be a string")
    statements = statementsOf(policy)
    reader = _StatementReader(bucket, variables=version == VERSIONS[1])
    read: list[Statement] = []
    try:
        for each in statements:
            read.append(reader.read(each))
        if directory is not None:
            for number, statement in enumerate(read, 1):
                reader.number = number
                _checkNew(statement, directory, reader)
        return BucketPolicy(document, read, reader.variables)
    except UnknownPrincipal as error:
        raise malformed(str(error), reader.place) from error
    except ValueError as error:
        raise malformed(str(error), reader.place) from None


def principalsOf(document: bytes) -> list[Principals]:
    """
    Read the principals of each statement, including C{NotPrincipal}, without compiling the policy.

    @param document: A stored policy.
    @raise MalformedPolicy: As L{compilePolicy}.
    """
    try:
        return [
            readPrincipals(oneOf(each, "Principal")[0])
            for each in statementsOf(parsePolicy(document, POLICY_LIMIT))
        ]
    except ValueError as error:
        raise malformed(str(error)) from None


def _checkNew(
    statement: Statement, directory: PrincipalDirectory, reader: "_StatementReader"
) -> None:
    """
    Check rules that apply only to new policies.

    @param reader: Notes the element that is checked.
    @raise ValueError: The statement combines Allow with NotPrincipal, or has an invalid condition.
    @raise UnknownPrincipal: The statement names an identity that does not exist.
    """
    reader.element = "Condition"
    for each in statement.conditions:
        each.compiled(reader.variables)
    reader.element = "Principal"
    if statement.isNotPrincipal and statement.isAllow:
        raise ValueError("Allow with NotPrincipal is not allowed.")
    principals = statement.principals
    unknown = [each for each in principals.accounts if not directory.hasAccount(each)]
    unknown += [f"{of}/{key}" for of, key in principals.users if not directory.hasUser(of, key)]
    unknown += [f"{of}/{name}" for of, name in principals.roles if not directory.hasRole(of, name)]
    unknown += [
        f"{of}/{role}/{session}"
        for of, role, session in principals.sessions
        if not directory.hasRoleNamed(of, role)
    ]
    unknown += [each for each in principals.ids if not directory.isAccountId(each)]
    if unknown:
        raise UnknownPrincipal(f"Invalid principal in policy: {min(unknown)!a:.200}")


class _StatementReader:
    """
    Validates the statements of one policy.

    @ivar variables: Whether the policy's version supports variables.
    @ivar number: The number of the current statement, from 1.
    @ivar element: The element of it that is being validated.
    """

    def __init__(self, bucket: str, variables: bool) -> None:
        self.variables = variables
        self.number = 0
        self.element = ""
        self._bucket = bucket
        self._ids: set[str] = set()

    @property
    def place(self) -> Mapping[str, int | str]:
        """The current statement and element, see L{errors.MalformedPolicy}."""
        return {"statement": self.number, "element": self.element}

    def read(self, statement: Any) -> Statement:
        """Validate the next statement; raise L{ValueError} with the problem."""
        self.number += 1
        self.element = "Sid"
        if not isinstance(statement, dict):
            raise ValueError("Statement must be an object or a list of objects")
        checkElements(statement, _STATEMENT_ELEMENTS, self.place)
        self._checkId(statement.get("Sid", ""))
        effect, isNot = self._one(statement, "Effect")
        if isNot or effect not in ("Allow", "Deny"):
            raise ValueError(f"Invalid effect: {effect!a:.80}")
        principal, isNotPrincipal = self._one(statement, "Principal")
        named, isNotAction = self._one(statement, "Action")
        groups = [_expanded(each) for each in readTexts(named, "Action")]
        if isNotAction:
            groups = [frozenset(ACTIONS).difference(*groups)]
        arns, isNotResource = self._one(statement, "Resource")
        onBucket, keys = self._resources(readTexts(arns, "Resource"))
        if not isNotResource:
            for group in groups:
                if not any(keys if ACTIONS[each] == "object" else onBucket for each in group):
                    raise ValueError("Action does not apply to any resource(s) in statement")
        self.element = "Principal"
        principals = readPrincipals(principal)
        self.element = "Condition"
        return Statement(
            isAllow=effect == "Allow",
            principals=principals,
            isNotPrincipal=isNotPrincipal,
            actions=frozenset().union(*groups),
            onBucket=onBucket,
            keys=keys,
            isNotResource=isNotResource,
            conditions=tuple(readConditions(statement.get("Condition", {}))),
        )

    def _one(self, statement: Mapping[str, Any], name: str) -> tuple[Any, bool]:
        self.element = name
        return oneOf(statement, name)

    def _checkId(self, sid: Any) -> None:
        if not isinstance(sid, str):
            raise ValueError("Sid must be a string")
        if sid and sid in self._ids:
            raise ValueError(f"Statement IDs (SID) in a single policy must be unique: {sid!a:.80}")
        self._ids.add(sid)

    def _resources(self, arns: Iterable[str]) -> tuple[bool, tuple[Tokens, ...]]:
        """Return whether the resources include the bucket, and their key patterns."""
        onBucket = False
        keys: list[Tokens] = []
        for arn in arns:
            name = arn.removeprefix(_BUCKET_ARN)
            tokens = tokenise(name, wildcards=True, variables=self.variables)
            checkVariables(tokens)
            isBucket = any(
                matcher(rest)("") for rest in derive(tokens, self._bucket) if not hasVariables(rest)
            )
            found = derive(tokens, self._bucket + "/")
            if name == arn or not (isBucket or found):
                raise ValueError(f"Policy has invalid resource: {arn!a:.200}")
            onBucket = onBucket or isBucket
            # No key is empty: a pattern that ends at the slash matches none.
            keys += (each for each in found if each)
        return onBucket, tuple(keys)


def _expanded(pattern: str) -> frozenset[str]:
    """Return the actions that match a pattern, ignoring case."""
    matches = matcher(tokenise(pattern.lower(), wildcards=True, variables=False))
    found = frozenset(action for action in ACTIONS if matches(action.lower()))
    if not found:
        raise ValueError(f"Policy has invalid action: {pattern!a:.80}")
    return found


def readPrincipals(value: Any) -> Principals:
    """
    Read the principal of a statement.

    @raise ValueError: It is invalid; the text names the problem.
    """
    if value == "*":
        return Principals(isAll=True)
    if not isinstance(value, dict) or not value:
        raise ValueError(f"Invalid principal in policy: {value!a:.200}")
    isAll = False
    accounts: set[str] = set()
    users: set[tuple[str, str]] = set()
    roles: set[tuple[str, str]] = set()
    sessions: set[tuple[str, str, str]] = set()
    ids: set[str] = set()
    for kind, named in value.items():
        if kind not in ("AWS", "CanonicalUser"):
            raise ValueError(f"Invalid principal in policy: {kind!a:.80}")
        for each in readTexts(named, "Principal"):
            if kind == "CanonicalUser":
                ids.add(_canonicalUser(each))
            elif each == "*":
                isAll = True
            elif each.startswith(_SESSION_ARN):
                sessions.add(_sessionArn(each))
            else:
                account, kind, name = _identityArn(each)
                if kind == "role":
                    roles.add((account, name))
                elif kind == "user":
                    users.add((account, name))
                else:
                    accounts.add(account)
    return Principals(
        isAll,
        frozenset(accounts),
        frozenset(users),
        frozenset(ids),
        frozenset(roles),
        frozenset(sessions),
    )


def _canonicalUser(text: str) -> str:
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"Invalid principal in policy: {text!a:.200}")
    return text


def _identityArn(text: str) -> tuple[str, str, str]:
    """
    Read the ARN or the account of a principal.

    @return: The account; C{user}, C{role} or an empty text; the name of the user or the role.
    """
    rest = text.removeprefix(_IDENTITY_ARN)
    account, kind, name = text, "", ""
    if rest != text:
        # A name has no colon, but an account name may.
        account, _, last = rest.rpartition(":")
        if last != "root":
            kind, _, name = last.partition("/")
    if (
        not account
        or account.startswith("arn:")
        or {"*", "?"} & {*account, *name}
        or kind not in ("", "user", "role")
        or bool(kind) is not bool(name)
    ):
        raise ValueError(f"Invalid principal in policy: {text!a:.200}")
    return account, kind, name


def _sessionArn(text: str) -> tuple[str, str, str]:
    """
    Read the ARN of a session of a role.

    @return: The account, the name of the role without its path, and the name of the session.
    """
    # Names of roles and sessions have no colon, but an account name may.
    account, _, last = text.removeprefix(_SESSION_ARN).rpartition(":")
    kind, *names = last.split("/")
    if (
        not account
        or {"*", "?"} & set(text)
        or kind != "assumed-role"
        or len(names) != 2
        or not all(names)
    ):
        raise ValueError(f"Invalid principal in policy: {text!a:.200}")
    return account, names[0], names[1]
