"""Calls that belong together."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.affinity import CookieSigner, Pins, chooseFor
from tests.support.balancing import Candidate

SECRET = b"a secret of the tests"


class ChooseForTests(SynchronousTestCase):
    """Keys and instances."""

    @given(st.text(), st.permutations("abcdef"))
    def test_sameEverywhere(self, key: str, order: list[str]) -> None:
        """The order in which instances are known does not matter."""
        first = chooseFor(key, [Candidate(id) for id in "abcdef"])
        self.assertEqual(chooseFor(key, [Candidate(id) for id in order]).id, first.id)

    def test_fewMove(self) -> None:
        """When an instance goes, the keys of the others stay where they are."""
        whole = [Candidate(id) for id in "abcd"]
        without = [each for each in whole if each.id != "c"]
        for key in map(str, range(300)):
            before = chooseFor(key, whole).id
            after = chooseFor(key, without).id
            self.assertTrue(after == before or before == "c", key)

    def test_weights(self) -> None:
        """An instance has its share of the keys."""
        candidates = [Candidate("a", 1), Candidate("b", 3)]
        found = Counter(chooseFor(str(key), candidates).id for key in range(4000))
        self.assertTrue(2800 < found["b"] < 3200, found)

    def test_long(self) -> None:
        """A key may be long, and what differs behind its beginning differs."""
        candidates = [Candidate(id) for id in "abcdefgh"]
        found = {chooseFor("x" * 100 + str(at), candidates).id for at in range(100)}
        self.assertEqual(len(found), 8)


class PinsTests(SynchronousTestCase):
    """Connections."""

    def test_stays(self) -> None:
        """A connection keeps its instance when others come."""
        few, many = [Candidate(id) for id in "ab"], [Candidate(id) for id in "abcdefgh"]
        pins = Pins()
        for key in map(str, range(50)):
            self.assertEqual(pins.choose(key, few).id, pins.choose(key, many).id)

    def test_moves(self) -> None:
        """When its instance is gone it moves, and does not come back."""
        a, b = Candidate("a"), Candidate("b")
        pins = Pins()
        first = pins.choose("key", [a, b])
        other = b if first is a else a
        self.assertIs(pins.choose("key", [other]), other)
        self.assertIs(pins.choose("key", [a, b]), other)

    def test_bounded(self) -> None:
        """The one that was silent longest is forgotten first."""
        few, many = [Candidate("a")], [Candidate(id) for id in "bcdefgh"]
        pins = Pins(limit=2)
        for key in ("one", "two", "one", "three"):
            pins.choose(key, few)
        everybody = [*few, *many]
        self.assertEqual(pins.choose("one", everybody).id, "a")
        self.assertEqual(pins.choose("three", everybody).id, "a")
        # Its place by the hash is another one.
        self.assertNotEqual(chooseFor("two", everybody).id, "a")
        self.assertEqual(pins.choose("two", everybody).id, chooseFor("two", everybody).id)


class SignerTests(SynchronousTestCase):
    """Cookies."""

    def test_find(self) -> None:
        """A cookie is good for the instance that it names."""
        candidates = [Candidate(id) for id in "abc"]
        signer = CookieSigner(SECRET, "Probe")
        self.assertIs(signer.find(signer.sign("b"), candidates), candidates[1])

    def test_gone(self) -> None:
        """When that is not there any more, for none."""
        signer = CookieSigner(SECRET, "Probe")
        self.assertIsNone(signer.find(signer.sign("d"), [Candidate(id) for id in "abc"]))

    def test_forged(self) -> None:
        """A signature of another secret or another service, or none, is refused."""
        candidates = [Candidate(id) for id in "abc"]
        signer = CookieSigner(SECRET, "Probe")
        for value in (
            CookieSigner(b"another", "Probe").sign("b"),
            CookieSigner(SECRET, "Other").sign("b"),
            signer.sign("b")[:-1],
            "b",
            "",
            "\ud800",
        ):
            self.assertIsNone(signer.find(value, candidates), value)

    def test_hides(self) -> None:
        """It contains no address."""
        self.assertNotIn("10.0.0.7", CookieSigner(SECRET, "Probe").sign("10.0.0.7:8080"))

    def test_names(self) -> None:
        """Every service has a cookie of its own, whose name is one."""
        names = {CookieSigner(SECRET, service).cookie for service in ("a", "b", "ä;=")}
        self.assertEqual(len(names), 3)
        for name in names:
            self.assertRegex(name, r"^storagegate-[0-9a-f]{8}$")
