"""The options of a gRPC application."""

import re
from math import inf
from pathlib import Path
from typing import Any

from grpc._cython import cygrpc
from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError, changeOptions
from storagegate.net.tls import ServerTLSOptions
from storagegate.rpc.options import GRPCServerOptions, RPCOptions

# What is said where nothing is set.
DEFAULTS = {
    "grpc.max_receive_message_length": 4 << 20,
    "grpc.max_send_message_length": 4 << 20,
    "grpc.max_concurrent_streams": 100,
    "grpc.max_metadata_size": 8 << 10,
    "grpc.absolute_max_metadata_size": 16 << 10,
    "grpc.so_reuseport": 0,
    "grpc.http2.bdp_probe": 0,
    "grpc.max_allowed_incoming_connections": 4096,
    "grpc.http.overload_protection": 0,
}

KEYS = {
    ("maxReceiveMessageLength", 1000): {"grpc.max_receive_message_length": 1000},
    ("maxReceiveMessageLength", "1kb"): {"grpc.max_receive_message_length": 1024},
    ("maxReceiveMessageLength", -1): {"grpc.max_receive_message_length": -1},
    ("maxSendMessageLength", -1): {"grpc.max_send_message_length": -1},
    ("maxSendMessageLength", 0): {"grpc.max_send_message_length": 0},
    ("keepaliveTimeMs", 10_000): {"grpc.keepalive_time_ms": 10_000},
    ("keepaliveTimeoutMs", 5000): {
        "grpc.keepalive_timeout_ms": 5000,
        "grpc.http2.ping_timeout_ms": 5000,
    },
    ("keepalivePermitWithoutCalls", True): {"grpc.keepalive_permit_without_calls": 1},
    ("keepalivePermitWithoutCalls", False): {"grpc.keepalive_permit_without_calls": 0},
    ("http2MaxPingsWithoutData", 0): {"grpc.http2.max_pings_without_data": 0},
    ("http2MinTimeBetweenPingsMs", 9): {"grpc.http2.min_ping_interval_without_data_ms": 9},
    ("http2MaxPingStrikes", 3): {"grpc.http2.max_ping_strikes": 3},
    ("maxConnectionIdle", 300_000): {"grpc.max_connection_idle_ms": 300_000},
    ("maxConnectionAge", 2**31 - 1): {"grpc.max_connection_age_ms": 2**31 - 1},
    ("maxConnectionAgeGrace", 0): {"grpc.max_connection_age_grace_ms": 0},
    ("maxConcurrentStreams", 7): {"grpc.max_concurrent_streams": 7},
    ("overloadProtection", True): {"grpc.http.overload_protection": 1},
    ("compression", "gzip"): {"grpc.default_compression_level": 1},
    ("compression", "deflate"): {"grpc.default_compression_level": 3},
    ("compression", "identity"): {},
    ("compression", None): {},
    ("maxMetadataSize", "16kb"): {
        "grpc.max_metadata_size": 16 << 10,
        "grpc.absolute_max_metadata_size": 32 << 10,
    },
    ("reusePort", True): {"grpc.so_reuseport": 1},
    ("maxConnections", 5): {"grpc.max_allowed_incoming_connections": 5},
    # What the library knows nothing of.
    ("maxConcurrentRpcs", 5): {},
    ("maxCallsPerAddress", 5): {},
    ("reflection", True): {},
    ("health", False): {},
    ("protoLock", "notes.proto.lock"): {},
    ("engine", "native"): {},
}

WRONG: list[tuple[str, Any]] = [
    ("maxReceiveMessageLength", -2),
    ("maxReceiveMessageLength", 2**31),
    ("maxReceiveMessageLength", True),
    ("maxSendMessageLength", "4 apples"),
    ("keepaliveTimeMs", 0),
    ("keepaliveTimeMs", 1.5),
    ("keepaliveTimeoutMs", "1000"),
    ("keepalivePermitWithoutCalls", 1),
    ("http2MaxPingsWithoutData", -1),
    ("http2MinTimeBetweenPingsMs", 2**31),
    ("http2MaxPingStrikes", "2"),
    ("maxConnectionIdle", 0),
    ("maxConnectionAge", -1),
    ("maxConnectionAgeGrace", -1),
    ("compression", "br"),
    ("compression", True),
    ("compressionOptions", 9),
    ("compressionOptions", None),
    ("maxConcurrentRpcs", 0),
    ("maxConcurrentRpcs", None),
    ("maxCallsPerAddress", 0),
    ("maxConnections", 0),
    ("maxConcurrentStreams", 0),
    ("maxMetadataSize", 1023),
    ("maxMetadataSize", "1gb"),
    ("reflection", "yes"),
    ("reflection", None),
    ("health", 1),
    ("protoLock", ""),
    ("protoLock", 5),
    ("reusePort", None),
    ("engine", "aio"),
    ("engine", None),
]


def arguments(**grpc: Any) -> dict[str, int]:
    """Give what the library is told."""
    given = changeOptions(RPCOptions(), {"grpc": grpc}).grpc.channelArguments()
    found = dict(given)
    assert len(found) == len(given), "a key is there twice"
    return found


class ReadTests(SynchronousTestCase):
    """What C{withOptions} takes."""

    def test_defaults(self) -> None:
        """Without options these hold."""
        options = RPCOptions()
        self.assertEqual((options.port, options.hostname, options.tls), (50051, "127.0.0.1", None))
        self.assertEqual(dict(options.grpc.channelArguments()), DEFAULTS)
        grpc = options.grpc
        self.assertEqual(
            (grpc.maxConcurrentRpcs, grpc.reflection, grpc.health), (1024, False, True)
        )

    def test_keys(self) -> None:
        """Each option becomes what the library calls it, and nothing else changes."""
        for (name, value), expected in KEYS.items():
            self.assertEqual(arguments(**{name: value}), {**DEFAULTS, **expected}, name)

    def test_allKeys(self) -> None:
        """The table of the test before has every option."""
        known = {attribute.name for attribute in GRPCServerOptions.__attrs_attrs__}
        self.assertEqual({name for name, _ in KEYS} | {"compressionOptions"}, known)

    def test_libraryKnowsThem(self) -> None:
        """Every key that is used is one of the installed library: it ignores others silently."""
        library = Path(cygrpc.__file__).read_bytes()
        for given in (expected for expected in [DEFAULTS, *KEYS.values()]):
            for key in given:
                # In its data a string ends with a zero.
                self.assertTrue(re.search(re.escape(key.encode()) + rb"\0", library), key)

    def test_leftToTheLibrary(self) -> None:
        """None leaves a setting to the library."""
        for name in ("maxReceiveMessageLength", "maxConcurrentStreams", "keepaliveTimeMs"):
            found = changeOptions(RPCOptions(), {"grpc": {name: None}}).grpc
            self.assertIsNone(getattr(found, name))
        self.assertNotIn("grpc.max_receive_message_length", arguments(maxReceiveMessageLength=None))
        unlimited = arguments(maxMetadataSize=None)
        self.assertNotIn("grpc.max_metadata_size", unlimited)
        self.assertNotIn("grpc.absolute_max_metadata_size", unlimited)

    def test_merged(self) -> None:
        """What is given under grpc later leaves alone what it does not name, at every depth."""
        options = changeOptions(
            RPCOptions(),
            {"port": 1, "grpc": {"keepaliveTimeMs": 5, "compressionOptions": {"level": 3}}},
        )
        options = changeOptions(
            options, {"grpc": {"health": False, "compressionOptions": {"threshold": "2kb"}}}
        )
        self.assertEqual((options.port, options.grpc.keepaliveTimeMs), (1, 5))
        self.assertFalse(options.grpc.health)
        compression = options.grpc.compressionOptions
        self.assertEqual((compression.level, compression.threshold), (3, 2048))

    def test_wrong(self) -> None:
        """A wrong option or value is refused, and the message names it."""
        for name, value in WRONG:
            error = self.assertRaises(
                OptionError, changeOptions, RPCOptions(), {"grpc": {name: value}}
            )
            self.assertIn(f"grpc.{name} ", str(error))
        for changes, name in [
            ({"prot": 1}, "prot"),
            ({"port": 65536}, "port"),
            ({"hostname": ""}, "hostname"),
            ({"grpc": None}, "grpc"),
            ({"grpc": True}, "grpc"),
            ({"grpc": {"maxMessageLength": 1}}, "grpc.maxMessageLength"),
            ({"grpc": {"compressionOptions": {"level": 0}}}, "grpc.compressionOptions.level"),
            ({"grpc": {"compressionOptions": {"level": 10}}}, "grpc.compressionOptions.level"),
            ({"grpc": {"compressionOptions": {"level": "9"}}}, "grpc.compressionOptions.level"),
            ({"grpc": {"compressionOptions": {"threshold": -1}}}, "compressionOptions.threshold"),
            ({"grpc": {"compressionOptions": {"speed": 1}}}, "grpc.compressionOptions.speed"),
        ]:
            error = self.assertRaises(OptionError, changeOptions, RPCOptions(), changes)
            self.assertIn(f"option {name}" if name[0] != "c" else name, str(error))


class CompressesTests(SynchronousTestCase):
    """Which messages are compressed."""

    def test_threshold(self) -> None:
        """Only messages that are longer than the threshold are."""
        options = changeOptions(
            RPCOptions(), {"grpc": {"compression": "gzip", "compressionOptions": {"threshold": 10}}}
        )
        self.assertEqual(
            [size > options.callLimits(100).compressAbove for size in (9, 10, 11)],
            [False, False, True],
        )

    def test_defaultThreshold(self) -> None:
        """Without a threshold a kilobyte is not worth it."""
        options = changeOptions(RPCOptions(), {"grpc": {"compression": "deflate"}})
        self.assertEqual(
            [size > options.callLimits(100).compressAbove for size in (1024, 1025)], [False, True]
        )

    def test_off(self) -> None:
        """Without an algorithm none is, whatever the threshold."""
        for name in (None, "identity"):
            options = changeOptions(
                RPCOptions(),
                {"grpc": {"compression": name, "compressionOptions": {"threshold": 0}}},
            )
            self.assertEqual(options.callLimits(100).compressAbove, inf)


class TLSTests(SynchronousTestCase):
    """The options of TLS."""

    def read(self, tls: Any) -> ServerTLSOptions | None:
        """Read them."""
        return changeOptions(RPCOptions(), {"tls": tls}).tls

    def test_off(self) -> None:
        """There is no TLS without files, and it can be taken back."""
        self.assertIsNone(self.read(None))
        self.assertIsNone(self.read(False))
        options = changeOptions(RPCOptions(), {"tls": {"cert": "c", "key": "k"}})
        self.assertIsNone(changeOptions(options, {"tls": None}).tls)

    def test_clientAuth(self) -> None:
        """A certificate is required of clients if C{ca} is set, unless C{clientAuth} is "none"."""
        for more, expected in [
            ({}, False),
            ({"clientAuth": "none"}, False),
            ({"ca": "a"}, True),
            ({"clientAuth": "require", "ca": Path("a")}, True),
            ({"ca": "a", "clientAuth": "none"}, False),
        ]:
            tls = self.read({"cert": "c", "key": Path("k"), **more})
            assert tls is not None
            self.assertEqual((tls.cert, tls.key, tls.requiresClient), (("c",), ("k",), expected))

    def test_whole(self) -> None:
        """Later files take the place of all the earlier ones."""
        options = changeOptions(RPCOptions(), {"tls": {"cert": "c", "key": "k", "ca": "a"}})
        tls = changeOptions(options, {"tls": {"cert": "d", "key": "l"}}).tls
        assert tls is not None
        self.assertEqual((tls.cert, tls.key, tls.ca), (("d",), ("l",), None))

    def test_wrong(self) -> None:
        """What is missing or wrong is named."""
        both = {"cert": "c", "key": "k"}
        for given, name in [
            ("cert.pem", "tls"),
            ({}, "tls.cert"),
            ({"cert": "c"}, "tls.key"),
            ({"cert": "", "key": "k"}, "tls.cert"),
            ({"cert": "c\0", "key": "k"}, "tls.cert"),
            ({**both, "key": b"-----BEGIN"}, "tls.key"),
            ({**both, "ca": 1}, "tls.ca"),
            ({**both, "CA": "a"}, "tls.CA"),
            ({**both, "clientAuth": "require"}, "tls.clientAuth"),
            ({**both, "ca": "a", "clientAuth": True}, "tls.clientAuth"),
            # grpcio has no such thing.
            ({**both, "ca": "a", "clientAuth": "optional"}, "tls.clientAuth"),
        ]:
            error = self.assertRaises(OptionError, self.read, given)
            self.assertRegex(str(error), rf"option {re.escape(name)}[ ;]")
