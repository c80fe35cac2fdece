"""
Fill in the files of a cluster: a folder for each machine, with its addresses and new passwords.

C{python3 configure.py --blobs rados:storagegate cluster one=10.0.0.1 two=10.0.0.2 three=10.0.0.3}

Needs nothing but Python. The folders hold passwords: only their owner can read them.
"""

import argparse
import os
import re
import secrets
from collections.abc import Sequence
from glob import glob
from ipaddress import ip_address
from pathlib import Path
from string import Template

HERE = Path(__file__).resolve().parent

FILES = (
    "database.sql",
    "etcd.yml",
    "haproxy.cfg",
    "patroni.yml",
    "pgpass",
    "storagegate.toml",
)

PASSWORDS = ("patroniPassword", "replicationPassword", "storePassword", "superuserPassword")

FEWEST = 3
"""With two, the one that is left does not know whether it is the one that is cut off."""

# Each role is used between the machines, by its password.
ACCESS = (("all", "postgres"), ("replication", "replicator"), ("storagegate", "storagegate"))

CONNINFO = (
    "host={address} port=5432 dbname=storagegate user=storagegate"
    " passfile=/etc/storagegate/pgpass connect_timeout=2"
)


def parseMachine(text: str) -> tuple[str, str]:
    """
    Read the name and the address of a machine.

    @param text: Such as C{one=10.0.0.1}.
    """
    name, _, address = text.partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,62}", name):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=ADDRESS, NAME of a-z, 0-9 and -")
    try:
        found = ip_address(address)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    if found.version != 4:
        raise argparse.ArgumentTypeError(f"{text!r}: write an address of IPv6 into the files")
    return name, address


def findPrograms() -> str:
    """Return where PostgreSQL's programs are: the newest here, or those of Debian 13."""
    found = glob("/usr/lib/postgresql/*/bin")
    return max(
        found, key=lambda each: int(each.split("/")[-2]), default="/usr/lib/postgresql/17/bin"
    )


def commonValues(machines: dict[str, str], blobs: str, programs: str) -> dict[str, str]:
    """Return what is the same in the files of all machines."""
    addresses = list(machines.values())
    rules = [f"host {what} {role} {each}/32" for what, role in ACCESS for each in addresses]
    return {
        "access": "\n".join(f"    - {rule} scram-sha-256" for rule in rules),
        "blobs": blobs,
        "catalog": "\n".join(f'    "{CONNINFO.format(address=each)}",' for each in addresses),
        "etcd": ", ".join(f"{each}:2379" for each in addresses),
        "nodes": "\n".join(f"    server {name} {each}:9000" for name, each in machines.items()),
        "peers": ",".join(f"{name}=http://{each}:2380" for name, each in machines.items()),
        "programs": programs,
        **{name: secrets.token_hex(24) for name in PASSWORDS},
    }


def writeFiles(directory: Path, machines: dict[str, str], blobs: str, programs: str) -> None:
    """
    Write the files of all machines.

    @param directory: Is made; a folder in it for each machine.
    @param machines: Addresses by name.
    @param blobs: The key C{blobs} of the table C{cluster}.
    @param programs: Where PostgreSQL's programs are.
    """
    values = commonValues(machines, blobs, programs)
    directory.mkdir(mode=0o700)
    for name, address in machines.items():
        folder = directory / name
        folder.mkdir()
        for each in FILES:
            text = Template((HERE / each).read_text()).substitute(
                values, name=name, address=address
            )
            descriptor = os.open(folder / each, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w") as file:
                file.write(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it as a command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("directory", type=Path, help="is made")
    parser.add_argument("machine", type=parseMachine, nargs="+", help="NAME=ADDRESS")
    parser.add_argument("--blobs", required=True, help="rados:POOL, s3:URL or files:DIRECTORY")
    parser.add_argument(
        "--programs", default=findPrograms(), help="where PostgreSQL's programs are"
    )
    given = parser.parse_args(arguments)
    machines = dict(given.machine)
    if len(machines) != len(given.machine) or len(set(machines.values())) != len(machines):
        parser.error("two machines have one name or one address")
    if len(machines) < FEWEST:
        parser.error(f"{FEWEST} machines at least: of two, one cannot outlive the other")
    if given.directory.exists():
        parser.error(f"{given.directory} is there already; it may hold the passwords in use")
    writeFiles(given.directory, machines, given.blobs, given.programs)
    print(f"{given.directory}: the files of {', '.join(machines)}")


if __name__ == "__main__":
    main()
