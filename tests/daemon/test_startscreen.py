"""The screen that a start on a terminal ends with."""

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.startscreen import MOST_LINES, NewKeyPair, StartScreen
from storagegate.objects.issuedkeys import KeyPair

LISTENERS = {
    "S3": "http://127.0.0.1:9000",
    "Console": "http://127.0.0.1:9001/console/",
    "HTTP": "http://127.0.0.1:8080",
    "gRPC": "127.0.0.1:50051",
    "TCP": "127.0.0.1:9102",
    "UDP": None,
}

PAIR = NewKeyPair(KeyPair("ACCESS", "SECRET"), "/data/root-credentials", "http://127.0.0.1:9000")


class ScreenTests(SynchronousTestCase):
    """The text of the screen."""

    def screen(self, *warnings: str, pair: NewKeyPair | None = PAIR) -> StartScreen:
        """Make a screen."""
        return StartScreen("1.2.3", LISTENERS, "/data", 3 << 29, pair, warnings)

    def test_whole(self) -> None:
        """It has the version, each listener, the data, the pair once, and how to stop."""
        text = self.screen().text(hasColours=False)
        self.assertEqual(
            text.splitlines(),
            [
                "storagegate 1.2.3",
                "",
                "  S3        http://127.0.0.1:9000",
                "  Console   http://127.0.0.1:9001/console/",
                "  HTTP      http://127.0.0.1:8080",
                "  gRPC      127.0.0.1:50051",
                "  TCP       127.0.0.1:9102",
                "  UDP       off",
                "  Data      /data, 1.5 GiB free",
                "Root key pair, shown only once and stored in /data/root-credentials:",
                "  AWS_ACCESS_KEY_ID=ACCESS AWS_SECRET_ACCESS_KEY=SECRET"
                " AWS_ENDPOINT_URL=http://127.0.0.1:9000 aws s3 ls",
                "  curl -H 'x-storage-access-key: ACCESS' -H 'x-storage-secret-key: SECRET'"
                " http://127.0.0.1:9000",
                "Press Ctrl-C to stop. Documentation: docs/index.rst",
            ],
        )

    def test_warnings(self) -> None:
        """Two warnings are shown, and the others counted, within the limit of lines."""
        text = self.screen("a", "b", "c", "d").text(hasColours=False)
        self.assertIn("Warning: a\nWarning: b (2 more in the log)\n", text)
        self.assertLessEqual(len(text.splitlines()), MOST_LINES)

    def test_noPair(self) -> None:
        """A later start shows no secret; without S3 the pair has no commands."""
        self.assertNotIn("SECRET", self.screen(pair=None).text(hasColours=False))
        pair = NewKeyPair(PAIR.pair, PAIR.path, None)
        self.assertIn("\n  ACCESS SECRET\n", self.screen(pair=pair).text(hasColours=False))

    def test_colours(self) -> None:
        """Colours only surround the text."""
        painted = self.screen("a").text(hasColours=True)
        self.assertIn("\x1b[1mstoragegate 1.2.3\x1b[0m\n", painted)
        self.assertIn("\x1b[33mWarning: a\x1b[0m\n", painted)
