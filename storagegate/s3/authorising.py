"""What the policy of a key says to an operation."""

from storagegate.s3.errors import S3Error
from storagegate.s3.operation import Operation
from storagegate.s3.policies import KeyPolicy

_LISTS = frozenset({"ListObjects", "ListObjectsV2", "ListObjectVersions", "ListMultipartUploads"})


def authorise(policy: KeyPolicy, access: str, bucket: str, key: bytes | None) -> None:
    """
    Ask a policy for one access.

    @param bucket: Empty for the service itself.
    @raise S3Error: C{AccessDenied}.
    """
    name = key.decode("utf-8", "replace") if key is not None else None
    if not policy.allows(access, bucket or None, name):
        raise S3Error("AccessDenied")


def authoriseOperation(
    policy: KeyPolicy, operation: Operation, bucket: str, key: bytes, prefix: str = ""
) -> None:
    """
    Ask a policy for what an operation does.

    A list is asked for by its prefix; what names several objects judges each of them itself.

    @param key: Empty where the bucket or the service is addressed.
    @param prefix: What a list is asked for by.
    @raise S3Error: C{AccessDenied}.
    """
    named: bytes | None = key or None
    if not key and operation.name in _LISTS:
        named = prefix.encode()
        if not policy.coversPrefix(prefix):
            raise S3Error("AccessDenied")
    authorise(policy, operation.access.value, bucket, named)
