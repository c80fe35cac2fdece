"""
The S3 clients of the wire tests: their programs and the configuration of their endpoint.

The user's own configuration is never read: every client gets its own home directory.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import boto3
from attrs import frozen
from botocore.config import Config

REGION = "us-east-1"

TOOL_SECONDS = 180
"""Limit of the run time of a client program, far above the usual time, so that a hang ends."""


@frozen
class Account:
    """
    A key pair.

    @ivar sessionToken: The token of a temporary pair; empty for others.
    """

    accessKey: str
    secretKey: str
    sessionToken: str = ""

    def plainHeaders(self) -> dict[str, str]:
        """Return the two headers of the scheme that sends the pair in plain text."""
        return {
            "x-storage-access-key": self.accessKey,
            "x-storage-secret-key": self.secretKey,
        }


ROOT = Account("AKIAWIRETESTROOT0001", "wire/Test+Secret0OfTheRootKey0123456789a")


@cache
def _session() -> Any:
    """
    Return the session of all clients of this process.

    Each session parses the description of S3 and keeps it, which takes a quarter of a second.
    """
    return boto3.session.Session()


_making = Lock()
"""A session makes one client at a time."""


@lru_cache(maxsize=32)
def botoClient(
    endpoint: str,
    account: Account = ROOT,
    *,
    cafile: str | None = None,
    patient: bool = True,
    connections: int = 10,
    signature: str | None = None,
    service: str = "s3",
) -> Any:
    """
    Make a boto3 client with its default settings.

    @param endpoint: The URL of the service.
    @param cafile: The certificate to trust, for an C{https} endpoint.
    @param patient: Whether to retry failures, as boto3 does by default.
    @param connections: The maximum of open connections.
    @param signature: The signature version; the default is boto3's choice.
    @param service: Amazon's name of the API.
    """
    settings: dict[str, Any] = {
        "max_pool_connections": connections,
        "signature_version": signature,
    }
    if not patient:
        settings["retries"] = {"total_max_attempts": 1}
    with _making:
        return _session().client(
            service,
            endpoint_url=endpoint,
            aws_access_key_id=account.accessKey,
            aws_secret_access_key=account.secretKey,
            aws_session_token=account.sessionToken or None,
            region_name=REGION,
            verify=cafile,
            config=Config(**settings),
        )


class ToolFailed(Exception):
    """A client program ended with an unexpected exit status; its output is the message."""


def runTool(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    directory: str | Path | None = None,
    expected: int = 0,
    stdin: str = "",
) -> str:
    """
    Run a client program until it ends. Blocks.

    @param environment: Added to a minimal environment, which has only C{PATH} of ours.
    @param expected: The required exit status.
    @param stdin: Its standard input.
    @return: Its standard output.
    @raise ToolFailed: If it ends with another exit status.
    """
    done = subprocess.run(
        [str(argument) for argument in arguments],
        env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **environment},
        cwd=directory,
        input=stdin.encode(),
        capture_output=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    if done.returncode != expected:
        output = (done.stdout + done.stderr).decode("utf-8", "backslashreplace")
        raise ToolFailed(f"{arguments[0]} ended with {done.returncode}:\n{output[-4000:]}")
    return done.stdout.decode("utf-8", "backslashreplace")


def _tokenVariable(name: str, account: Account) -> dict[str, str]:
    """Return the variable with the token of a temporary pair."""
    return {name: account.sessionToken} if account.sessionToken else {}


def awsEnvironment(endpoint: str, home: Path, account: Account = ROOT) -> dict[str, str]:
    """Return the variables that give aws-cli its endpoint and keys."""
    return {
        "HOME": str(home),
        "AWS_ACCESS_KEY_ID": account.accessKey,
        "AWS_SECRET_ACCESS_KEY": account.secretKey,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        **_tokenVariable("AWS_SESSION_TOKEN", account),
    }


def rcloneEnvironment(endpoint: str, home: Path, account: Account = ROOT) -> dict[str, str]:
    """Return the variables of an rclone remote called C{gate}."""
    return {
        "HOME": str(home),
        "RCLONE_CONFIG": str(home / "rclone.conf"),
        "RCLONE_CONFIG_GATE_TYPE": "s3",
        "RCLONE_CONFIG_GATE_PROVIDER": "Other",
        "RCLONE_CONFIG_GATE_ENDPOINT": endpoint,
        "RCLONE_CONFIG_GATE_REGION": REGION,
        "RCLONE_CONFIG_GATE_ACCESS_KEY_ID": account.accessKey,
        "RCLONE_CONFIG_GATE_SECRET_ACCESS_KEY": account.secretKey,
        **_tokenVariable("RCLONE_CONFIG_GATE_SESSION_TOKEN", account),
    }


def resticEnvironment(
    endpoint: str, bucket: str, home: Path, account: Account = ROOT
) -> dict[str, str]:
    """Return the variables of a restic repository in a bucket, which restic creates."""
    return {
        "HOME": str(home),
        "RESTIC_REPOSITORY": f"s3:{endpoint}/{bucket}",
        "RESTIC_PASSWORD": "not a secret of the daemon",
        "RESTIC_CACHE_DIR": str(home / "restic-cache"),
        "AWS_ACCESS_KEY_ID": account.accessKey,
        "AWS_SECRET_ACCESS_KEY": account.secretKey,
        "AWS_DEFAULT_REGION": REGION,
        **_tokenVariable("AWS_SESSION_TOKEN", account),
    }


def writeS3cmdConfig(endpoint: str, path: Path, account: Account = ROOT) -> None:
    """Write the s3cmd configuration with the endpoint, path style and keys."""
    host = endpoint.partition("://")[2]
    path.write_text(
        "[default]\n"
        f"access_key = {account.accessKey}\n"
        f"secret_key = {account.secretKey}\n"
        f"access_token = {account.sessionToken}\n"
        f"host_base = {host}\n"
        f"host_bucket = {host}\n"
        "use_https = False\n"
    )
