"""Where a token is."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.tokens import bearerToken


class BearerTests(SynchronousTestCase):
    """The scheme of C{Authorization}, which HTTP and gRPC read alike."""

    def test_scheme(self) -> None:
        """It is taken off in any case, with its blanks, and may be left out."""
        for given, token in (
            ("Bearer abc", "abc"),
            ("bearer   abc", "abc"),
            ("BEARER abc ", "abc"),
            ("abc", "abc"),
            ("bearerabc", "bearerabc"),
            ("Basic abc", "Basic abc"),
            ("Bearer", ""),
            ("Bearer ", ""),
            ("", ""),
        ):
            self.assertEqual(bearerToken(given), token, repr(given))
