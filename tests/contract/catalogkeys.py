"""The catalog's contract: access keys and the store's secret."""

from attrs import evolve

from storagegate.storage.errors import KeyExists
from storagegate.storage.records import AccessKey
from tests.contract.catalogcase import CatalogCase

KEY = AccessKey("AK", "s" * 40, "bob", "readonly", "logs-*", "2024/*", "bob@example.org", 17)


class KeyContract(CatalogCase):
    """Access keys."""

    async def test_issuedKeyIsThere(self) -> None:
        """An issued key comes back as it was given, and changes the generation."""
        before = await self.catalog.keysGeneration()
        await self.catalog.addAccessKey(KEY)
        self.assertEqual((await self.catalog.accessKeys())[1], [KEY])
        self.assertNotEqual(await self.catalog.keysGeneration(), before)

    async def test_keyIsIssuedOnce(self) -> None:
        """An access key that is taken is refused, and nothing changes."""
        await self.catalog.addAccessKey(KEY)
        before = await self.catalog.keysGeneration()
        again = self.catalog.addAccessKey(evolve(KEY, account="eve"))
        await self.assertRefused(again, KeyExists)
        self.assertEqual((await self.catalog.accessKeys())[1], [KEY])
        self.assertEqual(await self.catalog.keysGeneration(), before)

    async def test_revokedKeyIsGone(self) -> None:
        """A revoked key is gone and changes the generation; a second time says it was not there."""
        await self.catalog.addAccessKey(KEY)
        before = await self.catalog.keysGeneration()
        self.assertIs(await self.catalog.removeAccessKey("AK"), True)
        after = await self.catalog.keysGeneration()
        self.assertIs(await self.catalog.removeAccessKey("AK"), False)
        self.assertEqual((await self.catalog.accessKeys())[1], [])
        self.assertNotEqual(after, before)
        self.assertEqual(await self.catalog.keysGeneration(), after)

    async def test_secret(self) -> None:
        """The store's secret is 32 bytes and stays the same."""
        self.assertEqual(len(self.catalog.secret()), 32)
        self.assertEqual(self.catalog.secret(), self.catalog.secret())
