"""
Who may come in: the root pair of the configuration and the keys that the operator issued.

Issued keys live in the catalog, where another process adds and removes them; a running daemon
looks at the catalog's generation number at most twice a second and so obeys within a second.
"""

import hmac

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime

from storagegate.s3.policies import FULL_ACCESS, KeyPolicy
from storagegate.storage.interfaces import ICatalog
from storagegate.storage.records import AccessKey

REFRESH_SECONDS = 0.5
"""Half of the second within which a revoked key must stop working."""

ROOT_ACCOUNT = "root"
"""The account of the root pair: it owns what it creates and may act on everything."""


@frozen
class Identity:
    """
    On whose behalf a request acts.

    @ivar account: The account that owns what is created.
    @ivar isRoot: Whether buckets of other accounts are open too.
    """

    accessKey: str
    account: str
    policy: KeyPolicy = FULL_ACCESS
    isRoot: bool = False


@frozen
class Credential:
    """A secret and the identity that it proves."""

    identity: Identity
    secretKey: str = field(repr=False)


def _credentialOf(key: AccessKey) -> Credential:
    policy = KeyPolicy(key.policy, key.bucketPattern, key.prefixPattern)
    return Credential(Identity(key.accessKey, key.account, policy), key.secretKey)


class Credentials:
    """Find the credential of an access key. Reactor thread."""

    def __init__(
        self, catalog: ICatalog, clock: IReactorTime, rootAccessKey: str, rootSecretKey: str
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._generation = -1
        self._checkAt = 0.0
        self._issued: dict[str, Credential] = {}
        self.setRoot(rootAccessKey, rootSecretKey)

    def setRoot(self, accessKey: str, secretKey: str) -> None:
        """Exchange the root pair, at once."""
        identity = Identity(accessKey, ROOT_ACCOUNT, isRoot=True)
        self._root = Credential(identity, secretKey)

    def find(self, accessKey: str) -> Credential | None:
        """Look an access key up; the root pair wins over an issued key of the same name."""
        if accessKey == self._root.identity.accessKey:
            return self._root
        now = self._clock.seconds()
        if now >= self._checkAt:
            self._refresh()
            self._checkAt = now + REFRESH_SECONDS
        return self._issued.get(accessKey)

    def prove(self, accessKey: str, secretKey: bytes) -> Identity | None:
        """Give the identity of a whole key pair; how long it takes tells nothing of the secret."""
        credential = self.find(accessKey)
        # An unknown key is compared too: its refusal takes as long as a wrong secret's.
        expected = credential.secretKey.encode() if credential is not None else b"\0"
        matches = hmac.compare_digest(secretKey, expected)
        return credential.identity if credential is not None and matches else None

    def _refresh(self) -> None:
        generation = self._catalog.keysGeneration()
        if generation != self._generation:
            keys = self._catalog.accessKeys()
            self._issued = {key.accessKey: _credentialOf(key) for key in keys}
            self._generation = generation
