"""
The systemd unit that C{storagegate init --unit} writes, and the user of its service.

The unit is the one in C{deploy/}, with the paths and the user of this installation; C{tests}
compare both, line by line.
"""

import os
import pwd
import subprocess
import sys
from pathlib import Path

from storagegate.cli.invocation import MISUSED, CommandError

SERVICE_USER = "storagegate"
"""The user of a unit that root creates, as in C{deploy/storagegate.sysusers}."""

_HOMES = ("/home", "/root", "/run/user")
"""The directories that C{ProtectHome=yes} hides."""

_CREATE_SECONDS = 60.0


def unitText(config: Path, data: Path, user: str) -> str:
    """
    Return a systemd unit that runs the daemon with this Python.

    @param config: The configuration, an absolute path.
    @param data: The data directory, an absolute path.
    @param user: The user of the service.
    @raise CommandError: One of the paths is invalid in a unit.
    """
    python, file = (_unitWord(str(each)).replace("$", "$$") for each in (sys.executable, config))
    isAtHome = any(_isAtHome(each) for each in (Path(sys.executable), config, data))
    return f"""\
# Made by storagegate init.

[Unit]
Description=storagegate: S3 server and protocol gateway
After=network-online.target
Wants=network-online.target
RequiresMountsFor={_unitWord(str(data))}

[Service]
Type=notify
NotifyAccess=main
ExecStart={python} -m storagegate serve --config {file}
ExecReload=kill -HUP $MAINPID
KillMode=mixed
User={user}
EnvironmentFile=-/etc/storagegate/environment
UMask=0077
TimeoutStartSec=300
TimeoutStopSec=45
WatchdogSec=30
Restart=on-failure
RestartSec=1
LimitNOFILE=1048576
LimitCORE=0
ProtectSystem=strict
ReadWritePaths={_unitWord(str(data))}
ProtectHome={"read-only" if isAtHome else "yes"}
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
LockPersonality=yes
RemoveIPC=yes
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def _unitWord(text: str) -> str:
    """
    Quote a word of a unit, in which percent signs and spaces are special; commands must also escape
    dollar signs.

    @raise CommandError: The word is invalid in a unit.
    """
    if not text.isprintable():
        raise CommandError(f"{text!a}: a systemd unit cannot contain this path", MISUSED)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if escaped != text or " " in text else text


def _isAtHome(path: Path) -> bool:
    return any(path.is_relative_to(each) for each in _HOMES)


def pythonWarning(user: str) -> str | None:
    """Return a warning if the service's user may be unable to run this Python; else L{None}."""
    if os.geteuid() or user == "root" or not _isAtHome(Path(sys.executable)):
        return None
    return f"the user {user} may be unable to read {sys.executable}: install it below /opt"


def serviceUser(data: Path, given: str | None) -> str:
    """
    Return the user of a new unit.

    @param data: The data directory; it need not exist.
    @param given: The requested user; L{None} to choose one.
    """
    if given is not None:
        return given
    owner = data.stat().st_uid if data.exists() else os.geteuid()
    if owner == 0:
        # The daemon never needs root.
        return SERVICE_USER
    try:
        return pwd.getpwuid(owner).pw_name
    except KeyError:
        return str(owner)


def ensureUser(user: str, data: Path) -> bool:
    """
    Create a system user if the user is absent and this process runs as root.

    @param data: The home directory.
    @return: Whether the user was created.
    @raise CommandError: The user cannot be created.
    """
    try:
        pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
        return False
    except KeyError:
        if os.geteuid() or user.isdecimal():
            raise CommandError(f"no such user: {user}", MISUSED) from None
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    command += ["--home-dir", str(data), "--shell", "/usr/sbin/nologin", "--", user]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_CREATE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"user {user} cannot be created: {error}") from error
    if done.returncode:
        raise CommandError(f"user {user} cannot be created: {' '.join(done.stderr.split())}")
    return True


def giveData(data: Path, config: Path, user: str, isNew: bool) -> None:
    """
    Give the files that root has created to the user of the service.

    @param isNew: Whether the data directory was created now.
    @raise CommandError: An existing data directory belongs to another user.
    """
    if os.geteuid():
        return
    found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    if found.pw_uid == 0:
        return
    if not isNew and data.stat().st_uid != found.pw_uid:
        raise CommandError(
            f"{data} does not belong to the user of the service: chown -R {user}: {data}"
        )
    for path in (data, *data.iterdir()):
        os.chown(path, found.pw_uid, found.pw_gid, follow_symlinks=False)
    if config.stat().st_uid == 0:
        # The service reads the file, and only root writes it.
        os.chown(config, 0, found.pw_gid)
        config.chmod(0o640)
