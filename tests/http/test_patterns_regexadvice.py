"""The warning about regular expressions."""

import re
import warnings

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.patterns import compilePattern


class RegexAdviceTests(SynchronousTestCase):
    """Expressions that are registered."""

    def test_nested(self) -> None:
        """A repeated repetition gets a warning; what only looks like one does not."""
        for source, risky in (
            ("(a+)+$", True),
            ("^/([a-z]+)*$", True),
            (r"(?:\w+\s?)*x", True),
            ("((a+))+", True),
            ("(?P<n>a*)+?", True),
            ("(a+|b)*", True),
            ("(a{2,}){3,}", True),
            ("(/a+)+", False),
            ("(a+)", False),
            ("(a+)?", False),
            ("(a+)++", False),
            ("(a++)+", False),
            ("(a?)+", False),
            ("(ab)+", False),
            (r"\(a+\)+", False),
            ("[(a+)]+", False),
            ("(?=a+)b+", False),
            ("(a+){2}", False),
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                compilePattern(re.compile(source))
            self.assertEqual(len(caught), risky, source)
            for warning in caught:
                self.assertIn(repr(source), str(warning.message))
