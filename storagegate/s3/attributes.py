"""The header fields of writes that only S3 has: access control lists."""

from collections.abc import Mapping

from storagegate.objects.documents.fields import LOCK_FIELDS

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

WRITE_FIELDS = LIST_FIELDS | LOCK_FIELDS
"""The headers of a write that set the ACL and the lock of its object."""
