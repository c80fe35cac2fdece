"""What holds for all examples."""

from twisted.trial.unittest import SynchronousTestCase

from tests.examples.support import EXAMPLES
from tests.support.modules import CHECKOUT


class ExampleTests(SynchronousTestCase):
    """The files."""

    def test_short(self) -> None:
        """Each is read on one screen, says how it is run, and has its tests."""
        names = sorted(path.name for path in EXAMPLES.glob("*.py"))
        self.assertEqual(
            names,
            [
                "chat.py",
                "gateway_orders.py",
                "grpc_users.py",
                "jsonapi.py",
                "streaming.py",
                "uploadform.py",
            ],
        )
        for name in names:
            text = (EXAMPLES / name).read_text()
            self.assertLess(text.count("\n"), 80, name)
            self.assertIn(f"    python examples/{name} 3000", text)
            self.assertTrue((CHECKOUT / "tests" / "examples" / f"test_{name}").is_file())

    def test_shipped(self) -> None:
        """They are in the source distribution."""
        manifest = (CHECKOUT / "MANIFEST.in").read_text()
        self.assertIn("graft examples\n", manifest)
