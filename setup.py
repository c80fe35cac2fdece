"""Everything is declared in setup.cfg; this file is for tools that look for it."""

from setuptools import setup

setup()
