"""The variables and files of Amazon's tools, read as aws-cli reads them."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from storagegate.cli.awssettings import AWSSettings, AWSSettingsError, S3Credentials

CREDENTIALS = """\
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = default-secret

[store]
aws_access_key_id = AKIASTORE
aws_secret_access_key = store-secret
aws_session_token = store-token

[half]
aws_access_key_id = AKIAHALF
"""

CONFIGURATION = """\
[default]
region = eu-west-1

[profile store]
region = eu-north-1
endpoint_url = https://store.example.com
aws_secret_access_key = overridden

[profile plain]
region = eu-south-1
s3 =
    addressing_style = path
"""

VARIABLES = {"AWS_ACCESS_KEY_ID": "AKIAVARIABLE", "AWS_SECRET_ACCESS_KEY": "variable-secret"}

STORE = S3Credentials("AKIASTORE", "store-secret", "store-token")


class AWSSettingsTests(SynchronousTestCase):
    """The precedence: flag, variable, credentials file, configuration file."""

    def setUp(self) -> None:
        """Write both files to the places that the variables name."""
        base = Path(self.mktemp())
        base.mkdir()
        self.credentials, self.configuration = base / "credentials", base / "config"
        self.credentials.write_text(CREDENTIALS)
        self.configuration.write_text(CONFIGURATION)
        self.files = {
            "AWS_SHARED_CREDENTIALS_FILE": str(self.credentials),
            "AWS_CONFIG_FILE": str(self.configuration),
        }

    def settings(self, flag: str = "", **variables: str) -> AWSSettings:
        """Return the settings with these variables."""
        return AWSSettings({**self.files, **variables}, flag)

    def test_credentials(self) -> None:
        """Each source of the key pair gives way to the one before it."""
        variables = S3Credentials("AKIAVARIABLE", "variable-secret")
        for settings, expected in (
            (self.settings("store", AWS_PROFILE="half", **VARIABLES), STORE),
            (self.settings(AWS_PROFILE="store", **VARIABLES), variables),
            (self.settings(AWS_PROFILE="store"), STORE),
            (self.settings(AWS_PROFILE="plain"), None),
            (self.settings(AWS_PROFILE="default"), S3Credentials("AKIADEFAULT", "default-secret")),
            (AWSSettings(VARIABLES), variables),
        ):
            self.assertEqual(settings.credentials(), expected)

    def test_sessionToken(self) -> None:
        """C{AWS_SESSION_TOKEN} belongs to the pair of the variables only."""
        given = self.settings(AWS_SESSION_TOKEN="token", **VARIABLES).credentials()
        self.assertEqual(given, S3Credentials("AKIAVARIABLE", "variable-secret", "token"))
        self.assertEqual(
            self.settings(AWS_SESSION_TOKEN="token", AWS_PROFILE="store").credentials(), STORE
        )
        for secret in ("variable-secret", "token"):
            self.assertNotIn(secret, repr(given))

    def test_default(self) -> None:
        """The profile C{default} gives its pair only if an endpoint says that it is no Amazon's."""
        default = S3Credentials("AKIADEFAULT", "default-secret")
        self.assertIsNone(self.settings().credentials())
        url = "http://127.0.0.1:9000"
        self.assertEqual(self.settings(AWS_ENDPOINT_URL=url).credentials(), default)
        self.configuration.write_text(f"[default]\nendpoint_url = {url}\n")
        self.assertEqual(self.settings().credentials(), default)

    def test_region(self) -> None:
        """A variable wins over the named profile; an unnamed profile has no say."""
        for settings, expected in (
            (self.settings(), ""),
            (self.settings(AWS_DEFAULT_REGION="b"), "b"),
            (self.settings(AWS_DEFAULT_REGION="b", AWS_REGION="a"), "a"),
            (self.settings(AWS_PROFILE="store", AWS_REGION="a"), "a"),
            (self.settings(AWS_PROFILE="store"), "eu-north-1"),
            (self.settings("store", AWS_REGION="a"), "eu-north-1"),
            (self.settings("half", AWS_REGION="a"), "a"),
        ):
            self.assertEqual(settings.region(), expected)

    def test_endpoint(self) -> None:
        """The variable for S3 wins over the one for all services, and both over the profile."""
        for settings, expected in (
            (self.settings(), ""),
            (self.settings(AWS_ENDPOINT_URL="http://b"), "http://b"),
            (
                self.settings(AWS_ENDPOINT_URL="http://b", AWS_ENDPOINT_URL_S3="http://a"),
                "http://a",
            ),
            (self.settings(AWS_PROFILE="store"), "https://store.example.com"),
            (self.settings(AWS_PROFILE="store", AWS_ENDPOINT_URL="http://b"), "http://b"),
        ):
            self.assertEqual(settings.endpoint(), expected)

    def test_home(self) -> None:
        """Without variables the files are those of aws-cli in the home directory."""
        home = Path(self.mktemp()).absolute()
        (home / ".aws").mkdir(parents=True)
        (home / ".aws" / "credentials").write_text(CREDENTIALS)
        self.patch(os, "environ", {"HOME": str(home)})
        self.assertEqual(AWSSettings({"AWS_PROFILE": "store"}).credentials(), STORE)
        self.assertFalse(AWSSettings({}).hasProfile("plain"))

    def test_invalid(self) -> None:
        """An incomplete pair, an unknown profile and a broken file are errors without secrets."""
        self.configuration.write_text(CONFIGURATION)
        for settings, expected in (
            (self.settings(AWS_ACCESS_KEY_ID="AKIA"), "AWS_SECRET_ACCESS_KEY is not set"),
            (self.settings(AWS_SECRET_ACCESS_KEY="hidden"), "AWS_ACCESS_KEY_ID is not set"),
            (self.settings(AWS_PROFILE="half"), "half has only one half of the key pair"),
            (self.settings(AWS_PROFILE="gone"), f"no profile gone in {self.credentials}"),
            (self.settings("gone"), "no profile gone"),
        ):
            error = self.assertRaises(AWSSettingsError, settings.credentials)
            self.assertIn(expected, str(error))
            self.assertNotIn("hidden", str(error))
        self.credentials.write_text("hidden\n[default]\n")
        error = self.assertRaises(AWSSettingsError, self.settings("store").credentials)
        self.assertEqual(str(error), f"{self.credentials} is not a valid file of profiles")
