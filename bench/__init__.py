"""Measure storagegate side by side with other servers: see C{README.rst} beside this file."""
