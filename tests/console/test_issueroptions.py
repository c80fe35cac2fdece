"""The tables of issuers in the configuration."""

import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.console.issueroptions import readIssuers
from storagegate.core.options import OptionError
from storagegate.daemon.config import ConfigurationError, load, needRestart, portable, restore
from storagegate.daemon.consoleview import describeConfiguration

GOOD = {"issuer": "https://login.example.com/", "clientId": "console", "account": "staff"}


class IssuerOptionsTests(SynchronousTestCase):
    """L{readIssuers}."""

    def test_defaults(self) -> None:
        """Issuer, client and account are enough."""
        found = readIssuers({"corporate": GOOD})["corporate"]
        self.assertEqual(found.issuer.text, GOOD["issuer"])
        self.assertEqual(found.scopes, ("openid", "profile", "email"))
        self.assertEqual((found.secret(), found.groupsClaim, found.roleClaim), ("", None, None))

    def test_refused(self) -> None:
        """Each mistake is named, without its secret."""
        for name, more, text in (
            ("corporate", {"issuer": "http://login.example.com"}, "signIn.corporate.issuer"),
            ("corporate", {"issuer": "https://x.example/?a=b"}, "without a query"),
            ("corporate", {"account": "root"}, "account of the root pair"),
            ("corporate", {"account": ""}, "signIn.corporate.account"),
            ("corporate", {"scopes": ["email"]}, "has no openid"),
            ("corporate", {"scopes": ["openid", "a b"]}, "is a list of scopes"),
            ("corporate", {"scope": "x"}, "there is no option signIn.corporate.scope"),
            ("corporate", {"roleClaim": "r", "roles": {"a": "root"}}, "no role of none, auditor"),
            ("corporate", {"roles": {"a": "admin"}}, "needs signIn.corporate.roleClaim"),
            ("corporate", {"redirectUrl": "javascript:x"}, "signIn.corporate.redirectUrl"),
            ("corporate", {"label": "a\nb"}, "signIn.corporate.label"),
            ("corporate", {"clientSecret": "hidden\n"}, "signIn.corporate.clientSecret"),
            ("corporate", {"clientSecretFile": "/nonexistent"}, "No such file"),
            ("corporate", {"clientSecretVariable": "NO_SUCH_VARIABLE"}, "its secret is a text"),
            ("corporate", {"clientSecret": "hidden", "clientSecretFile": "x"}, "more than one"),
            ("Corp", {}, "signIn.Corp has a name"),
            ("a/b", {}, "signIn.a/b has a name"),
        ):
            error = self.assertRaises(OptionError, readIssuers, {name: {**GOOD, **more}})
            self.assertIn(text, str(error))
            self.assertNotIn("hidden", str(error))
        self.assertRaises(OptionError, readIssuers, {"corporate": "x"})
        self.assertRaises(OptionError, readIssuers, {f"i{each}": GOOD for each in range(11)})
        for missing in GOOD:
            given = {name: value for name, value in GOOD.items() if name != missing}
            error = self.assertRaises(OptionError, readIssuers, {"corporate": given})
            self.assertIn(f"signIn.corporate.{missing} is missing", str(error))

    def test_secrets(self) -> None:
        """The secret is an option, or in a file or a variable, without its end of line."""
        path = Path(self.mktemp())
        path.write_text("from-file\n")
        self.patch(os, "environ", {**os.environ, "CLIENT_SECRET": "from-variable"})
        for more, secret in (
            ({"clientSecret": "hidden"}, "hidden"),
            ({"clientSecretFile": str(path)}, "from-file"),
            ({"clientSecretVariable": "CLIENT_SECRET"}, "from-variable"),
        ):
            options = readIssuers({"corporate": {**GOOD, **more}})["corporate"]
            self.assertEqual(options.secret(), secret)
            self.assertNotIn("hidden", repr(options))


class ConfigurationTests(SynchronousTestCase):
    """The tables in the file of the daemon."""

    def load(self, **more: Any) -> Any:
        """Load a file with an issuer."""
        path = Path(self.mktemp())
        lines = [f"{name} = {value!r}" for name, value in {**GOOD, **more}.items()]
        path.write_text("\n".join(["[signIn.corporate]", *lines]))
        return load({"config": str(path)}, {})

    def test_load(self) -> None:
        """The tables reach other processes, and a change of them needs a restart."""
        found = self.load()
        self.assertEqual(found.signIn, {"corporate": GOOD})
        self.assertEqual(restore(portable(found)).signIn, found.signIn)
        self.assertEqual(needRestart(found, self.load(clientId="other")), ["signIn"])
        error = self.assertRaises(ConfigurationError, self.load, label="")
        self.assertIn("signIn (file", str(error))
        self.assertIn("signIn.corporate.label", str(error))

    def test_described(self) -> None:
        """The console lists the options without the secret."""
        found = self.load(clientSecret="hidden")
        shown = {
            row["key"]: row["value"] for row in describeConfiguration(found, found, False, "f")
        }
        self.assertEqual(shown["signIn.corporate.clientId"], "console")
        self.assertEqual(shown["signIn.corporate.clientSecret"], "***")
        self.assertNotIn("hidden", str(shown))
