"""Counts in PostgreSQL and in Valkey keep the contracts of rate limits, sessions and replies."""

from typing import Any

from twisted.trial.unittest import TestCase

from storagegate.cluster.counts.stores import ClusterRateLimitStore, ClusterReplyCache
from tests.contract.answercache import AnswerCacheContract
from tests.contract.countsserver import PostgreSQLCase, ValkeyCase
from tests.contract.ratelimitstore import WINDOW_MS, RateLimitStoreContract
from tests.contract.sessionstore import SessionStoreContract
from tests.support.selection import long


class RatesCase:
    """Makes the store of a rate limit."""

    def setUp(self: Any) -> None:
        """Make the store."""
        super().setUp()  # type: ignore[misc]
        self.store = ClusterRateLimitStore(
            self.counts.open, "limit", WINDOW_MS, now=self.clock.seconds
        )


class SessionsCase:
    """Makes a store of sessions."""

    def setUp(self: Any) -> None:
        """Make the store."""
        super().setUp()  # type: ignore[misc]
        self.store = self.counts.sessionStore()


class RepliesCase:
    """Makes a cache of replies."""

    def setUp(self: Any) -> None:
        """Make the cache."""
        super().setUp()  # type: ignore[misc]
        self.cache = ClusterReplyCache(self.counts.open, "udp", self.clock.seconds)


class OtherRepliesCase(RepliesCase):
    """Each request comes to another process than the one before."""

    async def begin(self: Any, *arguments: Any, **options: Any) -> Any:
        """Begin a request in a new process; what it begins, this one has begun."""
        owner = self.cache._owner
        self.cache = ClusterReplyCache(self.counts.open, "udp", self.clock.seconds)
        self.cache._owner = owner
        return await AnswerCacheContract.begin(self, *arguments, **options)


@long("starts a cluster")
class PostgreSQLRatesTests(RatesCase, RateLimitStoreContract, PostgreSQLCase, TestCase):
    """Rate limits in PostgreSQL."""


@long("starts a cluster")
class ValkeyRatesTests(RatesCase, RateLimitStoreContract, ValkeyCase, TestCase):
    """Rate limits in Valkey."""

    moment = 4.0


@long("starts a cluster")
class PostgreSQLSessionTests(SessionsCase, SessionStoreContract, PostgreSQLCase, TestCase):
    """Sessions in PostgreSQL."""


@long("starts a cluster")
class ValkeySessionTests(SessionsCase, SessionStoreContract, ValkeyCase, TestCase):
    """Sessions in Valkey."""

    moment = 4.0


@long("starts a cluster")
class PostgreSQLReplyTests(RepliesCase, AnswerCacheContract, PostgreSQLCase, TestCase):
    """Replies in PostgreSQL."""


@long("starts a cluster")
class ValkeyReplyTests(RepliesCase, AnswerCacheContract, ValkeyCase, TestCase):
    """Replies in Valkey."""

    moment = 4.0


@long("starts a cluster")
class OtherPostgreSQLReplyTests(OtherRepliesCase, AnswerCacheContract, PostgreSQLCase, TestCase):
    """Replies in PostgreSQL of a process that has no memory of them."""


@long("starts a cluster")
class OtherValkeyReplyTests(OtherRepliesCase, AnswerCacheContract, ValkeyCase, TestCase):
    """Replies in Valkey of a process that has no memory of them."""

    moment = 4.0
