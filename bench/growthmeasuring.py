"""Measure one cell of the growth bench: one case, one server, one round."""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import gatewaymeasuring, s3measuring
from bench.blast import Load, bodyFile, buildClient, commandLine, writeRequests
from bench.client import CLIENT_CORE
from bench.filling import ensureBenchBucket, fillBucketToList
from bench.gatewaycases import CASES as GATEWAY_CASES
from bench.gatewaymeasuring import GatewayServer
from bench.growthrecipes import (
    GROWN,
    S3_CASES,
    TCP,
    Case,
    Setting,
    makeGatewayRecipe,
    makeS3Recipe,
    policyOf,
)
from bench.keyfill import credentialsOf, signWithKeys
from bench.lifecyclescan import RULES
from bench.measuring import MeasureError
from bench.places import CHECKPOINTS, IDLE_CONNECTIONS
from bench.processes import Server
from bench.results import Cell
from bench.s3cases import BUCKET, GROUP, MIB, requestsOf, storedPaths
from bench.s3cases import Case as S3Case
from bench.s3server import S3Server
from bench.signing import Request, signer
from storagegate.s3.xml.lifecycle import writeLifecycle

LISTED = S3_CASES["list10k"]
UPLOAD_SIZE = 64 * MIB
UPLOADS = 50
WRITTEN = S3_CASES["put4k"]
_WRITERS = 8
_LONGER_SECONDS = 0.5
"""What is beside a load lasts longer than it by this."""

_END_SECONDS = 120

_ENABLED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


@contextmanager
def holding(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """
    Run a program of this bench beside the client while the context lasts.

    @return: The program, which has said that it is ready.
    """
    with subprocess.Popen(
        ["taskset", "-c", CLIENT_CORE, sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise MeasureError(f"{words[0]} does not work")
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[bytes]) -> int:
    """End such a program; give the number that it says."""
    output, _ = process.communicate(timeout=_END_SECONDS)
    return int(output)


class GrowthS3Server(S3Server):
    """
    A daemon that runs while the context lasts.

    @ivar seconds: How long the next load lasts.
    """

    def __init__(self, setting: Setting, parent: Path) -> None:
        super().__init__(makeS3Recipe(setting), parent)
        self.setting = setting
        self.seconds = 0.0
        if setting.hasKeys:
            self.authorizer = signWithKeys
        elif setting.statements is not None:
            self.authorizer = signer(credentialsOf(0))
        self._isPrepared = False

    def prepare(self) -> None:
        """Make what there must be for the bucket, and for the work beside."""
        ensureBenchBucket(self)
        if not self._isPrepared:
            self._isPrepared = True
            if self.setting.statements:
                self._configure("policy", policyOf(self.setting.statements))
            if self.setting.history == "enabled":
                self._configure("versioning", _ENABLED)
            if self.setting.isScanned:
                rules = writeLifecycle(RULES)
                self._configure("lifecycle", rules, f"/{GROWN}")
        if self.setting.beside == "list":
            fillBucketToList(self, LISTED)

    def _configure(self, name: str, document: bytes, bucket: str = BUCKET) -> None:
        """Set something of a bucket."""
        request = Request("PUT", bucket, ((name, ""),), length=len(document))
        answer = self.send(request, document)
        if answer.status not in (200, 204):
            raise MeasureError(f"{name}: {answer.status} {answer.body[:200]!r}")

    def requests(self, case: S3Case) -> list[Request] | None:
        """List what is requested in place of what a case says, if versions are."""
        if not self.setting.isOld:
            return None
        if case.work == "list":
            page = (("versions", ""), ("max-keys", str(GROUP)))
            [request] = [Request("GET", case.bucket, page)]
            found = self.send(request).body.count(b"<VersionId>")
            if found != GROUP:
                raise MeasureError(f"a page of versions has {found}")
            return [request]
        [path] = storedPaths(case)
        # Those of a page are the newest ones: those in the middle are behind half of them.
        place, marker = "", ()
        for _ in range(self.setting.objects // 2 // GROUP + 1):
            query = (("versions", ""), ("prefix", path.removeprefix(f"{BUCKET}/")), *marker)
            body = self.send(Request("GET", BUCKET, query)).body.decode()
            place = re.findall("<VersionId>(.*?)</VersionId>", body)[-1]
            marker = (("key-marker", query[1][1]), ("version-id-marker", place))
        return [Request("GET", path, (("versionId", place),))]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Do the work beside as long as a load lasts."""
        beside = self.setting.beside
        if not beside:
            yield
            return
        if beside == "checkpoint":
            database = str(self.folder / "data" / "catalog.sqlite")
            with holding([str(CHECKPOINTS), database]) as process, self._loading():
                yield
                if not finish(process):
                    raise MeasureError("no checkpoint has copied anything")
            return
        with self._loading():
            yield

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """Run a second client beside the one that is measured."""
        beside = self.setting.beside
        path = self.folder / "beside"
        size, connections = 0, 1
        if beside == "upload":
            paths = [f"{BUCKET}/upload-{number:06d}" for number in range(UPLOADS)]
            size = UPLOAD_SIZE
            requests = [Request("PUT", each, length=size) for each in paths]
        elif beside == "list":
            requests = requestsOf(LISTED, "")
        else:
            requests, size, connections = requestsOf(WRITTEN, "beside"), WRITTEN.size, _WRITERS
        writeRequests(path, requests, self.host, self.authorizer)
        seconds = self.seconds + _LONGER_SECONDS
        load = Load(path, bodyFile(self.folder, size), connections, seconds)
        words = ["taskset", "-c", CLIENT_CORE, *commandLine(buildClient(), self.port, load)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            try:
                yield
                output, _ = process.communicate(timeout=_END_SECONDS)
            finally:
                process.kill()
        outcome = msgspec.json.decode(output)
        if not outcome["done"] or outcome["bad"] or outcome["lost"]:
            raise MeasureError(f"beside it: {outcome}")


class GrowthGatewayServer(GatewayServer):
    """A gateway that runs while the context lasts."""

    def __init__(self, setting: Setting, parent: Path) -> None:
        super().__init__(makeGatewayRecipe(setting), parent)
        self.setting = setting


def makeServer(case: Case, setting: Setting, parent: Path) -> Server:
    """Make the server of a setting."""
    kind = GrowthS3Server if case.s3 else GrowthGatewayServer
    return kind(setting, parent)


def measure(server: Server, case: Case, connections: int, seconds: float) -> Cell:
    """
    Measure one cell.

    @raise MeasureError: If answers are not right or not there, or what is beside did nothing.
    @raise RuntimeError: If the client fails.
    """
    if isinstance(server, GrowthS3Server):
        server.seconds = seconds
        server.prepare()
        s3Case = S3_CASES[case.s3]
        instead = server.requests(s3Case)
        cell = s3measuring.measure(server, s3Case, connections, seconds, instead)
        if cell.complaints:
            raise MeasureError("; ".join(cell.complaints))
    else:
        assert isinstance(server, GrowthGatewayServer)
        cell = _measureIdle(server, connections, max(1, int(seconds)))
    return msgspec.structs.replace(cell, case=case.name)


def _measureIdle(server: GrowthGatewayServer, connections: int, seconds: int) -> Cell:
    case, idle = GATEWAY_CASES[TCP], server.setting.idle
    if not idle:
        return gatewaymeasuring.measure(server, case, connections, seconds, 0)
    with holding([str(IDLE_CONNECTIONS), str(server.port), str(idle)]) as process:
        cell = gatewaymeasuring.measure(server, case, connections, seconds, 0)
        left = finish(process)
    if left != idle:
        raise MeasureError(f"of {idle} idle connections {left} were left")
    return cell
