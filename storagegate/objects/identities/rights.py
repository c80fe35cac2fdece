"""
The rights of users and service keys.

A user has the rights that its policies, and the policies of its groups, allow and do not deny. A
service key has the rights of its parent that its own policy also allows; without an own policy it
has all of them. Its parent is a user, another key, or another service key.

L{storagegate.objects.access.decision} combines these rights with the settings of buckets.
"""

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING

from twisted.logger import Logger

from storagegate.objects import errors
from storagegate.objects.access.actions import HEADER_ACTIONS, WRITES
from storagegate.objects.access.context import AccessContext
from storagegate.objects.access.identitypolicy import (
    Coverage,
    PolicyRules,
    compileIdentityPolicy,
    coverageOf,
    resourceOf,
)
from storagegate.objects.errors import MalformedPolicy, Refusal
from storagegate.objects.identities.awspolicies import AWS_POLICIES
from storagegate.objects.identities.entities import (
    Group,
    IAMUser,
    ManagedPolicy,
    Role,
    readEntity,
)
from storagegate.objects.identities.tokens import SessionToken
from storagegate.objects.principals import AccountKey, Identity, KeyPolicy
from storagegate.storage.records import AccessKey, AccountDocuments

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller

_IAM = "arn:aws:iam::"
_NO_TAGS: Mapping[str, str] = {}
_NO_IDENTITIES: Mapping[str, AccountDocuments] = {}

_DEEPEST = 8
"""Service keys that bound each other; each adds the evaluation of a policy to each request."""

_HEADER_FIELDS = frozenset(HEADER_ACTIONS)
"""The headers that need an action besides that of the operation."""

_MOST_COVERED = 64
"""Operations and buckets whose coverage is kept; each takes a microsecond for a prefix."""

_MISSING = ""
"""In the place of the document of a missing policy. It is not valid, so nothing is allowed."""


class Rights:
    """
    The rights of a user, a service key or a session.

    @ivar isUser: Whether the rights are those of a user or a role; otherwise those of a key of no
        user, all rights of its account, are the ones that service keys and sessions narrow.
    @ivar isWhole: Whether they are all rights of an account: those of a key of no user, which no
        policy narrows.
    @ivar isRoot: Whether they are the rights of the root pair.
    @ivar principal: See L{Identity.principal<storagegate.objects.accounts.Identity.principal>}.
    @ivar user: The user; L{None} for other rights.
    @ivar role: The role; L{None} for other rights.
    @ivar session: The session; L{None} for an access key.
    @ivar serviceKeys: The service key, and the service keys that bound it.
    @ivar sources: The objects from which the rights were made; equal sources make equal rights.
    """

    _log = Logger()

    def __init__(
        self,
        principal: str,
        holder: IAMUser | Role | None = None,
        documents: Iterable[str] = (),
        parent: "Rights | None" = None,
        serviceKey: AccessKey | None = None,
        sources: tuple[object, ...] = (),
        *,
        isRoot: bool = False,
        session: SessionToken | None = None,
    ) -> None:
        """
        @param holder: The user or the role.
        @param documents: The policies of the user or the role.
        @param parent: The rights that a service key narrows; L{None} for a user, and for the child
            of a key of no user.
        @param serviceKey: The service key that narrows the rights.
        @param session: The session that narrows the rights.
        """
        self.principal = principal
        if parent is not None:
            holder = parent.user or parent.role
        self.user: IAMUser | None = holder if isinstance(holder, IAMUser) else None
        self.role: Role | None = holder if isinstance(holder, Role) else None
        self.session = session
        self.isUser = holder is not None
        self.isRoot: bool = isRoot or (parent is not None and parent.isRoot)
        self.sources = sources
        self.serviceKeys: tuple[str, ...] = () if parent is None else parent.serviceKeys
        self._documents: tuple[str, ...] = tuple(documents) if parent is None else parent._documents
        self._sessions: tuple[str, ...] = () if parent is None else parent._sessions
        if serviceKey is not None:
            self.serviceKeys += (serviceKey.accessKey,)
            if serviceKey.sessionPolicy:
                self._sessions += (serviceKey.sessionPolicy,)
        if session is not None and session.policy:
            self._sessions += (session.policy,)
        self.isWhole = not (self.isUser or self._sessions)
        self._rules: PolicyRules | None = None
        self._bounds: tuple[PolicyRules, ...] = ()
        self._coverage: dict[tuple[str, str], Coverage] = {}
        self._isUnusable = False

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the user, or of the role and the session."""
        holder, session = self.user or self.role, self.session
        tags = _NO_TAGS if holder is None else holder.tags
        if session is None or not (session.tags or session.transitiveTags):
            return tags
        own = {**session.tags, **session.transitiveTags}
        if not tags:
            return own
        # Keys of tags differ by more than case.
        taken = {key.lower() for key in own}
        return {**{key: tags[key] for key in tags if key.lower() not in taken}, **own}

    def evaluate(
        self, action: str, context: AccessContext, resource: str | None = None
    ) -> bool | None:
        """
        Evaluate the policies for a request.

        @param action: The action with its prefix.
        @param resource: The resource as L{resourceOf
            <storagegate.objects.access.identitypolicy.resourceOf>} returns it; L{None} for the
            bucket or the key of C{context}.
        @return: L{False} if a policy denies the action, or an own policy of a service key does not
            allow it; L{True} if all that is needed allows it; L{None} if only a policy of the user
            is missing.
        """
        rules = self._rules
        if rules is None:
            rules = self._compile()
        if resource is None:
            resource = resourceOf(action, context.bucket, context.key)
        for bound in self._bounds:
            denies, allows = bound[action]
            if denies.rows and denies.hold(context, resource):
                return False
            if not allows.hold(context, resource):
                return False
        if not self.isUser:
            return True
        denies, allows = rules[action]
        if denies.rows and denies.hold(context, resource):
            return False
        return True if allows.hold(context, resource) else None

    def covers(
        self, operation: str, bucket: str, key: bytes, headers: Mapping[bytes, bytes]
    ) -> bool:
        """
        Return whether L{evaluate} returns L{True} for the actions of a request on an object.
        L{False} says nothing. It takes 0.4 microseconds; to describe a request and evaluate the
        policies takes 3.

        @param operation: Amazon's name of the operation, for a request that names no version.
        @param headers: The header fields of the request, names in lower case. Some need an action
            of their own.
        """
        if operation in WRITES and not _HEADER_FIELDS.isdisjoint(headers):
            return False
        found = self._coverage.get((operation, bucket))
        if found is None:
            found = self._cover(operation, bucket)
        allowed, denied = found
        return key.startswith(allowed) and not key.startswith(denied)

    def _cover(self, operation: str, bucket: str) -> Coverage:
        rules = self._rules
        if rules is None:
            rules = self._compile()
        if len(self._coverage) >= _MOST_COVERED:
            self._coverage.clear()
        needed = (*self._bounds, rules) if self.isUser else self._bounds
        found = self._coverage[operation, bucket] = coverageOf(needed, operation, bucket)
        return found

    def denies(self, action: str, context: AccessContext, resource: str | None = None) -> bool:
        """
        Return whether a statement of a policy denies a request, or a policy cannot be used.

        The parameters match L{evaluate}.
        """
        rules = self._rules
        if rules is None:
            rules = self._compile()
        if self._isUnusable:
            return True
        if resource is None:
            resource = resourceOf(action, context.bucket, context.key)
        return any(each[action][0].hold(context, resource) for each in (rules, *self._bounds))

    def couldAllow(self, identity: Identity, action: str) -> bool | None:
        """Return what L{evaluate} could return for some resource and context."""
        rules = self._rules
        if rules is None:
            rules = self._compile()
        if not all(bound[action][1].couldHold(identity) for bound in self._bounds):
            return False
        return True if not self.isUser or rules[action][1].couldHold(identity) else None

    def explain(self, action: str, context: AccessContext, resource: str | None = None) -> Refusal:
        """Find the rule by which L{evaluate} has not returned L{True}."""
        holder = self.user or self.role
        name = "the key" if holder is None else f"the {holder.kind} {holder.name}"
        if resource is None:
            resource = resourceOf(action, context.bucket, context.key)
        for bound in self._bounds:
            denies, allows = bound[action]
            if denies.hold(context, resource) or not allows.hold(context, resource):
                kind = "service key" if self.session is None else "session"
                return Refusal(f"the policy of the {kind} does not allow {action}")
        rules = self._rules or self._compile()
        if self.isUser and rules[action][0].hold(context, resource):
            return Refusal(f"a policy of {name} denies {action}")
        return Refusal(f"no policy of {name} allows {action}")

    def _compile(self) -> PolicyRules:
        """Compile the policies, on the first request."""
        try:
            bounds = tuple(PolicyRules([compileIdentityPolicy(each)]) for each in self._sessions)
            rules = PolicyRules(compileIdentityPolicy(each) for each in self._documents)
        except MalformedPolicy as error:
            # A later version may have written a policy that this one does not know.
            self._log.error(
                "{principal} has no rights, because a policy cannot be used: {error}",
                principal=self.principal,
                error=error.message,
            )
            rules = PolicyRules([])
            bounds = (rules,)
            self._isUnusable = True
        self._rules, self._bounds = rules, bounds
        return rules


class KeyBinder:
    """Finds the rights of the keys of users and of service keys."""

    def __init__(
        self,
        keys: Iterable[AccessKey],
        identities: Mapping[str, AccountDocuments],
        root: AccountKey,
        issued: MutableMapping[str, AccountKey],
        before: Mapping[str, AccountKey],
        identitiesBefore: Mapping[str, AccountDocuments] = _NO_IDENTITIES,
    ) -> None:
        """
        @param keys: The keys that are neither disabled nor expired.
        @param identities: The documents of accounts.
        @param root: The root pair.
        @param issued: All other keys by name; L{bind} adds the keys that have rights.
        @param before: Keys of an earlier state, which are used again if nothing has changed.
        @param identitiesBefore: The documents of accounts of this state.
        """
        self._keys = {key.accessKey: key for key in keys}
        self._identities = identities
        self._root = root
        self._issued = issued
        self._before = before
        self._identitiesBefore = identitiesBefore

    def bind(self) -> None:
        """Add the keys. A key whose user or parent is missing or disabled is not added."""
        for key in self._keys.values():
            self._bind(key, 0)

    def _bind(self, key: AccessKey, depth: int) -> AccountKey | None:
        found = self._issued.get(key.accessKey)
        if found is not None or depth > _DEEPEST:
            return found
        kind, _, name = key.parent.partition("/")
        if key.parent and kind == "key":
            made = self._childOfKey(key, name, depth)
        else:
            made = self._ofUser(key, name if key.parent else key.userName)
        if made is not None:
            known = self._before.get(key.accessKey)
            if known is not None and known.issued == key and _sources(known) == _sources(made):
                # It keeps its compiled policies.
                made = known
            self._issued[key.accessKey] = made
        return made

    def _childOfKey(self, key: AccessKey, name: str, depth: int) -> AccountKey | None:
        """Make a service key that another key bounds; L{None} if there is no such key."""
        if name == self._root.identity.accessKey:
            parent: AccountKey | None = self._root
        else:
            bound = self._keys.get(name)
            parent = self._issued.get(name) if bound is None else self._bind(bound, depth + 1)
        if parent is None or parent.identity.account != key.account:
            return None
        above = parent.identity
        bounds = above.rights
        assert bounds is None or isinstance(bounds, Rights)
        if bounds is not None and len(bounds.serviceKeys) >= _DEEPEST:
            return None
        rights = Rights(
            above.principal,
            parent=bounds,
            serviceKey=key,
            sources=(parent,),
            isRoot=above.isRoot,
        )
        policy = _limitsOf(key, above.policy)
        identity = Identity(key.accessKey, key.account, policy, rights=rights)
        return AccountKey(identity, key.secretKey, key)

    def _ofUser(self, key: AccessKey, name: str) -> AccountKey | None:
        """Make a key or a service key of a user; L{None} if the user is missing or disabled."""
        account = self._identities.get(key.account)
        known = self._before.get(key.accessKey)
        if (
            known is not None
            and known.issued == key
            and account is self._identitiesBefore.get(key.account)
        ):
            # Large accounts have thousands of keys, which no other account's change may read again.
            return known
        document = None if account is None else account.documents.get(("user", name.lower()))
        if account is None or document is None:
            return None
        rights = _rightsOf(key.account, account, document)
        if rights is None:
            return None
        if key.parent:
            rights = Rights(rights.principal, parent=rights, serviceKey=key, sources=rights.sources)
        identity = Identity(key.accessKey, key.account, _limitsOf(key, None), rights=rights)
        return AccountKey(identity, key.secretKey, key)


def _rightsOf(account: str, documents: AccountDocuments, document: bytes) -> Rights | None:
    """
    Return the rights of a user; L{None} if it is disabled.

    @param documents: The documents of the account.
    @param document: The document of the user.
    """
    user = readEntity("user", document)
    assert isinstance(user, IAMUser)
    if user.disabled:
        return None
    policies = documentsOf(user, account, documents)
    principal = user.resource.removeprefix("user/")
    return Rights(principal, user, policies, sources=(document, *policies))


def bindPerson(
    account: str,
    name: str,
    role: str,
    identities: Mapping[str, AccountDocuments],
    before: AccountKey | None,
) -> AccountKey | None:
    """
    Make the key of a user who signed in: see L{AccessKeyStore.findPerson
    <storagegate.objects.accounts.AccessKeyStore.findPerson>}.

    @param identities: The documents of accounts.
    @param before: The key of an earlier state, which is returned if nothing has changed.
    """
    documents = identities.get(account)
    document = None if documents is None else documents.documents.get(("user", name.lower()))
    if documents is None or document is None:
        return None
    rights = _rightsOf(account, documents, document)
    if rights is None or rights.user is None:
        return None
    if before is not None and _sources(before) == rights.sources:
        # It keeps its compiled policies.
        return before
    user = rights.user
    row = AccessKey(user.resource, user.id, account, role=role, userName=user.name)
    identity = Identity(row.accessKey, account, rights=rights, role=role)
    return AccountKey(identity, row.secretKey, row)


def _limitsOf(key: AccessKey, parent: KeyPolicy | None) -> KeyPolicy:
    above = None if parent is None or parent.isUnlimited else parent
    return KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern, above)


def _sources(key: AccountKey) -> tuple[object, ...]:
    rights = key.identity.rights
    return rights.sources if isinstance(rights, Rights) else ()


def documentsOf(
    holder: IAMUser | Role, account: str, documents: AccountDocuments
) -> tuple[str, ...]:
    """
    Return the policies that apply to a user or a role: inline and attached, its own and those of
    its groups.

    @param documents: The documents of the account.
    """
    found = list(holder.policies.values())
    attached = list(holder.attached)
    for name in holder.groups if isinstance(holder, IAMUser) else ():
        document = documents.documents.get(("group", name))
        if document is None:
            found.append(_MISSING)
            continue
        group = readEntity("group", document)
        assert isinstance(group, Group)
        found += group.policies.values()
        attached += group.attached
    for arn in dict.fromkeys(attached):
        policy = findPolicy(arn, account, documents)
        found.append(_MISSING if policy is None else policy.document)
    return tuple(found)


def findPolicy(arn: str, account: str, documents: AccountDocuments) -> ManagedPolicy | None:
    """
    Find a managed policy of an account or of Amazon.

    @param documents: The documents of the account.
    """
    if arn in AWS_POLICIES:
        return AWS_POLICIES[arn]
    document = documents.documents.get(("policy", arn.rpartition("/")[2].lower()))
    if document is None:
        return None
    policy = readEntity("policy", document)
    assert isinstance(policy, ManagedPolicy)
    return policy if policy.arn(account) == arn else None


def checkPolicy(document: str) -> None:
    """
    Validate a new policy of a user, a group or a role, a managed policy or a session policy.

    The caller checks the limit of its size.

    @raise MalformedPolicyDocument: The policy is invalid; the message names the problem.
    """
    try:
        compileIdentityPolicy(document)
    except MalformedPolicy as error:
        raise errors.MalformedPolicyDocument(error.message, error.place) from None


def checkTrustPolicy(document: str, account: str) -> None:
    """
    Validate a new trust policy of a role.

    @param account: The account of the role.
    @raise MalformedPolicyDocument: The policy is invalid; the message names the problem.
    """
    from storagegate.objects.access.trustpolicy import compileTrustPolicy

    try:
        compileTrustPolicy(document, account)
    except MalformedPolicy as error:
        raise errors.MalformedPolicyDocument(error.message, error.place) from None


def authoriseAction(
    caller: "Caller", role: str, action: str, resource: str, tagKeys: tuple[str, ...] = ()
) -> None:
    """
    Decide on a request to administer the caller's account.

    The root pair, and keys and people with the administration role C{admin}, may do everything; a
    user needs a policy that allows the action. A service key of a user also needs it from its own
    policy; other service keys have no such rights. Neither has a key of a user with limits, because
    it could make a key without them.

    @param role: The administration role of the caller's key: one of L{ROLES
        <storagegate.objects.principals.ROLES>}.
    @param action: The action with its prefix, such as C{iam:CreateUser}.
    @param resource: The ARN of the entity, or C{*} for actions that concern none.
    @param tagKeys: The keys of the tags that the request removes.
    @raise AccessDenied: The caller has no right to it.
    """
    identity = caller.identity
    rights = identity.rights
    if rights is None:
        if not identity.isRoot and (identity.isAnonymous or role not in ("admin", "root")):
            raise errors.AccessDenied()
        return
    if identity.role == "admin":
        # A person can issue keys with this role in the console.
        return
    if not identity.policy.isUnlimited:
        rule = "a key with a limited policy cannot use IAM"
        raise errors.AccessDenied(explain=lambda: Refusal(rule))
    values = {"aws:TagKeys": tagKeys} if tagKeys else {}
    context = AccessContext(
        identity, caller, "", "", identity.account, caller.operationName, values=values
    )
    named = f"{identity.account}:*" if resource == "*" else resource.removeprefix(_IAM)
    if not (rights.isUser and rights.evaluate(action, context, named)):
        raise errors.AccessDenied(explain=lambda: rights.explain(action, context, named))
