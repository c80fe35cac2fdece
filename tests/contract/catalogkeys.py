"""The catalog's contract: access keys and the store's secret."""

from attrs import evolve

from storagegate.storage.errors import KeyExists
from storagegate.storage.mutations import (
    AddAccessKey,
    ChangeAccessKey,
    NoteKeyUses,
    RemoveAccessKey,
)
from storagegate.storage.records import AccessKey
from tests.contract.catalogcase import CatalogCase

KEY = AccessKey(
    "AK",
    "s" * 40,
    "bob",
    "readonly",
    "logs-*",
    "2024/*",
    "bob@example.org",
    17,
    "auditor",
    1 << 41,
    True,
    '\'a "note" with ü',
)


class KeyContract(CatalogCase):
    """Access keys."""

    async def test_issuedKeyIsThere(self) -> None:
        """An issued key comes back as it was given, and changes the generation."""
        before = await self.catalog.keysGeneration()
        await self.catalog.commit(AddAccessKey(KEY))
        self.assertEqual((await self.catalog.accessKeys())[1], [KEY])
        self.assertNotEqual(await self.catalog.keysGeneration(), before)

    async def test_keyIsIssuedOnce(self) -> None:
        """An access key that is taken is refused, and nothing changes."""
        await self.catalog.commit(AddAccessKey(KEY))
        before = await self.catalog.keysGeneration()
        again = self.catalog.commit(AddAccessKey(evolve(KEY, account="eve")))
        await self.assertRefused(again, KeyExists)
        self.assertEqual((await self.catalog.accessKeys())[1], [KEY])
        self.assertEqual(await self.catalog.keysGeneration(), before)

    async def test_revokedKeyIsGone(self) -> None:
        """A revoked key is gone and changes the generation; a second time says it was not there."""
        await self.catalog.commit(AddAccessKey(KEY))
        before = await self.catalog.keysGeneration()
        self.assertIs(await self.catalog.commit(RemoveAccessKey("AK")), True)
        after = await self.catalog.keysGeneration()
        self.assertIs(await self.catalog.commit(RemoveAccessKey("AK")), False)
        self.assertEqual((await self.catalog.accessKeys())[1], [])
        self.assertNotEqual(after, before)
        self.assertEqual(await self.catalog.keysGeneration(), after)

    async def test_changedKey(self) -> None:
        """A key is replaced as a whole, and the generation changes; none is made."""
        await self.catalog.commit(AddAccessKey(KEY))
        before = await self.catalog.keysGeneration()
        changed = evolve(KEY, secretKey="t" * 40, role="admin", expiresMs=0, disabled=False)
        self.assertIs(await self.catalog.commit(ChangeAccessKey(changed)), True)
        after, keys = await self.catalog.accessKeys()
        self.assertEqual(keys, [changed])
        self.assertNotEqual(after, before)
        absent = evolve(KEY, accessKey="BK")
        self.assertIs(await self.catalog.commit(ChangeAccessKey(absent)), False)
        self.assertEqual(await self.catalog.accessKeys(), (after, [changed]))

    async def test_keyUses(self) -> None:
        """The last use of a key never goes back, and goes with the key; its generation stays."""
        await self.catalog.commit(AddAccessKey(KEY))
        await self.catalog.commit(AddAccessKey(evolve(KEY, accessKey="BK")))
        before = await self.catalog.keysGeneration()
        self.assertEqual(await self.catalog.keyUses(), {})
        await self.catalog.commit(NoteKeyUses({"AK": 20, "BK": 5, "gone": 7}))
        await self.catalog.commit(NoteKeyUses({"AK": 19, "BK": 6}))
        self.assertEqual(await self.catalog.keyUses(), {"AK": 20, "BK": 6})
        await self.catalog.commit(NoteKeyUses({}))
        self.assertEqual(await self.catalog.keysGeneration(), before)
        await self.catalog.commit(ChangeAccessKey(evolve(KEY, note="")))
        self.assertEqual((await self.catalog.keyUses())["AK"], 20)
        await self.catalog.commit(RemoveAccessKey("AK"))
        self.assertEqual(await self.catalog.keyUses(), {"BK": 6})

    async def test_secret(self) -> None:
        """The store's secret is 32 bytes and stays the same."""
        self.assertEqual(len(self.catalog.secret()), 32)
        self.assertEqual(self.catalog.secret(), self.catalog.secret())
