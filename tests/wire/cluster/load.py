"""
The load: a process of its own with several clients over several nodes.

C{python -m tests.wire.cluster.load DIRECTORY SPECIFICATION}. The specification is JSON; each
line on the standard input is the nodes' addresses from then on, and its end is that of the load.
Then a JSON object says what happened. The journals of the buckets are in the directory all the
time, so that they can be read whatever becomes of this process.
"""

import json
import os
import random
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

from attrs import define, field, frozen

from tests.support.daemon import CHECKOUT
from tests.support.journal import Journal
from tests.wire.cluster.client import Client, Contradiction, Nodes

END_SECONDS = 90.0
"""How long a client may take to finish its last request."""


@frozen
class LoadReport:
    """
    What happened.

    @ivar counts: Answers by kind.
    @ivar longestPause: The longest time between two acknowledgements, in seconds.
    @ivar contradictions: What was wrong.
    """

    counts: dict[str, int]
    longestPause: float
    contradictions: list[str]

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged."""
        return self.counts.get("acknowledged", 0)


@define(eq=False)
class Load:
    """
    The process, from a test's side.

    @ivar buckets: Names, each with the status of its versioning.
    @ivar directory: Of the journals.
    @ivar restSeconds: See L{Client}.
    """

    directory: Path
    buckets: dict[str, str]
    restSeconds: float
    clients: int = 6
    seed: int = field(factory=lambda: random.SystemRandom().randrange(1 << 32))
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def start(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Begin."""
        specification = {
            "addresses": addresses,
            "buckets": self.buckets,
            "restSeconds": self.restSeconds,
            "clients": self.clients,
            "seed": self.seed,
        }
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.wire.cluster.load",
                str(self.directory),
                json.dumps(specification),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
            cwd=CHECKOUT,
        )

    def setAddresses(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Use other nodes from now on."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(addresses).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> LoadReport:
        """End it."""
        assert self._process is not None
        said, _ = self._process.communicate(timeout=END_SECONDS)
        self._process = None
        return LoadReport(**json.loads(said))

    def kill(self) -> None:
        """End it at once; harmless where it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def acknowledged(self) -> int:
        """Count what is acknowledged so far."""
        return sum(
            path.read_bytes().count(b'["acknowledge"') for path in self.directory.glob("*.journal")
        )

    def journal(self, bucket: str) -> Journal:
        """Read a journal."""
        return Journal.read(self.directory / f"{bucket}.journal")


def _runClient(client: Client, found: list[str], halt: Event) -> None:
    try:
        client.run()
    except Contradiction as error:
        found.append(str(error))
        halt.set()
    except Exception:
        found.append(traceback.format_exc())
        halt.set()


def main(directory: str, text: str) -> None:
    """Run the clients until the input ends."""
    specification: dict[str, Any] = json.loads(text)
    nodes = Nodes(tuple((host, port) for host, port in specification["addresses"]))
    seed, halt, found = specification["seed"], Event(), []  # type: int, Event, list[str]
    clients = []
    for bucket, status in specification["buckets"].items():
        journal = Journal(Path(directory, f"{bucket}.journal"))
        for number in range(specification["clients"]):
            chance = random.Random(f"{seed}/{bucket}/{number}")
            rest = specification["restSeconds"]
            clients.append(Client(nodes, bucket, number, journal, chance, halt, rest, status))
    threads = [Thread(target=_runClient, args=(each, found, halt)) for each in clients]
    for thread in threads:
        thread.start()
    for line in sys.stdin:
        nodes.addresses = tuple((host, port) for host, port in json.loads(line))
    halt.set()
    for thread in threads:
        thread.join()
    counts: Counter[str] = Counter()
    for client in clients:
        counts.update(client.counts)
    times = sorted(time for client in clients for time in client.acknowledgedAt)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    longest = round(max(pauses, default=0.0), 3)
    print(json.dumps({"counts": counts, "longestPause": longest, "contradictions": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
