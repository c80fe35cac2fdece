"""
What setup.cfg cannot say.

C{protos/} stands beside the package and is installed in it, and each build begins with an empty
directory.

Everything else is declared in setup.cfg.
"""

import shutil

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    """A build without what an earlier one left: modules that are gone would be in the wheel."""

    def run(self) -> None:
        """Empty the directory, then build."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    cmdclass={"build_py": FreshBuild},
    packages=[
        *find_namespace_packages(include=["storagegate", "storagegate.*", "twisted.plugins"]),
        "storagegate.protos",
    ],
    package_dir={"storagegate.protos": "protos"},
    package_data={
        "storagegate": ["py.typed"],
        "storagegate.console": ["static/*", "static/assets/*"],
        "storagegate.http": ["page/*"],
        "storagegate.protos": ["*.proto", "*.protoset"],
    },
)
