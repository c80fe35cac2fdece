"""The commands C{storagegate cluster}; each works beside running nodes, or without any."""

import os
import time
from contextlib import closing
from typing import Any

from attrs import asdict
from psycopg.conninfo import conninfo_to_dict

from storagegate.cli.etcdmembers import EtcdMember, readMembers
from storagegate.cli.invocation import FAILED, INTERRUPTED, MISUSED, CommandError, Invocation
from storagegate.cli.output import CommandOutput
from storagegate.cluster.initialisation import initialise
from storagegate.cluster.options import ClusterOptions, readServers
from storagegate.daemon.config import ConfigurationError
from storagegate.daemon.config import load as loadConfiguration
from storagegate.daemon.rootcredentials import (
    CredentialsError,
    load,
    save,
    shellText,
)
from storagegate.daemon.service import ROOT_FILE
from storagegate.net.endpoints import chooseReactor
from storagegate.objects.issuedkeys import KeyPair, generateKeyPair
from storagegate.storage.cluster.admin import ClusterAdmin, Standby, openForTools
from storagegate.storage.cluster.interfaces import NodeRow
from storagegate.storage.errors import StoreError
from storagegate.storage.identity import storeId


def init(invocation: Invocation) -> int:
    """Initialise a cluster, and print its root key pair, only once."""
    options, root = _options(invocation), invocation.configuration.s3.root
    pair = root or generateKeyPair()
    store, made = initialise(options, pair.accessKey, pair.secretKey, chooseReactor(None))
    document: dict[str, object] = {"store": store, "made": made}
    if not made:
        lines = [f"store {store} is already initialised; nothing was changed"]
    else:
        lines = [f"store {store} is initialised"]
        if root is None:
            lines += ["the root key pair, shown only once:", *shellText(pair).splitlines()]
            document |= {"accessKey": pair.accessKey, "secretKey": pair.secretKey}
    invocation.output.result(document, lines)
    return 0


def status(invocation: Invocation) -> int:
    """Print the state of a cluster; exit code 1 if writes are refused."""
    options = _options(invocation)
    with closing(openForTools(options.catalog)) as admin:
        found = _read(admin, options)
    invocation.output.result(found, _lines(found))
    problems = [found["problem"], *(each["problem"] for each in found["shards"])]
    return FAILED if any(problems) else 0


def _options(invocation: Invocation) -> ClusterOptions:
    """
    Return the C{[cluster]} options.

    @raise CommandError: The configuration has no table C{[cluster]}.
    """
    cluster = invocation.configuration.cluster
    if cluster is None:
        raise CommandError("the configuration has no [cluster] table (--config names the file)")
    return cluster


def _read(admin: ClusterAdmin, options: ClusterOptions) -> dict[str, Any]:
    shards: list[dict[str, Any]] = []
    for shard in admin.shards()[1:]:
        try:
            with admin.opened(shard) as each:
                state = _readShard(each, options)
        except StoreError as error:
            state = {"problem": str(error)}
        shards.append({"number": shard.number, "takesBuckets": shard.takesBuckets, **state})
    return {
        "store": storeId(admin.secrets().store),
        **_readShard(admin, options),
        "shards": shards,
        "etcd": [asdict(each) for each in readMembers(options.etcd)],
        "synchronous": options.synchronous,
        "blobs": options.blobs,
        "time": time.time(),
    }


def _readShard(admin: ClusterAdmin, options: ClusterOptions) -> dict[str, Any]:
    info = admin.connection.info
    standbys = admin.standbys()
    problem = None
    if options.synchronous == "required" and not _isConfirmed(admin.synchronousNames(), standbys):
        problem = "no synchronous standby confirms commits: writes are refused"
    return {
        "primary": f"{info.host}:{info.port}",
        "timeline": admin.timeline,
        "serverVersion": info.server_version // 10_000,
        "problem": problem,
        "standbys": [asdict(each) for each in standbys],
        "nodes": [asdict(each) for each in admin.nodes()],
        "backlog": asdict(admin.backlog()),
    }


def _isConfirmed(names: str, standbys: list[Standby]) -> bool:
    return bool(names) and any(each.syncState in ("sync", "quorum") for each in standbys)


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"store {found['store']}, blobs {found['blobs']}", *_shardLines(found)]
    for each in found["shards"]:
        lines.append(f"shard {each['number']}{'' if each['takesBuckets'] else ', closed'}")
        lines += _shardLines(each)
    return lines + _etcdLines([EtcdMember(**each) for each in found["etcd"]])


def _etcdLines(members: list[EtcdMember]) -> list[str]:
    lines = [
        f"etcd {each.name or 'without a name'} {each.url} {each.problem or 'healthy'}"
        for each in members
    ]
    away = sum(each.problem is not None for each in members)
    if away:
        lines.append(
            f"warning: {away} of {len(members)} members of etcd are missing: without a majority"
            " of them no primary is elected"
        )
    return lines


def _shardLines(found: dict[str, Any]) -> list[str]:
    if "primary" not in found:
        return [f"problem: {found['problem']}"]
    backlog, standbys, nodes = found["backlog"], found["standbys"], found["nodes"]
    lines = [
        f"primary {found['primary']}, timeline {found['timeline']},"
        f" PostgreSQL {found['serverVersion']}",
    ]
    standing = [Standby(**each) for each in standbys]
    lines += [
        f"standby {each.name} {each.address or 'local'} {each.state} {each.syncState},"
        f" {each.lagBytes} bytes and {each.lagSeconds:.3f} s behind"
        for each in standing
    ] or ["no standby"]
    lines += [_nodeLine(NodeRow(**each)) for each in nodes] or ["no node"]
    lines.append(
        f"garbage: {backlog['freed']} references to fold, {backlog['garbage']} blobs to remove,"
        f" {backlog['holds']} held"
    )
    if found["problem"]:
        lines.append(f"problem: {found['problem']}")
    return lines


def _nodeLine(row: NodeRow) -> str:
    if not row.isAlive:
        state = "expired, its blobs are being swept"
    elif row.expiresSeconds < 0:
        state = f"expired {-row.expiresSeconds:.1f} s ago"
    else:
        state = f"valid for {row.expiresSeconds:.1f} s"
    return f"node {row.node} lease {row.number} {state}"


def fsck(invocation: Invocation) -> int:
    """Compare the catalog of a cluster with its blobs; exit code 1 if problems remain."""
    from storagegate.cluster.fsck import check

    flags, output = invocation.options, invocation.output
    problems = check(
        _options(invocation), flags.repair, flags.verify, output.line, chooseReactor(None)
    )
    text = f"{problems} problems" if problems != 1 else "1 problem"
    output.result({"problems": problems}, [text])
    return FAILED if problems else 0


def backup(invocation: Invocation) -> int:
    """Copy the catalog and the blobs of a cluster; exit code 1 if the copy has problems."""
    from storagegate.cli.masterkeys import backUpKeys, refuseVaultKeys
    from storagegate.cluster.backup import backup
    from storagegate.migration.command import runInReactor
    from storagegate.storage.commandresults import noting
    from storagegate.storage.embedded.backup import emptyDirectory, makeEmptyTarget

    refuseVaultKeys(invocation)
    options, flags, output = _options(invocation), invocation.options, invocation.output

    def act() -> int:
        # A directory with other files must be refused before an interruption can empty it.
        makeEmptyTarget(flags.to)
        with output.progress("backup") as progress:
            problems = runInReactor(
                lambda reactor: backup(
                    options,
                    flags.to,
                    output.line,
                    reactor,
                    command=flags.blobsWith,
                    progress=progress,
                )
            )
        if problems is None:
            emptyDirectory(flags.to)
            raise CommandError("interrupted: no backup was made", INTERRUPTED)
        return problems

    problems = noting(invocation.data, "backup", act, verify=True, to=os.path.abspath(flags.to))
    backUpKeys(invocation, flags.to)
    output.result({"to": flags.to, "problems": problems})
    return FAILED if problems else 0


def restore(invocation: Invocation) -> int:
    """Restore a cluster from a backup; exit code 1 if it has problems."""
    from storagegate.cli.masterkeys import restoreKeys
    from storagegate.cluster.backup import restore
    from storagegate.migration.command import runInReactor

    if invocation.configuration.cluster is None:
        raise CommandError("--to DIR is required, except to restore a cluster", MISUSED)
    options, flags, output = _options(invocation), invocation.options, invocation.output
    with output.progress("restore") as progress:
        lacking = runInReactor(
            lambda reactor: restore(
                options,
                flags.source,
                output.line,
                reactor,
                isPartial=flags.partial,
                progress=progress,
            )
        )
    if lacking is None:
        text = "interrupted: the database is unchanged; run the command again"
        raise CommandError(text, INTERRUPTED)
    restoreKeys(invocation, flags.source)
    problems = _check(options, flags.verify, output)
    output.result({"problems": problems})
    return FAILED if problems else 0


def _check(options: ClusterOptions, verify: bool, output: CommandOutput) -> int:
    """Check the restored cluster for consistency."""
    from storagegate.cluster.fsck import check

    return check(options, False, verify, output.line, chooseReactor(None))


def migrate(invocation: Invocation) -> int:
    """Move a store from a data directory to a cluster, or back; or a bucket between clusters."""
    flags = invocation.options
    if [flags.source, flags.target, flags.bucket].count(None) != 2:
        raise CommandError("one of --from, --to and --bucket is required", MISUSED)
    if (flags.bucket is None) != (flags.toConfig is None):
        raise CommandError("--bucket and --to-config must be given together", MISUSED)
    if flags.bucket is not None:
        with invocation.output.captured():
            code = _migrateBucket(invocation)
        invocation.output.result({"bucket": flags.bucket, "done": code == 0})
        return code
    isTarget = flags.source is not None
    directory = os.path.abspath(flags.source if isTarget else flags.target)
    with invocation.output.captured():
        code = _migrate(invocation, directory, isTarget, flags.abandon)
    invocation.output.result({"directory": directory, "done": code == 0})
    return code


def _migrate(invocation: Invocation, directory: str, isTarget: bool, isAbandoned: bool) -> int:
    """
    Move a store.

    @param directory: An absolute path.
    @param isTarget: Whether the store is moved to the cluster.
    @param isAbandoned: Whether to abandon an unfinished move instead.
    @return: The exit code.
    """
    from storagegate.migration import command

    options, root = _options(invocation), invocation.configuration.s3.root
    path = os.path.join(directory, ROOT_FILE)
    try:
        pair = root or load(path)
    except CredentialsError as error:
        raise StoreError(str(error)) from error
    if isAbandoned:
        command.abandon(options, directory, isTarget)
        return 0
    if isTarget:
        given = None if pair is None else (pair.accessKey, pair.secretKey)
        return command.run(
            lambda reactor, report: command.move(options, directory, True, reactor, report, given),
            "service",
        )
    code = command.run(
        lambda reactor, report: command.move(options, directory, False, reactor, report),
        "service",
    )
    if code == 0 and pair is None:
        with closing(openForTools(options.catalog, evenMoved=True)) as admin:
            found = admin.root()
        # If the cluster has none, the daemon makes one.
        if found is not None:
            save(path, KeyPair(*found))
    return code


def addShard(invocation: Invocation) -> int:
    """Add a database as the next shard of a cluster."""
    try:
        servers = readServers(invocation.options.conninfos)
    except ValueError as error:
        raise StoreError(f"CONNINFO {error}") from error
    with closing(openForTools(_options(invocation).catalog)) as admin:
        admin.secrets()
        number = admin.addShard(servers)
    text = f"shard {number} was added: restart all nodes, then run: cluster shard open {number}"
    invocation.output.result({"number": number}, [text])
    return 0


def openShard(invocation: Invocation) -> int:
    """Open a shard for new buckets."""
    return _openShard(invocation, True)


def closeShard(invocation: Invocation) -> int:
    """Close a shard for new buckets."""
    return _openShard(invocation, False)


def _openShard(invocation: Invocation, isOpen: bool) -> int:
    number = invocation.options.number
    with closing(openForTools(_options(invocation).catalog)) as admin:
        admin.openShard(number, isOpen)
    invocation.output.result({"number": number, "takesBuckets": isOpen}, [])
    return 0


def listShards(invocation: Invocation) -> int:
    """Print the shards."""
    shards, lines = [], []
    with closing(openForTools(_options(invocation).catalog)) as admin:
        for shard in admin.shards():
            hosts = [str(conninfo_to_dict(each).get("host", "local")) for each in shard.servers]
            where = ", ".join(hosts) or "the catalog of [cluster]"
            state = "takes new buckets" if shard.takesBuckets else "takes no new buckets"
            lines.append(f"shard {shard.number} {state}: {where}")
            shards.append(
                {"number": shard.number, "takesBuckets": shard.takesBuckets, "hosts": hosts}
            )
    invocation.output.result({"shards": shards}, lines)
    return 0


def _migrateBucket(invocation: Invocation) -> int:
    """Move a bucket to the cluster of another configuration."""
    from storagegate.migration import command

    flags, options = invocation.options, _options(invocation)
    try:
        # Environment variables apply to the source cluster only.
        to = loadConfiguration({"config": flags.toConfig}, {}).cluster
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    if to is None:
        raise CommandError(f"{flags.toConfig} has no [cluster] table")
    if flags.abandon:
        command.abandonBucket(options, flags.bucket, to)
        return 0
    return command.run(
        lambda reactor, report: command.moveBucket(options, flags.bucket, to, reactor, report),
        "writes",
    )
