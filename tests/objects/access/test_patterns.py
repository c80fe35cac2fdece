"""Patterns: against a plain matcher, and that their time follows the text."""

from time import process_time

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.access.patterns import ANY, Variable, derive, matcher, resolve, tokenise
from tests.objects.access.plain import matchesWild

PATTERNS = st.text("ab*?/", max_size=12)
TEXTS = st.text("ab/*", max_size=12)


def wild(pattern: str) -> list[str]:
    """Split a pattern for the plain matcher."""
    return [each * 2 if each in "*?" else each for each in pattern]


class PatternTests(SynchronousTestCase):
    """Wildcards, variables, derivatives."""

    @given(PATTERNS, TEXTS)
    def test_matches(self, pattern: str, text: str) -> None:
        """A pattern matches what the table of all prefixes says."""
        tokens = tokenise(pattern, wildcards=True, variables=False)
        self.assertEqual(matcher(tokens)(text), matchesWild(wild(pattern), text))

    @given(PATTERNS, TEXTS, TEXTS)
    def test_derives(self, pattern: str, begin: str, rest: str) -> None:
        """One of the derivatives matches the rest of a text if the pattern matches the whole."""
        found = derive(tokenise(pattern, wildcards=True, variables=False), begin)
        self.assertEqual(
            any(matcher(tokens)(rest) for tokens in found),
            matchesWild(wild(pattern), begin + rest),
        )

    def test_linear(self) -> None:
        """A pattern of many stars takes no time that grows faster than the text."""
        tokens = tokenise("*a?" * 2000 + "*b", wildcards=True, variables=False)
        start = process_time()
        self.assertFalse(matcher(tokens)("a" * 1024))
        self.assertFalse(
            matcher(tokenise("*a" * 20 + "b", wildcards=True, variables=False))("a" * 100_000)
        )
        self.assertLess(process_time() - start, 1.0)

    def test_variables(self) -> None:
        """A variable is taken literally, or its default; without a value there is no match."""
        tokens = tokenise("home/${aws:username}/*", wildcards=True, variables=True)
        self.assertEqual(tokens, ("home/", Variable("aws:username"), "/", ANY))
        found = resolve(tokens, lambda key: "a*")
        assert found is not None
        self.assertTrue(matcher(found)("home/a*/x"))
        self.assertFalse(matcher(found)("home/ab/x"))
        self.assertIsNone(resolve(tokens, lambda key: None))
        fallback = tokenise("${aws:username, 'none'}", wildcards=True, variables=True)
        self.assertEqual(resolve(fallback, lambda key: None), ("none",))

    def test_signs(self) -> None:
        """C{${*}} and its like are the signs themselves; an older version has no variables."""
        self.assertEqual(tokenise("${*}${?}${$}", wildcards=True, variables=True), ("*?$",))
        self.assertEqual(tokenise("${a}", wildcards=False, variables=False), ("${a}",))

    def test_malformed(self) -> None:
        """A variable without its brace or quotation marks is an error."""
        for text in ("${aws:username", "${aws:username, x}", "${aws:username,'}"):
            with self.assertRaises(ValueError):
                tokenise(text, wildcards=True, variables=True)
