"""
The parts of the build that setup.cfg cannot describe.

C{protos/} stands beside the package and is installed in it. Each build begins with an empty
directory, and makes the files of the console from their sources.
"""

import runpy
import shutil
import sys
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

LEAST = (3, 11)
"""C{python_requires} of setup.cfg, which pip before 24 checks only after the requirements."""

if sys.version_info < LEAST:
    sys.exit(
        f"storagegate needs Python {LEAST[0]}.{LEAST[1]} or newer, and this is Python"
        f" {sys.version_info[0]}.{sys.version_info[1]}"
    )


class Build(build_py):
    """A build without the leftovers of an earlier one, with the files of the console."""

    def run(self) -> None:
        """Empty the directory, build, and make the files of the console."""
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        self._makeConsole(Path(self.build_lib, "storagegate", "console", "static"))

    def _makeConsole(self, directory: Path) -> None:
        """Write the files, and their forms in brotli, which the build environment has."""
        import brotli

        assets = runpy.run_path(str(Path("storagegate", "console", "assets.py")))
        assets["writeAssets"](directory)
        for path in [each for each in directory.rglob("*") if each.suffix != ".gz"]:
            if path.is_file():
                packed = brotli.compress(path.read_bytes(), quality=11)
                path.with_name(f"{path.name}.br").write_bytes(packed)


setup(
    cmdclass={"build_py": Build},
    packages=[
        *find_namespace_packages(
            include=["storagegate", "storagegate.*", "twisted.plugins"],
            exclude=["storagegate.console.web*", "storagegate.console.static*"],
        ),
        "storagegate.protos",
    ],
    package_dir={"storagegate.protos": "protos"},
    package_data={
        "storagegate": ["py.typed"],
        "storagegate.cli.typescript": ["*.ts"],
        "storagegate.http": ["page/*"],
        "storagegate.protos": ["*.proto", "*.protoset"],
    },
)
