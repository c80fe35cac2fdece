"""
The access decision on a request, in this order.

  1. The front end authenticates the request, or establishes that it is anonymous.
  2. The limits of the access key apply; nothing widens them
     (L{Identity.authorise<storagegate.objects.accounts.Identity.authorise>}).
  3. For a user or a service key, a deny statement of its policies refuses, and the own policy of a
     service key must allow the request.
  4. A deny statement of the bucket's policy refuses. It binds the owner too, but never the root
     key, and the unlimited keys of the bucket's account can always change the policy. Nothing opens
     the policy to other accounts.
  5. C{RestrictPublicBuckets} with a public policy admits only the bucket's account.
  6. These are allowed: the root key; the bucket's account, or for the content, tags and ACL of an
     object the object's account; an allow statement; a grant of an ACL.
  7. A user also needs a policy that allows the request. Only in its own account, an allow statement
     that names the user, or everyone, is enough. One that names a session of a role by its own ARN
     is enough for this session even if the policy of the session does not allow the request.
  8. Otherwise the access is denied.

As in S3, an allow statement does not open an object of another account: only its own account can.
An object that the root key writes in the bucket of another account is that account's to use. Under
C{BucketOwnerEnforced} the bucket's account owns all objects, and ACLs do not apply. The account
that began a multipart upload may abort it and list its parts.
"""

from collections.abc import Callable
from functools import partial

from attrs import frozen
from msgspec import Struct
from msgspec.structs import replace

from storagegate.objects import errors
from storagegate.objects.access.acl import (
    FULL_CONTROL,
    GROUPS,
    AccessControlList,
    Grant,
    bucketPermission,
    decodeList,
    objectPermission,
    privateList,
)
from storagegate.objects.access.actions import (
    BYPASS,
    HEADER_ACTIONS,
    INITIATOR_ACTIONS,
    POLICY_ACTIONS,
    WRITER_ACTIONS,
    WRITES,
    actionsOf,
)
from storagegate.objects.access.context import AccessContext, Caller
from storagegate.objects.access.patterns import ANY, Tokens
from storagegate.objects.access.policy import BucketPolicy
from storagegate.objects.principals import ANONYMOUS, ROOT_ACCOUNT, Identity, canonicalId
from storagegate.objects.tags import decodeTags
from storagegate.storage.records import Bucket, ObjectRecord

OBJECT_WRITER = "ObjectWriter"
BUCKET_OWNER_PREFERRED = "BucketOwnerPreferred"
BUCKET_OWNER_ENFORCED = "BucketOwnerEnforced"

OWNERSHIPS = (OBJECT_WRITER, BUCKET_OWNER_PREFERRED, BUCKET_OWNER_ENFORCED)
"""The object ownerships of buckets; the first is the default."""


@frozen
class PublicAccessBlock:
    """
    The limits of public access to a bucket.

    @ivar blockPublicAcls: No ACL with a grant to a group may be set.
    @ivar ignorePublicAcls: Grants to groups do not count.
    @ivar blockPublicPolicy: No public policy may be set.
    @ivar restrictPublicBuckets: A bucket with a public policy is open to its own account only.
    """

    blockPublicAcls: bool = False
    ignorePublicAcls: bool = False
    blockPublicPolicy: bool = False
    restrictPublicBuckets: bool = False


NO_BLOCK = PublicAccessBlock()

_EXPOSURES = (
    ("publicWrite", ("s3:PutObject", "s3:DeleteObject", "s3:PutBucketPolicy", "s3:PutBucketAcl")),
    ("publicRead", ("s3:GetObject", "s3:GetObjectVersion")),
    ("publicList", ("s3:ListBucket", "s3:ListBucketVersions")),
)
"""The actions that make a bucket public, the most serious first."""

_READS = frozenset({"GetObject", "HeadObject", "GetObjectAttributes"})


def _describe(
    caller: Caller,
    bucket: Bucket,
    key: bytes,
    versionId: str | None = None,
    record: ObjectRecord | None = None,
    operation: str = "",
) -> AccessContext:
    """Describe a request for policies; the parameters match L{BucketAccess.decide}."""
    return AccessContext(
        caller.identity,
        caller,
        bucket.name,
        key.decode(),
        bucket.account,
        operation or caller.operationName,
        versionId,
        {} if record is None else decodeTags(record.attributes.tags),
    )


def decideAlone(caller: Caller, action: str, bucket: str = "") -> None:
    """
    Decide on an action that the settings of no bucket concern: lists of buckets, and the creation
    of a bucket. Keys of no user may perform it within their limits.

    @param action: The action with its prefix.
    @param bucket: The name of the new bucket.
    @raise AccessDenied: No policy of a user, or of a service key, allows it.
    """
    identity = caller.identity
    rights = identity.rights
    if rights is None:
        return
    context = AccessContext(identity, caller, bucket, "", identity.account, caller.operationName)
    # Amazon's policies name the service as all buckets.
    resource = bucket or "*"
    if rights.evaluate(action, context, resource) is not True:
        explain = partial(rights.explain, action, context, resource)
        raise errors.AccessDenied(explain=explain)


def _same(described: AccessContext) -> AccessContext:
    return described


class BucketAccess(Struct, frozen=True, eq=False):
    """
    The compiled access settings of a bucket.

    @ivar account: The owner.
    @ivar acl: L{None} for the private ACL.
    """

    account: str
    policy: BucketPolicy | None = None
    acl: AccessControlList | None = None
    block: PublicAccessBlock = NO_BLOCK
    ownership: str = OBJECT_WRITER

    @property
    def isEnforced(self) -> bool:
        """Whether the bucket's account owns all objects, and ACLs do not apply."""
        return self.ownership == BUCKET_OWNER_ENFORCED

    def decide(
        self,
        caller: Caller,
        bucket: Bucket,
        key: bytes = b"",
        versionId: str | None = None,
        record: ObjectRecord | None = None,
        operation: str = "",
        initiator: str | None = None,
        *,
        isHypothetical: bool = False,
    ) -> None:
        """
        Decide on a request for a bucket with settings, or by another account than the owner.

        @param key: Empty for the bucket itself.
        @param record: The object, if it was looked up and exists.
        @param operation: Amazon's name of the operation, if it differs from the request's.
        @param initiator: The account that began the upload that the request names, if any.
        @param isHypothetical: Whether to decide as if there were an object of the bucket's account,
            if C{record} is L{None}.
        @raise AccessDenied: The request is refused.
        """
        identity = caller.identity
        if identity.isRoot:
            return
        operation = operation or caller.operationName
        context = partial(_describe, caller, bucket, key, versionId, record, operation)
        if operation == "DeleteObjects" and not key:
            # Each key is authorised separately; here only whether any could be allowed.
            if not self.couldAllow(identity, "s3:DeleteObject"):
                raise self._refused(context, "s3:DeleteObject")
            return

        owner, acl = initiator, None
        if record is not None:
            owner = record.account
            acl = decodeList(record.attributes.acl) if record.attributes.acl else None
        # A caller that may list learns that a key is missing, even if it may not read objects.
        isMissing = record is None and operation in _READS and not isHypothetical
        if isMissing and not self.allows(identity, "s3:ListBucket", context):
            explain = partial(self._explainMissing, context, actionsOf(operation, versionId)[0])
            raise errors.AccessDenied(explain=explain)
        for action in actionsOf(operation, versionId):
            if isMissing and not self._denies(identity, action, context):
                continue
            if not self.allows(identity, action, context, owner, acl):
                raise self._refused(context, action, owner)
        if operation in WRITES:
            headers = caller.headers
            for action in {HEADER_ACTIONS[name] for name in HEADER_ACTIONS if name in headers}:
                # The writer's account may set the ACL of its new object.
                isOwn = action == "s3:PutObjectAcl" and not identity.isAnonymous
                writer = identity.account if isOwn else None
                if not self.allows(identity, action, context, writer) and not (
                    self._isOfGrantedWrite(identity, action, context)
                ):
                    raise self._refused(context, action, writer)

    def _isOfGrantedWrite(
        self, identity: Identity, action: str, context: Callable[[], AccessContext]
    ) -> bool:
        """
        Return whether an action on a new object comes with the grant to write it: the C{WRITE} of a
        bucket's ACL includes the ACL and the tags in the request.
        """
        return (
            action in ("s3:PutObjectAcl", "s3:PutObjectTagging")
            and not self.isEnforced
            and self._isGranted(identity, "s3:PutObject", None, None)
            and not self._denies(identity, action, context)
            and (identity.rights is None or identity.rights.evaluate(action, context()) is True)
        )

    def mayBypass(self, caller: Caller, bucket: Bucket, key: bytes, versionId: str | None) -> bool:
        """
        Return whether a request may bypass a retention in governance mode.

        @param versionId: The version that the request names; L{None} for the current version.
        """
        context = partial(_describe, caller, bucket, key, versionId)
        return self.allows(caller.identity, BYPASS, context)

    def withVisibleLock(
        self, caller: Caller, bucket: Bucket, record: ObjectRecord, versionId: str | None
    ) -> ObjectRecord:
        """
        Return an object without the parts of its lock that the request may not see.

        @param versionId: See L{mayBypass}.
        """
        lock = record.attributes.lock
        context = partial(_describe, caller, bucket, record.key, versionId, record)

        def isVisible(action: str) -> bool:
            return self.allows(caller.identity, action, context, record.account)

        if lock.mode and not isVisible("s3:GetObjectRetention"):
            lock = replace(lock, mode="", untilMs=0)
        if lock.legalHold is not None and not isVisible("s3:GetObjectLegalHold"):
            lock = replace(lock, legalHold=None)
        return replace(record, attributes=replace(record.attributes, lock=lock))

    def mayReadTags(
        self, caller: Caller, bucket: Bucket, record: ObjectRecord, versionId: str | None
    ) -> bool:
        """
        Return whether a request may see the tags of an object.

        @param versionId: See L{mayBypass}.
        """
        context = partial(_describe, caller, bucket, record.key, versionId, record)
        return all(
            self.allows(caller.identity, action, context, record.account)
            for action in actionsOf("GetObjectTagging", versionId)
        )

    def allows(
        self,
        identity: Identity,
        action: str,
        context: Callable[[], AccessContext],
        owner: str | None = None,
        acl: AccessControlList | None = None,
    ) -> bool:
        """
        Decide by the third and all later steps.

        @param action: The action with its prefix, such as C{s3:GetObject}.
        @param context: Describes the request; called only if a policy applies.
        @param owner: The account of the object or the upload, if the action concerns an existing
            one.
        @param acl: The ACL of the object; L{None} for the private ACL.
        """
        if identity.isRoot:
            return True
        rights = identity.rights
        if rights is not None:
            known = context()
            found = rights.evaluate(action, known)
            if not found:
                return self._allowsDirectly(
                    identity, action, known, owner, isBounded=found is False
                )
            if rights.isRoot:
                return True
            # The user may do what its account may do.
            context = partial(_same, known)
        account = self.account
        isOwner = identity.account == account and not identity.isAnonymous
        if not isOwner and action in POLICY_ACTIONS:
            return False
        policy, described = self.policy, None
        if policy is not None:
            if (
                isOwner
                and action in POLICY_ACTIONS
                and identity.policy.isUnlimited
                and (rights is None or not rights.isUser)
            ):
                return True
            denies, grants = policy.rules[action]
            if denies.rows:
                described = context()
                if denies.hold(described, described.key):
                    return False
            if not isOwner:
                if policy.isPublic and self.block.restrictPublicBuckets:
                    return False
                if grants.rows:
                    described = described or context()
        isEnforced = self.ownership == BUCKET_OWNER_ENFORCED
        if owner in (None, account, ROOT_ACCOUNT) or isEnforced or action not in WRITER_ACTIONS:
            if isOwner:
                return True
            if (
                policy is not None
                and described is not None
                and grants.hold(described, described.key)
            ):
                return True
            if action in INITIATOR_ACTIONS and owner == identity.account:
                return not identity.isAnonymous
        elif owner == identity.account and not identity.isAnonymous:
            return True
        return not isEnforced and self._isGranted(identity, action, owner, acl)

    def _allowsDirectly(
        self,
        identity: Identity,
        action: str,
        described: AccessContext,
        owner: str | None,
        *,
        isBounded: bool,
    ) -> bool:
        """
        Decide on a request that the policies of a user do not allow: only the policy of a bucket of
        its account can allow it, for objects of the account.

        @param owner: See L{allows}.
        @param isBounded: Whether a policy denies the request, or the policy of a session or of a
            service key does not allow it. Then the bucket's policy must name the session of a role,
            and only a denial counts against it (IAM User Guide, I{Policy evaluation for requests
            within a single account}).
        """
        policy, account, rights = self.policy, self.account, identity.rights
        if policy is None or identity.account != account:
            return False
        _, allows = (policy.bySession if isBounded else policy.direct)[action]
        if not allows.hold(described, described.key):
            return False
        if policy.rules[action][0].hold(described, described.key):
            return False
        if isBounded and rights is not None and rights.denies(action, described):
            return False
        return (
            owner in (None, account, ROOT_ACCOUNT)
            or self.isEnforced
            or action not in WRITER_ACTIONS
        )

    def _refused(
        self, context: Callable[[], AccessContext], action: str, owner: str | None = None
    ) -> errors.AccessDenied:
        """Make the error of an action that L{allows} has refused; see there for the parameters."""
        return errors.AccessDenied(explain=partial(self._explain, context, action, owner))

    def _explain(
        self, context: Callable[[], AccessContext], action: str, owner: str | None
    ) -> errors.Refusal:
        """Find the rule by which L{allows} has refused an action; see there for the parameters."""
        described, policy = context(), self.policy
        bucket, rights = described.bucket, described.identity.rights
        if rights is not None and rights.evaluate(action, described) is False:
            return rights.explain(action, described)
        isOwner = described.identity.account == self.account and not described.identity.isAnonymous
        if not isOwner and action in POLICY_ACTIONS:
            return errors.Refusal(f"the policy of {bucket} is open to its own account only")
        if policy is not None:
            found = policy.findDeny(action, described)
            if found is not None:
                number, name = found
                shown = f"statement {name}" if name else f"statement {number}"
                text = f"{shown} of the policy of {bucket} denies {action}"
                return errors.Refusal(text, number)
            if not isOwner and self._isRestricted:
                text = f"{bucket} has a public policy, and admits only its own account"
                return errors.Refusal(text)
        if rights is not None and rights.evaluate(action, described) is None:
            return rights.explain(action, described)
        if isOwner and owner is not None:
            return errors.Refusal(f"the object belongs to the account {owner}")
        text = f"no statement of the policy of {bucket} and no grant allows {action}"
        return errors.Refusal(text)

    def _explainMissing(self, context: Callable[[], AccessContext], action: str) -> errors.Refusal:
        """Find the rule that refused a read of a missing object to a caller that may not list."""
        described = context()
        if not self.allows(described.identity, action, context, self.account):
            return self._explain(context, action, None)
        denied = self._explain(context, "s3:ListBucket", None)
        return errors.Refusal(f"the object does not exist, and {denied.rule}", denied.statement)

    def _denies(
        self, identity: Identity, action: str, context: Callable[[], AccessContext]
    ) -> bool:
        """Return whether a statement of a policy denies an action."""
        if identity.rights is not None and identity.rights.evaluate(action, context()) is False:
            return True
        if self.policy is None:
            return False
        denies, _ = self.policy.rules[action]
        if not denies.rows:
            return False
        described = context()
        return denies.hold(described, described.key)

    def _isGranted(
        self, identity: Identity, action: str, owner: str | None, acl: AccessControlList | None
    ) -> bool:
        """Return whether an ACL grants an action."""
        withGroups = not self.block.ignorePublicAcls
        permission = bucketPermission(action)
        if permission is not None:
            if self.acl is None or not self.acl.grantsTo(
                permission, identity, withGroups=withGroups
            ):
                return False
            # A writer may remove only its own objects.
            return action != "s3:DeleteObject" or owner in (None, identity.account)
        permission = objectPermission(action)
        return (
            permission is not None
            and acl is not None
            and acl.grantsTo(permission, identity, withGroups=withGroups)
        )

    def couldAllow(self, identity: Identity, action: str) -> bool:
        """
        Return whether an action could be allowed on some object, before the keys are known.

        @param action: The action with its prefix.
        """
        if identity.isRoot:
            return True
        rights, isOwner = identity.rights, identity.account == self.account
        if rights is not None:
            found = rights.couldAllow(identity, action)
            if not found:
                policy = self.policy
                if policy is None or not isOwner:
                    return False
                _, allows = (policy.direct if found is None else policy.bySession)[action]
                return allows.couldHold(identity)
            if rights.isRoot:
                return True
        if isOwner and not identity.isAnonymous:
            return True
        if action in POLICY_ACTIONS:
            return False
        if self.policy is not None and self.policy.rules[action][1].couldHold(identity):
            return True
        return not self.isEnforced and self._isGranted(identity, action, None, None)

    def reaches(
        self, identity: Identity, action: str, *, isPublic: bool = False
    ) -> list[Tokens] | None:
        """
        Return the key patterns for which an action could be allowed, by the settings of the bucket
        alone; L{None} if it is always refused. ACLs of single objects do not count.

        @param action: The action with its prefix. For an action on the bucket, the list may be
            empty.
        @param isPublic: Whether only public statements of the policy count.
        """
        policy = self.policy
        isOwner = identity.account == self.account and not identity.isAnonymous
        if not isOwner and action in POLICY_ACTIONS:
            return None
        if policy is not None:
            if isOwner and action in POLICY_ACTIONS and identity.policy.isUnlimited:
                return [(ANY,)]
            if policy.deniesAll(action, identity) or (self._isRestricted and not isOwner):
                return None
        isGranted = not self.isEnforced and self._isGranted(identity, action, None, None)
        if isOwner or isGranted:
            return [(ANY,)]
        if policy is None:
            return None
        return policy.allowedKeys(action, identity, isPublic=isPublic)

    @property
    def exposure(self) -> str:
        """
        The access of others than the owner's account, by the settings of the bucket alone:
        C{"private"}, C{"shared"} with some accounts, or C{"publicList"}, C{"publicRead"} or
        C{"publicWrite"} without credentials.
        """
        for name, actions in _EXPOSURES:
            if any(self.reaches(ANONYMOUS, each, isPublic=True) is not None for each in actions):
                return name
        if self._isRestricted:
            return "private"
        grants = () if self.acl is None or self.isEnforced else self.acl.grants
        ignored = {canonicalId(self.account), *(GROUPS if self.block.ignorePublicAcls else ())}
        isGranted = any(grant.grantee not in ignored for grant in grants)
        isShared = isGranted or (self.policy is not None and self.policy.hasAllow)
        return "shared" if isShared else "private"

    @property
    def _isRestricted(self) -> bool:
        """Whether the bucket admits only its own account, because its policy is public."""
        return self.policy is not None and self.policy.isPublic and self.block.restrictPublicBuckets

    def checkList(self, acl: AccessControlList, canned: str | None = None) -> None:
        """
        Check that the settings permit a new ACL of the bucket or of an object in it.

        @param canned: The canned ACL that the request names; L{None} for another form.
        @raise AccessControlListNotSupported: The bucket has no ACLs.
        @raise AccessDenied: Public ACLs are blocked.
        """
        if self.isEnforced:
            isRefused = canned is not None and canned != "bucket-owner-full-control"
            if isRefused or acl != privateList(self.account):
                raise errors.AccessControlListNotSupported()
        if self.block.blockPublicAcls and acl.isPublic:
            raise errors.AccessDenied("The block of public access forbids public lists")

    def ownerOf(self, writer: str, acl: AccessControlList | None) -> str:
        """
        Return the account that will own a new object.

        @param writer: The account that writes the object.
        @param acl: The ACL that the request names, if any.
        """
        if self.isEnforced:
            return self.account
        full = Grant(canonicalId(self.account), FULL_CONTROL)
        if self.ownership == BUCKET_OWNER_PREFERRED and acl is not None and full in acl.grants:
            return self.account
        return writer
