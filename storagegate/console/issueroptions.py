"""
The options of OpenID Connect issuers for signing in to the console: the tables C{signIn.NAME}::

    [signIn.corporate]
    issuer = "https://login.example.com/"
    clientId = "storagegate"
    clientSecretFile = "/etc/storagegate/client-secret"
    account = "staff"
    groupsClaim = "groups"
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from attrs import field, frozen
from attrs.converters import optional

from storagegate.auth.oauth import DocumentURL, readURL
from storagegate.core.files import readSmallFile
from storagegate.core.options import OptionError, makeOptions, readEach
from storagegate.objects.accounts import ROLES, ROOT_ACCOUNT
from storagegate.objects.identities.entities import OIDCProvider

MOST_ISSUERS = 10
"""Issuers of a console: each has a button on the sign-in page."""

GIVEN_ROLES = tuple(role for role in ROLES if role != "root")
"""The roles that an issuer can name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SCOPE = re.compile(r"[!#-\[\]-~]{1,128}")
_SECRET_LIMIT = 4096
_TEXT_LENGTH = 128


def _readText(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _TEXT_LENGTH:
        raise ValueError(f"is a text of 1 to {_TEXT_LENGTH} printable characters")
    return value


def _readAccount(value: Any) -> str:
    if _readText(value) == ROOT_ACCOUNT:
        raise ValueError("cannot be the account of the root pair")
    return str(value)


def _readSecretText(value: Any) -> str:
    isText = isinstance(value, str) and value.isascii() and value.isprintable()
    if not isText or not 0 < len(value) <= _SECRET_LIMIT:
        raise ValueError("is a text of printable ASCII characters")
    return str(value)


def _readIssuer(value: Any) -> DocumentURL:
    url = readURL(value)
    if "?" in url.text:
        raise ValueError("is a URL without a query")
    return url


def _readScopes(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    isList = isinstance(items, list | tuple) and 0 < len(items) <= 20
    if not isList or not all(isinstance(each, str) and _SCOPE.fullmatch(each) for each in items):
        raise ValueError("is a list of scopes")
    if "openid" not in items:
        raise ValueError("has no openid, without which there is no ID token")
    return tuple(items)


def _readRoles(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a table of values of the claim and roles")
    for name, role in value.items():
        if role not in GIVEN_ROLES:
            raise ValueError(f"gives {name!r:.40} no role of {', '.join(GIVEN_ROLES)}")
    return dict(value)


@frozen
class IssuerOptions:
    """
    The options of an issuer.

    @ivar issuer: The URL of the issuer, exactly as in the C{iss} of its tokens.
    @ivar clientId: The identifier of the console at the issuer.
    @ivar account: The account of the people.
    @ivar clientSecret: The secret of the console at the issuer; none for a public client.
    @ivar clientSecretFile: A file with the secret.
    @ivar clientSecretVariable: The environment variable with the secret.
    @ivar scopes: The requested scopes, with C{openid}.
    @ivar label: The name of the issuer on its button; the default is the name of the table.
    @ivar groupsClaim: The claim with the names of groups. Without it, administrators add people to
        groups.
    @ivar roleClaim: The claim with the console role.
    @ivar roles: The role for each value of that claim; without it, the claim names a role itself.
    @ivar redirectUrl: The URL of the console to which the issuer sends the browser; the default is
        C{consoleUrl}, or the URL that the browser uses.
    """

    issuer: DocumentURL = field(converter=_readIssuer)
    clientId: str = field(converter=_readText)
    account: str = field(converter=_readAccount)
    clientSecret: str | None = field(default=None, converter=optional(_readSecretText), repr=False)
    clientSecretFile: str | None = field(default=None, converter=optional(_readText))
    clientSecretVariable: str | None = field(default=None, converter=optional(_readText))
    scopes: tuple[str, ...] = field(default=("openid", "profile", "email"), converter=_readScopes)
    label: str | None = field(default=None, converter=optional(_readText))
    groupsClaim: str | None = field(default=None, converter=optional(_readText))
    roleClaim: str | None = field(default=None, converter=optional(_readText))
    roles: Mapping[str, str] | None = field(default=None, converter=optional(_readRoles))
    redirectUrl: DocumentURL | None = field(default=None, converter=optional(_readIssuer))

    def secret(self, prefix: str = "") -> str:
        """
        Return the secret; empty for a public client. Reads a small file.

        @param prefix: The prefix of names in errors.
        @raise OptionError: The file or the variable cannot be read.
        """
        if self.clientSecret is not None:
            return self.clientSecret
        try:
            if self.clientSecretFile is not None:
                name = "clientSecretFile"
                content = readSmallFile(self.clientSecretFile, _SECRET_LIMIT)
                return _readSecretText(content.decode("ascii", "replace").strip())
            if self.clientSecretVariable is not None:
                name = "clientSecretVariable"
                return _readSecretText(os.environ.get(self.clientSecretVariable, "").strip())
        except OSError as error:
            raise OptionError(f"the option {prefix}{name}: {error.strerror}") from error
        except ValueError as error:
            raise OptionError(f"the option {prefix}{name}: its secret {error}") from error
        return ""


def readIssuers(table: Any, *, withSecrets: bool = True) -> dict[str, IssuerOptions]:
    """
    Read the tables of all issuers.

    @param table: The table C{signIn}: options by the name of an issuer.
    @param withSecrets: Whether the secrets are checked, too. Reads small files.
    @raise OptionError: An option is unknown, missing or invalid, or a secret cannot be read. The
        text does not contain secrets.
    """
    if not isinstance(table, Mapping):
        raise OptionError("the option signIn is a table")
    if len(table) > MOST_ISSUERS:
        raise OptionError(f"the option signIn has more than {MOST_ISSUERS} issuers")
    return readEach(table, partial(_readIssuerTable, withSecrets=withSecrets))


def _readIssuerTable(name: str, given: Any, *, withSecrets: bool) -> IssuerOptions:
    prefix = f"signIn.{name}."
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"the option signIn.{name} has a name of other characters than lower-case letters, "
            "digits and hyphens, or of more than 32"
        )
    if not isinstance(given, Mapping):
        raise OptionError(f"the option signIn.{name} is a table")
    options = makeOptions(IssuerOptions, given, prefix)
    secrets = ("clientSecret", "clientSecretFile", "clientSecretVariable")
    if sum(getattr(options, each) is not None for each in secrets) > 1:
        raise OptionError(f"the option signIn.{name} has more than one of {', '.join(secrets)}")
    if options.roles is not None and options.roleClaim is None:
        raise OptionError(f"the option {prefix}roles needs {prefix}roleClaim")
    if withSecrets:
        options.secret(prefix)
    return options


def webIdentityProviders(table: Any) -> Mapping[str, Sequence[OIDCProvider]]:
    """
    Return the issuers as providers of web identities, by account. Their audiences are the
    identifiers of the console.

    @param table: The table C{signIn} of a valid configuration.
    """
    clients: dict[tuple[str, str], list[str]] = {}
    for options in readIssuers(table, withSecrets=False).values():
        found = clients.setdefault((options.account, options.issuer.text), [])
        found.append(options.clientId)
    made: dict[str, list[OIDCProvider]] = {}
    for (account, url), ids in clients.items():
        scheme, _, name = url.partition("://")
        provider = OIDCProvider(name=name, scheme=scheme, clientIds=tuple(dict.fromkeys(ids)))
        made.setdefault(account, []).append(provider)
    return made
