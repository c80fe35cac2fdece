"""Real OpenID Connect issuers for tests, installed once per run."""

import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from functools import cache
from http.client import HTTPConnection
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from twisted.trial.unittest import SkipTest

from tests.support.nodepackages import nodeModules
from tests.support.ports import heldPort, waitForPort
from tests.support.programs import needProgram, runInstaller

PACKAGE = "oidc-provider-mock==0.3.4"
"""Pinned, so that a new release cannot change the result of a test."""

INSTALL_SECONDS = 240


@cache
def _install() -> tuple[str, str]:
    """Install the package apart from all others; return its folder, or the error. Blocks."""
    directory = tempfile.mkdtemp(prefix="storagegate-issuer-")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", directory, PACKAGE]
    return directory, runInstaller(command, directory, INSTALL_SECONDS)


def _start(
    command: Sequence[str], port: int, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process, and wait until it serves. Blocks."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    waitForPort(port, process)
    return process


class Issuer:
    """
    A process of C{oidc-provider-mock}, which accepts each person.

    @ivar url: The issuer.
    """

    # The port is reserved until the process of the tests ends.
    addCleanup = staticmethod(atexit.register)

    def __init__(self) -> None:
        """@raise SkipTest: The package cannot be installed."""
        self._directory, error = _install()
        if error:
            raise SkipTest(error)
        self._port = heldPort(self)
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it. Blocks until it serves."""
        command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(self._port)]
        self._process = _start(command, self._port, {"PYTHONPATH": self._directory})
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop it. Blocks until it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def put(self, subject: str, claims: Mapping[str, Any]) -> None:
        """Set the claims of a person."""
        request = urllib.request.Request(
            f"{self.url}/users/{subject}",
            json.dumps(claims).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def authorize(self, url: str, subject: str) -> dict[str, str]:
        """
        Sign a person in, as a click on the issuer's page does.

        @param subject: Empty to deny.
        @return: The query with which the issuer sends the browser back.
        """
        parts = urlsplit(url)
        connection = HTTPConnection(parts.netloc, timeout=10)
        try:
            form = urlencode({"sub": subject} if subject else {"action": "deny"})
            fields = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", f"{parts.path}?{parts.query}", form, fields)
            response = connection.getresponse()
            response.read()
            target = response.headers["Location"]
        finally:
            connection.close()
        query = parse_qs(urlsplit(target).query)
        return {
            re.sub(r"_(\w)", lambda found: found[1].upper(), name): values[0]
            for name, values in query.items()
        }


NODE_PACKAGE = "oidc-provider@9.13.3"

_NODE_PROGRAM = """
import { Provider } from "oidc-provider";
const [, , port, redirect] = process.argv;
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    { client_id: "storagegate", client_secret: "client-secret", redirect_uris: [redirect] },
  ],
  pkce: { required: () => true },
  claims: { openid: ["sub"], profile: ["groups"] },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id, groups: ["engineers"] }) }),
});
provider.listen(Number(port), "127.0.0.1");
"""


class NodeIssuer:
    """
    A process of npm's C{oidc-provider}, a certified issuer. It requires PKCE, names itself in
    responses, and has the groups of people at its userinfo endpoint.

    @ivar url: The issuer.
    """

    addCleanup = staticmethod(atexit.register)

    def __init__(self) -> None:
        """@raise SkipTest: Node is missing, or the package cannot be installed."""
        self._program = nodeModules(NODE_PACKAGE).parent / "issuer.mjs"
        self._program.write_text(_NODE_PROGRAM)
        self._port = heldPort(self)
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self, redirectURL: str) -> None:
        """
        Start it. Blocks until it serves.

        @param redirectURL: The registered URL of the client.
        """
        command = [needProgram("node"), str(self._program), str(self._port), redirectURL]
        atexit.register(_start(command, self._port, {}).kill)
