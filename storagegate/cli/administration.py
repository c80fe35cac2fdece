"""
Changes and listings of keys, identities and buckets, over the API or on the local catalog.

Documents have the shape of the console's API, as C{dict}: a key as
L{KeyView<storagegate.console.keys.KeyView>}, a bucket as
L{BucketView<storagegate.console.buckets.BucketView>}.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from attrs import define, evolve

from storagegate.cli.client import ConsoleClient, escapeSegment
from storagegate.cli.daemonclient import apiOf, runningDaemon
from storagegate.cli.invocation import CommandError, Invocation
from storagegate.console.buckets import MOST_COUNTED_EACH, NO_OLDER, NO_USAGE, viewBucket
from storagegate.console.keys import (
    KeyChange,
    NewKey,
    makeKey,
    readChanges,
    viewKey,
    viewNewKey,
)
from storagegate.console.usagehistory import USAGE_LIMIT
from storagegate.console.users import makeOperation
from storagegate.core.errors import ServiceError, codedError
from storagegate.daemon.rootcredentials import CredentialsError
from storagegate.daemon.rootcredentials import load as loadPair
from storagegate.daemon.service import ROOT_FILE
from storagegate.objects.access.reuse import checkReuseNow
from storagegate.objects.accounts import ROOT_ACCOUNT, Identity
from storagegate.objects.errors import BucketAlreadyExists, BucketAlreadyOwnedByYou, DomainError
from storagegate.objects.identities.entities import AccountState
from storagegate.objects.identities.keys import addIssuedKey, editOf
from storagegate.objects.identities.lookup import IdentityRequest
from storagegate.objects.identities.store import changeNow
from storagegate.objects.identities.table import performNow
from storagegate.objects.names import checkBucketName
from storagegate.objects.settings import compileSettings
from storagegate.services.objects import domainErrors
from storagegate.storage.errors import BucketExists, KeyExists
from storagegate.storage.records import VERSIONING_ENABLED, AccessKey, Bucket

if TYPE_CHECKING:
    from storagegate.storage.cluster.admin import ClusterAdmin
    from storagegate.storage.embedded.keyadmin import CatalogAdmin

Document = dict[str, Any]


class Administration(Protocol):
    """Manages keys and buckets. All methods block; a refused change raises L{CommandError}."""

    def keys(self) -> list[Document]:
        """List all keys."""

    def createKey(self, wanted: Mapping[str, Any]) -> Document:
        """
        Issue a key.

        @param wanted: The fields of a L{NewKey}.
        @return: The key with C{secretKey}.
        """

    def changeKey(self, accessKey: str, changes: Mapping[str, Any]) -> Document:
        """
        Change a key.

        @param changes: The fields of a L{KeyChange}.
        @return: The key; with C{newSecret} also its C{secretKey}.
        """

    def revokeKey(self, accessKey: str) -> None:
        """Revoke a key."""

    def perform(self, operation: str, account: str, fields: Mapping[str, Any]) -> Document:
        """
        Perform an operation of IAM.

        @param operation: Its name.
        @param fields: Its fields.
        @return: Its answer; empty for none.
        """

    def buckets(self, prefix: str) -> list[Document]:
        """List the buckets whose names begin with a prefix."""

    def createBucket(self, name: str, locked: bool, ownership: str) -> Document:
        """
        Create a bucket.

        @param locked: Whether the bucket has object lock, which implies versioning.
        @param ownership: The object ownership; empty for the configured default.
        """

    def deleteBucket(self, name: str) -> None:
        """Delete an empty bucket."""


@define
class RemoteAdministration:
    """Manages keys and buckets over the API of the console."""

    _api: ConsoleClient

    def keys(self) -> list[Document]:
        """List the keys that the caller's key may see."""
        return self._api.items("keys")

    def createKey(self, wanted: Mapping[str, Any]) -> Document:
        """Issue a key."""
        created: Document = self._api.request("POST", "keys", wanted)
        return created

    def changeKey(self, accessKey: str, changes: Mapping[str, Any]) -> Document:
        """Change a key."""
        path = f"keys/{escapeSegment(accessKey)}"
        changed: Document = self._api.request("PATCH", path, changes)
        return changed

    def revokeKey(self, accessKey: str) -> None:
        """Revoke a key."""
        self._api.request("DELETE", f"keys/{escapeSegment(accessKey)}")

    def perform(self, operation: str, account: str, fields: Mapping[str, Any]) -> Document:
        """Perform an operation of IAM."""
        path, given = f"identities/{operation}", {**fields, "account": account}
        if operation.startswith(("Get", "List")):
            found: Document = self._api.get(path, **given)
            return found
        return self._api.request("POST", path, given) or {}

    def buckets(self, prefix: str) -> list[Document]:
        """List the buckets that the caller's key may see."""
        return self._api.items("buckets", prefix=prefix)

    def createBucket(self, name: str, locked: bool, ownership: str) -> Document:
        """Create a bucket that the account of the caller's key owns."""
        wanted = {"name": name, "locked": locked, "ownership": ownership}
        created: Document = self._api.request("POST", "buckets", wanted)
        return created

    def deleteBucket(self, name: str) -> None:
        """Delete an empty bucket."""
        self._api.request("DELETE", f"buckets/{escapeSegment(name)}")


@define
class LocalAdministration:
    """Manages the catalog with the rights of the root pair; a daemon may run."""

    _invocation: Invocation

    def keys(self) -> list[Document]:
        """List all keys."""
        with self._catalog() as catalog:
            uses = catalog.keyUses()
            keys = sorted(catalog.accessKeys(), key=lambda key: key.accessKey)
        return [_document(viewKey(key, uses.get(key.accessKey, 0))) for key in keys]

    def createKey(self, wanted: Mapping[str, Any]) -> Document:
        """Issue a key."""
        with _errors():
            body = msgspec.convert(wanted, NewKey)
            key = makeKey(body, int(time.time() * 1000))
            self._refuseRoot(key.accessKey)
            with self._catalog() as catalog:
                if not body.reuse:
                    checkReuseNow(catalog.settings(), key, catalog.accessKeys())
                if key.isBound:
                    key = changeNow(catalog, key.account, partial(_add, key))
                    return _document(viewNewKey(key))
                try:
                    catalog.addAccessKey(key)
                except KeyExists as error:
                    raise codedError("ALREADY_EXISTS", "The access key already exists") from error
        return _document(viewNewKey(key))

    def changeKey(self, accessKey: str, changes: Mapping[str, Any]) -> Document:
        """Change a key."""
        with _errors(), self._catalog() as catalog:
            read = msgspec.convert(changes, KeyChange)
            key = _find(catalog, accessKey)
            changed = readChanges(read, key, int(time.time() * 1000))
            edit = editOf(accessKey, lambda now: evolve(now, **changed))
            key = changeNow(catalog, key.account, edit)
            lastUsedMs = catalog.keyUses().get(accessKey, 0)
        view = viewNewKey if read.newSecret else viewKey
        return _document(view(key, lastUsedMs))

    def revokeKey(self, accessKey: str) -> None:
        """Revoke a key."""
        self._refuseRoot(accessKey)
        with _errors(), self._catalog() as catalog:
            key = _find(catalog, accessKey)
            if key.isBound:
                changeNow(catalog, key.account, editOf(accessKey, lambda now: None))
            elif not catalog.removeAccessKey(accessKey):
                raise codedError("NOT_FOUND", "No such access key")

    def perform(self, operation: str, account: str, fields: Mapping[str, Any]) -> Document:
        """Perform an operation of IAM with the rights of the root pair."""
        with _errors(), self._catalog() as catalog:
            request = IdentityRequest(
                int(time.time() * 1000),
                uses=catalog.keyUses(),
                region=self._invocation.configuration.s3.region,
            )
            answer = performNow(catalog, account, makeOperation(operation, fields), request)
        return {} if answer is None else _document(answer)

    def buckets(self, prefix: str) -> list[Document]:
        """List the buckets whose names begin with a prefix."""
        with self._ownCatalog() as catalog:
            found = catalog.buckets(prefix)
            usage = {each.bucket: each for each in catalog.usage(USAGE_LIMIT).buckets}
            older = {
                each.name: catalog.olderVersions(each.name, MOST_COUNTED_EACH) for each in found
            }
            settings = {each.name: documents for each, documents in catalog.settings()}
        root = self._root()
        shown = []
        for each in found:
            view = viewBucket(root, each, usage.get(each.name), older[each.name])
            documents = settings.get(each.name, {})
            view.access = compileSettings(each, documents).access.exposure
            shown.append(_document(view))
        return shown

    def createBucket(self, name: str, locked: bool, ownership: str) -> Document:
        """Create a bucket that the root account owns."""
        s3 = self._invocation.configuration.s3
        versioning = VERSIONING_ENABLED if locked else ""
        owned = ownership or s3.ownership
        nowMs = int(time.time() * 1000)
        bucket = Bucket(name, ROOT_ACCOUNT, nowMs, s3.region, owned, versioning, locked)
        with _errors(), domainErrors(), self._ownCatalog() as catalog:
            checkBucketName(name)
            try:
                catalog.createBucket(bucket)
            except BucketExists as error:
                own = error.bucket.account == ROOT_ACCOUNT
                raise (BucketAlreadyOwnedByYou if own else BucketAlreadyExists)() from error
        return _document(viewBucket(self._root(), bucket, NO_USAGE, NO_OLDER))

    def deleteBucket(self, name: str) -> None:
        """
        Delete an empty bucket.

        A running daemon must delete it itself, because it caches buckets.
        """
        if runningDaemon(self._invocation.configuration) is not None:
            RemoteAdministration(apiOf(self._invocation)).deleteBucket(name)
            return
        with _errors(), domainErrors(), self._ownCatalog() as catalog:
            catalog.deleteBucket(name)

    def _root(self) -> Identity:
        return Identity("", ROOT_ACCOUNT, isRoot=True)

    def _refuseRoot(self, accessKey: str) -> None:
        """
        Refuse to create or revoke a key with the name of the root key.

        @raise CommandError: The name is the root key's. An issued key of that name would become
            valid when the root pair changes, and revoking it would appear to revoke the root key.
        """
        invocation = self._invocation
        configured = invocation.configuration.s3.root
        if invocation.configuration.cluster is not None:
            with self._clusterAdmin() as admin:
                taken = {admin.secrets().accessKey, configured and configured.accessKey}
            if accessKey in taken:
                raise CommandError(f"{accessKey} is the root access key")
            return
        try:
            root = configured or loadPair(str(Path(invocation.data) / ROOT_FILE))
        except CredentialsError as error:
            raise CommandError(str(error)) from error
        if root is not None and root.accessKey == accessKey:
            raise CommandError(
                f"{accessKey} is the root access key: to change it, replace {ROOT_FILE},"
                " or accessKey and secretKey of the configuration"
            )

    def _catalog(self) -> "AbstractContextManager[CatalogAdmin | ClusterAdmin]":
        if self._invocation.configuration.cluster is not None:
            return self._clusterAdmin()
        return self._ownCatalog()

    def _clusterAdmin(self) -> "AbstractContextManager[ClusterAdmin]":
        from storagegate.storage.cluster.admin import openForTools

        cluster = self._invocation.configuration.cluster
        assert cluster is not None
        admin = openForTools(cluster.catalog)
        admin.needsStandby = cluster.synchronous == "required"
        return closing(admin)

    def _ownCatalog(self) -> "AbstractContextManager[CatalogAdmin]":
        """
        Open the catalog of the data directory.

        @raise CommandError: The store is a cluster's.
        """
        refuseCluster(self._invocation, "use --url with the admin listener of a node")
        from storagegate.storage.embedded.keyadmin import openForTools

        return closing(openForTools(catalogPath(self._invocation)))


def administrationOf(invocation: Invocation) -> Administration:
    """
    Return the administration for a command: remote or local.

    @raise CommandError: There is no key pair for C{--url}.
    """
    if invocation.isRemote:
        return RemoteAdministration(apiOf(invocation))
    return LocalAdministration(invocation)


def refuseCluster(invocation: Invocation, instead: str) -> None:
    """
    Refuse a command on a data directory if the store is a cluster's.

    @param instead: The alternative to suggest.
    @raise CommandError: The store is a cluster's.
    """
    if invocation.configuration.cluster is not None:
        raise CommandError(
            f"[cluster] configures the store, so it is not in {invocation.data}: {instead}"
        )


def catalogPath(invocation: Invocation) -> str:
    """
    Return the path of the catalog's file.

    @raise CommandError: The file is absent: a mistyped directory must not become a new store.
    @raise CatalogUnusable: The file is lost.
    """
    path = Path(invocation.data).absolute() / "catalog.sqlite"
    if not path.exists():
        from storagegate.storage.files import Files
        from storagegate.storage.identity import refuseLostCatalog
        from storagegate.storage.layout import BlobLayout

        refuseLostCatalog(BlobLayout(invocation.data), Files())
        raise CommandError(
            f"{invocation.data} contains no store; the daemon creates one when it starts"
            " (--data, --config or STORAGEGATE_DATA name another directory)"
        )
    return str(path)


def _add(key: AccessKey, state: AccountState) -> tuple[AccountState, AccessKey]:
    # Without the daemon the root pair's name may be unknown, and it bounds nothing.
    return addIssuedKey(state, key)


def _find(catalog: "CatalogAdmin | ClusterAdmin", accessKey: str) -> AccessKey:
    """
    Find an issued key.

    @raise ServiceError: C{NOT_FOUND}: There is no such key.
    """
    for key in catalog.accessKeys():
        if key.accessKey == accessKey:
            return key
    raise codedError("NOT_FOUND", "No such access key")


def _document(view: msgspec.Struct) -> Document:
    document: Document = msgspec.to_builtins(view)
    return document


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors of services into L{CommandError} with the text that the API client shows."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise CommandError(f"{error} (INVALID_ARGUMENT)", error="INVALID_ARGUMENT") from error
    except ServiceError as error:
        raise CommandError(f"{error.message} ({error.code})", error=error.code) from error
    except DomainError as error:
        raise CommandError(f"{error.message} ({error.code})", error=error.code) from error
