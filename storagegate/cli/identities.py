"""The commands C{storagegate users}, C{storagegate groups} and C{storagegate policies}."""

import json
import sys
from pathlib import Path
from typing import Any

from storagegate.cli.administration import Administration, administrationOf
from storagegate.cli.invocation import MISUSED, CommandError, Invocation
from storagegate.cli.output import formatTime

_PAGE = 1000

_HOLDERS = ("user", "group", "role")

_POLICY_LIMIT = 1 << 20
"""Bytes of a file that can be a policy; IAM refuses one of this size with the exact limit."""


class _Account:
    """The identities of one account, through IAM's operations."""

    def __init__(self, invocation: Invocation) -> None:
        self._administration: Administration = administrationOf(invocation)
        self.name: str = invocation.options.account

    def perform(self, operation: str, **fields: Any) -> dict[str, Any]:
        """
        Perform an operation; return its answer, empty for none.

        @param fields: Those that are L{None} are omitted.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        return self._administration.perform(operation, self.name, given)

    def all(self, operation: str, rows: str, **fields: Any) -> list[Any]:
        """Read all pages of a list."""
        found: list[Any] = []
        marker = None
        while True:
            page = self.perform(operation, **fields, maxItems=_PAGE, marker=marker)
            found += page[rows]
            marker = page.get("marker")
            if not page.get("isTruncated"):
                return found


def listUsers(invocation: Invocation) -> int:
    """List the users."""
    users = _Account(invocation).all("ListUsers", "users")
    output = invocation.output
    rows = [
        (
            each["userName"],
            each["path"],
            each["userId"],
            _statusOf(each),
            formatTime(each["createDate"]),
        )
        for each in users
    ]
    output.result({"users": users}, output.table(("USER", "PATH", "ID", "STATUS", "CREATED"), rows))
    return 0


def _statusOf(user: dict[str, Any]) -> str:
    return str(user.get("status") or "Active").lower()


def createUser(invocation: Invocation) -> int:
    """Create a user."""
    options = invocation.options
    account = _Account(invocation)
    tags = [{"key": key, "value": value} for key, value in options.tags or ()]
    made = account.perform(
        "CreateUser", userName=options.name, path=options.path, tags=tags or None
    )
    invocation.output.result(made["user"], [made["user"]["arn"]])
    return 0


def readTag(text: str) -> tuple[str, str]:
    """
    Read a tag such as C{team=blue}.

    @raise ValueError: The text has no equals sign.
    """
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise ValueError("expected KEY=VALUE")
    return key, value


def showUser(invocation: Invocation) -> int:
    """Show a user with its groups, policies and keys."""
    account, name = _Account(invocation), invocation.options.name
    user = account.perform("GetUser", userName=name)["user"]
    groups = account.all("ListGroupsForUser", "groups", userName=name)
    attached = account.all("ListAttachedUserPolicies", "attachedPolicies", userName=name)
    inline = account.all("ListUserPolicies", "policyNames", userName=name)
    keys = account.all("ListAccessKeys", "accessKeyMetadata", userName=name)
    document = {
        **user,
        "groups": [each["groupName"] for each in groups],
        "attachedPolicies": [each["policyArn"] for each in attached],
        "inlinePolicies": inline,
        "accessKeys": keys,
    }
    rows = [
        ("arn", user["arn"]),
        ("id", user["userId"]),
        ("created", formatTime(user["createDate"])),
        ("status", _statusOf(user)),
        *(("tag", f"{tag['key']}={tag['value']}") for tag in user.get("tags") or ()),
        *(("group", each) for each in document["groups"]),
        *(("policy", each) for each in document["attachedPolicies"]),
        *(("inline policy", each) for each in inline),
        *(("key", f"{each['accessKeyId']} {each['status'].lower()}") for each in keys),
    ]
    output = invocation.output
    output.result(document, output.table(("FIELD", "VALUE"), rows))
    return 0


def deleteUser(invocation: Invocation) -> int:
    """Delete a user."""
    return _change(invocation, "DeleteUser", userName=invocation.options.name)


def disableUser(invocation: Invocation) -> int:
    """Disable a user or a role."""
    return _setStatus(invocation, "Inactive")


def enableUser(invocation: Invocation) -> int:
    """Enable a user or a role."""
    return _setStatus(invocation, "Active")


def _setStatus(invocation: Invocation, status: str) -> int:
    options = invocation.options
    if options.isRole:
        return _change(invocation, "UpdateRoleStatus", roleName=options.name, status=status)
    return _change(invocation, "UpdateUserStatus", userName=options.name, status=status)


def revokeSessions(invocation: Invocation) -> int:
    """End all sessions of a user or a role."""
    options = invocation.options
    if options.isRole:
        return _change(invocation, "RevokeRoleSessions", roleName=options.name)
    return _change(invocation, "RevokeUserSessions", userName=options.name)


def listGroups(invocation: Invocation) -> int:
    """List the groups with their users."""
    account = _Account(invocation)
    groups = account.all("ListGroups", "groups")
    for each in groups:
        members = account.all("GetGroup", "users", groupName=each["groupName"])
        each["users"] = [user["userName"] for user in members]
    output = invocation.output
    rows = [(each["groupName"], each["path"], ", ".join(each["users"]) or "-") for each in groups]
    output.result({"groups": groups}, output.table(("GROUP", "PATH", "USERS"), rows))
    return 0


def createGroup(invocation: Invocation) -> int:
    """Create a group."""
    options = invocation.options
    account = _Account(invocation)
    made = account.perform("CreateGroup", groupName=options.name, path=options.path)
    invocation.output.result(made["group"], [made["group"]["arn"]])
    return 0


def deleteGroup(invocation: Invocation) -> int:
    """Delete a group."""
    return _change(invocation, "DeleteGroup", groupName=invocation.options.name)


def addToGroup(invocation: Invocation) -> int:
    """Add a user to a group."""
    options = invocation.options
    return _change(invocation, "AddUserToGroup", groupName=options.name, userName=options.userName)


def removeFromGroup(invocation: Invocation) -> int:
    """Remove a user from a group."""
    options = invocation.options
    return _change(
        invocation, "RemoveUserFromGroup", groupName=options.name, userName=options.userName
    )


def listPolicies(invocation: Invocation) -> int:
    """List the managed policies."""
    policies = _Account(invocation).all("ListPolicies", "policies")
    output = invocation.output
    rows = [
        (each["policyName"], each["defaultVersionId"], str(each["attachmentCount"]), each["arn"])
        for each in policies
    ]
    headings = ("POLICY", "VERSION", "ATTACHED", "ARN")
    output.result({"policies": policies}, output.table(headings, rows))
    return 0


def createPolicy(invocation: Invocation) -> int:
    """Create a managed policy."""
    options = invocation.options
    made = _Account(invocation).perform(
        "CreatePolicy",
        policyName=options.name,
        policyDocument=readPolicyFile(options.policyFile),
        path=options.path,
    )
    invocation.output.result(made["policy"], [made["policy"]["arn"]])
    return 0


def showPolicy(invocation: Invocation) -> int:
    """Show the document of a managed policy, or of an inline policy."""
    account, options = _Account(invocation), invocation.options
    holder = _holder(invocation, isRequired=False)
    if holder:
        kind = next(iter(holder)).removesuffix("Name")
        found = account.perform(f"Get{kind.capitalize()}Policy", **holder, policyName=options.name)
        document = found["policyDocument"]
    else:
        arn = _arnOf(account, options.name)
        policy = account.perform("GetPolicy", policyArn=arn)["policy"]
        version = policy["defaultVersionId"]
        found = account.perform("GetPolicyVersion", policyArn=arn, versionId=version)
        document = found["policyVersion"]["document"]
    invocation.output.result(json.loads(document), [document])
    return 0


def deletePolicy(invocation: Invocation) -> int:
    """Delete a managed policy."""
    account = _Account(invocation)
    arn = _arnOf(account, invocation.options.name)
    return _change(invocation, "DeletePolicy", policyArn=arn)


def attachPolicy(invocation: Invocation) -> int:
    """Attach a managed policy to a user, group or role."""
    return _attach(invocation, "Attach")


def detachPolicy(invocation: Invocation) -> int:
    """Detach a managed policy from a user, group or role."""
    return _attach(invocation, "Detach")


def _attach(invocation: Invocation, verb: str) -> int:
    holder = _holder(invocation)
    kind = next(iter(holder)).removesuffix("Name").capitalize()
    arn = _arnOf(_Account(invocation), invocation.options.name)
    return _change(invocation, f"{verb}{kind}Policy", **holder, policyArn=arn)


def putPolicy(invocation: Invocation) -> int:
    """Add an inline policy to a user, group or role, or replace it."""
    options = invocation.options
    holder = _holder(invocation)
    kind = next(iter(holder)).removesuffix("Name").capitalize()
    document = readPolicyFile(options.policyFile)
    return _change(
        invocation,
        f"Put{kind}Policy",
        **holder,
        policyName=options.name,
        policyDocument=document,
    )


def removePolicy(invocation: Invocation) -> int:
    """Remove an inline policy of a user, group or role."""
    holder = _holder(invocation)
    kind = next(iter(holder)).removesuffix("Name").capitalize()
    name = invocation.options.name
    return _change(invocation, f"Delete{kind}Policy", **holder, policyName=name)


def readPolicyFile(name: str) -> str:
    """
    Read a policy.

    @param name: The path of a file, or C{-} for standard input.
    @raise CommandError: The file cannot be read.
    """
    try:
        if name == "-":
            return sys.stdin.read(_POLICY_LIMIT)
        with Path(name).open(encoding="utf-8") as file:
            return file.read(_POLICY_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise CommandError(f"{name}: {reason}", MISUSED) from error


def _holder(invocation: Invocation, *, isRequired: bool = True) -> dict[str, str]:
    """
    Return the identity that the flags name, as the field of an operation.

    @raise CommandError: They name none, or several.
    """
    options = invocation.options
    found = {f"{kind}Name": getattr(options, f"{kind}Name") for kind in _HOLDERS}
    found = {name: value for name, value in found.items() if value is not None}
    if len(found) > 1 or (isRequired and not found):
        raise CommandError("one of --user, --group and --role must be given", MISUSED)
    return found


def _arnOf(account: _Account, name: str) -> str:
    """
    Return the ARN of a managed policy.

    @param name: Its ARN, or its name; a policy of the account has precedence.
    @raise CommandError: There is none of this name.
    """
    if name.startswith("arn:"):
        return name
    policies = account.all("ListPolicies", "policies")
    policies.sort(key=lambda each: each["arn"].startswith("arn:aws:iam::aws:"))
    for each in policies:
        if each["policyName"].lower() == name.lower():
            arn: str = each["arn"]
            return arn
    raise CommandError(f"no such policy: {name}", error="NoSuchEntity")


def _change(invocation: Invocation, operation: str, **fields: Any) -> int:
    """Perform an operation without an answer; print the fields that name something."""
    _Account(invocation).perform(operation, **fields)
    named = {name: value for name, value in fields.items() if name != "policyDocument"}
    invocation.output.result(named)
    return 0
