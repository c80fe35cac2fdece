"""
What setup.cfg cannot say: C{protos/} stands beside the package and is installed in it.

Everything else is declared in setup.cfg.
"""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["storagegate", "storagegate.*", "twisted.plugins"]),
        "storagegate.protos",
    ],
    package_dir={"storagegate.protos": "protos"},
    package_data={"storagegate": ["py.typed"], "storagegate.protos": ["*.proto", "*.protoset"]},
)
