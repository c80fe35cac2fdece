"""
Fetch the libraries of the console in the versions of C{storagegate/console/web/vendor/vendor.json}.

Usage: C{python tools/consolelibraries.py}. It needs npm, and notes the hashes of what it got.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from storagegate.console.assets import LIBRARIES, VENDOR, readLibraries


def fetch() -> None:
    """Fetch the libraries in the versions of L{LIBRARIES}, and note their hashes."""
    libraries = readLibraries()
    for library in libraries:
        name = str(library["name"])
        with TemporaryDirectory() as directory:
            command = ["npm", "pack", "--silent", f"{name}@{library['version']}"]
            subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(directory).glob("*.tgz")
            library["archiveSha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
            files = library["files"]
            with tarfile.open(archive) as members:
                for target, described in files.items():
                    member = members.extractfile(f"package/{described['path']}")
                    assert member is not None
                    content = member.read()
                    (VENDOR / target).write_bytes(content)
                    described["sha256"] = hashlib.sha256(content).hexdigest()
    LIBRARIES.write_text(json.dumps({"libraries": libraries}, indent=2) + "\n")


if __name__ == "__main__":
    fetch()
