"""The catalog's contract: the documents of accounts, and the keys that change with them."""

from attrs import evolve

from storagegate.storage.errors import IdentitiesChanged, KeyExists
from storagegate.storage.mutations import AddAccessKey, NoteKeyUses, PutIdentities
from storagegate.storage.records import AccessKey
from tests.contract.catalogcase import CatalogCase

KEY = AccessKey("UK", "s" * 40, "ann", userName="Eve", sessionPolicy='{"a": "ü"}')

EVE = ("user", "eve")
ALL = ("group", "all")


class IdentityContract(CatalogCase):
    """Users, groups, roles and policies."""

    async def test_documentsAreThere(self) -> None:
        """Documents and keys come back as they were given, with the generation as revision."""
        self.assertEqual(
            await self.catalog.identities(0), (await self.catalog.keysGeneration(), {})
        )
        put = PutIdentities("ann", 0, {EVE: b"{1}", ALL: b"\x00\xff"}, [KEY])
        revision = await self.catalog.commit(put)
        self.assertEqual(await self.catalog.keysGeneration(), revision)
        generation, found = await self.catalog.identities(0)
        self.assertEqual(generation, revision)
        self.assertEqual([*found], ["ann"])
        self.assertEqual(found["ann"].revision, revision)
        self.assertEqual(found["ann"].documents, {EVE: b"{1}", ALL: b"\x00\xff"})
        self.assertEqual(await self.catalog.accessKeys(), (revision, [KEY]))

    async def test_compareAndSet(self) -> None:
        """A change that was computed from another revision changes nothing."""
        first = await self.catalog.commit(PutIdentities("ann", 0, {EVE: b"1"}, [KEY]))
        before = await self.catalog.identities(0), await self.catalog.accessKeys()
        late = PutIdentities("ann", 0, {EVE: None}, [evolve(KEY, accessKey="K2")], [], ["UK"])
        await self.assertRefused(self.catalog.commit(late), IdentitiesChanged)
        self.assertEqual(
            (await self.catalog.identities(0), await self.catalog.accessKeys()), before
        )
        again = await self.catalog.commit(PutIdentities("ann", first, {EVE: None}))
        self.assertGreater(again, first)
        # Only another account is still at no revision.
        await self.catalog.commit(PutIdentities("bob", 0, {EVE: b"bob"}))

    async def test_changesSince(self) -> None:
        """Only accounts that have changed are read, whole, also if they have become empty."""
        ann = await self.catalog.commit(PutIdentities("ann", 0, {EVE: b"1", ALL: b"2"}))
        bob = await self.catalog.commit(PutIdentities("bob", 0, {EVE: b"3"}))
        _, found = await self.catalog.identities(ann)
        self.assertEqual(
            {name: each.documents for name, each in found.items()}, {"bob": {EVE: b"3"}}
        )
        self.assertEqual((await self.catalog.identities(bob))[1], {})
        gone = await self.catalog.commit(PutIdentities("ann", ann, {EVE: None, ALL: None}))
        _, found = await self.catalog.identities(bob)
        self.assertEqual((found["ann"].revision, found["ann"].documents), (gone, {}))

    async def test_keys(self) -> None:
        """Keys are issued, replaced and revoked with the documents, all or none."""
        await self.catalog.commit(AddAccessKey(evolve(KEY, accessKey="taken", account="bob")))
        second = evolve(KEY, accessKey="K2")
        first = await self.catalog.commit(PutIdentities("ann", 0, {}, [KEY, second]))
        await self.catalog.commit(NoteKeyUses({"UK": 7, "K2": 8}))
        before = await self.catalog.accessKeys()
        taken = evolve(KEY, accessKey="taken")
        refused = PutIdentities("ann", first, {EVE: b"1"}, [taken], [], ["UK"])
        await self.assertRefused(self.catalog.commit(refused), KeyExists)
        absent = PutIdentities("ann", first, {EVE: b"1"}, [], [evolve(KEY, accessKey="none")])
        await self.assertRefused(self.catalog.commit(absent), IdentitiesChanged)
        self.assertEqual(await self.catalog.accessKeys(), before)
        self.assertEqual((await self.catalog.identities(0))[1]["ann"].documents, {})
        changed = evolve(KEY, disabled=True, parent="key/K2")
        await self.catalog.commit(PutIdentities("ann", first, {}, [], [changed], ["K2", "none"]))
        _, keys = await self.catalog.accessKeys()
        self.assertEqual(
            {key.accessKey: key for key in keys if key.account == "ann"}, {"UK": changed}
        )
        self.assertEqual(await self.catalog.keyUses(), {"UK": 7})
