"""The table C{[vault]} of the configuration, and the options of encryption."""

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from storagegate.daemon.config import (
    VAULT_VARIABLES,
    Configuration,
    ConfigurationError,
    load,
    needRestart,
    portable,
    restore,
)
from storagegate.daemon.consoleview import describeConfiguration
from storagegate.daemon.logs import _secretsOf

ADDRESS = 'address = "https://vault.example.com:8200"\n'
SECRET = "s.secretOfATest"


class VaultTableTests(SynchronousTestCase):
    """The table."""

    def read(self, text: str, **variables: str) -> Configuration:
        """Read a file with this text."""
        path = Path(self.mktemp())
        path.write_text(text)
        environment = {f"STORAGEGATE_{name}": value for name, value in variables.items()}
        return load({"config": str(path)}, environment)

    def refused(self, text: str, **variables: str) -> str:
        """Return the errors of a file with this text."""
        return str(self.assertRaises(ConfigurationError, self.read, text, **variables))

    def test_absent(self) -> None:
        """Without the table the keys are in a file, by default the one of the data directory."""
        found = self.read("encryptAll = true\nkeyCacheSeconds = 60\n").store
        self.assertEqual((found.vault, found.masterKeys), (None, ""))
        self.assertEqual((found.encryptAll, found.keyCacheSeconds), (True, 60))

    def test_empty(self) -> None:
        """An empty table is incomplete: the daemon would otherwise make keys in a file."""
        for variables in ({}, {"VAULT_ADDRESS": ""}):
            self.assertIn("vault.address is missing", self.refused("[vault]\n", **variables))

    def test_ways(self) -> None:
        """Each way to sign in is read; exactly one is needed."""
        for way in (
            'tokenFile = "/t"\n',
            '[vault.appRole]\nroleId = "r"\nsecretIdFile = "/s"\n',
            '[vault.kubernetes]\nrole = "r"\n',
        ):
            vault: Any = self.read(f"[vault]\n{ADDRESS}{way}").vault
            self.assertEqual((vault.mount, vault.defaultKey), ("transit", "storagegate"))
        line = self.refused(f"[vault]\n{ADDRESS}")
        self.assertIn("tokenFile", line)
        both = f'[vault]\n{ADDRESS}tokenFile = "/t"\n[vault.kubernetes]\nrole = "r"\n'
        self.assertIn("kubernetes", self.refused(both))

    def test_wrong(self) -> None:
        """A wrong option is named, without its value if that may be secret."""
        token = f'token = "{SECRET}"\n'
        for line, name in (
            ('address = "vault:8200"', "vault.address"),
            ('address = "http://vault.example.com:8200"', "http is for this machine alone"),
            ('address = "https://u:p@vault"', "vault.address"),
            (f'{ADDRESS}mount = "../sys"', "vault.mount"),
            (f'{ADDRESS}defaultKey = "a/b"', "vault.defaultKey"),
            (f"{ADDRESS}timeoutSeconds = 0", "vault.timeoutSeconds"),
            (f"{ADDRESS}adress = 1", "vault.adress"),
            (f"{ADDRESS}appRole = 1", "vault.appRole"),
            (f"{ADDRESS}[vault.appRole]\nrole = 1", "vault.appRole.role"),
        ):
            refused = self.refused(f"[vault]\n{token}{line}\n")
            self.assertIn(name, refused)
            self.assertNotIn(SECRET, refused)
        self.read(f'[vault]\n{token}address = "http://127.0.0.1:8200"\n')
        self.read(f'[vault]\n{token}address = "http://[::1]:8200"\n')
        control = self.refused(f"[vault]\n{ADDRESS}", VAULT_TOKEN="a\nsecret")
        self.assertNotIn("secret", control.replace("vault", ""))

    def test_variables(self) -> None:
        """Variables override the file, also in an inner table."""
        text = f'[vault]\n{ADDRESS}mount = "a"\n[vault.appRole]\nroleId = "r"\n'
        found: Any = self.read(text, VAULT_MOUNT="b", VAULT_SECRET_ID=SECRET).vault
        self.assertEqual((found.mount, found.appRole.secretId), ("b", SECRET))
        self.assertEqual(len(VAULT_VARIABLES), 9)
        self.assertIn("STORAGEGATE_VAULT_TOKN", self.refused("", VAULT_TOKN="x"))

    def test_both(self) -> None:
        """A file of master keys beside the table is a mistake."""
        text = f'masterKeys = "/k"\n[vault]\n{ADDRESS}tokenFile = "/t"\n'
        self.assertIn("masterKeys", self.refused(text))

    def test_hidden(self) -> None:
        """No description has a secret; the log hides them."""
        text = f'[vault]\n{ADDRESS}[vault.appRole]\nroleId = "r"\n'
        found = self.read(text, VAULT_SECRET_ID=SECRET)
        shown = json.dumps(describeConfiguration(found, found, False, "/etc/c"))
        self.assertIn("vault.appRole.roleId", shown)
        self.assertNotIn(SECRET, shown)
        self.assertNotIn(SECRET, repr(found))
        self.assertIn(SECRET, list(_secretsOf(found)))

    def test_portable(self) -> None:
        """Workers get the same table; a change of it takes a restart."""
        text = f'encryptAll = true\n[vault]\n{ADDRESS}[vault.appRole]\nroleId = "r"\n'
        found = self.read(text, VAULT_SECRET_ID=SECRET)
        copied = restore(json.loads(json.dumps(portable(found))))
        self.assertEqual((copied.vault, copied.store), (found.vault, found.store))
        other = self.read(text.replace('"r"', '"q"'), VAULT_SECRET_ID=SECRET)
        self.assertEqual(needRestart(found, other), ["vault"])
