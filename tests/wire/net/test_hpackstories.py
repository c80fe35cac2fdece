"""The decoder of header fields against the blocks of other encoders, of http2jp/hpack-test-case."""

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.net.http2.hpack import HeaderDecoder
from tests.support.nodepackages import HPACK, nodeModules
from tests.support.selection import long

FINAL = 9
"""The first draft with the format of RFC 7541."""

LARGEST = 16_384
"""The largest table of the stories."""


@long("installs an npm package")
class StoryTests(SynchronousTestCase):
    """Stories: series of heads with one table, each by several encoders."""

    def test_stories(self) -> None:
        """Every block of every encoder has the fields of its story."""
        folder = nodeModules(HPACK) / "hpack" / "test" / "hpack-test-case"
        encoders = set()
        blocks = 0
        for path in sorted(folder.glob("*/story_*.json")):
            story = json.loads(path.read_text())
            if story.get("draft", 0) >= FINAL:
                encoders.add(path.parent.name)
                blocks += self.check(path, story["cases"])
        self.assertEqual(len(encoders), 11)
        self.assertGreater(blocks, 30_000)

    def check(self, path: Path, cases: list[Any]) -> int:
        """Decode the blocks of a story; return their number."""
        decoder = HeaderDecoder(LARGEST, 1 << 20)
        for case in cases:
            pairs = [
                (name.encode(), value.encode())
                for field in case["headers"]
                for name, value in field.items()
            ]
            received = decoder.decode(bytes.fromhex(case["wire"]))
            self.assertEqual(received.pairs, pairs, f"{path} {case['seqno']}")
        return len(cases)
