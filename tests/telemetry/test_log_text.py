"""Text of others does no harm in a log."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.log import escapeField, escapeLine, escapeMessage


class EscapeTests(SynchronousTestCase):
    """One thing is one line, and speaks to no terminal."""

    def test_controls(self) -> None:
        """Every control character is escaped, and so are the quotes that end a field."""
        self.assertEqual(
            escapeField('a\r\n\t\x1b[31m\x00\x7f\x85\x9b\u2028\u2029"\\b'),
            'a\\r\\n\\t\\u001b[31m\\u0000\\u007f\\u0085\\u009b\\u2028\\u2029\\"\\\\b',
        )

    @given(st.text(st.characters()))
    def test_anyText(self, text: str) -> None:
        """Whatever is written is one line that can be printed and encoded."""
        for escape in (escapeField, escapeLine, escapeMessage):
            escaped = escape(text)
            self.assertLess(len(escaped.splitlines()), 2)
            self.assertFalse(any(c < " " or "\x7f" <= c <= "\x9f" for c in escaped))
            escaped.encode()

    def test_message(self) -> None:
        """A message may have quotes, and nothing for a terminal."""
        self.assertEqual(escapeMessage('"a" \\ \x1b[1m\n'), '"a" \\ \\u001b[1m\\n')

    def test_colours(self) -> None:
        """A line of one's own may have colours, and nothing else for a terminal."""
        self.assertEqual(escapeLine('\x1b[1;31m"a"\x1b[0m'), '\x1b[1;31m"a"\x1b[0m')
        self.assertEqual(escapeLine("\x1b[2J\x1b]0;a\x07\n"), "\\u001b[2J\\u001b]0;a\\u0007\\n")
