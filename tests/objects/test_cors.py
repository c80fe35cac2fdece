"""Rules of cross-origin access: which rule is found."""

from hypothesis import given
from hypothesis.strategies import lists, sampled_from, text
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.cors import CORSRule, findRule


class FindTests(SynchronousTestCase):
    """The first rule that matches decides."""

    rules = (
        CORSRule(("https://a.example",), ("PUT",), ("content-*", "X-Amz-Date"), ("ETag",), 60),
        CORSRule(("http://*.example",), ("GET", "HEAD"), ("*",)),
        CORSRule(("*",), ("GET",)),
    )

    def find(self, origin: str, method: str, requested: str = "") -> int | None:
        """Return the position of the rule."""
        names = [name for name in requested.split(",") if name]
        found = findRule(self.rules, origin, method, names)
        return None if found is None else self.rules.index(found)

    def test_origins(self) -> None:
        """Whole origins, as they are written, but for one wildcard."""
        self.assertEqual(self.find("https://a.example", "PUT"), 0)
        self.assertEqual(self.find("https://A.example", "PUT"), None)
        self.assertEqual(self.find("http://a.b.example", "GET"), 1)
        self.assertEqual(self.find("http://.example", "GET"), 1)
        self.assertEqual(self.find("http://example", "GET"), 2)
        self.assertEqual(self.find("http://example", "HEAD"), None)

    def test_headers(self) -> None:
        """All fields that are asked for must be allowed, in any case."""
        self.assertEqual(self.find("https://a.example", "PUT", "content-md5,x-amz-date"), 0)
        self.assertEqual(self.find("https://a.example", "PUT", "content-md5,x-other"), None)
        self.assertEqual(self.find("http://x.example", "GET", "anything"), 1)
        self.assertEqual(self.find("http://other", "GET", "anything"), None)

    @given(lists(sampled_from("ab*"), max_size=4).map("".join), text("ab", max_size=6))
    def test_wildcard(self, pattern: str, origin: str) -> None:
        """The wildcard stands for any characters, also for none."""
        if pattern.count("*") > 1:
            return
        found = findRule([CORSRule((pattern,), ("GET",))], origin, "GET")
        splits = [
            origin[:i] + "*" + origin[j:]
            for i in range(len(origin) + 1)
            for j in range(i, len(origin) + 1)
        ]
        self.assertEqual(found is not None, pattern in [origin, *splits])
