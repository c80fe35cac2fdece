"""Lines that are made of values."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.telemetry.log import TimeStamps, asJSON, asText

# Everything that ends a line somewhere, speaks to a terminal, or is in no encoding.
FORGED = "a\nb\r\x1b[31m\x00\x7f\x85\u2028\u2029\ud800\udc80"

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")

anyText = st.text(st.characters(exclude_categories=()))


class LineTests(SynchronousTestCase):
    """Both forms."""

    def test_json(self) -> None:
        """A line of JSON is an object, numbers are numbers, and others read the same text."""
        values: dict[str, Any] = {"method": "gr\u00fc\u00dfe", "duration": 1.5, "bytes_in": 3}
        self.assertEqual(json.loads(asJSON(values)), values)

    def test_text(self) -> None:
        """A line of text is name=value, with quotes where they are needed."""
        values = {"method": "get", "agent": 'a "b"', "none": "", "n": 1.5, "eq": "a=b"}
        self.assertEqual(asText(values), rb'method=get agent="a \"b\"" none="" n=1.5 eq="a=b"')

    def test_forged(self) -> None:
        """Nothing that a client sends ends a line or reaches a terminal."""
        for form in (asJSON, asText):
            line = form({"client_id": FORGED, "status": "ok"})
            self.assertIsNone(_CONTROL.search(line), line)
            line.decode("utf-8")
        shown = json.loads(asJSON({"client_id": FORGED}))["client_id"]
        self.assertTrue(shown.startswith("a\nb\r\x1b[31m\x00\x7f\x85\u2028\u2029"))
        self.assertTrue(shown.endswith(r"\ud800\udc80"))

    @given(st.dictionaries(st.sampled_from(["a", "b", "c"]), anyText))
    def test_anything(self, values: dict[str, str]) -> None:
        """Any text makes one line of valid UTF-8 without control characters."""
        for form in (asJSON, asText):
            line = form(values)
            self.assertIsNone(_CONTROL.search(line))
            line.decode("utf-8")
        self.assertEqual(set(json.loads(asJSON(values))), set(values))


class StampTests(SynchronousTestCase):
    """Times."""

    def test_format(self) -> None:
        """A time is RFC 3339 in UTC with milliseconds."""
        stamps = TimeStamps()
        self.assertEqual(stamps.format(0), "1970-01-01T00:00:00.000Z")
        self.assertEqual(stamps.format(1_700_000_000.0625), "2023-11-14T22:13:20.062Z")
        # In the same second, and in the one before.
        self.assertEqual(stamps.format(1_700_000_000.75), "2023-11-14T22:13:20.750Z")
        self.assertEqual(stamps.format(1_699_999_999.5), "2023-11-14T22:13:19.500Z")

    @given(st.integers(0, 4_000_000_000_000))
    def test_readable(self, milliseconds: int) -> None:
        """Others read the same time."""
        text = TimeStamps().format((milliseconds + 0.5) / 1000)
        self.assertEqual(
            round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000), milliseconds
        )
