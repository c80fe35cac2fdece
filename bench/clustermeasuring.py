"""Measure one cell of the cluster bench: one case, one server, one round."""

import json
import subprocess

from attrs import evolve
from msgspec.structs import replace

from bench import s3measuring
from bench.client import RUN_SECONDS
from bench.clusterservers import BarePieces, ClusterCase, NodeServer
from bench.measuring import MeasureError, aloneOnTheCores
from bench.processes import SERVER_CORE, Server
from bench.results import Cell


def measure(server: Server, case: ClusterCase, connections: int, seconds: float) -> Cell:
    """Measure one cell."""
    if isinstance(server, BarePieces):
        return _measureBare(server, case, connections, seconds)
    assert isinstance(server, NodeServer)
    work = evolve(case.s3, name=case.name)
    before = server.behindCpu()
    # What is prepared is counted as well: it is done in the first round only, of which the median
    # takes no notice.
    with server.favoured():
        cell = s3measuring.measure(server, work, connections, seconds)
    behind = (server.behindCpu() - before) / max(1, cell.requests) * 1e6
    # Its own processes have not used that.
    used = cell.cpuMicrosPerRequest + behind
    return replace(cell, cpuMicrosPerRequest=used, besideMicros=behind) if behind else cell


def _measureBare(server: BarePieces, case: ClusterCase, connections: int, seconds: float) -> Cell:
    work = case.s3.work
    with aloneOnTheCores():
        s3measuring.settleDisk(server.folder)
        done = subprocess.run(
            ["taskset", "-c", SERVER_CORE, *server.command(work, connections, seconds)],
            env=server.variables(),
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
    if done.returncode:
        raise MeasureError(done.stderr[-600:])
    found = json.loads(done.stdout.splitlines()[-1])
    rate = found["done"] / found["seconds"]
    return Cell(
        server=server.recipe.name,
        case=case.name,
        connections=connections,
        rate=rate,
        megabytesPerSecond=rate * case.s3.size / 1e6,
        p50Ms=connections / rate * 1e3,
        p99Ms=0,
        serverCpu=found["cpu"] / found["seconds"],
        clientCpu=0,
        cpuMicrosPerRequest=found["cpu"] / max(1, found["done"]) * 1e6,
        requests=found["done"],
    )
