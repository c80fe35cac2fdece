"""
The rights of identities: identity policies, and the rights that they give.
"""

from typing import TYPE_CHECKING

from storagegate.objects import errors

if TYPE_CHECKING:
    from storagegate.objects.access.context import Caller


def checkPolicy(document: str) -> None:
    """
    Validate a new policy of a user, a group or a role, a managed policy or a session policy.

    The caller checks the limit of its size.

    @raise MalformedPolicyDocument: The policy is invalid; the message names the problem.
    """


def checkTrustPolicy(document: str) -> None:
    """
    Validate a new trust policy of a role.

    @raise MalformedPolicyDocument: The policy is invalid; the message names the problem.
    """


def authoriseAction(caller: "Caller", role: str, action: str, resource: str) -> None:
    """
    Decide on a request to administer the caller's account.

    The root pair and keys with the administration role C{admin} may do everything; a user needs a
    policy that allows the action. A service key also needs it from its own policy.

    @param role: The administration role of the caller's key: one of L{ROLES
        <storagegate.objects.accounts.ROLES>}.
    @param action: The action with its prefix, such as C{iam:CreateUser}.
    @param resource: The ARN of the entity, or C{*} for actions that concern none.
    @raise AccessDenied: The caller has no right to it.
    """
    if caller.identity.isRoot or role in ("admin", "root"):
        return
    raise errors.AccessDenied()
