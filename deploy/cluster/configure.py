"""
Fill in the files of a cluster: a folder for each machine, with its addresses and new passwords.

C{python3 configure.py --blobs rados:storagegate cluster one=10.0.0.1 two=10.0.0.2 three=10.0.0.3}

Or run a whole cluster on this machine, on loopback addresses, before there are three::

    python3 configure.py --rehearse DIR          # writes the files
    python3 configure.py --rehearse DIR --up     # starts everything; writes the files first
    python3 configure.py --rehearse DIR --down   # stops everything; the data stay for --up

Needs nothing but Python. The folders hold passwords: only their owner can read them.
"""

import argparse
import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from glob import glob
from ipaddress import ip_address
from pathlib import Path
from string import Template

import localcluster

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

# The machines use each role with its password.
ACCESS = (("all", "postgres"), ("replication", "replicator"), ("storagegate", "storagegate"))

CONNINFO = (
    "host={address} port={port} dbname=storagegate user=storagegate"
    " passfile={passwords} connect_timeout=2"
)

PORTS = {
    "adminPort": 9001,
    "balancerPort": 8000,
    "etcdPeerPort": 2380,
    "etcdPort": 2379,
    "patroniPort": 8008,
    "postgresqlPort": 5432,
    "s3Port": 9000,
    "statusPort": 8404,
}
"""The same on all machines."""

PLACES = {
    "data": "/var/lib/storagegate",
    "databaseScript": "/etc/patroni/database.sql",
    "etcdData": "/var/lib/etcd",
    "passwords": "/etc/storagegate/pgpass",
    "patroniPasswords": "/var/lib/postgresql/storagegate.pgpass",
    "postgresqlData": "/var/lib/postgresql/storagegate",
}
"""Files and directories of each machine."""

_LOCAL = {
    "data": "storagegate",
    "databaseScript": "database.sql",
    "etcdData": "etcd",
    "passwords": "pgpass",
    "patroniPasswords": "patroni.pgpass",
    "postgresqlData": "postgresql",
}
"""The same where all machines are folders on one."""

SIZES = {"maxWalSize": "8GB", "sharedBuffers": "512MB", "walKeepSize": "1GB"}
"""Memory and disk that PostgreSQL takes."""


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
    """Return the directory of PostgreSQL's programs: the newest here, or that of Debian 13."""
    found = glob("/usr/lib/postgresql/*/bin")
    return max(
        found, key=lambda each: int(each.split("/")[-2]), default="/usr/lib/postgresql/17/bin"
    )


def commonValues(
    machines: Mapping[str, str], blobs: str, programs: str, ports: Mapping[str, int]
) -> dict[str, str]:
    """
    Return the values that the files of all machines share.

    @param ports: See L{PORTS}.
    """
    addresses = list(machines.values())
    # In the loopback network all connections come from one address.
    isLocal = all(ip_address(each).is_loopback for each in addresses)
    sources = ["127.0.0.1"] if isLocal else addresses
    rules = [f"host {what} {role} {each}/32" for what, role in ACCESS for each in sources]
    etcd, peer = ports["etcdPort"], ports["etcdPeerPort"]
    nodes = [f"    server {name} {each}:{ports['s3Port']}" for name, each in machines.items()]
    return {
        "access": "\n".join(f"    - {rule} scram-sha-256" for rule in rules),
        "blobs": blobs,
        "etcd": ", ".join(f"{each}:{etcd}" for each in addresses),
        "etcdURLs": ", ".join(f'"http://{each}:{etcd}"' for each in addresses),
        "haproxyUser": "    user haproxy\n    group haproxy\n",
        "nodes": "\n".join(nodes),
        "peers": ",".join(f"{name}=http://{each}:{peer}" for name, each in machines.items()),
        "programs": programs,
        **{name: str(port) for name, port in ports.items()},
        **{name: secrets.token_hex(24) for name in PASSWORDS},
    }


def writeFiles(
    directory: Path, machines: Mapping[str, str], values: Mapping[str, str], isLocal: bool = False
) -> None:
    """
    Write the files of all machines.

    @param directory: It is created, with a folder for each machine.
    @param machines: Addresses by name.
    @param values: Of L{commonValues}, and of L{SIZES}.
    @param isLocal: Whether each machine's state is in its folder, in place of L{PLACES}.
    """
    directory.mkdir(mode=0o700)
    for name, address in machines.items():
        folder = directory / name
        folder.mkdir()
        places = {
            each: str(folder / _LOCAL[each]) if isLocal else path for each, path in PLACES.items()
        }
        catalog = [
            CONNINFO.format(
                address=each, port=values["postgresqlPort"], passwords=places["passwords"]
            )
            for each in machines.values()
        ]
        own = {
            "address": address,
            "catalog": "\n".join(f'    "{each}",' for each in catalog),
            "name": name,
        }
        for each in FILES:
            text = Template((HERE / each).read_text()).substitute(values, **places, **own)
            writeSecret(folder / each, text)


def writeSecret(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)


UPSTREAM = """\
# The S3 store with the blobs of the cluster: one daemon on one disk, for trying things out.
data = "${directory}/upstream/data"
s3 = "tcp:${upstreamPort}:interface=${address}"
admin = "tcp:${upstreamAdminPort}:interface=${address}"
http = "off"
grpc = "off"
tcp = "off"
udp = "off"
accessKey = "${accessKey}"
secretKey = "${secretKey}"
"""


def rehearse(directory: Path, programs: str, isUp: bool, isDown: bool) -> int:
    """
    Write the files of a cluster on this machine, unless they exist, and start or stop it.

    @return: The exit code.
    """
    if isDown or (directory / "cluster.json").exists():
        if not isUp and not isDown:
            print(f"{directory} has a cluster already: --up or --down", file=sys.stderr)
            return 2
        return localcluster.run(directory, isUp, isDown)
    if directory.exists():
        print(f"{directory} exists already: name a new directory", file=sys.stderr)
        return 2
    directory = directory.absolute()
    ports = {**PORTS, "upstreamPort": 9100, "upstreamAdminPort": 9101}
    try:
        machines, ports = localcluster.choosePlaces(ports)
    except localcluster.LocalError as error:
        print(f"configure.py: {error}", file=sys.stderr)
        return 1
    first = machines["one"]
    blobs = f"s3:http://{first}:{ports['upstreamPort']}/blobs/cluster"
    pair = {"accessKey": secrets.token_hex(10).upper(), "secretKey": secrets.token_hex(20)}
    values = {
        **commonValues(machines, blobs, programs, ports),
        # Three servers share the memory and the disk.
        "maxWalSize": "512MB",
        "sharedBuffers": "64MB",
        "walKeepSize": "128MB",
        # It runs as the user of the other programs.
        "haproxyUser": "",
    }
    writeFiles(directory, machines, values, isLocal=True)
    (directory / "upstream").mkdir()
    text = Template(UPSTREAM).substitute(values, **pair, directory=directory, address=first)
    writeSecret(directory / "upstream" / "storagegate.toml", text)
    writeSecret(
        directory / "environment",
        f"AWS_ACCESS_KEY_ID={pair['accessKey']}\nAWS_SECRET_ACCESS_KEY={pair['secretKey']}\n",
    )
    # Written last: it marks the files as complete.
    found = {"machines": machines, "ports": ports, "postgresql": programs}
    writeSecret(directory / "cluster.json", json.dumps(found, indent=2) + "\n")
    print(f"{directory}: the files of {', '.join(machines)}")
    return localcluster.run(directory, isUp, isDown) if isUp else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it as a command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", help="is created")
    parser.add_argument("machine", type=parseMachine, nargs="*", help="NAME=ADDRESS")
    parser.add_argument("--blobs", help="rados:POOL, s3:URL or files:DIRECTORY")
    parser.add_argument(
        "--programs", default=findPrograms(), help="where PostgreSQL's programs are"
    )
    parser.add_argument(
        "--rehearse", type=Path, metavar="DIR", help="a cluster on this machine, all of it in DIR"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--up", action="store_true", help="start the cluster of --rehearse")
    action.add_argument("--down", action="store_true", help="stop it; its data stay")
    given = parser.parse_args(arguments)
    if given.rehearse is not None:
        if given.directory is not None or given.blobs is not None:
            parser.error("--rehearse takes no other directory, machines or --blobs")
        sys.exit(rehearse(given.rehearse, given.programs, given.up, given.down))
    if given.up or given.down:
        parser.error("--up and --down go with --rehearse DIR")
    if given.directory is None or given.blobs is None:
        parser.error("a directory, machines and --blobs are required")
    machines = dict(given.machine)
    if len(machines) != len(given.machine) or len(set(machines.values())) != len(machines):
        parser.error("two machines have one name or one address")
    if len(machines) < FEWEST:
        parser.error(f"{FEWEST} machines at least: of two, one cannot outlive the other")
    if given.directory.exists():
        parser.error(f"{given.directory} is there already; it may hold the passwords in use")
    values = commonValues(machines, given.blobs, given.programs, PORTS)
    writeFiles(given.directory, machines, {**values, **SIZES})
    print(f"{given.directory}: the files of {', '.join(machines)}")


if __name__ == "__main__":
    main()
