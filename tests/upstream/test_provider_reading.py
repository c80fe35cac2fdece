"""What sources answer, and that nothing in it is believed."""

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.upstream.consul import _instances as readEntry
from storagegate.upstream.etcd import _instances as readValue
from storagegate.upstream.options import MAX_INSTANCES, Instance
from storagegate.upstream.provider import (
    SourceError,
    boundedWeight,
    readEach,
    readMessage,
    readSecret,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["Service", "Port", "Address", "Node", "host", "port", "weight"]), inner
        )
    ),
    max_leaves=8,
)


class EntryTests(SynchronousTestCase):
    """Lists of entries."""

    def read(self, *raw: Any) -> Any:
        """Read a list whose good entries are numbers of ports."""
        return readEach(raw, lambda each: [Instance("h", each)])

    def test_leftOut(self) -> None:
        """An entry that is nonsense is left out, and said to be."""
        instances, wrong = self.read(1, "x", 2)
        self.assertEqual([each.port for each in instances], [1, 2])
        self.assertIn("ignoring an entry", wrong)
        self.assertEqual(self.read(1), ((Instance("h", 1),), None))

    def test_none(self) -> None:
        """A list without entries is empty; one whose entries are all nonsense is not believed."""
        self.assertEqual(self.read(), ((), None))
        self.assertRaises(SourceError, self.read, "x", 0)

    def test_many(self) -> None:
        """More instances than a service can have are refused."""
        self.assertEqual(len(self.read(*range(1, MAX_INSTANCES + 1))[0]), MAX_INSTANCES)
        error = self.assertRaises(SourceError, self.read, *range(1, MAX_INSTANCES + 2))
        self.assertIn("more than", str(error))

    def test_weights(self) -> None:
        """Weights of others are brought within bounds."""
        self.assertEqual([boundedWeight(each) for each in (-1, 0, 5, 65535)], [1, 1, 5, 1000])

    @given(st.binary() | JSON.map(msgspec.json.encode))
    def test_anything(self, wire: bytes) -> None:
        """Whatever an entry is, it has instances or is refused."""
        for read in (readValue, lambda wire: readEntry(msgspec.Raw(wire))):
            try:
                found = list(read(wire))
            except (SourceError, ValueError):
                continue
            self.assertTrue(all(isinstance(each, Instance) for each in found))

    def test_deep(self) -> None:
        """What is nested deeper than anybody reads is nonsense."""
        self.assertRaises(SourceError, readMessage, b"[" * 200_000, object)


class SecretTests(SynchronousTestCase):
    """Tokens and passwords in files."""

    def test_read(self) -> None:
        """White space around it is none of it; what could not stand in a field is refused."""
        path = Path(self.mktemp())
        self.assertIn("cannot read", str(self.assertRaises(SourceError, readSecret, str(path))))
        path.write_bytes(b" abc\r\n")
        self.assertEqual(readSecret(str(path)), "abc")
        for content in (b"", b"\n", b"a\nb", b"\xff", b"a\x00"):
            path.write_bytes(content)
            error = self.assertRaises(SourceError, readSecret, str(path))
            self.assertIn(str(path), str(error))
            self.assertNotIn(content.strip().decode("latin-1") or "?", str(error))

    def test_long(self) -> None:
        """What is too long for a secret is refused, and not used as far as it was read."""
        path = Path(self.mktemp())
        path.write_bytes(b"a" * 65536)
        self.assertEqual(len(readSecret(str(path))), 65536)
        path.write_bytes(b"a" * 65537)
        error = self.assertRaises(SourceError, readSecret, str(path))
        self.assertEqual(str(error), f"cannot read {path}: larger than 65536 bytes")
