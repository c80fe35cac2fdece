"""Limits on how often one client may ask."""

from typing import Any

from twisted.logger import LogLevel, globalLogPublisher

from storagegate.http.middleware.ratelimit import rateLimit
from tests.http.middleware.support import NOON, Answer, AppCase, LimitCase

REFUSED = b"Too many requests, please try again later."


class WindowTests(LimitCase):
    """Who is refused, and when."""

    def test_max(self) -> None:
        """The first requests are answered; the one after is 429, with a word about it."""
        self.limit(max=2)
        self.assertEqual(self.statuses(2), [200, 200])
        answer = self.ask()
        self.assertEqual((answer.status, answer.body), (429, REFUSED))
        self.assertEqual(answer.get("content-type"), "text/html; charset=utf-8")

    def test_defaults(self) -> None:
        """By default five requests are let through in a minute."""
        self.limit()
        self.assertEqual(self.statuses(6), [200] * 5 + [429])
        self.clock.advance(59)
        self.assertEqual(self.statuses(1), [429])
        self.clock.advance(1)
        self.assertEqual(self.statuses(6), [200] * 5 + [429])

    def test_none(self) -> None:
        """A limit of 0 blocks all."""
        self.limit(max=0)
        self.assertEqual(self.statuses(1), [429])

    def test_windowStays(self) -> None:
        """The window is fixed: those who keep asking do not put its end off."""
        self.limit(windowMs=10_000, max=1)
        self.ask()
        for _ in range(9):
            self.clock.advance(1)
            self.assertEqual(self.ask().status, 429)
        self.clock.advance(1)
        self.assertEqual(self.ask().status, 200)

    def test_clientsApart(self) -> None:
        """Each client has a window of its own."""
        self.limit(max=1)
        self.assertEqual(self.statuses(2), [200, 429])
        self.assertEqual(self.statuses(2, host="192.0.2.8"), [200, 429])

    def test_limitsApart(self) -> None:
        """Each limit counts for itself."""
        self.app.use("/a", rateLimit(max=1))
        self.app.use("/b", rateLimit(max=1))
        self.assertEqual(
            [self.ask(path=path).status for path in ("/a", "/b", "/a")], [404, 404, 429]
        )

    def test_networks(self) -> None:
        """An IPv6 client counts as its network of 56 bits."""
        self.limit(max=1)
        self.assertEqual(self.ask(host="2001:db8:1:2200::1").status, 200)
        self.assertEqual(self.ask(host="2001:db8:1:22ff:5::1").status, 429)
        self.assertEqual(self.ask(host="2001:db8:1:2300::1").status, 200)

    def test_mapped(self) -> None:
        """An IPv4 client counts as one, also where it comes through a socket of IPv6."""
        self.limit(max=1)
        self.assertEqual(self.ask(host="::ffff:192.0.2.7").status, 200)
        self.assertEqual(self.ask(host="192.0.2.7").status, 429)

    def test_proxied(self) -> None:
        """Behind a proxy that is trusted, its clients are counted."""
        self.app.withOptions(trustProxy="192.0.2.7")
        self.limit(max=1)
        self.assertEqual(self.ask(X_Forwarded_For="198.51.100.1").status, 200)
        self.assertEqual(self.ask(X_Forwarded_For="198.51.100.2").status, 200)
        self.assertEqual(self.ask(X_Forwarded_For="198.51.100.1").status, 429)

    def test_option(self) -> None:
        """The application's option installs it."""
        self.app.withOptions(rateLimit={"windowMs": 1000, "max": 1})
        self.app.get("/", self.hello)
        self.assertEqual(self.statuses(2), [200, 429])


class FieldTests(LimitCase):
    """What clients are told."""

    def fields(self, answer: Answer) -> dict[str, str | None]:
        """Give what an answer says about limits."""
        return {
            name: answer.get(name)
            for name in answer.headers
            if "ratelimit" in name or name == "retry-after"
        }

    def test_legacy(self) -> None:
        """By default there are the X- fields, with the end of the window in seconds since 1970."""
        self.limit(windowMs=10_500, max=2)
        self.assertEqual(
            self.fields(self.ask()),
            {
                "x-ratelimit-limit": "2",
                "x-ratelimit-remaining": "1",
                "x-ratelimit-reset": str(NOON + 11),
            },
        )

    def test_refused(self) -> None:
        """A refusal says how many seconds to wait."""
        self.limit(max=1)
        self.ask()
        self.clock.advance(12.5)
        self.assertEqual(
            self.fields(self.ask()),
            {
                "x-ratelimit-limit": "1",
                "x-ratelimit-remaining": "0",
                "x-ratelimit-reset": str(NOON + 60),
                "retry-after": "48",
            },
        )

    def test_silent(self) -> None:
        """The fields can be switched off; how long to wait is still said."""
        self.limit(max=0, legacyHeaders=False)
        self.assertEqual(self.fields(self.ask()), {"retry-after": "60"})

    def test_draft6(self) -> None:
        """The sixth draft has four fields, and counts seconds from now."""
        for name in ("draft-6", True):
            self.app = self.makeApp()
            self.limit(max=2, standardHeaders=name, legacyHeaders=False)
            self.assertEqual(
                self.fields(self.ask()),
                {
                    "ratelimit-policy": "2;w=60",
                    "ratelimit-limit": "2",
                    "ratelimit-remaining": "1",
                    "ratelimit-reset": "60",
                },
            )

    def test_draft7(self) -> None:
        """The seventh draft has one field for all."""
        self.limit(max=2, standardHeaders="draft-7", legacyHeaders=False)
        self.ask()
        self.clock.advance(10.5)
        self.assertEqual(
            self.fields(self.ask()),
            {"ratelimit-policy": "2;w=60", "ratelimit": "limit=2, remaining=0, reset=50"},
        )

    def test_draft8(self) -> None:
        """The eighth draft names the policy, and the client by a hash."""
        self.limit(max=2, standardHeaders="draft-8", legacyHeaders=False)
        # The first 12 digits of the SHA-256 of 192.0.2.7, in base64.
        self.assertEqual(
            self.fields(self.ask()),
            {
                "ratelimit-policy": '"2-in-1min"; q=2; w=60; pk=:MzdkYWQ2NzdjZjBi:',
                "ratelimit": '"2-in-1min"; r=1; t=60',
            },
        )

    def test_twoPolicies(self) -> None:
        """In the eighth draft every limit says its own."""
        for maximum in (5, 3):
            self.app.use(rateLimit(max=maximum, standardHeaders="draft-8", legacyHeaders=False))
        answer = self.ask()
        self.assertEqual(
            answer.all("ratelimit"), ['"5-in-1min"; r=4; t=60', '"3-in-1min"; r=2; t=60']
        )
        self.assertEqual(len(answer.all("ratelimit-policy")), 2)

    def test_periods(self) -> None:
        """The name of a policy has its window in the largest unit that fits."""
        for windowMs, period in (
            (500, "0.5sec"),
            (1000, "1sec"),
            (90_000, "1.5min"),
            (3_600_000, "1hr"),
            (7_200_000, "2hrs"),
            (86_400_000, "1day"),
            (172_800_000, "2days"),
        ):
            self.app = self.makeApp()
            self.limit(windowMs=windowMs, standardHeaders="draft-8")
            self.assertIn(f'"5-in-{period}"', str(self.ask().get("ratelimit")))

    def test_both(self) -> None:
        """Old and new fields can stand together."""
        self.limit(standardHeaders="draft-7")
        self.assertEqual(
            set(self.fields(self.ask())),
            {
                "ratelimit-policy",
                "ratelimit",
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset",
            },
        )

    def test_forHandlers(self) -> None:
        """Handlers find where the client stands."""
        self.app.use(rateLimit(max=2))
        seen: list[Any] = []

        def look(req: Any, res: Any) -> None:
            seen.append(req.rateLimit)
            res.end()

        self.app.get("/", look)
        self.ask()
        info = seen[0]
        self.assertEqual(
            (info.limit, info.used, info.remaining, info.resetTime, info.key),
            (2, 1, 1, NOON + 60, "192.0.2.7"),
        )


class ProxyTests(LimitCase):
    """Warnings of a proxy that was forgotten."""

    def setUp(self) -> None:
        """Watch the log."""
        super().setUp()
        self.warnings: list[str] = []

        def observe(event: Any) -> None:
            if event["log_level"] is LogLevel.warn:
                self.warnings.append(event["log_format"])

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def test_forgotten(self) -> None:
        """A forwarded request where no proxy is trusted is told of, once."""
        self.limit(max=9)
        self.ask()
        self.assertEqual(self.warnings, [])
        for _ in range(3):
            self.ask(X_Forwarded_For="198.51.100.1")
        self.assertEqual(len(self.warnings), 1)
        self.assertIn("trustProxy is not set", self.warnings[0])

    def test_permissive(self) -> None:
        """An application that believes everybody is told so, once."""
        self.app.withOptions(trustProxy=True)
        self.limit(max=9)
        for _ in range(3):
            self.ask()
        self.assertEqual(len(self.warnings), 1)
        self.assertIn("trustProxy=True", self.warnings[0])

    def test_right(self) -> None:
        """Where the proxies are named, or the key is another, there is nothing to tell."""
        self.app.withOptions(trustProxy=1)
        self.limit(max=9)
        self.ask(X_Forwarded_For="198.51.100.1")
        self.app = self.makeApp()
        self.limit(max=9, keyGenerator=lambda req: "all")
        self.ask(X_Forwarded_For="198.51.100.1")
        self.assertEqual(self.warnings, [])


class SetUpTests(AppCase):
    """What is refused before there is a request."""

    def test_values(self) -> None:
        """Values that cannot be are errors."""
        for options in (
            {"windowMs": 0},
            {"windowMs": -1},
            {"windowMs": True},
            {"max": -1},
            {"max": "5"},
            {"max": True},
            {"statusCode": 42},
            {"standardHeaders": "draft-9"},
        ):
            self.assertRaises(ValueError, rateLimit, **options)

    def test_kinds(self) -> None:
        """So are functions that are none, or take something else."""
        for options in (
            {"skip": True},
            {"keyGenerator": "ip"},
            {"keyGenerator": lambda: ""},
            {"handler": "no"},
            {"store": object()},
        ):
            self.assertRaises(TypeError, rateLimit, **options)
