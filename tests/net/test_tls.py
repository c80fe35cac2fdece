"""The files of TLS, and what is made of them."""

import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.core.options import OptionError
from storagegate.net.tls import (
    MAX_NAMES,
    ClientTLSOptions,
    InstanceTLSOptions,
    TLSContexts,
    checkFiles,
    expectedName,
)
from storagegate.upstream.options import DiscoveryOptions, checkDiscovery, readDiscovery, tlsTables
from tests.support.certificates import Authority, keyText
from tests.support.log import LogCase


class FilesCase(SynchronousTestCase):
    """A folder of certificates."""

    def setUp(self) -> None:
        """Make it."""
        super().setUp()
        self.folder = Path(self.mktemp()).absolute()
        self.authority = Authority(self.folder)
        certificate, key = self.authority.issue("gateway")
        self.files = {
            "caFile": str(self.authority.path),
            "certFile": str(certificate),
            "keyFile": str(key),
        }

    def write(self, name: str, content: bytes) -> str:
        """Write a file."""
        path = self.folder / name
        path.write_bytes(content)
        return str(path)


class CheckTests(FilesCase):
    """What is said of files at the start."""

    def refusal(self, **changed: str) -> str:
        """Give what is wrong with files."""
        options = ClientTLSOptions(**{**self.files, **changed})
        error = self.assertRaises(OptionError, checkFiles, options, "services.A.tls")
        return str(error)

    def test_good(self) -> None:
        """Good ones are good, and so are none."""
        checkFiles(ClientTLSOptions(**self.files), "services.A.tls")
        checkFiles(ClientTLSOptions(), "services.A.tls")

    def test_refused(self) -> None:
        """Whatever cannot be used is told in one line that names the option and the file."""
        words = self.write("words", b"hello")
        broken = self.write(
            "broken", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        )
        long = self.write("long", b"x" * (1024 * 1024 + 1))
        other = str(self.authority.issue("other")[1])
        for changed, expected in (
            ({"caFile": "/nowhere/ca"}, "caFile: /nowhere/ca: No such file or directory"),
            ({"caFile": str(self.folder)}, f"caFile: {self.folder}: Is a directory"),
            ({"caFile": words}, f"caFile: {words} contains no certificate"),
            ({"caFile": broken}, f"caFile: {broken} contains no certificate"),
            ({"caFile": long}, f"caFile: {long} is longer than 1 MiB"),
            ({"certFile": "/nowhere/cert"}, "certFile: /nowhere/cert: No such file"),
            ({"certFile": words}, f"certFile: {words} contains no certificate"),
            ({"keyFile": "/nowhere/key"}, "keyFile: /nowhere/key: No such file"),
            ({"keyFile": words}, f"keyFile: {words} is not a PEM key, or needs a password"),
            ({"keyFile": other}, f"keyFile: {other} does not belong to the certificate"),
        ):
            text = self.refusal(**changed)
            self.assertIn(f"the option services.A.tls.{expected}", text)
            self.assertNotIn("\n", text)

    def test_password(self) -> None:
        """A key with a password is refused, and there is no prompt for one."""
        from cryptography.hazmat.primitives.asymmetric import ec

        locked = keyText(ec.generate_private_key(ec.SECP256R1()), b"secret")
        file = self.write("locked", locked)
        self.assertIn("is not a PEM key, or needs a password", self.refusal(keyFile=file))

    def test_names(self) -> None:
        """A server is known by what options say, or else by its host as certificates have it."""
        for host, expected in (
            ("a.example", "a.example"),
            ("a.example.", "a.example"),
            ("10.0.0.1", "10.0.0.1"),
            ("fe80::1%eth0", "fe80::1"),
        ):
            self.assertEqual(expectedName(ClientTLSOptions(), host), expected)
            self.assertEqual(
                expectedName(ClientTLSOptions(serverName="b.example"), host), "b.example"
            )

    def test_tables(self) -> None:
        """Checked are the tables that are used: of services, and of the provider."""
        options = self.read(
            {"A": {"instances": [], "tls": {}}, "B": {"instances": []}},
            provider="consul",
            etcd={"tls": {"caFile": "/x"}},
        )
        self.assertEqual(
            tlsTables(options),
            {"services.A.tls": InstanceTLSOptions(), "consul.tls": ClientTLSOptions()},
        )

    def test_options(self) -> None:
        """Wrong options are refused by their whole names."""
        for tls, expected in (
            ({"cafile": "/x"}, "there is no option services.A.tls.cafile;"),
            ({"caFile": ""}, "the option services.A.tls.caFile is the name of a file"),
            ({"verify": "no"}, "the option services.A.tls.verify is True or False"),
            ({"serverName": "a_b"}, "the option services.A.tls.serverName is a name or an"),
            ({"serverName": "a..b"}, "the option services.A.tls.serverName is a name or an"),
            ({"serverName": 7}, "the option services.A.tls.serverName is a name or an"),
            (True, "the option services.A.tls is a mapping of options"),
        ):
            error = self.assertRaises(OptionError, self.read, {"A": {"tls": tls}})
            self.assertIn(expected, str(error))
        for name in ("a.example", "10.0.0.1", "::1", "xn--caf-dma.example"):
            self.read({"A": {"tls": {"serverName": name}}})
        instance = {"host": "a", "port": 1, "tls": "yes"}
        error = self.assertRaises(OptionError, self.read, {"A": {"instances": [instance]}})
        self.assertIn("the option instances[0].tls is True or False", str(error))
        alone = self.read({"A": {"instances": [], "tls": {"certFile": "/x"}}})
        error = self.assertRaises(OptionError, checkDiscovery, alone)
        self.assertIn("services.A.tls.certFile and keyFile are given together", str(error))

    def read(self, services: Any, **more: Any) -> DiscoveryOptions:
        """Read options."""
        return readDiscovery(DiscoveryOptions(), {"services": services, **more})


class CreatorTests(FilesCase, LogCase):
    """What is made of files, and of those that are exchanged."""

    def setUp(self) -> None:
        """Make the TLS of a service."""
        super().setUp()
        self.tls = TLSContexts("services.A.tls", InstanceTLSOptions(**self.files))
        self.tls.check()

    def exchange(self, name: str, content: bytes) -> None:
        """Exchange a file as programs do that renew certificates."""
        os.replace(self.write("new", content), self.files[name])

    def test_kept(self) -> None:
        """What was made for a name is kept as long as the files are, each name for itself."""
        first = self.tls.creator("a.example")
        self.assertIs(self.tls.creator("a.example"), first)
        self.assertIsNot(self.tls.creator("b.example"), first)

    def test_exchanged(self) -> None:
        """Files that are exchanged hold for what is made from then on."""
        first = self.tls.creator("a.example")
        self.exchange("caFile", Authority(self.folder / "other", "other").path.read_bytes())
        second = self.tls.creator("a.example")
        self.assertIsNot(second, first)
        self.assertIs(self.tls.creator("a.example"), second)

    def test_broken(self) -> None:
        """While they cannot be used what they were before holds, and the log says so once."""
        first = self.tls.creator("a.example")
        good = Path(self.files["certFile"]).read_bytes()
        self.exchange("certFile", b"half of it")
        for _ in range(3):
            self.assertIs(self.tls.creator("a.example"), first)
        told = [line for line in self.logged() if "services.A.tls.certFile" in line]
        self.assertEqual(len(told), 1)
        self.assertIn("contains no certificate", told[0])
        self.exchange("certFile", good)
        self.assertIsNot(self.tls.creator("a.example"), first)

    def test_bounded(self) -> None:
        """Of names that are many, those are kept that were used last."""
        used = self.tls.creator("used.example")
        first = self.tls.creator("first.example")
        for at in range(MAX_NAMES - 1):
            self.tls.creator(f"{at}.example")
            self.tls.creator("used.example")
        self.assertIs(self.tls.creator("used.example"), used)
        self.assertIsNot(self.tls.creator("first.example"), first)

    def test_noName(self) -> None:
        """A name that can be none fails, and nothing else does."""
        self.assertRaises(UnicodeError, self.tls.creator, "a_b")
        self.tls.creator("a.example")
