"""The CRCs, by the values that are published for them."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core import files
from tests.support.modules import CHECKOUT

CHECK = b"123456789"
"""What the catalogue of CRCs gives the value of each for."""

KINDS = (
    (files.crc32, files.combineCRC32, 0xCBF43926),
    (files.crc32c, files.combineCRC32C, 0xE3069283),
    (files.crc64nvme, files.combineCRC64NVME, 0xAE8B14860A799888),
)

# Everything of the daemon that computes CRCs, loaded, and then one of them computed.
LOADED = """
import sys
import storagegate.s3.resource, storagegate.storage.store
from storagegate.core.files import crc32c
before = "_awscrt" in sys.modules
crc32c(b"")
print(before, "_awscrt" in sys.modules)
"""


class CRCTests(SynchronousTestCase):
    """Each of the three."""

    def test_values(self) -> None:
        """The values are those that are published."""
        for compute, _, expected in KINDS:
            self.assertEqual(compute(CHECK), expected)
            self.assertEqual(compute(memoryview(CHECK)), expected)

    @given(st.binary(max_size=64), st.binary(max_size=64))
    def test_runs(self, first: bytes, second: bytes) -> None:
        """Two runs of data have one value, whether it goes on from the first or is combined."""
        for compute, combine, _ in KINDS:
            whole = compute(first + second)
            self.assertEqual(compute(second, compute(first)), whole)
            self.assertEqual(combine(compute(first), compute(second), len(second)), whole)

    def test_late(self) -> None:
        """The library is loaded by the first data, and not by a start."""
        result = subprocess.run(
            [sys.executable, "-c", LOADED], cwd=CHECKOUT, capture_output=True, check=True, text=True
        )
        self.assertEqual(result.stdout.split(), ["False", "True"])
