"""
The settings of Amazon's tools: the variables C{AWS_*} and the files C{~/.aws/credentials} and
C{~/.aws/config}, with the precedence of aws-cli::

    flag > variable > profile in the credentials file > profile in the configuration file

A profile must be named, by C{--profile} or C{AWS_PROFILE}. The profile C{default} gives its key
pair without being named if it has an C{endpoint_url}. Without one it is Amazon's, and the command
line, which sends secret keys, must not send that secret to another server.
"""

import os
from collections.abc import Mapping

from attrs import field, frozen

from storagegate.core.files import readSmallFile

_ACCESS_KEY, _SECRET_KEY, _TOKEN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""In the order of precedence."""

_DEFAULT = "default"

# Hundreds of profiles.
_FILE_LIMIT = 1 << 20


class AWSSettingsError(ValueError):
    """The settings cannot be used; the text is one line for the operator."""


@frozen
class S3Credentials:
    """
    A key pair with which a command calls a daemon.

    @ivar sessionToken: The token of a temporary key; empty for a permanent key.
    """

    accessKey: str
    secretKey: str = field(repr=False)
    sessionToken: str = field(repr=False, default="")


class AWSSettings:
    """The settings of one process. The files are read on first use."""

    def __init__(self, environment: Mapping[str, str], profile: str = "") -> None:
        """
        @param environment: The environment variables of the process.
        @param profile: The profile that a flag names, which overrides the variables of the key
            pair; empty for none.
        """
        self._environment = environment
        self._flag = profile
        self._named = profile or environment.get("AWS_PROFILE", "")

    def hasProfile(self, name: str) -> bool:
        """
        Return whether a file has a profile.

        @raise AWSSettingsError: A file is invalid.
        """
        return self._profile(name) is not None

    def credentials(self) -> S3Credentials | None:
        """
        Return the key pair; C{None} if there is none.

        @raise AWSSettingsError: The pair is incomplete, or the named profile does not exist.
        """
        given = {name: self._environment.get(name, "") for name in (_ACCESS_KEY, _SECRET_KEY)}
        if any(given.values()) and not self._flag:
            for name, value in given.items():
                if not value:
                    raise AWSSettingsError(f"{name} is not set, the other half of the pair is")
            token = self._environment.get(_TOKEN, "")
            return S3Credentials(given[_ACCESS_KEY], given[_SECRET_KEY], token)
        if self._named:
            profile = self._namedProfile()
        else:
            profile = self._profile(_DEFAULT) or {}
            if "endpoint_url" not in profile and not self._variable(_ENDPOINTS):
                return None
        access, secret = profile.get(_ACCESS_KEY.lower()), profile.get(_SECRET_KEY.lower())
        if not access and not secret:
            return None
        if not access or not secret:
            name = self._named or _DEFAULT
            raise AWSSettingsError(f"the profile {name} has only one half of the key pair")
        return S3Credentials(access, secret, profile.get(_TOKEN.lower(), ""))

    def region(self) -> str:
        """
        Return the region; empty if none is set.

        @raise AWSSettingsError: The named profile does not exist.
        """
        return self._setting(_REGIONS, "region")

    def endpoint(self) -> str:
        """
        Return the URL of S3; empty if none is set.

        @raise AWSSettingsError: The named profile does not exist.
        """
        return self._setting(_ENDPOINTS, "endpoint_url")

    def _setting(self, variables: tuple[str, ...], option: str) -> str:
        found = self._variable(variables)
        if self._flag or (self._named and not found):
            return self._namedProfile().get(option, "") or found
        return found

    def _variable(self, names: tuple[str, ...]) -> str:
        return next((self._environment[name] for name in names if self._environment.get(name)), "")

    def _namedProfile(self) -> Mapping[str, str]:
        found = self._profile(self._named)
        if found is None:
            paths = " and ".join(self._paths())
            raise AWSSettingsError(f"no profile {self._named} in {paths}")
        return found

    def _paths(self) -> tuple[str, str]:
        """Return the paths of the credentials file and the configuration file."""
        variables = ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
        defaults = ("~/.aws/credentials", "~/.aws/config")
        credentials, configuration = (
            os.path.expanduser(self._environment.get(name) or default)
            for name, default in zip(variables, defaults, strict=True)
        )
        return credentials, configuration

    def _profile(self, name: str) -> Mapping[str, str] | None:
        """Return a profile of both files, whose credentials file wins; C{None} for none."""
        credentials, configuration = map(_read, self._paths())
        section = name if name == _DEFAULT else f"profile {name}"
        parts = (configuration.get(section), credentials.get(name))
        found = [each for each in parts if each is not None]
        return {key: value for each in found for key, value in each.items()} if found else None


def _read(path: str) -> Mapping[str, Mapping[str, str]]:
    """
    Read the sections of a file; without the file there are none.

    @raise AWSSettingsError: The file is invalid or unreadable.
    """
    # Imported on first use: most commands read no such file.
    from configparser import Error, RawConfigParser

    parser = RawConfigParser(default_section="")
    try:
        parser.read_string(readSmallFile(path, _FILE_LIMIT).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise AWSSettingsError(f"{path}: {error.strerror}") from error
    except (ValueError, Error) as error:
        # The reason of the parser repeats lines, which may be secrets.
        raise AWSSettingsError(f"{path} is not a valid file of profiles") from error
    return {name: dict(parser.items(name)) for name in parser.sections()}
