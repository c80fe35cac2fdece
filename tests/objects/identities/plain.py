"""
A second evaluator of rights: slow, plain, and written from Amazon's "Policy evaluation logic".

It reads all policies as JSON for each request, and first collects the effects of each policy that
the documentation names; one table then decides. It shares nothing with the program but the names of
actions and keys.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from attrs import field, frozen

from tests.objects.access.plain import (
    Asked,
    conditionHolds,
    listed,
    matchesWild,
    tokensOf,
)

OBJECT_ONLY = ("GetObject", "GetObjectAcl", "GetObjectTagging", "PutObjectAcl", "PutObjectTagging")
"""The tested actions on which the account of an object decides, and not that of its bucket."""

BY_LIST = {
    "bucket": {"ListBucket": "READ", "PutObject": "WRITE", "DeleteObject": "WRITE"},
    "object": {"GetObject": "READ", "GetObjectAcl": "READ_ACP", "PutObjectAcl": "WRITE_ACP"},
}
"""Amazon's table of actions that a permission in the list of a bucket or of an object gives."""


@frozen
class Person:
    """
    What asks: the root pair, a key of no user, a user, a session of a role, or a service key or a
    session of one of them.

    @ivar kind: C{root}, C{key}, C{user}, C{role} or C{service}.
    @ivar name: The name in the ARN.
    @ivar session: The ARN of the session of a role.
    @ivar policies: JSON: the policies of a user and its groups or of a role, or the own one of a
        service key or a session.
    """

    kind: str
    account: str
    name: str
    accessKey: str
    id: str = ""
    tags: Mapping[str, str] = field(factory=dict)
    policies: Sequence[str] = ()
    parent: "Person | None" = None
    session: str = ""

    def chain(self) -> list["Person"]:
        """Return the service keys from this one up, and at the end what is none."""
        return [self] if self.parent is None else [self, *self.parent.chain()]

    @property
    def arn(self) -> str:
        """The ARN of a user or a role; a key of no user is named as one."""
        kind = "role" if self.kind == "role" else "user"
        return f"arn:aws:iam::{self.account}:{kind}/{self.name}"

    def values(self) -> dict[str, str | list[str]]:
        """Return the condition keys of whom a service key acts for."""
        base = self.chain()[-1]
        found: dict[str, str | list[str]] = {"aws:principalaccount": base.account}
        if base.kind == "root":
            found["aws:principalarn"] = f"arn:aws:iam::{base.account}:root"
            return found
        found["aws:principalarn"] = base.arn
        if base.kind != "role":
            found["aws:username"] = base.name.rpartition("/")[2]
        found["aws:userid"] = base.id or base.name
        found |= {f"aws:principaltag/{key}": value for key, value in base.tags.items()}
        return found


@frozen
class Box:
    """
    A bucket and an object in it.

    @ivar owner: The account of the bucket.
    @ivar objectOwner: The account of the object; L{None} for an action on the bucket or a new
        object.
    @ivar policy: JSON; empty for none.
    @ivar lists: The grants of the bucket and of the object: pairs of grantee and permission.
    """

    name: str
    owner: str
    objectOwner: str | None
    policy: str = ""
    lists: Mapping[str, Sequence[tuple[str, str]]] = field(factory=dict)
    isEnforced: bool = False


def canonical(account: str) -> str:
    """Return the canonical id of an account."""
    return sha256(b"storagegate account " + account.encode()).hexdigest()


def effects(document: str, asked: Asked, arn: str, match: Any = None) -> set[str]:
    """
    Return the effects of the statements of a policy that apply.

    @param arn: The ARN of the resource.
    @param match: Judges the principal of a statement; L{None} for policies without.
    """
    policy = json.loads(document)
    isNew = policy.get("Version") == "2012-10-17"
    found = set()
    for each in listed(policy["Statement"]):
        actions = [
            matchesWild(tokensOf(name.lower(), asked, True, False) or [], asked.action.lower())
            for name in listed(each.get("Action", each.get("NotAction")))
        ]
        resources = [
            tokens is not None and matchesWild(tokens, arn)
            for tokens in (
                tokensOf(name, asked, True, isNew)
                for name in listed(each.get("Resource", each.get("NotResource")))
            )
        ]
        if (
            any(actions) == ("Action" in each)
            and any(resources) == ("Resource" in each)
            and (match is None or match(each))
            and all(
                conditionHolds(operator, key, listed(values), asked, isNew)
                for operator, keys in each.get("Condition", {}).items()
                for key, values in keys.items()
            )
        ):
            found.add(each["Effect"])
    return found


def mayAdminister(who: Person, action: str, arn: str) -> bool:
    """
    Decide on a request to IAM by a key without an administration role, which has only what its
    policies allow.

    @param action: With its prefix.
    @param arn: The ARN of an identity of the account.
    """
    *services, base = who.chain()
    if base.kind == "root":
        return not services
    if base.kind not in ("user", "role"):
        return False
    asked = Asked(base.account, base.name, action, "", who.values())
    for service in services:
        if service.policies and effects(service.policies[0], asked, arn) != {"Allow"}:
            return False
    return {each for one in base.policies for each in effects(one, asked, arn)} == {"Allow"}


def nameForms(principal: Any) -> set[str]:
    """Return what a principal names, each in one form."""
    if principal == "*":
        return {"*"}
    return {name for names in principal.values() for name in listed(names)}


def isGrantedToSession(who: Person, box: Box, asked: Asked, arn: str, action: str) -> bool:
    """
    Decide by Amazon's rule for the session of a role in its own account: if the policy of the
    bucket names it by its own ARN, no policy needs to allow the request, but none may deny it.
    """
    if not who.session or who.account != box.owner or not box.policy:
        return False
    account = {who.account, f"arn:aws:iam::{who.account}:root", canonical(who.account)}
    anyForm = account | {who.arn, who.session, "*"}

    def grants(statement: Mapping[str, Any]) -> bool:
        return "Principal" in statement and who.session in nameForms(statement["Principal"])

    def concerns(statement: Mapping[str, Any]) -> bool:
        if "Principal" in statement:
            return bool(nameForms(statement["Principal"]) & anyForm)
        return not nameForms(statement["NotPrincipal"]) & (anyForm - account)

    isForeign = box.objectOwner not in (None, box.owner, "root") and not box.isEnforced
    return (
        "Allow" in effects(box.policy, asked, arn, grants)
        and "Deny" not in effects(box.policy, asked, arn, concerns)
        and not any("Deny" in effects(each, asked, arn) for each in who.policies)
        and not (isForeign and action in OBJECT_ONLY)
    )


def isAllowed(who: Person, box: Box, action: str, key: str) -> bool:
    """
    Decide on a request.

    @param key: Empty for the bucket.
    """
    *services, base = who.chain()
    asked = Asked(base.account, base.name, f"s3:{action}", "", who.values())
    arn = f"arn:aws:s3:::{box.name}" + (f"/{key}" if key else "")
    # Session policies: an implicit denial is enough, except for what names the session itself.
    limits = [effects(each.policies[0], asked, arn) for each in services if each.policies]
    if any(each != {"Allow"} for each in limits):
        return not any("Deny" in each for each in limits) and isGrantedToSession(
            base, box, asked, arn, action
        )
    if base.kind == "root":
        return True
    account = {base.account, f"arn:aws:iam::{base.account}:root", canonical(base.account)}
    self_ = {base.arn, base.session} - {""}
    keys = {f"arn:aws:iam::{base.account}:user/{each.accessKey}" for each in services}
    mine: set[str] = set()
    for document in base.policies if base.kind in ("user", "role") else ():
        mine |= effects(document, asked, arn)
    if base.kind == "key":
        # Amazon's account root: everything in its account, and what others grant to the account.
        mine = {"Allow"}
    isOwner = base.account == box.owner

    def isNamed(statement: Mapping[str, Any]) -> bool:
        if "NotPrincipal" in statement:
            spared = nameForms(statement["NotPrincipal"])
            free = self_ | {"*"} | (account if base.kind == "key" else set())
            return not spared & free
        names = nameForms(statement["Principal"])
        more = keys if statement["Effect"] == "Deny" else set()
        return bool(names & (account | self_ | {"*"} | more))

    def isNamedItself(statement: Mapping[str, Any]) -> bool:
        return "Principal" in statement and bool(
            nameForms(statement["Principal"]) & (self_ | {"*"})
        )

    theirs = effects(box.policy, asked, arn, isNamed) if box.policy else set()
    direct = effects(box.policy, asked, arn, isNamedItself) if box.policy else set()
    isPolicy = action in ("GetBucketPolicy", "PutBucketPolicy", "DeleteBucketPolicy")
    if isPolicy and not isOwner:
        return False
    if "Deny" in theirs and not (base.kind == "key" and isOwner and isPolicy):
        return False
    if "Deny" in mine:
        return False
    mayPolicyAllow = (
        box.objectOwner in (None, box.owner, "root") or box.isEnforced or action not in OBJECT_ONLY
    )
    if "Allow" not in mine:
        return isOwner and "Allow" in direct and mayPolicyAllow
    # Now the account is asked: its own resource, the policy of the bucket, or a list.
    if mayPolicyAllow:
        if isOwner or "Allow" in theirs:
            return True
    elif base.account == box.objectOwner:
        return True
    if box.isEnforced:
        return False
    for kind in ("bucket", "object"):
        permission = BY_LIST[kind].get(action)
        if permission is None:
            continue
        grants = box.lists.get(kind, ())
        if action == "DeleteObject" and box.objectOwner not in (None, base.account):
            continue
        for grantee, given in grants:
            if grantee in (canonical(base.account), "*") and given in (permission, "FULL_CONTROL"):
                return True
    return False
