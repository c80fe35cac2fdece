"""
The policy simulator: it evaluates policies for requests that are described, not sent.

The evaluator is the one of real requests: L{Rights.evaluate<storagegate.objects.identities.rights>}
for policies of identities, and L{BucketAccess.allows<storagegate.objects.access.decision>} for
buckets. Only the values of condition keys differ. They come from the caller of the simulation, the
identity and the clock, instead of a request; a key without a value is reported as missing.

Sources: the pages I{SimulatePrincipalPolicy}, I{SimulateCustomPolicy} and I{EvaluationResult} of
Amazon's IAM API Reference.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import JSONDecoder
from typing import Any

from attrs import frozen

from storagegate.objects.access.actions import ACTIONS, LIST_BUCKETS
from storagegate.objects.access.conditions import parseBinary, parseBool, parseNumber
from storagegate.objects.access.context import (
    AccessContext,
    PlainCaller,
    SimulatedValues,
    findKey,
)
from storagegate.objects.access.decision import BUCKET_OWNER_ENFORCED, BucketAccess
from storagegate.objects.access.identitypolicy import (
    PolicyRules,
    compileIdentityPolicy,
    resourceOf,
)
from storagegate.objects.access.policy import BucketPolicy, compilePolicy
from storagegate.objects.access.rules import Rules
from storagegate.objects.dates import parseDate
from storagegate.objects.errors import InvalidInput, MalformedPolicy, NoSuchEntity
from storagegate.objects.identities import operations
from storagegate.objects.identities.answers import (
    EvaluationResult,
    Position,
    ResourceSpecificResult,
    SimulationPage,
    StatementView,
)
from storagegate.objects.identities.entities import (
    AccountState,
    IAMUser,
    PolicyHolder,
    Role,
)
from storagegate.objects.identities.lookup import (
    IdentityRequest,
    groupOf,
    pageOf,
    policyOf,
    roleOf,
    userOf,
)
from storagegate.objects.identities.operations import (
    ContextEntry,
    IdentityOperation,
    SimulateCustomPolicy,
    SimulatePrincipalPolicy,
    SimulationOperation,
)
from storagegate.objects.identities.rights import Rights
from storagegate.objects.principals import Identity

ALLOWED, EXPLICIT_DENY, IMPLICIT_DENY = "allowed", "explicitDeny", "implicitDeny"

_STRICTNESS = (ALLOWED, IMPLICIT_DENY, EXPLICIT_DENY)
"""The decisions, the most restrictive last."""

_IDENTITY, _RESOURCE = "IAM Policy", "Resource Policy"
"""Amazon's names of the kinds of policies."""

_MOST_WORK = 20_000
"""
Statements that one call evaluates, one for each of them, each action and each resource: the reactor
waits 50 ms for short ones. Lists of values and wildcards make a statement count as several.
"""

_STATEMENT = 100
_WILDCARDS = 4
"""Characters, and wildcards, of a policy that take as long as a short statement."""

_ARN = "arn:aws:s3:::"
_IAM = "arn:aws:iam::"
_ALONE = frozenset({LIST_BUCKETS, "s3:CreateBucket"})
"""The actions of S3 on which the settings of no bucket decide."""

_TYPES: Mapping[str, Any] = {
    "string": str,
    "numeric": parseNumber,
    "boolean": parseBool,
    # Addresses are compared as they are: an invalid one equals none.
    "ip": str,
    "binary": parseBinary,
    "date": parseDate,
}
"""The readers of the values of a context key, by Amazon's names of their types."""


def _actionNames() -> dict[str, str]:
    """Return all actions on which policies decide, by their names in lower case."""
    kinds = [each for each in vars(operations).values() if isinstance(each, type)]
    named = [
        each.__name__
        for each in kinds
        if issubclass(each, IdentityOperation) and not each.__name__.endswith("Operation")
    ]
    sts = ("AssumeRole", "TagSession")
    found = [*ACTIONS, LIST_BUCKETS, *(f"iam:{each}" for each in named)]
    return {each.lower(): each for each in (*found, *(f"sts:{each}" for each in sts))}


_ACTIONS = _actionNames()


@frozen(eq=False)
class _Policy:
    """
    A policy of the simulation.

    @ivar id: The name by which results refer to the policy.
    @ivar kind: C{IAM Policy} or C{Resource Policy}.
    @ivar rules: The rules of each statement alone; the compiler caches them by action.
    @ivar positions: The beginning and the end of each statement.
    """

    id: str
    kind: str
    rules: Sequence[Mapping[str, tuple[Rules, Rules]]]
    positions: Sequence[tuple[Position, Position]]

    def statement(self, number: int) -> StatementView:
        """Describe a statement, by its index."""
        start, end = self.positions[number]
        return StatementView(
            sourcePolicyId=self.id,
            sourcePolicyType=self.kind,
            startPosition=start,
            endPosition=end,
        )


@frozen
class _Judgement:
    """
    The decision on one action and one resource.

    @ivar missing: The condition keys without a value.
    @ivar details: The decision of each kind of policy.
    """

    decision: str
    statements: tuple[StatementView, ...]
    missing: tuple[str, ...]
    details: Mapping[str, str]


def simulateCustomPolicy(
    state: AccountState, operation: SimulateCustomPolicy, request: IdentityRequest
) -> SimulationPage:
    """Simulate policies that the call names."""
    caller = _callerOf(operation.callerArn) if operation.callerArn else None
    if operation.resourcePolicy and caller is None:
        raise InvalidInput("CallerArn is required if you include a ResourcePolicy")
    account, holder = (state.account, None) if caller is None else caller
    simulator = _Simulator(
        operation, request, account, holder, _inputs(operation), isNamed=caller is not None
    )
    return simulator.page()


def simulatePrincipalPolicy(
    state: AccountState, operation: SimulatePrincipalPolicy, request: IdentityRequest
) -> SimulationPage:
    """Simulate the policies of a user, a group or a role, and those that the call names."""
    holder = _holderOf(state, operation.policySourceArn)
    named = [*_documentsOf(state, holder), *_inputs(operation)]
    account, acting = state.account, holder if isinstance(holder, IAMUser | Role) else None
    if operation.callerArn and operation.callerArn != operation.policySourceArn:
        account, acting = _callerOf(operation.callerArn)
    if operation.resourcePolicy and acting is None:
        raise InvalidInput("CallerArn is required if you include a ResourcePolicy")
    simulator = _Simulator(operation, request, account, acting, named, isNamed=acting is not None)
    return simulator.page()


def _inputs(operation: SimulationOperation) -> list[tuple[str, str]]:
    numbered = enumerate(operation.policyInputList, 1)
    return [(f"PolicyInputList.{number}", document) for number, document in numbered]


def _holderOf(state: AccountState, arn: str) -> PolicyHolder:
    """
    Find the user, group or role of an ARN, whose name may be in any case.

    @raise NoSuchEntity: There is none, or it has another path.
    @raise InvalidInput: The ARN is of something else, or the rights of the user are no policies.
    """
    account, _, resource = arn.removeprefix(_IAM).partition(":")
    kind = resource.partition("/")[0]
    path, _, name = resource.rpartition("/")
    find: Any = {"user": userOf, "group": groupOf, "role": roleOf}.get(kind)
    if not arn.startswith(_IAM) or find is None or account != state.account or not name:
        raise InvalidInput(
            f"PolicySourceArn must be the ARN of a user, a group or a role of {state.account}"
        )
    found: PolicyHolder = find(state, name)
    if found.resource.rpartition("/")[0] != path:
        raise NoSuchEntity(f"{arn} cannot be found.")
    if isinstance(found, IAMUser) and not found.id:
        raise InvalidInput(
            f"The user {name} is an access key that an operator issued: the limits of the key are "
            "its rights, which are no policies"
        )
    return found


def sourceArn(state: AccountState, arn: str) -> str:
    """
    Return the ARN by which policies know the identity that a call names, which may write its name
    in another case; the ARN of the call if there is no such identity.
    """
    try:
        return _holderOf(state, arn).arn(state.account)
    except (InvalidInput, NoSuchEntity):
        return arn


def _callerOf(arn: str) -> tuple[str, IAMUser | Role | None]:
    """
    Make the simulated caller of an ARN, who need not exist.

    @return: The account, and the user or the role; L{None} for a group.
    @raise InvalidInput: The ARN is of something else.
    """
    account, _, resource = arn.removeprefix(_IAM).partition(":")
    kind, _, rest = resource.partition("/")
    path, _, name = f"/{rest}".rpartition("/")
    if not (arn.startswith(_IAM) and account and name):
        raise InvalidInput("CallerArn must be the ARN of a user, a group or a role")
    if kind == "user":
        return account, IAMUser(name=name, path=f"{path}/")
    if kind == "role":
        return account, Role(name=name, path=f"{path}/", trust="")
    if kind == "group":
        return account, None
    raise InvalidInput("CallerArn must be the ARN of a user, a group or a role")


def _documentsOf(state: AccountState, holder: PolicyHolder) -> Iterator[tuple[str, str]]:
    """Give the policies that apply to a holder, with their names."""
    holders = [holder]
    if isinstance(holder, IAMUser):
        holders += [group for group in state.groups() if group.key in holder.groups]
    for each in holders:
        yield from each.policies.items()
    for arn in dict.fromkeys(arn for each in holders for arn in each.attached):
        policy = policyOf(state, arn)
        yield policy.name, policy.document


class _Simulator:
    """Simulates the actions of a call."""

    def __init__(
        self,
        operation: SimulationOperation,
        request: IdentityRequest,
        account: str,
        holder: IAMUser | Role | None,
        named: Iterable[tuple[str, str]],
        *,
        isNamed: bool,
    ) -> None:
        """
        @param account: The account of the simulated caller.
        @param holder: The simulated caller; L{None} if the call names none.
        @param named: The policies of the caller, with their names.
        @param isNamed: Whether condition keys about the caller have values.
        @raise InvalidInput: A policy, an action, a resource or a context key is invalid.
        """
        self._operation = operation
        self._nowMs = request.nowMs
        found = list(named)
        acting = holder or IAMUser(name="", path="/")
        self._isNamed = isNamed
        principal = acting.resource.partition("/")[2]
        documents = [document for _, document in found]
        self._rights = Rights(principal, acting, documents)
        self._identity = Identity("", account, rights=self._rights)
        self._owner = _ownerOf(operation.resourceOwner) or account
        self._given = _givenValues(operation.contextEntries)
        self._policies = [_identityPolicy(*each) for each in found]
        self._documents = [*documents, operation.resourcePolicy]
        self._arns = operation.resourceArns or ("*",)
        self._isSpecific = self._arns != ("*",)
        self._resources = [_resourceOf(arn) for arn in self._arns]
        self._bucketPolicy: BucketPolicy | None = None
        self._resourcePolicy: _Policy | None = None
        if operation.resourcePolicy:
            self._bucketPolicy, self._resourcePolicy = self._compileResourcePolicy()
        self._access = BucketAccess(
            self._owner, self._bucketPolicy, ownership=BUCKET_OWNER_ENFORCED
        )

    def page(self) -> SimulationPage:
        """
        Simulate the actions of a page.

        @raise InvalidInput: An action does not exist, or takes too much work.
        """
        rows = [(f"{n:06}", name) for n, name in enumerate(self._operation.actionNames)]
        for _, name in rows:
            if name.lower() not in _ACTIONS:
                raise InvalidInput(f"Invalid Action: {name!a:.150} is no action of this store")
        work = self._work()
        if work > _MOST_WORK:
            raise InvalidInput(
                "The policies are too large for the number of resources and context values: "
                "simulate fewer of them in one call"
            )
        # As at Amazon, a page can have fewer rows than MaxItems.
        most = min(self._operation.maxItems, _MOST_WORK // work)
        found, fields = pageOf(rows, lambda row: row[0], self._operation.marker, most)
        results = tuple(self._simulate(name) for _, name in found)
        return SimulationPage(evaluationResults=results, **fields)

    def _work(self) -> int:
        """Return the work of one action, as a number of short statements."""
        policies = [*self._policies, *filter(None, (self._resourcePolicy,))]
        size = max(
            1,
            sum(len(each.rules) for each in policies),
            sum(map(len, self._documents)) // _STATEMENT,
            sum(each.count("*") for each in self._documents) // _WILDCARDS,
        )
        values = [len(each.contextKeyValues) for each in self._operation.contextEntries]
        return len(self._arns) * size * max([1, *values])

    def _simulate(self, name: str) -> EvaluationResult:
        action = _ACTIONS[name.lower()]
        judged = [self._judge(action, *resource) for resource in self._resources]
        isForeign = self._owner != self._identity.account and action.startswith("s3:")
        specific = None
        if self._isSpecific:
            specific = tuple(
                ResourceSpecificResult(
                    evalResourceName=arn,
                    evalResourceDecision=each.decision,
                    matchedStatements=each.statements,
                    missingContextValues=each.missing,
                    evalDecisionDetails=each.details if isForeign else {},
                )
                for arn, each in zip(self._arns, judged, strict=True)
            )
        decision = _strictest(each.decision for each in judged)
        details: Mapping[str, str] = {}
        if isForeign:
            kinds = dict.fromkeys(kind for each in judged for kind in each.details)
            details = {kind: _strictest(each.details[kind] for each in judged) for kind in kinds}
        statements = [
            statement
            for each in judged
            if each.decision == decision
            for statement in each.statements
        ]
        return EvaluationResult(
            evalActionName=name,
            evalResourceName=_template(action) if self._isSpecific else "*",
            evalDecision=decision,
            matchedStatements=tuple(dict.fromkeys(statements)),
            missingContextValues=tuple(
                dict.fromkeys(key for each in judged for key in each.missing)
            ),
            evalDecisionDetails=details if self._isSpecific else None,
            resourceSpecificResults=specific,
        )

    def _judge(self, action: str, service: str, bucket: str, key: str) -> _Judgement:
        """
        Decide on an action on a resource.

        @param service: C{s3}, C{iam}, or empty for every resource.
        @param bucket: The bucket, or C{ACCOUNT:NAME} of an identity.
        """
        of = action.partition(":")[0]
        if of == "s3":
            isOfObject = ACTIONS.get(action) == "object"
            isPossible = service != "iam" and (not service or isOfObject is bool(key))
            resource = resourceOf(action, bucket, key)
        else:
            isPossible = service != "s3"
            resource = bucket if service else f"{self._identity.account}:*"
            if of == "iam" and service:
                # An operation of IAM changes the account of its caller only.
                isPossible = isPossible and bucket.startswith(f"{self._identity.account}:")
        if not isPossible:
            details = {_IDENTITY: IMPLICIT_DENY, _RESOURCE: IMPLICIT_DENY}
            return _Judgement(IMPLICIT_DENY, (), (), details)
        values = SimulatedValues(self._given, isNamed=self._isNamed)
        caller = PlainCaller(self._identity, "", now=self._nowMs / 1000)
        context = AccessContext(
            self._identity,
            caller,
            bucket if of == "s3" else "",
            key,
            self._owner if of == "s3" else self._identity.account,
            "",
            values=values,
        )
        values.context = context
        found = self._rights.evaluate(action, context, resource)
        isDenied = self._rights.denies(action, context, resource)
        own = _decisionOf(found is True, isDenied)
        isByBucket = of == "s3" and action not in _ALONE
        policy = self._bucketPolicy if isByBucket else None
        given = None if policy is None else policy.evaluate(action, context)
        isAllowed = found is True
        if isByBucket:
            isAllowed = self._access.allows(self._identity, action, lambda: context)
        decision = _decisionOf(isAllowed, isDenied or given is False)
        details = {_IDENTITY: own, _RESOURCE: _decisionOf(given is True, given is False)}
        statements: list[StatementView] = []
        policies = [(each, resource) for each in self._policies]
        if self._resourcePolicy is not None and policy is not None:
            policies.append((self._resourcePolicy, key))
        for each, compared in policies:
            statements += _matched(each, action, context, compared, decision)
        return _Judgement(decision, tuple(statements), tuple(sorted(values.missing)), details)

    def _compileResourcePolicy(self) -> tuple[BucketPolicy, _Policy]:
        document = self._operation.resourcePolicy
        buckets = {bucket for service, bucket, _ in self._resources if service == "s3"}
        if len(buckets) != 1 or any(service != "s3" for service, *_ in self._resources):
            raise InvalidInput("A ResourcePolicy needs the ARNs of one bucket and its objects")
        (bucket,) = buckets
        try:
            compiled = compilePolicy(document.encode(), bucket)
        except MalformedPolicy as error:
            raise InvalidInput(f"Invalid ResourcePolicy: {error.message}") from error
        described = _Policy(
            "ResourcePolicy", _RESOURCE, compiled.alone, _statementPositions(document)
        )
        return compiled, described


def _matched(
    policy: _Policy, action: str, context: AccessContext, resource: str, decision: str
) -> Iterator[StatementView]:
    """
    Give the statements of a policy that determine a decision, and read all condition keys of the
    statements on the resource.
    """
    for number, rules in enumerate(policy.rules):
        denies, allows = rules[action]
        for found in (denies, allows):
            found.readConditions(context, resource)
        decisive = {EXPLICIT_DENY: denies, ALLOWED: allows}.get(decision)
        if decisive is not None and decisive.hold(context, resource):
            yield policy.statement(number)


def _decisionOf(isAllowed: bool, isDenied: bool) -> str:
    if isAllowed:
        return ALLOWED
    return EXPLICIT_DENY if isDenied else IMPLICIT_DENY


def _strictest(decisions: Iterable[str]) -> str:
    return max(decisions, key=_STRICTNESS.index)


def _identityPolicy(name: str, document: str) -> _Policy:
    try:
        compiled = compileIdentityPolicy(document)
    except MalformedPolicy as error:
        raise InvalidInput(f"Invalid policy {name}: {error.message}") from error
    rules = [PolicyRules([each]) for each in compiled.alone()]
    return _Policy(name, _IDENTITY, rules, _statementPositions(document))


def _ownerOf(arn: str) -> str:
    """Return the account of a C{ResourceOwner}; empty if there is none."""
    if not arn:
        return ""
    account, _, rest = arn.removeprefix(_IAM).partition(":")
    if not arn.startswith(_IAM) or not account or rest != "root":
        raise InvalidInput("ResourceOwner must have the form arn:aws:iam::ACCOUNT:root")
    return account


def _resourceOf(arn: str) -> tuple[str, str, str]:
    """
    Read the ARN of a resource.

    @return: The service, the bucket or C{ACCOUNT:NAME}, and the key of an object; twice empty with
        C{*} for every resource.
    """
    if arn == "*":
        return "", "*", ""
    if arn.startswith(_ARN) and len(arn) > len(_ARN):
        bucket, _, key = arn.removeprefix(_ARN).partition("/")
        return "s3", bucket, key
    account, colon, name = arn.removeprefix(_IAM).partition(":")
    if arn.startswith(_IAM) and account and colon and name:
        return "iam", f"{account}:{name}", ""
    raise InvalidInput(f"Invalid Resource: {arn!a:.200} is no ARN of a bucket or an identity")


def _template(action: str) -> str:
    """Return the form of the ARNs of an action's resources."""
    kind = ACTIONS.get(action)
    if kind == "object":
        return "arn:${Partition}:s3:::${BucketName}/${KeyName}"
    return "*" if kind is None else "arn:${Partition}:s3:::${BucketName}"


def _givenValues(entries: Iterable[ContextEntry]) -> dict[str, str | tuple[str, ...]]:
    """
    Return the values of context keys, by their names as L{SimulatedValues} compares them.

    @raise InvalidInput: A value does not have its type, or a key has several values but can have
        only one.
    """
    found: dict[str, str | tuple[str, ...]] = {}
    for entry in entries:
        name, values = entry.contextKeyName, entry.contextKeyValues
        read = _TYPES.get(entry.contextKeyType.removesuffix("List") or "string")
        if read is None:
            raise InvalidInput(f"{name!a:.200} has no such type: {entry.contextKeyType!a:.80}")
        try:
            for each in values:
                read(each)
        except ValueError as error:
            raise InvalidInput(f"{name!a:.200} has an invalid value: {error}") from None
        key = findKey(name)
        if len(values) > 1 and key is not None and not (key.isMultiple or key.isClaim):
            raise InvalidInput(f"The context key {name!a:.200} has one value")
        if values:
            found[SimulatedValues.nameOf(name)] = values[0] if len(values) == 1 else values
    return found


_decoder = JSONDecoder()
_SPACE = " \t\r\n"


def _statementPositions(document: str) -> list[tuple[Position, Position]]:
    """
    Find the statements of a valid policy in its text.

    @return: The positions behind the opening and the closing brace of each, from 1, as Amazon
        counts them.
    """
    found: list[tuple[Position, Position]] = []
    at = _skip(document, 0) + 1
    while document[at := _skip(document, at)] != "}":
        if document[at] == ",":
            at += 1
            continue
        name, at = _decoder.raw_decode(document, at)
        at = _skip(document, _skip(document, at) + 1)
        value, end = _decoder.raw_decode(document, at)
        if name == "Statement":
            isList = isinstance(value, list)
            at += isList
            for _ in value if isList else (value,):
                while document[at] != "{":
                    at += 1
                _, after = _decoder.raw_decode(document, at)
                found.append((_position(document, at + 1), _position(document, after)))
                at = after
        at = end
    return found


def _skip(document: str, at: int) -> int:
    """Return the index of the next character that is no white space."""
    while document[at] in _SPACE:
        at += 1
    return at


def _position(document: str, at: int) -> Position:
    line = document.count("\n", 0, at) + 1
    return Position(line=line, column=at - document.rfind("\n", 0, at))
