"""Access checks for one key, by the rules of S3, with the rule that decided."""

from storagegate.console.call import ConsoleCall, ConsoleCaller
from storagegate.core.errors import codedError
from storagegate.objects.accounts import Identity, KeyPolicy
from storagegate.objects.errors import DomainError
from storagegate.storage.records import AccessKey

_OPERATIONS = {
    "read": ("GetObject", True),
    "write": ("PutObject", True),
    "list": ("ListObjectsV2", False),
    "admin": ("PutBucketPolicy", False),
}
"""The operation that represents a kind of access, and whether it concerns a key."""


async def judge(
    call: ConsoleCall, key: AccessKey, access: str, bucket: str, name: str
) -> tuple[bool, str]:
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
        return False, "the key is disabled"
    if key.expiresMs and key.expiresMs <= call.services.now() * 1000:
        return False, "the key has expired"
    operation, isOfKey = _OPERATIONS[access]
    policy = KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern)
    identity = Identity(key.accessKey, key.account, policy)
    encoded = name.encode() if isOfKey else b""
    prefix = None if isOfKey else name
    try:
        identity.authorise(access, bucket, encoded, prefix)
    except DomainError:
        return False, _limit(policy, access, bucket)
    caller = ConsoleCaller(identity, operation, call.request, prefix)
    objects = call.services.objects
    try:
        found = await objects.find(bucket)
    except DomainError:
        return False, "the bucket does not exist"
    if found.account == key.account and not found.generation:
        return True, "the account of the key owns the bucket"
    record = None
    if isOfKey and name:
        _, record = await call.services.store.catalog.object(bucket, encoded)
    try:
        settings = await objects.accessOf(found)
        # The right to list is enough for the response that a key is missing, but not to read.
        settings.decide(caller, found, encoded, record=record, isHypothetical=True)
    except DomainError:
        if found.account == key.account:
            return False, "a statement of the bucket's policy denies it"
        return False, "no statement of the bucket's policy and no grant allows it"
    if found.account == key.account:
        return True, "the account of the key owns the bucket, and its policy does not deny it"
    return True, "the bucket's policy or a grant allows it"


def _limit(policy: KeyPolicy, access: str, bucket: str) -> str:
    """Return the limit of a key that refuses an access."""
    if not KeyPolicy(policy.kind).allows(access, bucket, None):
        return f"the policy {policy.kind} of the key does not include {access}"
    if not KeyPolicy(policy.kind, policy.bucketPattern).allows(access, bucket, None):
        return f"the key is limited to buckets that match {policy.bucketPattern}"
    return f"the key is limited to object keys that match {policy.prefixPattern}"
