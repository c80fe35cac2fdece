"""
Make the files of C{storagegate/console/static} from their sources, C{storagegate/console/web}.

Usage: C{python docs/consoleassets.py}, after each change of a source;
C{python docs/consoleassets.py vendor} fetches the libraries anew, by C{npm pack}.

A name gets a hash of the content, so a browser may keep the file for good; imports and the page
name what they need by it. Beside each file are its compressed forms. The libraries are taken as
they are published; C{vendor/vendor.json} has their versions, licences and hashes.
"""

import gzip
import hashlib
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import brotli

CONSOLE = Path(__file__).resolve().parent.parent / "storagegate" / "console"

SOURCES = CONSOLE / "web"

OUTPUT = CONSOLE / "static"

VENDOR = SOURCES / "vendor"

_LIBRARIES = VENDOR / "vendor.json"

_IMPORT = re.compile(r'((?:\bfrom|\bimport|\bimport\()\s*)"(\./[\w.-]+|[\w/]+)"')
"""The specifier of an import, static or dynamic."""

_ASSET = re.compile(r'"\./([\w-]+\.(?:txt|css))"')
"""The name of a file that a script links to."""

_SOURCE_MAP = re.compile(r"\n//# sourceMappingURL=.*\n?")

_LINK = re.compile(r'(href|src)="\./([\w.-]+)"')

_HASH_LENGTH = 10


def readLibraries() -> list[dict[str, object]]:
    """Return the descriptions of the libraries."""
    found: list[dict[str, object]] = json.loads(_LIBRARIES.read_text())["libraries"]
    return found


def sources() -> dict[str, str]:
    """Return the text of each file that gets a hash, by its name."""
    files = (path for path in SOURCES.iterdir() if path.suffix in (".js", ".css", ".svg"))
    found = {path.name: path.read_text() for path in files}
    for path in VENDOR.glob("*.js"):
        found[path.name] = _SOURCE_MAP.sub("\n", path.read_text())
    found |= {path.name: path.read_text() for path in VENDOR.glob("*.css")}
    # It is published as a script that makes a variable, or as a module of twice the size.
    found["uplot.js"] += "export default uPlot;\n"
    notices = []
    for library in readLibraries():
        licence = (VENDOR / f"{library['name']}.LICENSE").read_text()
        notices.append(f"{library['name']} {library['version']}, {library['license']}\n\n{licence}")
    found["licences.txt"] = "\n\n".join(notices)
    versions = ["name", "version", "license"]
    shown = [{name: library[name] for name in versions} for library in readLibraries()]
    found["libraries.js"] = f"export const LIBRARIES = {json.dumps(shown)};\n" + (
        'export const LICENCES = "./licences.txt";\n'
    )
    return found


def _target(specifier: str, bare: Mapping[str, str]) -> str:
    """Return the file that a specifier of an import names."""
    return specifier[2:] if specifier.startswith("./") else bare[specifier]


def makeAssets() -> dict[str, bytes]:
    """
    Make each file that is served.

    @return: Their contents, uncompressed, by their paths below L{OUTPUT}.
    @raise KeyError: An import names a file that does not exist.
    @raise ValueError: Files import each other in a circle.
    """
    bare = {"preact": "preact.js", "preact/hooks": "hooks.js", "htm": "htm.js", "uplot": "uplot.js"}
    texts = sources()
    names: dict[str, str] = {}
    made: dict[str, bytes] = {}
    open_: list[str] = []

    def make(name: str) -> str:
        """Make a file, after all that it imports; return its name with the hash."""
        if name in names:
            return names[name]
        if name in open_:
            raise ValueError(f"{name} is imported by what it imports: {open_}")
        open_.append(name)
        text = texts[name]
        if name.endswith(".js"):
            text = _IMPORT.sub(lambda found: f'{found[1]}"./{make(_target(found[2], bare))}"', text)
            text = _ASSET.sub(lambda found: f'"./assets/{make(found[1])}"', text)
        content = text.encode()
        stem, _, ending = name.rpartition(".")
        digest = hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]
        names[name] = f"{stem}.{digest}.{ending}"
        made[f"assets/{names[name]}"] = content
        open_.remove(name)
        return names[name]

    page = (SOURCES / "index.html").read_text()
    page = _LINK.sub(lambda found: f'{found[1]}="./assets/{make(found[2])}"', page)
    unused = set(texts) - set(names)
    if unused:
        raise ValueError(f"{sorted(unused)} are imported by nothing")
    made["index.html"] = page.encode()
    return made


def write() -> None:
    """Write the files and their compressed forms; remove all others."""
    wanted = set()
    for path, content in makeAssets().items():
        target = OUTPUT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        forms = {
            target: content,
            target.with_name(target.name + ".br"): brotli.compress(content, quality=11),
            target.with_name(target.name + ".gz"): gzip.compress(content, 9, mtime=0),
        }
        wanted |= set(forms)
        if target.exists() and target.read_bytes() == content:
            continue
        for form, encoded in forms.items():
            form.write_bytes(encoded)
    for path in OUTPUT.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def fetch() -> None:
    """Fetch the libraries in the versions of L{_LIBRARIES}, and note their hashes."""
    libraries = readLibraries()
    for library in libraries:
        name = str(library["name"])
        with TemporaryDirectory() as directory:
            command = ["npm", "pack", "--silent", f"{name}@{library['version']}"]
            subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(directory).glob("*.tgz")
            library["archiveSha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
            files = library["files"]
            assert isinstance(files, dict)
            with tarfile.open(archive) as members:
                for target, described in files.items():
                    member = members.extractfile(f"package/{described['path']}")
                    assert member is not None
                    content = member.read()
                    (VENDOR / target).write_bytes(content)
                    described["sha256"] = hashlib.sha256(content).hexdigest()
    _LIBRARIES.write_text(json.dumps({"libraries": libraries}, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["vendor"]:
        fetch()
    write()
