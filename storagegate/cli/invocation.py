"""
One run of a command: its flags, its output, and the store that it works on.

A command works on a store in one of two ways: on the data directory that the daemon's configuration
names, with or without a running daemon; or, with C{--url} or C{--profile}, over the console's API
of any daemon, with a key pair from a profile, the environment or the settings of Amazon's tools.
An operation that requires a running daemon uses the API in both cases: a file in the data directory
names the local daemon's console, which is used with the root pair.
"""

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from storagegate.cli.awssettings import AWSSettings, AWSSettingsError, S3Credentials
from storagegate.cli.output import CommandOutput
from storagegate.core.files import readSmallFile

if TYPE_CHECKING:
    from storagegate.daemon.config import Configuration

T = TypeVar("T")

FAILED = 1
"""Exit code of a command that failed or found problems."""

MISUSED = 2
"""Exit code for an invalid command line."""

UNREACHED = 3
"""Exit code if the daemon does not run or is unreachable."""

INTERRUPTED = 130
"""Exit code if a signal has interrupted the command."""

_CONFIG_VARIABLE = "STORAGEGATE_CONFIG"

PAIR_VARIABLES = ("STORAGEGATE_ACCESS_KEY", "STORAGEGATE_SECRET_KEY")
"""The environment variables of the key pair for C{--url}, before those of Amazon's tools."""

# A dozen daemons with four lines each.
_FILE_LIMIT = 1 << 16


class CommandError(Exception):
    """
    A command failed; the text is one line for the operator.

    @ivar code: The exit code.
    @ivar error: The error code of the API; empty for other errors.
    """

    def __init__(self, reason: str, code: int = FAILED, error: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.error = error


class Invocation:
    """
    A run of a command.

    @ivar options: The flags.
    @ivar environment: The environment variables of the process.
    """

    def __init__(
        self, options: argparse.Namespace, output: CommandOutput, environment: Mapping[str, str]
    ) -> None:
        self.options = options
        self.output = output
        self.environment = environment

    @cached_property
    def flags(self) -> dict[str, Any]:
        """The flags of the daemon by name; L{None} for an absent flag."""
        from storagegate.daemon.configkeys import KEYS

        options = self.options
        flags = {key.name: getattr(options, key.name, None) for key in KEYS if key.argument}
        given = getattr(options, "config", None)
        return {**flags, "config": given or self.environment.get(_CONFIG_VARIABLE)}

    @cached_property
    def configuration(self) -> "Configuration":
        """
        The configuration as the daemon would read it.

        @raise CommandError: The daemon could not start with it.
        """
        from storagegate.daemon.config import ConfigurationError, load

        try:
            return load(self.flags, self.environment)
        except ConfigurationError as error:
            raise CommandError(str(error)) from error

    @property
    def data(self) -> str:
        """The data directory."""
        return self.configuration.store.directory

    @property
    def isRemote(self) -> bool:
        """Whether C{--url} or C{--profile} names a daemon."""
        return bool(getattr(self.options, "url", None) or getattr(self.options, "profile", None))

    @cached_property
    def credentials(self) -> S3Credentials | None:
        """
        The key pair: of the profile that C{--profile} names, if it has one, otherwise of the
        environment, otherwise of Amazon's settings.

        @raise CommandError: Only one half of the pair is set, or a profile is absent.
        """
        profile = self.profile
        halves = [profile.get("accessKey", ""), profile.get("secretKey", "")]
        if not any(halves) and not self._amazonProfile:
            halves = [self.environment.get(name, "") for name in PAIR_VARIABLES]
        if not any(halves):
            return self.amazon(AWSSettings.credentials)
        if not all(halves):
            raise CommandError("only one half of the key pair is set", MISUSED)
        return S3Credentials(*halves)

    def amazon(self, read: Callable[[AWSSettings], T]) -> T:
        """
        Read one of Amazon's settings.

        @raise CommandError: The settings are invalid, or name a profile that does not exist.
        """
        try:
            return read(AWSSettings(self.environment, self._amazonProfile))
        except AWSSettingsError as error:
            raise CommandError(str(error), MISUSED) from error

    @cached_property
    def _amazonProfile(self) -> str:
        """C{--profile}, if only the files of Amazon's tools have that profile; otherwise empty."""
        name: str = getattr(self.options, "profile", None) or ""
        path = profilesPath(self.environment)
        if not name or (path.exists() and name in _readProfiles(path)):
            return ""
        settings = AWSSettings(self.environment)
        try:
            return name if settings.hasProfile(name) else ""
        except AWSSettingsError as error:
            raise CommandError(str(error), MISUSED) from error

    @cached_property
    def profile(self) -> Mapping[str, str]:
        """
        The profile that C{--profile} names; empty without it, and for a profile of Amazon's tools.

        @raise CommandError: The profile is absent or invalid.
        """
        name = getattr(self.options, "profile", None)
        if not name or self._amazonProfile:
            return {}
        return _readProfile(profilesPath(self.environment), name)


def profilesPath(environment: Mapping[str, str]) -> Path:
    """Return the path of the profiles file."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "storagegate" / "profiles.toml"


_PROFILE_KEYS = ("url", "accessKey", "secretKey", "caFile")


def _readProfiles(path: Path) -> Mapping[str, Any]:
    """
    Read all profiles of the file.

    @raise CommandError: The file is absent or invalid, or other users may read it.
    """
    try:
        mode = path.stat().st_mode
        table = tomllib.loads(readSmallFile(str(path), _FILE_LIMIT).decode("utf-8"))
    except FileNotFoundError as error:
        raise CommandError(f"{path} does not exist", MISUSED) from error
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {error}", MISUSED) from error
    if mode & 0o077:
        raise CommandError(
            f"{path} contains secrets that other users can read: chmod 600 {path}", MISUSED
        )
    return table


def _readProfile(path: Path, name: str) -> Mapping[str, str]:
    """
    Read a profile from the file.

    @raise CommandError: The profile is absent or invalid.
    """
    table = _readProfiles(path)
    profile = table.get(name)
    if not isinstance(profile, dict):
        known = ", ".join(sorted(table)) or "none"
        raise CommandError(f"{path} has no profile [{name}]; it has {known}", MISUSED)
    for key, value in profile.items():
        if key not in _PROFILE_KEYS or not isinstance(value, str):
            keys = ", ".join(_PROFILE_KEYS)
            raise CommandError(f"{path}: {name}.{key}: the keys are {keys}, all strings", MISUSED)
    return profile
