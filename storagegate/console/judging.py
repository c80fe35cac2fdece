"""Access checks for one key, by the rules of S3, with the rule that decided."""

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.core.errors import codedError
from storagegate.objects.accounts import Identity
from storagegate.objects.errors import AccessDenied, DomainError, Refusal
from storagegate.storage.records import AccessKey

_OPERATIONS = {
    "read": ("GetObject", "read", True),
    "write": ("PutObject", "write", True),
    "delete": ("DeleteObject", "write", True),
    "list": ("ListObjectsV2", "list", False),
    "admin": ("PutBucketPolicy", "admin", False),
}
"""
The operation that represents a kind of access, what the policy of a key must grant for it, and
whether it concerns a key.
"""


HIDDEN_STATEMENT = Refusal("a statement of the bucket's policy denies it")
"""The rule as a caller sees it that may not read the policy."""


async def judge(
    call: ConsoleCall, key: AccessKey, access: str, bucket: str, name: str
) -> tuple[bool, Refusal]:
    """
    Check an access.

    @param access: A kind of access.
    @param name: The key of the object; empty for the bucket, or for any object.
    @return: Whether the access is allowed, and the rule that decided.
    @raise ServiceError: The kind of access is unknown.
    """
    if access not in _OPERATIONS:
        raise codedError("INVALID_ARGUMENT", f"access must be one of {', '.join(_OPERATIONS)}")
    if key.disabled:
        return False, Refusal("the key is disabled")
    if key.expiresMs and key.expiresMs <= call.services.now() * 1000:
        return False, Refusal("the key has expired")
    operation, granted, isOfKey = _OPERATIONS[access]
    credential = call.services.accounts.find(key.accessKey)
    if credential is None or credential.issued is None:
        return False, Refusal("the user or the parent of the key is missing or disabled")
    identity: Identity = credential.identity
    policy = identity.policy
    encoded = name.encode() if isOfKey else b""
    prefix = None if isOfKey else name
    try:
        identity.authorise(granted, bucket, encoded, prefix)
    except AccessDenied:
        return False, policy.explain(granted, bucket)
    caller = ConsoleCaller(identity, operation, call.request, prefix)
    objects = call.services.objects
    try:
        found = await objects.find(bucket)
    except DomainError:
        return False, Refusal("the bucket does not exist")
    if found.account == identity.ownerAccount and not found.generation:
        return True, Refusal("the account of the key owns the bucket")
    record = None
    if isOfKey and name:
        _, record = await call.services.store.catalog.object(bucket, encoded)
    try:
        settings = await objects.accessOf(found)
        # The right to list is enough for the response that a key is missing, but not to read.
        settings.decide(caller, found, encoded, record=record, isHypothetical=True)
    except AccessDenied as error:
        refusal = Refusal(error.message) if error.explain is None else error.explain()
        isOwn = found.account == call.who.identity.account or call.who.has("auditor")
        return False, refusal if isOwn or not refusal.statement else HIDDEN_STATEMENT
    if found.account == key.account:
        text = "the account of the key owns the bucket, and its policy does not deny it"
        if identity.rights is not None:
            text = "a policy allows it, and none denies it"
        return True, Refusal(text)
    return True, Refusal("the bucket's policy or a grant allows it")
