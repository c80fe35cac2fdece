"""Edits of one key at the same time: none undoes another."""

import os
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from storagegate.console.call import Principal
from storagegate.console.keys import KeyChange, NewKey, changeKey, createKey
from storagegate.console.users import changeIdentities
from storagegate.objects.accounts import AccessKeyStore, AccountKey, Identity
from storagegate.objects.domain import openDomain
from storagegate.storage.embedded.opening import openStore
from storagegate.storage.records import AccessKey

ROOT = AccountKey(Identity("AK", "root", isRoot=True), "secret")


class KeyEditTests(TestCase):
    """The key of an operator, which two requests change."""

    timeout = 60

    def setUp(self) -> Deferred[Any]:
        """Have a store with a key."""
        from twisted.internet import reactor

        directory = os.path.abspath(self.mktemp())
        self.store = openStore(directory, reactor, durability="os")
        self.addCleanup(lambda: Deferred.fromCoroutine(self.store.close()))
        accounts = AccessKeyStore(self.store.accessKeys, "AK", "secret")
        self.services: Any = SimpleNamespace(
            store=self.store,
            accounts=accounts,
            objects=openDomain(self.store, accounts, "us-east-1", lambda: 1.8e9),
            now=lambda: 1.8e9,
        )

        made = NewKey(account="a", accessKey="KEY", secretKey="secret-before")
        return Deferred.fromCoroutine(createKey(self.call(), made))

    def call(self, **params: str) -> Any:
        """Make a request of root."""
        principal = Principal(ROOT, None)
        return SimpleNamespace(
            services=self.services,
            who=principal,
            require=lambda role: None,
            note=lambda **values: None,
            params={"key": "KEY", **params},
            address="127.0.0.1",
            request=SimpleNamespace(secure=False),
        )

    async def together(self, *edits: Any) -> AccessKey:
        """Begin all edits before one of them is committed, and return the key after the last."""
        for each in [Deferred.fromCoroutine(edit) for edit in edits]:
            await each
        await self.store.accessKeys.refresh()
        return self.store.accessKeys.keys["KEY"]

    async def test_twoChanges(self) -> None:
        """A new secret and a note that come at the same time are both there afterwards."""
        key = await self.together(
            changeKey(self.call(), KeyChange(newSecret=True)),
            changeKey(self.call(), KeyChange(note="n")),
            changeKey(self.call(), KeyChange(disabled=True)),
        )
        self.assertNotEqual(key.secretKey, "secret-before")
        self.assertEqual((key.note, key.disabled), ("n", True))

    async def test_besideIAM(self) -> None:
        """A change by IAM and one of the console at the same time are both there afterwards."""
        body = {"account": "a", "userName": "KEY", "accessKeyId": "KEY", "status": "Inactive"}
        for isFirst in (True, False):
            edits = [
                changeIdentities(self.call(operation="UpdateAccessKey"), dict(body)),
                changeKey(self.call(), KeyChange(note="n")),
            ]
            key = await self.together(*(edits if isFirst else reversed(edits)))
            self.assertEqual((key.note, key.disabled), ("n", True), isFirst)
            await changeKey(self.call(), KeyChange(note="", disabled=False))
