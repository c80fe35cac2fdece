"""Key policies: kinds of access, bucket and key patterns."""

import re
import time
from fnmatch import translate

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.accounts import KeyPolicy, globMatcher


class GlobTests(SynchronousTestCase):
    """Patterns of C{*} and C{?}."""

    def test_starAndQuestionMark(self) -> None:
        """A star is any run, slashes too; a question mark is one character; all else is itself."""
        cases = [
            ("logs-*", "logs-2026", True),
            ("logs-*", "logs", False),
            ("a*a", "a", False),
            ("a*a", "aa", True),
            ("a/*/c", "a/b/x/c", True),
            ("?", "", False),
            ("?", "é", True),
            ("[ab]", "a", False),
            ("[ab]", "[ab]", True),
            ("a.c", "abc", False),
            ("*", "", True),
            ("**x", "yx", True),
            ("", "anything", True),
            ("a*b*c", "a\nb\nc", True),
        ]
        for pattern, text, expected in cases:
            self.assertIs(globMatcher(pattern)(text), expected, (pattern, text))

    @given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
    def test_agreesWithTheLibrary(self, pattern: str, text: str) -> None:
        """On patterns without brackets the answer is that of Python's own globs."""
        expected = pattern == "" or re.match(translate(pattern), text) is not None
        self.assertIs(globMatcher(pattern)(text), expected)

    def test_manyStars(self) -> None:
        """A pattern of many stars cannot be made to backtrack."""
        began = time.process_time()
        self.assertFalse(globMatcher("*a" * 30 + "*b")("a" * 1024))
        self.assertLess(time.process_time() - began, 1.0)


class KeyPolicyTests(SynchronousTestCase):
    """What a key may do."""

    def test_kinds(self) -> None:
        """Each policy grants its kinds of access and no other."""
        granted = {
            "readwrite": {"read", "write", "list", "admin"},
            "readonly": {"read", "list"},
            "writeonly": {"write"},
        }
        for kind, accesses in granted.items():
            for access in ("read", "write", "list", "admin"):
                allowed = KeyPolicy(kind).allows(access, "b", "k")
                self.assertIs(allowed, access in accesses, (kind, access))

    def test_patterns(self) -> None:
        """A bucket and a key pattern must both match; no key, no key pattern."""
        policy = KeyPolicy("readwrite", "team-*", "in/*")
        self.assertTrue(policy.allows("write", "team-a", "in/x"))
        self.assertFalse(policy.allows("write", "other", "in/x"))
        self.assertFalse(policy.allows("write", "team-a", "out/x"))
        self.assertTrue(policy.allows("read", "team-a", None))
        self.assertFalse(policy.allows("list", "team-a", ""))
        self.assertTrue(policy.allows("list", None, None))
        self.assertFalse(policy.allows("admin", "team-a", None))
        self.assertTrue(KeyPolicy("readwrite", "team-*").allows("admin", "team-a", None))

    def test_coversPrefix(self) -> None:
        """A list may be seen only if no key that it can hold escapes the pattern."""
        for pattern, prefix, covered in (
            ("", "", True),
            ("*", "", True),
            ("in/*", "in/", True),
            ("in/*", "in/a", True),
            ("in/*", "in", False),
            ("in/*", "", False),
            ("in/a", "in/a", False),
            ("*.txt", "a.txt", False),
            ("in/?", "in/a", False),
            ("*/in/*", "a/in/", True),
        ):
            policy = KeyPolicy(prefixPattern=pattern)
            self.assertIs(policy.coversPrefix(prefix), covered, (pattern, prefix))
