"""
Counts, sessions and replies in Valkey; each change is one script.

C{PREFIX:rates:KEY} is a number, C{PREFIX:sessions:KEY} a hash of content and cookie, and
C{PREFIX:calls:KEY} a record of L{_CALL} followed by the reply. All keys have an expiry. A script
uses only one key. A server replicates and persists data after its reply: counts and sessions that
are lost in a failover start over.
"""

from struct import Struct
from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from storagegate.cluster.counts.interfaces import CountsUnavailable, ICountsServer, RecordedCall
from storagegate.net.valkey import (
    ANSWER_SECONDS,
    Script,
    ValkeyClient,
    ValkeyOptions,
    ValkeyRefused,
    ValkeyUnavailable,
    checkServer,
)
from storagegate.storage.errors import StoreError

PREFIX = b"storagegate"

FAILED_SECONDS = 5.0
"""How long the server counts as failed after it refused a command (out of memory, say)."""

_COUNT = Script(b"""
local hits = redis.call('INCR', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    left = tonumber(ARGV[1])
end
return {hits, left}
""")

_TAKE_BACK = Script(b"""
if tonumber(redis.call('GET', KEYS[1]) or 0) > 0 then redis.call('DECR', KEYS[1]) end
return 0
""")

_FIND_COUNT = Script(b"""
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
""")

_PUT = Script(b"""
if ARGV[4] == '1' and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'content', ARGV[1], 'cookie', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
""")

_TOUCH = Script(b"""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'cookie', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
""")

_BEGIN = Script(b"""
local known = redis.call('GET', KEYS[1])
if known and not (ARGV[3] == '1' and string.sub(known, 1, 17) == string.sub(ARGV[1], 1, 17)) then
    return {known, redis.call('PTTL', KEYS[1])}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
""")

_END = Script(b"""
local known = redis.call('GET', KEYS[1])
if known and string.sub(known, 1, 17) == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2] .. string.sub(known, 2, 21) .. ARGV[3], 'KEEPTTL')
end
return 0
""")

_CALL = Struct("<c16sI")
"""A record: the state, the owner and the length of the request."""

_IN_FLIGHT, _REPLIED, _REPLIED_KNOWN = b"0", b"1", b"2"

_log = Logger()


@implementer(ICountsServer)
class ValkeyCounts:
    """Keeps counts in a server that implements the Redis protocol."""

    def __init__(
        self,
        reactor: Any,
        options: ValkeyOptions,
        prefix: bytes = PREFIX,
        answerSeconds: float = ANSWER_SECONDS,
    ) -> None:
        """
        @param prefix: The prefix of all keys, for programs that share a server.
        @param answerSeconds: Time without a reply after which the connection counts as lost.
        """
        self._reactor = reactor
        self._client = ValkeyClient(reactor, options, answerSeconds)
        self._rates = prefix + b":rates:"
        self._sessions = prefix + b":sessions:"
        self._calls = prefix + b":calls:"
        self._refusal: str | None = None
        self._refusedAt = 0.0

    @property
    def failure(self) -> str | None:
        """See L{ICountsServer}."""
        if self._refusal is not None:
            if self._reactor.seconds() - self._refusedAt < FAILED_SECONDS:
                return self._refusal
            self._refusal = None
        return self._client.failure

    def open(self) -> None:
        """See L{ICountsServer.open}."""
        self._client.open()

    def close(self) -> None:
        """See L{ICountsServer.close}."""
        self._client.close()

    def expiry(self) -> None:
        """See L{ICountsServer.expiry}."""

    async def count(self, key: bytes, windowMs: float) -> tuple[int, float]:
        """See L{ICountsServer.count}."""
        hits, left = await self._evaluate(_COUNT, self._rates + key, _whole(windowMs))
        return hits, left

    async def takeBack(self, key: bytes) -> None:
        """See L{ICountsServer.takeBack}."""
        await self._evaluate(_TAKE_BACK, self._rates + key)

    async def removeCount(self, key: bytes) -> None:
        """See L{ICountsServer.removeCount}."""
        await self._run(b"DEL", self._rates + key)

    async def findCount(self, key: bytes) -> tuple[int, float] | None:
        """See L{ICountsServer.findCount}."""
        hits, left = await self._evaluate(_FIND_COUNT, self._rates + key)
        return None if hits is None else (int(hits), left)

    async def findSession(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See L{ICountsServer.findSession}."""
        content, cookie = await self._run(b"HMGET", self._sessions + key, b"content", b"cookie")
        return None if content is None or cookie is None else (content, cookie)

    async def putSession(
        self, key: bytes, content: bytes, cookie: bytes, ms: float, mustExist: bool
    ) -> None:
        """See L{ICountsServer.putSession}."""
        flag = b"1" if mustExist else b"0"
        await self._evaluate(_PUT, self._sessions + key, content, cookie, _whole(ms), flag)

    async def touchSession(self, key: bytes, cookie: bytes, ms: float) -> None:
        """See L{ICountsServer.touchSession}."""
        await self._evaluate(_TOUCH, self._sessions + key, cookie, _whole(ms))

    async def removeSession(self, key: bytes) -> None:
        """See L{ICountsServer.removeSession}."""
        await self._run(b"DEL", self._sessions + key)

    async def beginCall(
        self, key: bytes, owner: bytes, size: int, ms: float, isOwnNew: bool
    ) -> RecordedCall | None:
        """See L{ICountsServer.beginCall}."""
        record, flag = _CALL.pack(_IN_FLIGHT, owner, size), b"1" if isOwnNew else b"0"
        found = await self._evaluate(_BEGIN, self._calls + key, record, _whole(ms), flag)
        if found is None:
            return None
        known, left = found
        state, of, length = _CALL.unpack_from(known)
        reply = None if state == _IN_FLIGHT else known[_CALL.size :]
        return RecordedCall(of, length, reply, state == _REPLIED_KNOWN, left)

    async def endCall(self, key: bytes, owner: bytes, reply: bytes, isKnown: bool) -> None:
        """See L{ICountsServer.endCall}."""
        state = _REPLIED_KNOWN if isKnown else _REPLIED
        await self._evaluate(_END, self._calls + key, _IN_FLIGHT + owner, state, reply)

    async def _run(self, *words: bytes) -> Any:
        try:
            return await self._client.run(*words)
        except (ValkeyUnavailable, ValkeyRefused) as error:
            raise self._unavailable(error) from error

    async def _evaluate(self, script: Script, key: bytes, *arguments: bytes) -> Any:
        try:
            return await self._client.evaluate(script, key, *arguments)
        except (ValkeyUnavailable, ValkeyRefused) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: ValkeyUnavailable | ValkeyRefused) -> CountsUnavailable:
        if isinstance(error, ValkeyUnavailable):
            return CountsUnavailable(str(error), error.isUnknown)
        if self._refusal is None:
            _log.warn("the server of counts refuses commands: {error}", error=str(error))
        self._refusal, self._refusedAt = str(error), self._reactor.seconds()
        return CountsUnavailable(str(error))


def checkLogin(options: ValkeyOptions) -> None:
    """
    Check the login to a server; an unreachable server is not an error. Blocks.

    @raise StoreError: If the server refuses; the text gives the reason in one line.
    """
    try:
        checkServer(options, PREFIX + b":rates:check")
    except (ValkeyRefused, OSError) as error:
        text = " ".join(str(error).split())
        raise StoreError(f"the counts in {options.name} cannot be used: {text}") from error


def _whole(ms: float) -> bytes:
    # An expiry of 0 would delete the key.
    return b"%d" % max(1, round(ms))
