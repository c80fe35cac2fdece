"""
The screen at the end of a start on a terminal.

::

    storagegate 0.1.0

      S3        http://127.0.0.1:9000
      Console   http://127.0.0.1:9001/console/
      HTTP      http://127.0.0.1:8080
      gRPC      127.0.0.1:50051
      TCP       127.0.0.1:9102
      UDP       off
      Data      /srv/storagegate-data, 74.2 GiB free
    Root key pair, shown only once and stored in /srv/storagegate-data/root-credentials:
      AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... AWS_ENDPOINT_URL=... aws s3 ls
      curl -H 'x-storage-access-key: ...' -H 'x-storage-secret-key: ...' http://...
    Press Ctrl-C to stop. Documentation: docs/index.rst

The screen has at most L{MOST_LINES} lines. Without a terminal the log contains the same facts, one
a line.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from storagegate.objects.issuedkeys import KeyPair

MOST_LINES = 16
"""Lines that stay visible on a terminal of 24 lines, below the command and above the log."""

_MOST_WARNINGS = 2
"""Limit of the warnings on the screen; the log contains all of them."""

_BOLD, _DIM, _YELLOW, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"

_GIB = 1 << 30


@frozen
class NewKeyPair:
    """
    A root key pair that this start has generated.

    @ivar path: The file that keeps it.
    @ivar url: The URL of the S3 listener; C{None} if it is disabled.
    """

    pair: KeyPair
    path: str
    url: str | None


@frozen
class StartScreen:
    """
    The facts of one start.

    @ivar listeners: The URL or address of each listener, by label; C{None} for a disabled listener.
    @ivar directory: The data directory.
    @ivar freeBytes: The free space of its file system.
    @ivar newKeyPair: The root key pair, if it was generated.
    @ivar warnings: One sentence each.
    """

    version: str
    listeners: Mapping[str, str | None]
    directory: str
    freeBytes: int
    newKeyPair: NewKeyPair | None = None
    warnings: Sequence[str] = ()

    def text(self, hasColours: bool) -> str:
        """
        Return the screen as text with a final line break.

        @param hasColours: Whether the terminal shows colours.
        """

        def paint(text: str, colour: str) -> str:
            return f"{colour}{text}{_PLAIN}" if hasColours else text

        lines = [paint(f"storagegate {self.version}", _BOLD), ""]
        for label, place in self.listeners.items():
            lines.append(f"  {label:<9} {place or paint('off', _DIM)}")
        lines.append(f"  {'Data':<9} {self.directory}, {self.freeBytes / _GIB:.1f} GiB free")
        if self.newKeyPair is not None:
            lines += self._keyLines(self.newKeyPair)
        shown = self.warnings[:_MOST_WARNINGS]
        lines += [paint(f"Warning: {text}", _YELLOW) for text in shown]
        if len(self.warnings) > len(shown):
            more = len(self.warnings) - len(shown)
            lines[-1] += paint(f" ({more} more in the log)", _YELLOW)
        lines.append(paint("Press Ctrl-C to stop. Documentation: docs/index.rst", _DIM))
        assert len(lines) <= MOST_LINES
        return "\n".join(lines) + "\n"

    def _keyLines(self, new: NewKeyPair) -> list[str]:
        """Return the pair as one aws-cli command and one curl command."""
        access, secret = new.pair.accessKey, new.pair.secretKey
        lines = [f"Root key pair, shown only once and stored in {new.path}:"]
        if new.url is None:
            return [*lines, f"  {access} {secret}"]
        variables = f"AWS_ACCESS_KEY_ID={access} AWS_SECRET_ACCESS_KEY={secret}"
        headers = f"-H 'x-storage-access-key: {access}' -H 'x-storage-secret-key: {secret}'"
        return [
            *lines,
            f"  {variables} AWS_ENDPOINT_URL={new.url} aws s3 ls",
            f"  curl {headers} {new.url}",
        ]
