"""
The commands: one table, from which the parser, the documentation page, the shell completion and the
tests are generated.

A command's function is imported on first use: C{storagegate --help} imports only this table.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pkgutil import resolve_name
from typing import Any

from attrs import frozen

_PACKAGE = "storagegate.cli"

CERTIFICATE_DAYS = 14
"""Days before expiry at which a certificate gets a warning: time to repair a failed renewal."""


class CommandPlace(Enum):
    """The scope of a command, which determines its common flags."""

    NOWHERE = 0
    """No scope: the command has no common flags."""
    DATA = 1
    """The data directory, or the configuration."""
    EITHER = 2
    """The same, or the API of a daemon."""
    DAEMON = 3
    """The daemon itself: the command has the daemon's flags."""


@frozen
class Argument:
    """
    An argument of a command.

    @ivar names: The names of a flag, with hyphens; or the name of a positional argument.
    @ivar settings: The keyword arguments of C{add_argument}.
    """

    names: tuple[str, ...]
    settings: Mapping[str, Any]


@frozen
class Command:
    """
    A row of the table.

    @ivar path: The words of the command.
    @ivar function: C{module:function} in this package; it takes an
        L{Invocation<storagegate.cli.invocation.Invocation>} and returns the exit code.
    @ivar meaning: The description of the command, in the imperative.
    @ivar isStream: Whether C{--json} prints one object per record instead of one in total.
    """

    path: str
    function: str
    meaning: str
    place: CommandPlace = CommandPlace.EITHER
    arguments: tuple[Argument, ...] = ()
    isStream: bool = False

    @property
    def run(self) -> Callable[[Any], int]:
        """The function, imported on first use."""
        found: Callable[[Any], int] = resolve_name(f"{_PACKAGE}.{self.function}")
        return found


def reader(name: str) -> Callable[[str], Any]:
    """
    Make the type of an argument from a reader that raises C{ValueError}.

    @param name: C{module:function} in C{storagegate}, imported on first use.
    """

    def convert(value: str) -> Any:
        try:
            return resolve_name(f"storagegate.{name}")(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def _arg(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def _switch(name: str, meaning: str) -> Argument:
    return Argument((name,), {"action": "store_true", "help": meaning})


_KEYS = "objects.issuedkeys"
_POLICIES = ("readwrite", "readonly", "writeonly")
_ROLES = ("none", "auditor", "admin")
_ACCESSES = ("read", "write", "list", "admin")
_OWNERSHIPS = ("ObjectWriter", "BucketOwnerPreferred", "BucketOwnerEnforced")
_ENCRYPTIONS = ("none", "sse-s3", "sse-kms")
_WIRES = "http|websocket|grpc|udp|tcp"
TOOLS = ("aws", "rclone", "mc", "restic", "s5cmd", "boto3")
SHELLS = ("bash", "zsh", "fish")

_ACCESS_KEY = _arg(
    "--access-key", dest="accessKey", required=True, metavar="K", help="the name of the key"
)
_TO = _arg("--to", required=True, metavar="DIR", help="a directory that is empty or does not exist")
_REPAIR = _switch("--repair", "make the repairs that lose no data")
_SHARD = _arg("number", type=int, metavar="NUMBER", help="the number of the shard")
_VERIFY = _switch("--verify", "verify the checksum of every byte")
_TARGET = _arg(
    "target",
    metavar="MODULE[:OBJECT]",
    help="a gateway, an application or a service; by default the only one of the module",
)
_OUT = _arg("--out", metavar="FILE", help="the file to write, instead of standard output")
_BUCKET = _arg("bucket", metavar="BUCKET", help="the name of the bucket")
_MASTER_KEY = _arg(
    "name",
    metavar="NAME",
    nargs="?",
    help="the name of the key; default: the default key",
)


_ACCOUNT = _arg(
    "--account", required=True, type=reader(f"{_KEYS}:readName"), metavar="NAME", help="the account"
)
_USER = _arg("name", metavar="USER", help="the name of the user")
_ROLE = _arg("--role", dest="isRole", action="store_true", help="the name of a role instead")
_GROUP = _arg("name", metavar="GROUP", help="the name of the group")
_MEMBER = _arg("userName", metavar="USER", help="the name of the user")
_MANAGED = _arg("name", metavar="POLICY", help="the ARN or the name of the managed policy")
_INLINE = _arg("name", metavar="NAME", help="the name of the inline policy")
_PATH = _arg("--path", metavar="PATH", help="the path, such as /staff/; default: /")
_POLICY_FILE = _arg(
    "--policy-file",
    dest="policyFile",
    required=True,
    metavar="FILE",
    help="the policy, JSON; - reads standard input",
)
_HOLDERS = tuple(
    _arg(f"--{kind}", dest=f"{kind}Name", metavar="NAME", help=f"the {kind} that has the policy")
    for kind in ("user", "group", "role")
)


def _identities(path: str, function: str, meaning: str, *arguments: Argument) -> "Command":
    """Return a command on the users, groups and policies of an account."""
    return Command(path, f"identities:{function}", meaning, arguments=(*arguments, _ACCOUNT))


def _keyFields(emptied: str) -> tuple[Argument, ...]:
    """
    Return the flags for the fields of a key.

    @param emptied: Appended to the help of a text that an empty value removes.
    """
    rows = (
        ("--email", "readName", "ADDRESS", "the email address in keys list"),
        (
            "--bucket",
            "readBucketPattern",
            "PATTERN",
            "limit the key to matching buckets; * matches any characters, ? one character",
        ),
        (
            "--prefix",
            "readKeyPattern",
            "PREFIX|PATTERN",
            "limit the key to object keys with this prefix; with * or ?, to matching keys",
        ),
        ("--note", "readNote", "TEXT", "a note for operators"),
    )

    def typeOf(name: str) -> Callable[[str], Any]:
        read = reader(f"{_KEYS}:{name}")
        return (lambda value: read(value) if value else value) if emptied else read

    return (
        *(
            _arg(flag, type=typeOf(read), metavar=metavar, help=meaning + emptied)
            for flag, read, metavar, meaning in rows
        ),
        _arg("--role", choices=_ROLES, help="the administrative role of the key"),
        _arg(
            "--expires",
            type=reader("cli.keys:readExpires"),
            metavar="TIME",
            help="the time of expiry, in the future: 90d, 12h, 2030-12-31, or never",
        ),
    )


COMMANDS: tuple[Command, ...] = (
    Command(
        "serve",
        "daemon:serve",
        "start the daemon in the foreground, as twistd -n storagegate does",
        CommandPlace.DAEMON,
    ),
    Command(
        "run",
        "run:run",
        "serve an application, a gRPC server or a gateway of a Python module",
        CommandPlace.NOWHERE,
        (
            _arg(
                "target",
                metavar="MODULE:APP",
                help="the module and the name of the server in it, of a value of serve(), or of a"
                " function that returns one, as in MODULE:create()",
            ),
            _arg(
                "--workers",
                type=reader("cli.run:readCount"),
                default=1,
                metavar="N",
                help="the number of processes; SIGHUP replaces them with processes that run the new"
                " code; 0 serves without a supervisor",
            ),
            _switch("--reload", "replace the workers when a source file changes: for development"),
            _arg(
                "--grace",
                dest="graceSeconds",
                type=reader("cli.run:readCount"),
                default=30,
                metavar="SECONDS",
                help="the time that requests in flight get at a stop",
            ),
            _arg("--reactor", choices=("default", "asyncio"), help="the reactor of the program"),
            _switch("--quiet", "print warnings and errors only"),
        ),
    ),
    Command(
        "init",
        "initialisation:init",
        "create a data directory, a configuration file and a systemd unit",
        CommandPlace.NOWHERE,
        (
            _arg(
                "--data",
                metavar="DIR",
                help="the data directory; on a terminal the command asks for it",
            ),
            _arg("--config", metavar="FILE", help="the configuration file to write"),
            _arg("--unit", metavar="FILE", help="the unit file to write; default: no unit"),
            _arg(
                "--user", metavar="NAME", help="the user of the unit; default for root: storagegate"
            ),
            _arg("--s3", metavar="ENDPOINT", help="the S3 listener"),
            _arg("--admin", metavar="ENDPOINT", help="the admin listener"),
            _switch("--yes", "do not ask questions"),
        ),
    ),
    Command("status", "status:status", "print the state of the daemon and its store"),
    Command(
        "keys create",
        "keys:create",
        "issue a key pair and print it once",
        arguments=(
            _arg(
                "--account",
                required=True,
                type=reader(f"{_KEYS}:readName"),
                metavar="NAME",
                help="the owner of the buckets that the key creates",
            ),
            _arg(
                "--access-key",
                dest="accessKey",
                type=reader(f"{_KEYS}:readCredential"),
                metavar="K",
                help="the access key, instead of a generated one; needs --secret-stdin",
            ),
            _switch("--secret-stdin", "read the secret from standard input"),
            _arg(
                "--policy",
                choices=_POLICIES,
                default="readwrite",
                help="the permissions of the key",
            ),
            *_keyFields(""),
            _arg(
                "--user",
                type=reader(f"{_KEYS}:readName"),
                metavar="NAME",
                help="make a key of a user, with the rights of its policies",
            ),
            _arg(
                "--parent",
                type=reader(f"{_KEYS}:readName"),
                metavar="K",
                help="make a service key, with at most the rights of this key or user/NAME",
            ),
            _arg(
                "--policy-file",
                dest="policyFile",
                metavar="FILE",
                help="a policy that must also allow each request of the service key, JSON; needs"
                " --parent",
            ),
            _switch("--reuse", "issue it even if buckets still name its removed account or user"),
        ),
    ),
    Command("keys list", "keys:listKeys", "list the issued keys without their secrets"),
    Command(
        "keys edit",
        "keys:edit",
        "change a key, or rotate its secret",
        arguments=(
            _ACCESS_KEY,
            _arg("--policy", choices=_POLICIES, help="the permissions of the key"),
            *_keyFields("; empty for none"),
            _arg(
                "--disabled",
                choices=("yes", "no"),
                help="whether requests with the key are refused",
            ),
            _switch("--new-secret", "rotate the secret and print the new one once"),
        ),
    ),
    Command("keys revoke", "keys:revoke", "revoke a key", arguments=(_ACCESS_KEY,)),
    Command(
        "keys judge",
        "keys:judge",
        "show whether a key allows an access, and the rule that decides",
        arguments=(
            _ACCESS_KEY,
            _arg("--access", required=True, choices=_ACCESSES, help="the kind of access"),
            _arg("--bucket", required=True, metavar="BUCKET", help="the name of the bucket"),
            _arg("--key", metavar="KEY", help="the key of the object; default: any key"),
        ),
    ),
    _identities("users list", "listUsers", "list the users of an account"),
    _identities(
        "users create",
        "createUser",
        "create a user, who has no rights and no keys",
        _USER,
        _PATH,
        _arg(
            "--tag",
            dest="tags",
            action="append",
            type=reader("cli.identities:readTag"),
            metavar="KEY=VALUE",
            help="a tag; can be repeated",
        ),
    ),
    _identities("users show", "showUser", "show a user with its groups, policies and keys", _USER),
    _identities(
        "users delete", "deleteUser", "delete a user without keys, policies and groups", _USER
    ),
    _identities(
        "users disable",
        "disableUser",
        "refuse all keys of a user, its sign-ins and its sessions; or a role and its sessions",
        _USER,
        _ROLE,
    ),
    _identities("users enable", "enableUser", "enable a disabled user or role", _USER, _ROLE),
    _identities(
        "users revoke-sessions",
        "revokeSessions",
        "end the sessions of a user or a role: its temporary keys and their presigned URLs",
        _USER,
        _ROLE,
    ),
    _identities("groups list", "listGroups", "list the groups of an account with their users"),
    _identities("groups create", "createGroup", "create a group", _GROUP, _PATH),
    _identities(
        "groups delete", "deleteGroup", "delete a group without users and policies", _GROUP
    ),
    _identities("groups add", "addToGroup", "add a user to a group", _GROUP, _MEMBER),
    _identities("groups remove", "removeFromGroup", "remove a user from a group", _GROUP, _MEMBER),
    _identities("policies list", "listPolicies", "list the managed policies of an account"),
    _identities(
        "policies create",
        "createPolicy",
        "create a managed policy",
        _arg("name", metavar="NAME", help="the name of the policy"),
        _POLICY_FILE,
        _PATH,
    ),
    _identities(
        "policies show",
        "showPolicy",
        "print a managed policy, or with --user, --group or --role an inline policy",
        _arg("name", metavar="POLICY", help="the ARN or the name of the policy"),
        *_HOLDERS,
    ),
    _identities(
        "policies delete", "deletePolicy", "delete a managed policy that is not attached", _MANAGED
    ),
    _identities(
        "policies attach",
        "attachPolicy",
        "attach a managed policy to a user, group or role",
        _MANAGED,
        *_HOLDERS,
    ),
    _identities(
        "policies detach",
        "detachPolicy",
        "detach a managed policy from a user, group or role",
        _MANAGED,
        *_HOLDERS,
    ),
    _identities(
        "policies put",
        "putPolicy",
        "add an inline policy to a user, group or role, or replace it",
        _INLINE,
        _POLICY_FILE,
        *_HOLDERS,
    ),
    _identities(
        "policies remove",
        "removePolicy",
        "remove an inline policy of a user, group or role",
        _INLINE,
        *_HOLDERS,
    ),
    Command(
        "buckets list",
        "buckets:listBuckets",
        "list buckets",
        arguments=(_arg("--prefix", metavar="PREFIX", help="only names with this prefix"),),
    ),
    Command(
        "buckets create",
        "buckets:create",
        "create a bucket",
        arguments=(
            _BUCKET,
            _switch("--locked", "enable object lock, which implies versioning"),
            _arg("--ownership", choices=_OWNERSHIPS, help="the object ownership"),
        ),
    ),
    Command("buckets delete", "buckets:delete", "delete an empty bucket", arguments=(_BUCKET,)),
    Command(
        "buckets usage",
        "buckets:usage",
        "print the number of objects and bytes in each bucket",
        arguments=(_arg("--prefix", metavar="PREFIX", help="only names with this prefix"),),
    ),
    Command(
        "buckets encryption",
        "buckets:encryption",
        "print or change the encryption of new objects in a bucket",
        arguments=(
            _BUCKET,
            _arg("--set", choices=_ENCRYPTIONS, help="the encryption of objects that name none"),
            _arg(
                "--key",
                dest="masterKey",
                metavar="NAME",
                help="the master key for sse-kms; default: the default key",
            ),
            _arg(
                "--block-sse-c",
                dest="blockSSEC",
                choices=("yes", "no"),
                help="whether writes with keys of clients are refused",
            ),
        ),
    ),
    Command(
        "share",
        "buckets:share",
        "make a presigned URL to read an object without a key",
        arguments=(
            _BUCKET,
            _arg("key", metavar="KEY", help="the key of the object"),
            _arg(
                "--expires",
                type=reader("cli.keys:readDuration"),
                default="1h",
                metavar="TIME",
                help="the time until the URL expires: 30m, 12h, at most 7d",
            ),
            _switch("--download", "make browsers save the object instead of showing it"),
            _arg("--version-id", dest="versionId", metavar="ID", help="the version of the object"),
        ),
    ),
    Command(
        "trace",
        "trace:trace",
        "print requests as they are handled, until interrupted",
        arguments=(
            _arg("--wire", metavar=f"s3|{_WIRES}", help="only requests over this protocol"),
            _arg("--operation", metavar="NAME", help="only this operation, or Service.method"),
            _arg("--status", metavar="STATUS", help="only this status: 404, 4xx, or error"),
            _arg("--key", metavar="K", help="only requests with this access key"),
            _arg("--bucket", metavar="BUCKET", help="only requests to this bucket"),
            _arg("--prefix", metavar="PREFIX", help="only objects whose keys have this prefix"),
            _arg(
                "--slower-than",
                dest="slowerThanMs",
                type=float,
                metavar="MS",
                help="only requests that took at least this many milliseconds",
            ),
            _arg("--count", type=int, metavar="N", help="exit after this many requests"),
        ),
        isStream=True,
    ),
    Command(
        "call",
        "calls:call",
        "call a method of a service over a protocol of the daemon or another gateway",
        arguments=(
            _arg("method", metavar="SERVICE.METHOD", help="the method"),
            _arg(
                "--to",
                metavar="URL",
                help="the URL of a gateway to call instead of the daemon, such as ws://host:8080/ws;"
                " --cacert has the authorities for TLS",
            ),
            _arg("--wire", metavar=_WIRES, help="the protocol; default: http"),
            _arg(
                "--request",
                action="append",
                metavar="JSON",
                help="a request; may be repeated; - for lines of JSON from standard input",
            ),
            _switch("--stream", "with --to: send the requests as a stream"),
            _arg(
                "--metadata",
                action="append",
                metavar="NAME=VALUE",
                help="metadata of the call; may be repeated",
            ),
            _arg(
                "--token-variable",
                dest="tokenVariable",
                metavar="NAME",
                help="the environment variable with the token of the call",
            ),
            _arg(
                "--deadline",
                dest="deadlineMs",
                type=int,
                default=10_000,
                metavar="MS",
                help="the timeout of the call in milliseconds",
            ),
        ),
    ),
    Command(
        "masterkeys create",
        "masterkeys:create",
        "create a master key of encryption",
        arguments=(_MASTER_KEY,),
    ),
    Command("masterkeys list", "masterkeys:listMasterKeys", "list the master keys of encryption"),
    Command(
        "masterkeys rotate",
        "masterkeys:rotate",
        "add a version to a master key; earlier versions still open what they wrapped",
        arguments=(_MASTER_KEY,),
    ),
    Command(
        "masterkeys disable",
        "masterkeys:disable",
        "disable a master key: objects that need it can be neither written nor read",
        arguments=(_MASTER_KEY,),
    ),
    Command(
        "masterkeys enable",
        "masterkeys:enable",
        "enable a disabled master key",
        arguments=(_MASTER_KEY,),
    ),
    Command(
        "masterkeys rewrap",
        "masterkeys:rewrap",
        "wrap all bucket keys under the last versions of their master keys",
    ),
    Command(
        "proto",
        "generated:proto",
        "print the .proto file of services, and update the lock of its numbers",
        CommandPlace.NOWHERE,
        (
            _TARGET,
            _arg(
                "--lock",
                metavar="FILE",
                help="the lock; default: grpc.protoLock of the server, or MODULE.proto.lock",
            ),
            _switch("--check", "change nothing, and fail if a file is out of date: for CI"),
            _arg(
                "--rename",
                action="append",
                metavar="OLD=NEW",
                help="a renamed field, Note.text=body, message or member of an enum;"
                " may be repeated",
            ),
            _arg(
                "--remove",
                action="append",
                metavar="NAME",
                help="a field, method or service whose end is intended; may be repeated",
            ),
            _arg("--package", metavar="NAME", help="the package to print, if there are several"),
            _OUT,
        ),
    ),
    Command(
        "client",
        "generated:client",
        "print a client of services or routes for browsers and other programs",
        CommandPlace.NOWHERE,
        (
            _TARGET,
            _arg(
                "--typescript",
                action="store_true",
                required=True,
                help="in TypeScript, over HTTP and WebSocket",
            ),
            _switch("--check", "change nothing, and fail if the file of --out is out of date"),
            _OUT,
        ),
    ),
    Command(
        "config show",
        "configuration:show",
        "print each configuration key with its value and origin",
    ),
    Command(
        "config check",
        "configuration:check",
        "report all mistakes in the configuration",
        CommandPlace.DATA,
    ),
    Command("config reload", "configuration:reload", "reload the configuration, as SIGHUP does"),
    Command(
        "clock confirm",
        "maintenance:confirmClock",
        "trust the clock after it was set, to resume removals by date",
    ),
    Command(
        "connect",
        "connect:connect",
        "print the settings of an S3 client and where to put them",
        arguments=(
            _arg("tool", choices=TOOLS, metavar="|".join(TOOLS), help="the client"),
            _arg("--endpoint", metavar="URL", help="the URL of S3 for the client"),
            _arg("--region", metavar="REGION", help="the region of signatures"),
            _arg("--access-key", dest="accessKey", metavar="K", help="the access key"),
            _arg(
                "--bucket", metavar="BUCKET", default="my-bucket", help="the bucket in the examples"
            ),
            _switch("--with-secret", "also print the secret key of the environment or the profile"),
        ),
    ),
    Command(
        "completion",
        "completion:completion",
        "print the completion script of a shell",
        CommandPlace.NOWHERE,
        (_arg("shell", choices=SHELLS, metavar="|".join(SHELLS), help="the shell"),),
    ),
    Command(
        "fsck",
        "maintenance:fsck",
        "check the data; the daemon must not run",
        CommandPlace.DATA,
        (_REPAIR, _VERIFY),
    ),
    Command(
        "recover",
        "maintenance:recover",
        "copy the blobs of a store without a catalog; the daemon must not run",
        CommandPlace.DATA,
        (_TO,),
    ),
    Command(
        "backup",
        "maintenance:backup",
        "make a consistent copy of the data; the daemon may run",
        CommandPlace.DATA,
        (
            _TO,
            _switch("--verify", "read every byte of the copy"),
            _arg(
                "--blobs-with",
                dest="blobsWith",
                metavar="COMMAND",
                help="for a cluster: a shell command that copies the"
                " blobs; none is removed meanwhile",
            ),
            _arg(
                "--with-keys",
                dest="withKeys",
                action="store_true",
                help="copy the file of the master keys, too",
            ),
        ),
    ),
    Command(
        "restore",
        "maintenance:restore",
        "restore a backup to a data directory or a cluster, completely or not at all",
        CommandPlace.DATA,
        (
            _arg("--from", dest="source", required=True, metavar="BACKUP", help="the backup"),
            _arg(
                "--to",
                metavar="DIR",
                help="a directory that is empty or does not exist; default: the configured cluster",
            ),
            _switch("--verify", "read every byte of the copy"),
            _switch("--partial", "restore the intact objects even if blobs are missing or damaged"),
        ),
    ),
    Command(
        "cluster init",
        "cluster:init",
        "initialise a store over several machines and print its root key pair once",
        CommandPlace.DATA,
    ),
    Command(
        "cluster status",
        "cluster:status",
        "print the nodes, servers and garbage of the cluster",
        CommandPlace.DATA,
    ),
    Command(
        "cluster migrate",
        "cluster:migrate",
        "move a store to the cluster or back, or a bucket to another cluster",
        CommandPlace.DATA,
        (
            _arg("--from", dest="source", metavar="DATA", help="a data directory"),
            _arg(
                "--to",
                dest="target",
                metavar="DATA",
                help="a directory that is empty or does not exist",
            ),
            _arg("--bucket", metavar="NAME", help="a bucket; needs --to-config"),
            _arg(
                "--to-config",
                dest="toConfig",
                metavar="FILE",
                help="the configuration of the cluster that receives the bucket",
            ),
            _switch("--abandon", "abandon an unfinished migration"),
        ),
    ),
    Command(
        "cluster fsck",
        "cluster:fsck",
        "compare the catalog of the cluster with its blobs",
        CommandPlace.DATA,
        (_REPAIR, _VERIFY),
    ),
    Command("cluster shard list", "cluster:listShards", "print the shards", CommandPlace.DATA),
    Command(
        "cluster shard add",
        "cluster:addShard",
        "add an empty database as the next shard",
        CommandPlace.DATA,
        (_arg("conninfos", metavar="CONNINFO", nargs="+", help="one for each server"),),
    ),
    Command(
        "cluster shard open",
        "cluster:openShard",
        "allow new buckets in a shard that all nodes know",
        CommandPlace.DATA,
        (_SHARD,),
    ),
    Command(
        "cluster shard close",
        "cluster:closeShard",
        "allow no new buckets in a shard",
        CommandPlace.DATA,
        (_SHARD,),
    ),
    Command(
        "doctor",
        "daemon:doctor",
        "check the machine and the configuration for problems",
        CommandPlace.DAEMON,
        (
            _arg(
                "--days",
                type=int,
                default=CERTIFICATE_DAYS,
                metavar="N",
                help="warn of certificates that expire within this many days",
            ),
        ),
    ),
)
"""All commands, in the order of the documentation."""

GROUPS = {
    "keys": "issue, list, change and revoke access keys",
    "users": "create, list and delete the users of an account",
    "groups": "create, list and delete groups, and change their users",
    "policies": "create, attach and remove policies of users, groups and roles",
    "buckets": "list, create, delete and encrypt buckets",
    "masterkeys": "create, rotate, disable and list master keys, and rewrap bucket keys",
    "config": "show, check and reload the configuration",
    "clock": "trust the machine's clock after it was set",
    "cluster": "operate a store over several machines",
    "cluster shard": "spread the buckets over several PostgreSQL databases",
}
"""The help of the first words that several commands share."""

SECTIONS: Mapping[str, Sequence[str]] = {
    "Run": ("serve", "run", "init", "config", "doctor", "completion"),
    "Generate": ("proto", "client"),
    "Keys and buckets": (
        "keys",
        "users",
        "groups",
        "policies",
        "buckets",
        "masterkeys",
        "share",
        "connect",
    ),
    "Monitor": ("status", "trace", "call"),
    "Maintain": ("fsck", "recover", "backup", "restore", "clock"),
    "Several machines": ("cluster",),
}
"""The first words of all commands, in the order of C{storagegate --help}."""

EXAMPLES: Mapping[str, str] = {
    "serve": "serve --config storagegate.toml",
    "run": "run notes:app --workers 2 --http 127.0.0.1:3000",
    "init": "init --data /srv/storagegate --config /etc/storagegate.toml --yes",
    "status": "status --url https://store.example:9001 --profile ops",
    "keys create": "keys create --account builds --policy readonly --bucket 'release-*'",
    "masterkeys create": "masterkeys create photos",
    "masterkeys list": "masterkeys list --json",
    "masterkeys rotate": "masterkeys rotate photos",
    "masterkeys disable": "masterkeys disable photos",
    "masterkeys enable": "masterkeys enable photos",
    "masterkeys rewrap": "masterkeys rewrap",
    "keys list": "keys list --json",
    "keys edit": "keys edit --access-key AKEXAMPLE --disabled yes",
    "keys revoke": "keys revoke --access-key AKEXAMPLE",
    "keys judge": "keys judge --access-key AKEXAMPLE --access read --bucket photos --key a.jpg",
    "users list": "users list --account acme",
    "users create": "users create ann --account acme --path /staff/ --tag team=blue",
    "users show": "users show ann --account acme",
    "users delete": "users delete ann --account acme",
    "users disable": "users disable ann --account acme",
    "users enable": "users enable ann --account acme",
    "users revoke-sessions": "users revoke-sessions ann --account acme",
    "groups list": "groups list --account acme",
    "groups create": "groups create readers --account acme",
    "groups delete": "groups delete readers --account acme",
    "groups add": "groups add readers ann --account acme",
    "groups remove": "groups remove readers ann --account acme",
    "policies list": "policies list --account acme",
    "policies create": "policies create photos --policy-file photos.json --account acme",
    "policies show": "policies show photos --account acme",
    "policies delete": "policies delete photos --account acme",
    "policies attach": "policies attach AmazonS3ReadOnlyAccess --group readers --account acme",
    "policies detach": "policies detach AmazonS3ReadOnlyAccess --group readers --account acme",
    "policies put": "policies put own --user ann --policy-file own.json --account acme",
    "policies remove": "policies remove own --user ann --account acme",
    "buckets list": "buckets list --prefix release-",
    "buckets create": "buckets create photos --locked",
    "buckets delete": "buckets delete photos",
    "buckets usage": "buckets usage",
    "buckets encryption": "buckets encryption photos --set sse-kms --key team",
    "share": "share photos 2026/a.jpg --expires 12h",
    "trace": "trace --wire s3 --status 5xx",
    "call": "call UserService.ListUsers --wire grpc",
    "proto": "proto notes:gateway --out notes.proto",
    "client": "client notes:gateway --typescript --out notes.ts",
    "config show": "config show",
    "config check": "config check --config storagegate.toml",
    "config reload": "config reload",
    "clock confirm": "clock confirm",
    "connect": "connect aws --bucket photos",
    "completion": "completion bash",
    "fsck": "fsck --data /srv/storagegate --verify",
    "recover": "recover --data /srv/storagegate --to /srv/recovered",
    "backup": "backup --to /backup/today --verify",
    "restore": "restore --from /backup/today --to /srv/storagegate --verify",
    "cluster init": "cluster init --config /etc/storagegate.toml",
    "cluster status": "cluster status --json",
    "cluster migrate": "cluster migrate --from /srv/storagegate",
    "cluster fsck": "cluster fsck --verify",
    "cluster shard list": "cluster shard list",
    "cluster shard add": "cluster shard add 'host=db2 dbname=storagegate'",
    "cluster shard open": "cluster shard open 2",
    "cluster shard close": "cluster shard close 2",
    "doctor": "doctor --days 30",
}
"""A command line for each command, without the name of the script."""
