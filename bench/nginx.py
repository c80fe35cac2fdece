"""nginx, the ceiling of what one core can do: serves what lies in C{data} of its folder."""

import os
from pathlib import Path
from string import Template

from bench.places import NGINX_TEMPLATE
from bench.programs import firstVersion, program


def command(folder: Path, port: int) -> list[str]:
    """Write the command line."""
    return [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf")]


def prepare(folder: Path, port: int) -> None:
    """Write the configuration, and make the folder that is served."""
    (folder / "data").mkdir()
    # Started as root, nginx would hand the work to a user that may not write here.
    user = "user root;" if os.geteuid() == 0 else ""
    text = Template(NGINX_TEMPLATE.read_text()).substitute(user=user, folder=folder, port=port)
    (folder / "nginx.conf").write_text(text)


def describe() -> str:
    """Give the version."""
    return firstVersion([program("nginx"), "-v"])
