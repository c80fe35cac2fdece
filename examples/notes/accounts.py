"""Accounts, and one login for HTTP, WebSocket and gRPC."""

import hashlib
import hmac
import secrets
import sqlite3
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta
from twisted.internet.threads import deferToThread

from storagegate import ServiceError
from storagegate.http import CallContext, Cookie, Depends, HTTPResponse, Router

from .store import Notes, Store


@dataclass
class Credentials:
    """A name and a password."""

    name: Annotated[str, Meta(min_length=1, max_length=40)]
    password: Annotated[str, Meta(min_length=8, max_length=200)]


@dataclass
class User:
    """The user of a call."""

    id: int
    name: str


@dataclass
class Token:
    """The bearer token of further calls."""

    token: str


def _login(store: Store, token: str | None) -> User:
    statement = "SELECT u.* FROM tokens t JOIN users u ON u.id = t.user WHERE t.token = ?"
    for row in store.rows(statement, token):
        return User(row["id"], row["name"])
    raise ServiceError("UNAUTHENTICATED", "Log in first", 401)


def tokenUser(context: CallContext[User], store: Notes) -> User:
    """Return the user of a call by its bearer token."""
    return _login(store, context.token)


def browserUser(
    context: CallContext[User], store: Notes, notes: Annotated[str | None, Cookie()] = None
) -> User:
    """Return the user by the bearer token or, in a browser, by the cookie C{notes}."""
    return _login(store, context.token or notes)


CurrentUser = Annotated[User, Depends(browserUser)]
"""The user, as a parameter of handlers."""

accounts = Router()


def _hash(password: str, salt: str) -> str:
    made = hashlib.scrypt(password.encode(), salt=bytes.fromhex(salt), n=2**14, r=8, p=1)
    return f"{salt}:{made.hex()}"


@accounts.post("/users")
async def signUp(body: Credentials, res: HTTPResponse, store: Notes) -> User:
    """Make an account."""
    # A hash takes 50 ms, so a thread makes it.
    password = await deferToThread(_hash, body.password, secrets.token_hex(16))
    try:
        statement = "INSERT INTO users (name, password) VALUES (?, ?)"
        user = User(store.insert(statement, body.name, password), body.name)
    except sqlite3.IntegrityError:
        raise ServiceError("ALREADY_EXISTS", "This name is taken", 409) from None
    res.status(201)
    return user


@accounts.post("/login")
async def logIn(body: Credentials, res: HTTPResponse, store: Notes) -> Token:
    """Log in: return a token, and set it as a cookie."""
    rows = store.rows("SELECT * FROM users WHERE name = ?", body.name)
    # An unknown name takes as long as a wrong password.
    known: str = rows[0]["password"] if rows else f"{'00' * 16}:"
    password = await deferToThread(_hash, body.password, known.partition(":")[0])
    if not hmac.compare_digest(password, known):
        raise ServiceError("UNAUTHENTICATED", "The name or the password is wrong", 401)
    token = secrets.token_urlsafe(24)
    store.insert("INSERT INTO tokens VALUES (?, ?)", token, rows[0]["id"])
    res.cookie("notes", token, httpOnly=True, sameSite="lax")
    return Token(token)


@accounts.get("/me")
def showUser(user: CurrentUser) -> User:
    """Show the user."""
    return user
