"""
C{storagegate init}: creates a data directory, a configuration and a systemd unit.

Existing files and directories are not changed, so the command can be repeated. Questions are asked
only on a terminal, and correspond to the flags.
"""

import tomllib
from pathlib import Path
from typing import Any

from attrs import define, field

from storagegate.cli.invocation import MISUSED, CommandError, Invocation
from storagegate.cli.output import ask, isAsking
from storagegate.cli.unit import ensureUser, giveData, pythonWarning, serviceUser, unitText
from storagegate.core.files import readSmallFile
from storagegate.daemon.config import ConfigurationError, load
from storagegate.daemon.configkeys import KEYS
from storagegate.daemon.rootcredentials import CredentialsError, loadOrCreate, shellText
from storagegate.daemon.rootcredentials import load as loadPair
from storagegate.daemon.service import ROOT_FILE
from storagegate.objects.issuedkeys import KeyPair
from storagegate.storage.files import DirectoryLock, createFile, makeDirectory

_DEFAULTS = {key.name: key.default for key in KEYS}

_DATA = "./storagegate-data"
_CONFIG = "./storagegate.toml"

_FILE_LIMIT = 1 << 20


@define
class _Made:
    """The paths that were created, and the paths that existed."""

    made: list[str] = field(factory=list)
    kept: list[str] = field(factory=list)

    def note(self, path: Path, isMade: bool) -> None:
        (self.made if isMade else self.kept).append(str(path))


def init(invocation: Invocation) -> int:
    """Create the missing files; print the root key pair, if it was generated now."""
    options, output = invocation.options, invocation.output
    isAsked = isAsking() and not options.yes and not output.isJSON
    config = Path(_answer(isAsked, options.config, "configuration", _CONFIG)).absolute()
    isKept = config.exists()
    values = _readValues(config)
    for name in ("data", "s3", "admin"):
        default = str(values.get(name) or (_DATA if name == "data" else _DEFAULTS[name]))
        if name in values:
            if getattr(options, name) not in (None, values[name]):
                raise CommandError(f"{config} has {name} = {values[name]!r} already", MISUSED)
            continue
        meaning = {"data": "data directory", "s3": "S3 listener", "admin": "admin listener"}[name]
        values[name] = _answer(isAsked, getattr(options, name), meaning, default)
        if isKept and values[name] != default:
            # The daemon reads the file, not these flags.
            raise CommandError(
                f"{config} exists without {name}: add {name} = {_toml(values[name])}", MISUSED
            )
    # The file may be used from any working directory.
    values["data"] = str(Path(values["data"]).absolute())
    _check(values)
    made = _Made()
    data = Path(values["data"])
    text = user = ""
    if options.unit:
        # Checked before any change: a unit may be impossible.
        user = serviceUser(data, options.user)
        text = unitText(config, data, user)
        if ensureUser(user, data):
            made.made.append(f"user {user}")
    isNewData = not data.exists()
    made.note(data, isNewData)
    makeDirectory(str(data), 0o700)
    made.note(config, _write(config, _configurationText(values), 0o600))
    pair, isNew = _rootPair(data, values)
    if options.unit:
        giveData(data, config, user, isNewData)
        unit = Path(options.unit).absolute()
        made.note(unit, _write(unit, text, 0o644))
    shown = {"accessKey": pair.accessKey, "secretKey": pair.secretKey} if isNew else {}
    lines = [*(f"made {each}" for each in made.made), *(f"kept {each}" for each in made.kept)]
    if isNew:
        lines += ["the root key pair, shown only once:", *shellText(pair).splitlines()]
    warning = pythonWarning(user) if user else None
    if warning is not None:
        lines.append(f"warning: {warning}")
    lines.append(f"start it: storagegate serve --config {config}")
    output.result({"made": made.made, "kept": made.kept, "config": str(config), **shown}, lines)
    return 0


def _answer(isAsked: bool, given: str | None, meaning: str, default: str) -> str:
    if given is not None:
        return given
    return ask(meaning, default) if isAsked else default


def _readValues(config: Path) -> dict[str, Any]:
    """
    Return the keys of the configuration, if it exists.

    @raise CommandError: The file is unreadable or invalid.
    """
    try:
        return tomllib.loads(readSmallFile(str(config), _FILE_LIMIT).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CommandError(f"{config}: {error}") from error


def _check(values: dict[str, Any]) -> None:
    """
    Refuse values with which the daemon would not start.

    @raise CommandError: A value is invalid.
    """
    try:
        load({name: values[name] for name in ("data", "s3", "admin")}, {})
    except ConfigurationError as error:
        raise CommandError(str(error), MISUSED) from error


def _rootPair(data: Path, values: dict[str, Any]) -> tuple[KeyPair, bool]:
    """Return the root pair, and whether it was generated now."""
    if "accessKey" in values:
        return KeyPair(str(values["accessKey"]), str(values.get("secretKey"))), False
    path = str(data / ROOT_FILE)
    try:
        pair = loadPair(path)
        if pair is not None:
            return pair, False
        # A daemon that serves the directory has a different pair.
        lock = DirectoryLock.take(str(data))
        try:
            return loadOrCreate(path)
        finally:
            lock.release()
    except CredentialsError as error:
        raise CommandError(str(error)) from error


def _write(path: Path, text: str, mode: int) -> bool:
    """Write a file atomically unless it exists; return whether it was written."""
    if path.exists():
        return False
    makeDirectory(str(path.parent), 0o755)
    try:
        createFile(str(path), text.encode())
    except FileExistsError:
        return False
    path.chmod(mode)
    return True


def _configurationText(values: dict[str, Any]) -> str:
    lines = ["# Created by storagegate init. docs/keys.rst lists all keys."]
    for key in KEYS:
        if key.name in ("data", "s3", "admin"):
            lines += ["", f"# {key.meaning}", f"{key.name} = {_toml(values[key.name])}"]
    return "\n".join(lines) + "\n"


def _toml(value: str) -> str:
    """Encode a text as TOML, which shares JSON's escapes."""
    import json

    return json.dumps(value, ensure_ascii=False)
