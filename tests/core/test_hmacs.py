"""Message authentication codes."""

import hmac

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.hmacs import authenticate, hmacSHA256, prepareKey


class HMACTests(SynchronousTestCase):
    """The codes of the standard library."""

    @given(st.binary(max_size=64), st.lists(st.binary(max_size=300), min_size=1, max_size=3))
    def test_codes(self, key: bytes, messages: list[bytes]) -> None:
        """A prepared key authenticates several messages, and each code is that of HMAC-SHA256."""
        prepared = prepareKey(key)
        for message in messages:
            expected = hmac.digest(key, message, "sha256")
            self.assertEqual(authenticate(prepared, message), expected)
            self.assertEqual(hmacSHA256(key, message), expected)

    def test_longKeys(self) -> None:
        """A key that HMAC would hash first is refused."""
        self.assertRaises(ValueError, prepareKey, bytes(65))
        self.assertRaises(ValueError, hmacSHA256, bytes(65), b"")
