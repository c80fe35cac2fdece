"""The header fields of writes that only S3 has: access control lists and encryption."""

from collections.abc import Mapping

from storagegate.objects.documents.fields import LOCK_FIELDS
from storagegate.s3.encryption import ENCRYPTION_FIELDS

GRANT_HEADERS: Mapping[bytes, str] = {
    b"x-amz-grant-read": "READ",
    b"x-amz-grant-write": "WRITE",
    b"x-amz-grant-read-acp": "READ_ACP",
    b"x-amz-grant-write-acp": "WRITE_ACP",
    b"x-amz-grant-full-control": "FULL_CONTROL",
}
"""The headers with grants, by lower-case name, with their permissions."""

LIST_FIELDS = frozenset({b"x-amz-acl", *GRANT_HEADERS})
"""The headers that name an access control list."""

WRITE_FIELDS = LIST_FIELDS | LOCK_FIELDS | ENCRYPTION_FIELDS
"""The headers of a write that set the ACL, the lock and the encryption of its object."""
