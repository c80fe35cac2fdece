"""What a client is told of its server."""

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.rpc.client import (
    createGrpcClient,
    readAddress,
    readCredentials,
    readOptions,
)
from storagegate.rpc.credentials import GRPCClientTLS
from storagegate.rpc.engine.client import channelArguments
from tests.support.certificates import Authority, keyText


class AddressTests(SynchronousTestCase):
    """Addresses."""

    def test_good(self) -> None:
        """Hosts with a port and paths of UNIX sockets are addresses."""
        for address, expected in (
            ("localhost:50051", "dns:///localhost:50051"),
            ("127.0.0.1:1", "dns:///127.0.0.1:1"),
            ("[::1]:65535", "dns:///[::1]:65535"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
            ("unix:x.sock", "unix:x.sock"),
            ("dns:///localhost:1", "dns:///localhost:1"),
            ("ipv4:127.0.0.1:1,127.0.0.2:2", "ipv4:127.0.0.1:1,127.0.0.2:2"),
            ("ipv6:[::1]:1,[::2]:2", "ipv6:[::1]:1,[::2]:2"),
        ):
            self.assertEqual(readAddress(address), expected)

    def test_bad(self) -> None:
        """What is none is refused, and said how it has to look."""
        bad: tuple[Any, ...] = ("", "x", "x:", ":1", "x:0", "x:65536", "x:1a", "::1:5", "unix:")
        lists = ("dns:///x", "ipv4:x:1", "ipv4:1.2.3.4:1,", "ipv6:::1:5", "ipv6:[1.2.3.4]:5")
        odd = ("http://x:80", "x:+1", "x:" + "9" * 5000, None, 50051, b"x:1")
        for address in (*bad, *lists, *odd):
            error = self.assertRaises(ValueError, readAddress, address)
            self.assertIn('"host:port"', str(error))
            self.assertLess(len(str(error)), 200)


class CredentialsTests(SynchronousTestCase):
    """Credentials."""

    def setUp(self) -> None:
        """Make certificates."""
        self.directory = Path(self.mktemp())
        self.authority = Authority(self.directory)
        self.certificate, self.key = self.authority.issue("client")

    def test_missing(self) -> None:
        """Without credentials, or with unknown ones, the error names what there is."""
        for credentials in (None, "ssl", 5, True, ["tls"], {"cer": "x"}):
            error = self.assertRaises(ValueError, readCredentials, credentials)
            for choice in ('"insecure"', '"tls"', '"ca"', "development"):
                self.assertIn(choice, str(error))
        self.assertRaises(ValueError, createGrpcClient, "localhost:1")

    def test_insecure(self) -> None:
        """In the clear there is nothing to know."""
        self.assertIsNone(readCredentials("insecure"))

    def test_files(self) -> None:
        """Certificates and keys are read from files, or given."""
        ca, content = self.authority.path, self.authority.path.read_bytes()
        self.assertEqual(readCredentials({"ca": ca}), GRPCClientTLS(content))
        given = {"ca": content, "cert": str(self.certificate), "key": self.key, "serverName": "x"}
        expected = GRPCClientTLS(content, self.key.read_bytes(), self.certificate.read_bytes(), "x")
        self.assertEqual(readCredentials(given), expected)

    def test_unusable(self) -> None:
        """Files that are missing, too long or no PEM are refused, and named."""
        ca, cert, key = self.authority.path, self.certificate, self.key
        long = self.directory / "long"
        long.write_bytes(b"x" * (1024 * 1024 + 1))
        locked = keyText(self.authority._key, b"secret")
        for credentials, name in (
            ({"ca": self.directory / "none"}, "none"),
            ({"ca": self.directory}, "ca"),
            ({"ca": long}, "1 MiB"),
            ({"ca": key}, "ca"),
            ({"ca": b"\xff"}, "ca"),
            ({"ca": 5}, "ca"),
            ({"ca": ca, "cert": cert}, "key"),
            ({"ca": ca, "key": key}, "cert"),
            ({"ca": ca, "cert": key, "key": key}, "cert"),
            ({"ca": ca, "cert": cert, "key": cert}, "key"),
            ({"ca": ca, "cert": cert, "key": locked}, "password"),
            ({"ca": ca, "serverName": ""}, "serverName"),
        ):
            error = self.assertRaises(ValueError, readCredentials, credentials)
            self.assertIn(name, str(error))


class OptionTests(SynchronousTestCase):
    """Options."""

    def test_given(self) -> None:
        """Options have the names of the server's, and go to grpcio under its own."""
        arguments = dict(
            channelArguments(
                readOptions(
                    {
                        "maxReceiveMessageLength": "1mb",
                        "maxSendMessageLength": -1,
                        "keepaliveTimeMs": 5000,
                        "keepaliveTimeoutMs": 100,
                        "keepalivePermitWithoutCalls": True,
                        "maxConnectionIdle": 7000,
                        "compression": "gzip",
                    }
                ),
                GRPCClientTLS(serverName="name"),
            )
        )
        for key, value in (
            ("grpc.max_receive_message_length", 1024 * 1024),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", 5000),
            ("grpc.keepalive_timeout_ms", 100),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.client_idle_timeout_ms", 7000),
            ("grpc.default_compression_algorithm", 2),
            ("grpc.ssl_target_name_override", "name"),
            ("grpc.default_authority", "name"),
        ):
            self.assertEqual(arguments[key], value)

    def test_defaults(self) -> None:
        """Messages are 4 MiB at most, as the server's are."""
        arguments = dict(channelArguments(readOptions(None), None))
        self.assertEqual(arguments["grpc.max_receive_message_length"], 4 * 1024 * 1024)
        self.assertNotIn("grpc.default_compression_algorithm", arguments)

    def test_bad(self) -> None:
        """Unknown options, and those of a server, are refused by name."""
        bad: tuple[dict[str, Any], ...] = (
            {"maxConnectionAge": 5},
            {"keepaliveTime": 5},
            {"keepaliveTimeMs": 0},
            {"compression": "br"},
            {"engine": "aio"},
        )
        for options in bad:
            error = self.assertRaises(OptionError, readOptions, options)
            self.assertIn(next(iter(options)), str(error))

    def test_service(self) -> None:
        """What is no service is refused before anything is made."""
        bad: Any = 5
        self.assertRaises(ValueError, createGrpcClient, "localhost:1", "insecure", bad)
