"""New keys of removed accounts and users that buckets still name."""

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.errors import ServiceError
from storagegate.objects.access.acl import (
    ALL_USERS,
    FULL_CONTROL,
    AccessControlList,
    Grant,
    encodeList,
)
from storagegate.objects.access.reuse import checkReuse, checkReuseNow
from storagegate.objects.accounts import canonicalId
from storagegate.storage.errors import NoSuchBucket
from storagegate.storage.records import AccessKey, Bucket


def policy(**principal: Any) -> dict[str, bytes]:
    """Return the settings of a bucket with a policy; the second statement has the principal."""
    action = {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*", "Effect": "Deny"}
    statements = [{**action, "Principal": "*"}, {**action, **principal}]
    return {"policy": json.dumps({"Statement": statements}).encode(), "cors": b"[]"}


def acl(*grantees: str) -> dict[str, bytes]:
    """Return the settings of a bucket with grants besides the owner's."""
    grants = [Grant(canonicalId("ann"), FULL_CONTROL), *(Grant(each, "READ") for each in grantees)]
    text = encodeList(AccessControlList(tuple(grants)), "ann")
    assert text is not None
    return {"acl": text.encode()}


def key(account: str, accessKey: str = "K", **fields: Any) -> AccessKey:
    """Make a key."""
    return AccessKey(accessKey, "secret", account, **fields)


class Catalog:
    """Buckets of ann with settings; one goes away after it was listed."""

    def __init__(self, settings: dict[str, dict[str, bytes]]) -> None:
        self._settings = settings

    async def buckets(self, account: None, prefix: str, after: str, limit: int) -> list[Bucket]:
        """List some."""
        assert account is None
        names = sorted(each for each in self._settings if each > after)[:limit]
        made = {name: 1 if self._settings[name] else 0 for name in names}
        return [Bucket(name, "ann", 0, "", generation=made[name]) for name in names]

    async def settings(self, bucket: str) -> tuple[int, dict[str, bytes]]:
        """Read those of one."""
        if bucket == "gone":
            raise NoSuchBucket
        assert self._settings[bucket], "it has none"
        return 1, self._settings[bucket]


class ReuseTests(SynchronousTestCase):
    """The rule, and the search."""

    def found(
        self, documents: dict[str, bytes], new: AccessKey, *keys: AccessKey, owner: str = "ann"
    ) -> bool:
        """Return whether a key is refused by both forms of the rule."""
        bucket = Bucket("b", owner, 0, "", generation=1)
        try:
            checkReuseNow([(bucket, documents)], new, keys)
        except ServiceError as error:
            self.assertEqual((error.code, error.statusCode), ("FAILED_PRECONDITION", 409))
            self.assertEqual(error.details, {"buckets": ["b"]})
            return True
        return False

    def test_accounts(self) -> None:
        """An account without keys is refused if any statement or grant names it, in any form."""
        bob = canonicalId("bob")
        for documents in (
            policy(Principal={"AWS": "bob"}),
            policy(Principal={"AWS": ["eve", "arn:aws:iam::bob:root"]}),
            policy(NotPrincipal={"AWS": "arn:aws:iam::bob:root"}),
            policy(Principal={"CanonicalUser": bob}),
            acl(bob),
            policy(Principal="*") | acl(ALL_USERS, bob),
        ):
            self.assertTrue(self.found(documents, key("bob")), documents)
            self.assertFalse(self.found(documents, key("bo")), documents)
            self.assertFalse(self.found(documents, key("root")), documents)
            for stored in (
                key("bob", "L"),
                key("bob", "L", disabled=True),
                key("bob", "L", expiresMs=1),
            ):
                self.assertFalse(self.found(documents, key("bob"), stored), documents)
            # The catalog refuses a key whose name is taken.
            self.assertFalse(self.found(documents, key("bob"), key("eve")), documents)
        for documents in (policy(Principal="*"), acl(ALL_USERS), {}, {"cors": b"[]"}):
            self.assertFalse(self.found(documents, key("bob")), documents)

    def test_users(self) -> None:
        """A removed user that is named is refused, whatever other keys its account has."""
        for principal in ({"Principal": {"AWS": 0}}, {"NotPrincipal": {"AWS": 0}}):
            for account in ("bob", "root"):
                named: Any = {name: {"AWS": f"arn:aws:iam::{account}:user/K"} for name in principal}
                documents = policy(**named)
                self.assertTrue(self.found(documents, key(account), key(account, "L")))
                self.assertTrue(self.found(documents, key(account)))
                self.assertFalse(self.found(documents, key(account, "L")))
                self.assertFalse(self.found(documents, key("eve")))

    def test_owner(self) -> None:
        """The owner's own grant, which every ACL has, refuses nothing; its policy does."""
        self.assertFalse(self.found(acl(ALL_USERS), key("ann")))
        self.assertTrue(self.found(acl(ALL_USERS), key("ann"), owner="eve"))
        self.assertTrue(self.found(policy(Principal={"AWS": "ann"}), key("ann")))

    def test_search(self) -> None:
        """All buckets are searched, page by page; an error names ten of them."""
        named = policy(Principal={"AWS": "bob"})
        for count, more in ((1, ""), (9, ""), (10, " and possibly others"), (30, " and possibly")):
            settings: dict[str, dict[str, bytes]] = {f"plain-{n:03d}": {} for n in range(99)}
            settings |= {"gone": named, "other": policy(Principal="*")}
            settings |= {f"z{n:03d}": named for n in range(count)}
            catalog: Any = Catalog(settings)
            refused = checkReuse(catalog, key("bob"), [key("eve", "L")])
            with self.assertRaises(ServiceError) as caught:
                refused.send(None)
            shown = [f"z{n:03d}" for n in range(min(count, 10))]
            self.assertEqual(caught.exception.details, {"buckets": shown})
            text = f"The removed account bob is still named in a policy or an ACL of: {shown[0]}"
            self.assertTrue(caught.exception.message.startswith(text))
            self.assertEqual(more in caught.exception.message, True)
            self.assertEqual("others" in caught.exception.message, bool(more))
            with self.assertRaises(StopIteration):
                checkReuse(catalog, key("eve", "M"), [key("eve", "L")]).send(None)
