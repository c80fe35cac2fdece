"""IAM with programs: aws-cli, Ansible, and the page of the documentation as a reader pastes it."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.support.clients import awsEnvironment, runTool
from tests.support.documents import DOCS, codeBlocks
from tests.support.programs import findProgram, needProgram
from tests.support.selection import long
from tests.wire.s3.test_iam import TRUST, IAMCase, policy
from tests.wire.test_readme import runShell

PLAYBOOK = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [
            {
                "name": "create the user",
                "amazon.aws.iam_user": {
                    "name": "robot",
                    "state": "present",
                    "managed_policies": ["AmazonS3ReadOnlyAccess"],
                    "tags": {"team": "blue"},
                    "wait": True,
                },
                "register": "first",
            },
            {
                "name": "create it again",
                "amazon.aws.iam_user": {
                    "name": "robot",
                    "state": "present",
                    "managed_policies": ["AmazonS3ReadOnlyAccess"],
                    "tags": {"team": "blue"},
                },
                "register": "again",
            },
            {
                "name": "create a key",
                "amazon.aws.iam_access_key": {"user_name": "robot", "state": "present"},
                "register": "key",
            },
            {
                "name": "disable the key",
                "amazon.aws.iam_access_key": {
                    "user_name": "robot",
                    "id": "{{ key.access_key_id }}",
                    "state": "present",
                    "enabled": False,
                },
            },
            {
                "name": "create a group of it",
                "amazon.aws.iam_group": {"name": "robots", "users": ["robot"], "state": "present"},
            },
            {
                "name": "list the keys",
                "amazon.aws.iam_access_key_info": {"user_name": "robot"},
                "register": "keys",
            },
            {
                "name": "delete the group",
                "amazon.aws.iam_group": {
                    "name": "robots",
                    "purge_users": True,
                    "users": [],
                    "state": "present",
                },
            },
            {
                "name": "delete the user",
                "amazon.aws.iam_user": {"name": "robot", "state": "absent"},
            },
            {
                "name": "check",
                "ansible.builtin.assert": {
                    "that": [
                        "first.changed",
                        "not again.changed",
                        "key.secret_access_key | length == 40",
                        "keys.access_keys | length == 1",
                        "keys.access_keys[0].status == 'Inactive'",
                    ]
                },
            },
        ],
    }
]


class ProgramTests(IAMCase):
    """Programs, as they are."""

    @long("takes seconds")
    def test_awscli(self) -> None:
        """Users, groups, roles, policies and providers by aws-cli, from nothing to nothing."""
        program = needProgram("aws")
        home = self.makeDirectory("aws")
        environment = awsEnvironment(self.endpoint, home, self.admin)
        document = home / "p.json"
        document.write_text(policy("s3:GetObject"))
        (home / "t.json").write_text(TRUST)

        def aws(*words: str | Path) -> Any:
            found = runTool([program, "iam", *words, "--output", "json"], environment)
            return json.loads(found) if found.strip() else None

        user, group, role = ("--user-name", "ann"), ("--group-name", "g"), ("--role-name", "r")
        inline = ("--policy-name", "p", "--policy-document", f"file://{document}")
        aws("create-user", *user, "--path", "/a/", "--tags", "Key=a,Value=b")
        aws("create-group", *group)
        aws("add-user-to-group", *user, *group)
        trust = ("--assume-role-policy-document", f"file://{home / 't.json'}")
        aws("create-role", *role, *trust, "--max-session-duration", "7200")
        aws("update-role", *role, "--description", "text")
        aws("tag-role", *role, "--tags", "Key=a,Value=b")
        made = aws("create-policy", *inline)["Policy"]["Arn"]
        version = ("create-policy-version", "--policy-arn", made, *inline[2:], "--set-as-default")
        self.assertEqual(aws(*version)["PolicyVersion"]["VersionId"], "v2")
        aws("delete-policy-version", "--policy-arn", made, "--version-id", "v1")
        for kind, named in (("user", user), ("group", group), ("role", role)):
            aws(f"put-{kind}-policy", *named, *inline)
            aws(f"attach-{kind}-policy", *named, "--policy-arn", made)
            shown = aws(f"get-{kind}-policy", *named, "--policy-name", "p")
            self.assertEqual(json.dumps(shown["PolicyDocument"]), policy("s3:GetObject"))
            attached = aws(f"list-attached-{kind}-policies", *named)["AttachedPolicies"]
            self.assertEqual([each["PolicyArn"] for each in attached], [made])
        self.assertEqual(len(aws("list-entities-for-policy", "--policy-arn", made)), 3)
        key = aws("create-access-key", *user)["AccessKey"]["AccessKeyId"]
        named = ("--access-key-id", key)
        aws("update-access-key", *user, *named, "--status", "Inactive")
        self.assertEqual(aws("get-access-key-last-used", *named)["UserName"], "ann")
        # Pages, as the program makes them.
        names = [each["UserName"] for each in aws("list-users", "--page-size", "1")["Users"]]
        self.assertEqual(names, sorted((self.admin.accessKey, "ann"), key=str.lower))
        url = ("--url", "https://id.example.com", "--client-id-list", "one", "two")
        arn = aws("create-open-id-connect-provider", *url)["OpenIDConnectProviderArn"]
        aws("delete-open-id-connect-provider", "--open-id-connect-provider-arn", arn)
        self.assertEqual(aws("get-account-summary")["SummaryMap"]["Users"], 2)
        aws("delete-access-key", *user, *named)
        for kind, named in (("user", user), ("group", group), ("role", role)):
            aws(f"delete-{kind}-policy", *named, "--policy-name", "p")
            aws(f"detach-{kind}-policy", *named, "--policy-arn", made)
        aws("remove-user-from-group", *user, *group)
        aws("delete-policy", "--policy-arn", made)
        for kind, named in (("user", user), ("group", group), ("role", role)):
            aws(f"delete-{kind}", *named)
        self.assertEqual(aws("list-roles")["Roles"], [])

    @long("takes seconds, and Ansible is large")
    def test_ansible(self) -> None:
        """iam_user, iam_access_key and iam_group of amazon.aws, unchanged."""
        program = needProgram("ansible-playbook")
        home = self.makeDirectory("ansible")
        book = home / "book.yml"
        book.write_text(json.dumps(PLAYBOOK))
        environment = {
            **awsEnvironment(self.endpoint, home, self.admin),
            "ANSIBLE_LOCAL_TEMP": str(home / "tmp"),
            "ANSIBLE_HOME": str(home / "home"),
            "ANSIBLE_NOCOLOR": "1",
        }
        printed = runTool([program, "-i", "localhost,", book], environment)
        self.assertIn("failed=0", printed)
        self.assertRefused(404, "NoSuchEntity", self.iam.get_user, UserName="robot")

    @long("takes seconds")
    def test_page(self) -> None:
        """The blocks of the page do what they say."""
        needProgram("aws")
        directory = self.makeDirectory("page")
        admin = self.issueKey("acme", "--role", "admin")
        scripts = directory / "scripts"
        scripts.mkdir()
        (scripts / "storagegate").write_text(
            f'#!/bin/sh\nexec {sys.executable} -m storagegate "$@"\n'
        )
        (scripts / "storagegate").chmod(0o755)
        (scripts / "aws").symlink_to(Path(str(findProgram("aws"))))
        variables = {
            **awsEnvironment(self.endpoint, directory, admin),
            "STORAGEGATE_DATA": str(self.daemon.data),
        }
        lines = [f"export {name}='{value}'" for name, value in variables.items()]
        blocks = [block.code for block in codeBlocks(DOCS / "iam.rst", "sh")]
        self.assertEqual(len(blocks), 8)
        printed = runShell(self, "\n".join([*lines, *blocks]), directory, scripts)
        self.assertIn('"GroupName": "readers"', printed)
        self.assertIn("AmazonS3ReadOnlyAccess", printed)
        self.assertIn("assumed-role/ops/work", printed)
        decisions = re.findall(r'"EvalResourceDecision": "(\w+)"', printed)
        self.assertEqual(decisions, ["allowed", "implicitDeny"] * 2 + ["allowed"])
        iam = self.client(admin)
        keys = iam.list_access_keys(UserName="ann")["AccessKeyMetadata"]
        self.assertEqual(len(keys), 2, "its own key, and a service key")
        self.assertTrue(iam.list_attached_user_policies(UserName="bob")["AttachedPolicies"])
