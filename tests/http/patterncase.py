"""Assertions about patterns and many paths."""

import re
import time
from collections.abc import Callable

from twisted.trial.unittest import SynchronousTestCase

from storagegate.http.patterns import MalformedEscape, Params, Pattern, compilePattern

# A pattern that backtracks takes minutes for such a path, one that does not a hundredth of this.
SECONDS = 0.25


def lookAt(source: str | re.Pattern[str], path: str) -> Params | str | None:
    """Give the parameters of a path, C{malformed}, or C{None} if the pattern does not match."""
    found = compilePattern(source).match(path)
    if found is None:
        return None
    return "malformed" if isinstance(found[0], MalformedEscape) else found[0]


class PatternCase(SynchronousTestCase):
    """Assertions about many paths."""

    def matches(self, source: str | re.Pattern[str], expected: dict[str, object]) -> None:
        """Hold paths against a pattern."""
        self.assertEqual({path: lookAt(source, path) for path in expected}, expected)

    def takes(self, pattern: Pattern, expected: dict[str, int | None]) -> None:
        """Tell how much of paths a pattern takes."""
        found = {path: pattern.match(path) for path in expected}
        self.assertEqual({path: m and m[1] for path, m in found.items()}, expected)

    def quickly(self, function: Callable[[str], object], path: str) -> None:
        """Call a function with a path, which must not take long."""
        began = time.process_time()
        function(path)
        self.assertLess(time.process_time() - began, SECONDS, path[:40])
