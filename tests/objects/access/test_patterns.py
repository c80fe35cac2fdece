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

    @given(st.text("ab?", max_size=6), st.text("ab", max_size=60))
    def test_far(self, piece: str, text: str) -> None:
        """A piece with question marks is found far behind the first places that resemble it."""
        text = "aab" * 10 + text
        tokens = tokenise(f"*{piece}*b?", wildcards=True, variables=False)
        expected = matchesWild(wild(f"*{piece}*b?"), text)
        self.assertEqual(matcher(tokens)(text), expected)

    def test_long(self) -> None:
        """A piece is found in each block of a long text, and across two of them."""
        test = matcher(tokenise("*b?b*", wildcards=True, variables=False))
        size = 40_000
        for place in (0, 9, 16_381, 16_382, 16_383, 16_384, 16_385, 32_767, size - 3):
            lead = ("bbaa" * 4).ljust(place, "a")[:place]
            self.assertTrue(test(f"{lead}bab{'a' * (size - place)}"), place)
        self.assertFalse(test("bbaa" * (size // 4)))

    def test_questionMarks(self) -> None:
        """Pieces of question marks take no product of both lengths, and many of them no sum."""
        text = "b" + "a" * 15_000
        start = process_time()
        for piece in ("?a?b", "a?ab", "?a" * 30 + "b", "a?" * 600 + "b", "?a" * 4000 + "?b"):
            pattern = tokenise(f"*{piece}*", wildcards=True, variables=False)
            for _ in range(20_000 // len(piece)):
                self.assertFalse(matcher(pattern)(text))
        self.assertLess(process_time() - start, 1.5)

    def test_lengths(self) -> None:
        """Pieces of many lengths share the work on the longest text that a request can have."""
        text = "a" * 20_000
        start = process_time()
        for number in range(300):
            piece = f"a?{'a' * (number % 40)}b"
            pattern = tokenise(f"*{piece}*", wildcards=True, variables=False)
            self.assertFalse(matcher(pattern)(text))
        self.assertLess(process_time() - start, 0.5)

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
