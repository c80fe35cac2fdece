"""The C{.proto} files of storagegate are found wherever it is installed."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from storagegate.rpc.protos import protoPath
from tests.support.modules import CHECKOUT
from tests.support.selection import long
from tests.support.wheels import CAN_BUILD, WHY_NOT, build, copySources

FILES = {
    f"{name}.{kind}"
    for name in ("user", "storage", "health", "reflection")
    for kind in ("proto", "protoset")
} | {"reflection.v1alpha.protoset"}

# Prints where storagegate and its files are, and what one of them defines. A folder of editable
# installations is one that Python reads at its start.
SCRIPT = """
import site, sys
paths, finders = list(sys.path), list(sys.meta_path)
site.addsitedir(sys.argv[1])
# Before what the environment of the tests may have installed itself.
sys.path.sort(key=lambda path: path in paths)
sys.meta_path.sort(key=lambda finder: finder in finders)
import storagegate
from storagegate.rpc.protos import loadProto, ourProto, protoPath
assert loadProto(protoPath() / "health.proto").Health
print(storagegate.__file__, protoPath(), ourProto("user.proto").UserService.name)
"""


class ProtoPathTests(SynchronousTestCase):
    """C{protoPath} in each kind of installation."""

    def seen(self, installed: Path) -> tuple[Path, Path]:
        """Give where an installation has storagegate and its files, with everything loadable."""
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(installed)],
            env={**os.environ, "PYTHONPATH": str(installed)},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        package, protos, service = result.stdout.split()
        self.assertEqual(service, "user.UserService")
        self.assertLessEqual(FILES, {path.name for path in Path(protos).iterdir()})
        return Path(package).parent, Path(protos)

    def test_checkout(self) -> None:
        """In a checkout they are those of the checkout."""
        self.assertEqual(protoPath(), CHECKOUT / "protos")
        self.assertLessEqual(FILES, {path.name for path in protoPath().iterdir()})

    @long("takes seconds")
    @skipUnless(CAN_BUILD, WHY_NOT)
    def test_wheel(self) -> None:
        """A wheel holds them, and what C{pip} installs of it finds them in the package."""
        source, built, installed = (Path(self.mktemp()).absolute() for _ in range(3))
        copySources(source)
        wheel = build(source, built)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
        command = [*pip, "--target", str(installed), str(wheel)]
        subprocess.run(command, capture_output=True, check=True)
        package, protos = self.seen(installed)
        self.assertEqual(package, installed / "storagegate")
        self.assertEqual(protos, package / "protos")

    @long("takes seconds")
    @skipUnless(CAN_BUILD, WHY_NOT)
    def test_editable(self) -> None:
        """An editable installation has those of the checkout that it points to, in both modes."""
        source = Path(self.mktemp()).absolute()
        copySources(source)
        for mode in ("", "compat"):
            built, installed = (Path(self.mktemp()).absolute() for _ in range(2))
            with zipfile.ZipFile(build(source, built, "editable", mode)) as archive:
                archive.extractall(installed)
            package, protos = self.seen(installed)
            self.assertEqual((package, protos), (source / "storagegate", source / "protos"))

    @long("takes seconds")
    @skipUnless(CAN_BUILD, WHY_NOT)
    def test_sourceDistribution(self) -> None:
        """A source distribution holds them where the checkout has them."""
        source, built = (Path(self.mktemp()).absolute() for _ in range(2))
        copySources(source)
        with tarfile.open(build(source, built, "sdist")) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        self.assertLessEqual({f"protos/{name}" for name in FILES}, names)
        self.assertIn("storagegate/py.typed", names)
