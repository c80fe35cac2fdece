"""Sessions: the tokens of temporary keys, and what ends them."""

import json
from collections.abc import Mapping

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.context import AccessContext, PlainCaller
from storagegate.objects.accounts import AccessKeyStore, AccountKey
from storagegate.objects.errors import ExpiredToken, InvalidToken
from storagegate.objects.identities.entities import Entity, IAMUser, Role, encodeEntity
from storagegate.objects.identities.tokens import SessionToken, TokenCipher
from storagegate.storage.accesskeys import KEYS_POLL_SECONDS, AccessKeySnapshot
from storagegate.storage.errors import StoreBusy
from storagegate.storage.records import AccessKey, AccountDocuments
from tests.objects.test_accounts_credentials import Issued

SESSION = SessionToken(
    accessKey="ASIA2", account="a", issuedMs=1, expiresMs=2, key="K", policy="{}"
)


def policy(*actions: str) -> str:
    """Return a policy that allows actions on everything."""
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


class TokenTests(SynchronousTestCase):
    """The seal of a token."""

    cipher = TokenCipher(b"s" * 32)

    def test_roundTrip(self) -> None:
        """A token holds its session, and two tokens of one session differ."""
        tokens = {self.cipher.seal(SESSION) for _ in range(3)}
        self.assertEqual(len(tokens), 3)
        for token in tokens:
            self.assertEqual(self.cipher.open(token), SESSION)
            self.assertNotIn("ASIA", token)

    @given(st.data())
    def test_mutations(self, data: st.DataObject) -> None:
        """Every change of a token is refused: characters replaced, removed and added."""
        token = self.cipher.seal(SESSION)
        start = data.draw(st.integers(0, len(token)))
        end = data.draw(st.integers(start, min(len(token), start + 3)))
        other = data.draw(st.text("ABCDwxyz0189-_=+/ \n", max_size=3) | st.text(max_size=2))
        changed = token[:start] + other + token[end:]
        if changed != token:
            with self.assertRaises(InvalidToken):
                self.cipher.open(changed)

    def test_everyBit(self) -> None:
        """Each character in place of each other at the end, where Base64 has spare bits."""
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        for session in (SESSION, replace(SESSION, key="KK"), replace(SESSION, key="KKK")):
            token = self.cipher.seal(session)
            for place in (0, 1, 17, len(token) - 1):
                for other in alphabet.replace(token[place], ""):
                    changed = token[:place] + other + token[place + 1 :]
                    with self.assertRaises(InvalidToken):
                        self.cipher.open(changed)

    def test_otherStore(self) -> None:
        """A token of another store is refused, and its secrets differ."""
        other = TokenCipher(b"t" * 32)
        with self.assertRaises(InvalidToken):
            self.cipher.open(other.seal(SESSION))
        self.assertNotEqual(self.cipher.secretKey("ASIA2"), other.secretKey("ASIA2"))

    def test_tooLong(self) -> None:
        """A text that is too long is not decoded."""
        with self.assertRaises(InvalidToken):
            self.cipher.open("A" * 100_000)


class Identities(Issued):
    """A catalog with keys and entities."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: dict[str, AccountDocuments] = {}

    async def identities(self, after: int) -> tuple[int, Mapping[str, AccountDocuments]]:
        """As ICatalog says."""
        return self.generation, dict(self.documents)

    def put(self, *entities: Entity, account: str = "ada") -> None:
        """Replace the entities of an account."""
        self.generation += 1
        self.documents[account] = AccountDocuments(
            self.generation, {(each.kind, each.key): encodeEntity(each) for each in entities}
        )


ANN = IAMUser(name="Ann", id="AIDA1", policies={"p": policy("s3:Get*")}, tags={"team": "blue"})
OPS = Role(
    name="Ops", id="AROA1", path="/x/", policies={"p": policy("s3:*")}, tags={"a": "1", "b": "2"}
)


class SessionCase(SynchronousTestCase):
    """Sessions of the keys and roles of an account."""

    def setUp(self) -> None:
        """Make a user, its key, a key of an operator, service keys and a role."""
        self.clock, self.catalog, self.now = Clock(), Identities(), 1000.0
        self.catalog.keys = [
            AccessKey("UK", "su", "ada", userName="ann"),
            AccessKey("OK", "so", "ada", "readonly", "b*"),
            AccessKey("SK", "ss", "ada", parent="user/ann", sessionPolicy=policy("s3:GetObject")),
            AccessKey("RK", "sr", "root", parent="key/ROOT"),
        ]
        self.catalog.put(ANN, OPS)
        keys = AccessKeySnapshot(self.catalog, self.clock)
        self.accounts = AccessKeyStore(keys, "ROOT", "rootsecret", lambda: self.now)
        keys.start()
        self.sessions = self.accounts.sessions

    def poll(self) -> None:
        """Let the store notice a change."""
        self.clock.advance(KEYS_POLL_SECONDS)

    def open(self, key: str, policy: str = "") -> tuple[str, str]:
        """Make a session of a key; return its access key and token."""
        maker = self.accounts.find(key)
        assert maker is not None
        made = self.sessions.issue(maker.identity.account, 900, maker, policy=policy)
        return made.session.accessKey, made.token

    def openRole(self, policy: str = "") -> tuple[str, str]:
        """Make a session of the role."""
        made = self.sessions.issue("ada", 900, role=OPS, name="s", policy=policy, tags={"b": "3"})
        return made.session.accessKey, made.token

    def may(self, found: AccountKey, action: str) -> bool:
        """Return whether the policies of a session allow an action."""
        identity = found.identity
        assert identity.rights is not None
        context = AccessContext(identity, PlainCaller(identity, "X"), "b", "k", "ada", "X")
        return identity.rights.evaluate(action, context) is True


class RightsTests(SessionCase):
    """The rights of a session."""

    def test_user(self) -> None:
        """A session has the rights of its key and of its own policy, and no role."""
        found = self.sessions.find(*self.open("UK"))
        self.assertEqual(found.role, "none")
        self.assertEqual(found.identity.principal, "Ann")
        self.assertTrue(self.may(found, "s3:GetObject"))
        self.assertFalse(self.may(found, "s3:PutObject"))
        narrow = self.sessions.find(*self.open("UK", policy("s3:GetObjectTagging", "s3:Put*")))
        self.assertFalse(self.may(narrow, "s3:GetObject"))
        self.assertFalse(self.may(narrow, "s3:PutObject"))
        self.assertTrue(self.may(narrow, "s3:GetObjectTagging"))

    def test_serviceKey(self) -> None:
        """A session of a service key is bound by the policy of the key."""
        found = self.sessions.find(*self.open("SK", policy("s3:*")))
        self.assertTrue(self.may(found, "s3:GetObject"))
        self.assertFalse(self.may(found, "s3:GetObjectTagging"))

    def test_limitedKey(self) -> None:
        """A session keeps the limits of the key of an operator, and its administration role."""
        found = self.sessions.find(*self.open("OK"))
        self.assertFalse(found.identity.policy.allows("write", "b1", None))
        self.assertFalse(found.identity.policy.allows("read", "c", None))
        self.assertFalse(found.identity.isRoot)

    def test_root(self) -> None:
        """A session of the root pair is never the root pair itself."""
        for key in ("ROOT", "RK"):
            found = self.sessions.find(*self.open(key, policy("s3:GetObject")))
            assert found.identity.rights is not None
            self.assertFalse(found.identity.isRoot)
            self.assertTrue(found.identity.rights.isRoot)
            self.assertEqual(found.role, "none")
            self.assertFalse(self.may(found, "s3:PutObject"))

    def test_role(self) -> None:
        """A session of a role has its rights; tags of the session win over those of the role."""
        found = self.sessions.find(*self.openRole())
        rights = found.identity.rights
        assert rights is not None
        self.assertEqual(dict(rights.tags), {"a": "1", "b": "3"})
        self.assertTrue(self.may(found, "s3:PutObject"))
        self.assertFalse(self.may(found, "iam:GetUser"))
        narrow = self.sessions.find(*self.openRole(policy("s3:Get*")))
        self.assertFalse(self.may(narrow, "s3:PutObject"))

    def test_changedPolicy(self) -> None:
        """A session has the rights that its user and its role have now."""
        user, role = self.open("UK"), self.openRole()
        self.assertTrue(self.may(self.sessions.find(*user), "s3:GetObject"))
        self.assertTrue(self.may(self.sessions.find(*role), "s3:GetObject"))
        self.catalog.put(replace(ANN, policies={}), replace(OPS, policies={}))
        self.poll()
        self.assertFalse(self.may(self.sessions.find(*user), "s3:GetObject"))
        self.assertFalse(self.may(self.sessions.find(*role), "s3:GetObject"))


class EndTests(SessionCase):
    """The end of a session, also of one that is in use."""

    def assertEnds(self, session: tuple[str, str]) -> None:
        """Check that a session has ended, in use or just opened."""
        with self.assertRaises(InvalidToken):
            self.sessions.find(*session)
        fresh = AccessKeyStore(self.accounts._keys, "ROOT", "rootsecret", lambda: self.now)
        with self.assertRaises(InvalidToken):
            fresh.sessions.find(*session)

    def test_expiry(self) -> None:
        """A session ends at its expiry."""
        session = self.open("UK")
        self.now += 899
        self.sessions.find(*session)
        self.now += 1
        with self.assertRaises(ExpiredToken):
            self.sessions.find(*session)

    def test_clockAhead(self) -> None:
        """A session of a clock that ran ahead ends when the clock is put right."""
        self.now += 86_400
        sessions = [self.open("UK"), self.openRole()]
        self.now -= 86_400
        self.catalog.put(
            replace(ANN, revokedBeforeMs=int(self.now * 1000)),
            replace(OPS, revokedBeforeMs=int(self.now * 1000)),
        )
        self.poll()
        for each in sessions:
            self.assertEnds(each)
        # The clocks of nodes differ by less.
        session = self.open("UK")
        self.now -= 600
        self.sessions.find(*session)

    def test_otherKey(self) -> None:
        """A token belongs to one temporary key."""
        one, other = self.open("UK"), self.open("UK")
        self.sessions.find(*one)
        with self.assertRaises(InvalidToken):
            self.sessions.find(other[0], one[1])

    def test_keys(self) -> None:
        """A session ends with its key: deleted, disabled, expired, or with another secret."""
        row = self.catalog.keys[0]
        for changed in (None, evolve(row, disabled=True), evolve(row, secretKey="x")):
            self.catalog.keys[0] = row
            self.catalog.generation += 1
            self.poll()
            session = self.open("UK")
            self.sessions.find(*session)
            self.catalog.keys[:1] = [changed] if changed else [AccessKey("Z", "z", "ada")]
            self.catalog.generation += 1
            self.poll()
            self.assertEnds(session)

    def test_user(self) -> None:
        """The sessions of a user, and of its service keys, end with it."""
        for gone in (
            (),
            (replace(ANN, disabled=True),),
            (replace(ANN, revokedBeforeMs=1_000_001),),
        ):
            self.catalog.put(ANN)
            self.poll()
            sessions = self.open("UK"), self.open("SK")
            for each in sessions:
                self.sessions.find(*each)
            self.catalog.put(*gone)
            self.poll()
            for each in sessions:
                self.assertEnds(each)

    def test_role(self) -> None:
        """The sessions of a role end with it, also if a new role has its name."""
        for gone in ((), (replace(OPS, id="AROA2"),), (replace(OPS, revokedBeforeMs=1_000_001),)):
            self.catalog.put(ANN, OPS)
            self.poll()
            session = self.openRole()
            self.sessions.find(*session)
            self.catalog.put(ANN, *gone)
            self.poll()
            self.assertEnds(session)

    def test_afterRevocation(self) -> None:
        """A session that begins after the revocation lasts."""
        self.catalog.put(replace(ANN, revokedBeforeMs=1_000_000), replace(OPS, revokedBeforeMs=1))
        self.poll()
        self.sessions.find(*self.open("UK"))
        self.sessions.find(*self.openRole())

    def test_rootPair(self) -> None:
        """The sessions of the root pair end with its secret."""
        session = self.open("ROOT")
        self.sessions.find(*session)
        self.accounts.setRoot("ROOT", "other")
        with self.assertRaises(InvalidToken):
            self.sessions.find(*session)

    def test_doubt(self) -> None:
        """No session is served while the keys cannot be read."""
        sessions = self.open("UK"), self.openRole()
        self.catalog.error = OSError("gone")
        self.poll()
        self.flushLoggedErrors()
        for each in sessions:
            with self.assertRaises(StoreBusy):
                self.sessions.find(*each)
