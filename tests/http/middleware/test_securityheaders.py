"""Headers that tell browsers to be careful."""

from typing import Any

from storagegate.http.middleware.securityheaders import securityHeaders
from tests.http.middleware.support import AppCase

DEFAULTS = {
    "content-security-policy": (
        "default-src 'self';base-uri 'self';font-src 'self' https: data:;form-action 'self';"
        "frame-ancestors 'self';img-src 'self' data:;object-src 'none';script-src 'self';"
        "script-src-attr 'none';style-src 'self' https: 'unsafe-inline';upgrade-insecure-requests"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "origin-agent-cluster": "?1",
    "referrer-policy": "no-referrer",
    "strict-transport-security": "max-age=31536000; includeSubDomains",
    "x-content-type-options": "nosniff",
    "x-dns-prefetch-control": "off",
    "x-download-options": "noopen",
    "x-frame-options": "SAMEORIGIN",
    "x-permitted-cross-domain-policies": "none",
    "x-xss-protection": "0",
}

SWITCHES = {
    "contentSecurityPolicy": "content-security-policy",
    "crossOriginOpenerPolicy": "cross-origin-opener-policy",
    "crossOriginResourcePolicy": "cross-origin-resource-policy",
    "originAgentCluster": "origin-agent-cluster",
    "referrerPolicy": "referrer-policy",
    "strictTransportSecurity": "strict-transport-security",
    "xContentTypeOptions": "x-content-type-options",
    "xDnsPrefetchControl": "x-dns-prefetch-control",
    "xDownloadOptions": "x-download-options",
    "xFrameOptions": "x-frame-options",
    "xPermittedCrossDomainPolicies": "x-permitted-cross-domain-policies",
    "xXssProtection": "x-xss-protection",
}

# What every answer of the framework has.
_USUAL = {"date", "content-type", "content-length", "etag"}


class HeadersCase(AppCase):
    """An application that is careful."""

    def headers(self, path: str = "/", **options: Any) -> dict[str, str | None]:
        """Give what an answer has beside the usual."""
        self.app = self.makeApp()
        self.app.use(securityHeaders(**options))
        self.app.get("/", self.hello)
        answer = self.ask(path=path)
        return {name: answer.get(name) for name in answer.headers if name not in _USUAL}

    def policy(self, **settings: Any) -> str | None:
        """Give the Content-Security-Policy that settings make."""
        return self.headers(contentSecurityPolicy=settings)["content-security-policy"]


class HeaderTests(HeadersCase):
    """The headers."""

    def test_defaults(self) -> None:
        """Every answer has them all, and no X-Powered-By."""
        self.assertEqual(self.headers(), DEFAULTS)

    def test_errors(self) -> None:
        """Answers of the framework have them too."""
        self.assertEqual(self.headers("/missing"), DEFAULTS)

    def test_handlersWin(self) -> None:
        """A handler may set one otherwise for its own answer."""
        self.app.use(securityHeaders())
        self.app.get("/", lambda req, res: res.header("X-Frame-Options", "DENY").end())
        self.assertEqual(self.ask().get("x-frame-options"), "DENY")

    def test_off(self) -> None:
        """Each can be switched off by its name."""
        self.assertEqual(set(SWITCHES.values()), set(DEFAULTS))
        for option, header in SWITCHES.items():
            expected = {name: value for name, value in DEFAULTS.items() if name != header}
            self.assertEqual(self.headers(**{option: False}), expected)

    def test_changed(self) -> None:
        """Those that have a choice can be changed."""
        for option, value, header, written in (
            ("crossOriginEmbedderPolicy", True, "cross-origin-embedder-policy", "require-corp"),
            (
                "crossOriginEmbedderPolicy",
                {"policy": "credentialless"},
                "cross-origin-embedder-policy",
                "credentialless",
            ),
            (
                "crossOriginOpenerPolicy",
                {"policy": "unsafe-none"},
                "cross-origin-opener-policy",
                "unsafe-none",
            ),
            (
                "crossOriginResourcePolicy",
                "cross-origin",
                "cross-origin-resource-policy",
                "cross-origin",
            ),
            ("referrerPolicy", {"policy": "origin"}, "referrer-policy", "origin"),
            (
                "referrerPolicy",
                {"policy": ["no-referrer", "strict-origin"]},
                "referrer-policy",
                "no-referrer,strict-origin",
            ),
            (
                "strictTransportSecurity",
                {"maxAge": 60, "includeSubDomains": False},
                "strict-transport-security",
                "max-age=60",
            ),
            (
                "strictTransportSecurity",
                {"preload": True},
                "strict-transport-security",
                "max-age=31536000; includeSubDomains; preload",
            ),
            (
                "strictTransportSecurity",
                {"maxAge": 0},
                "strict-transport-security",
                "max-age=0; includeSubDomains",
            ),
            ("xDnsPrefetchControl", {"allow": True}, "x-dns-prefetch-control", "on"),
            ("xFrameOptions", {"action": "deny"}, "x-frame-options", "DENY"),
            ("xFrameOptions", "same-origin", "x-frame-options", "SAMEORIGIN"),
            (
                "xPermittedCrossDomainPolicies",
                {"permittedPolicies": "by-content-type"},
                "x-permitted-cross-domain-policies",
                "by-content-type",
            ),
        ):
            self.assertEqual(self.headers(**{option: value}), {**DEFAULTS, header: written}, option)

    def test_wrongValues(self) -> None:
        """A value that browsers do not know is an error at once."""
        for options in (
            {"crossOriginEmbedderPolicy": "same-origin"},
            {"crossOriginOpenerPolicy": {"policy": "x"}},
            {"crossOriginResourcePolicy": ""},
            {"referrerPolicy": "x"},
            {"referrerPolicy": []},
            {"referrerPolicy": ["origin", "origin"]},
            {"strictTransportSecurity": {"maxAge": -1}},
            {"strictTransportSecurity": {"maxAge": "1d"}},
            {"strictTransportSecurity": {"maxAge": float("nan")}},
            {"xFrameOptions": {"action": "ALLOW-FROM x"}},
            {"xPermittedCrossDomainPolicies": {"permittedPolicies": "x"}},
        ):
            self.assertRaises(ValueError, securityHeaders, **options)

    def test_wrongKinds(self) -> None:
        """So is an option, or a setting in one, that there is not or that is of another kind."""
        for options in (
            {"xPoweredBy": True},
            {"contentSecurityPolicy": "default-src 'self'"},
            {"contentSecurityPolicy": {"defaultSrc": "'self'"}},
            {"crossOriginOpenerPolicy": {"value": "same-origin"}},
            {"originAgentCluster": {}},
            {"strictTransportSecurity": {"includeSubdomains": True}},
            {"strictTransportSecurity": 5},
            {"xDnsPrefetchControl": {"allowed": True}},
            {"xFrameOptions": None},
        ):
            self.assertRaises(TypeError, securityHeaders, **options)


class ContentPolicyTests(HeadersCase):
    """The Content-Security-Policy."""

    def test_added(self) -> None:
        """Directives replace defaults or come after them, in either spelling of their names."""
        policy = self.policy(
            directives={"script-src": ["'self'", "https://a"], "connectSrc": "'none'"}
        )
        self.assertEqual(
            policy,
            DEFAULTS["content-security-policy"].replace(
                "script-src 'self'", "script-src 'self' https://a"
            )
            + ";connect-src 'none'",
        )

    def test_dropped(self) -> None:
        """A default is dropped by C{None}."""
        self.assertNotIn("upgrade", str(self.policy(directives={"upgradeInsecureRequests": None})))

    def test_noDefaults(self) -> None:
        """Without the defaults there is what is given, and an empty list is a bare name."""
        self.assertEqual(
            self.policy(useDefaults=False, directives={"defaultSrc": ["'none'"], "sandbox": []}),
            "default-src 'none';sandbox",
        )

    def test_withoutDefaultSource(self) -> None:
        """C{default-src} is only left out by saying so."""
        self.assertEqual(
            self.policy(
                useDefaults=False, directives={"defaultSrc": False, "frameAncestors": "'none'"}
            ),
            "frame-ancestors 'none'",
        )

    def test_reportOnly(self) -> None:
        """A policy can be tried out."""
        headers = self.headers(contentSecurityPolicy={"reportOnly": True})
        self.assertNotIn("content-security-policy", headers)
        self.assertEqual(
            headers["content-security-policy-report-only"], DEFAULTS["content-security-policy"]
        )

    def test_nonce(self) -> None:
        """A source may be made for each request."""
        policy = self.policy(
            useDefaults=False,
            directives={
                "defaultSrc": "'self'",
                "scriptSrc": ["'self'", lambda req, res: f"'nonce-{req.method}'"],
                "styleSrc": lambda req: f"'nonce-{req.path}'",
            },
        )
        self.assertEqual(
            policy, "default-src 'self';script-src 'self' 'nonce-GET';style-src 'nonce-/'"
        )

    def test_badNonce(self) -> None:
        """A source that is made wrong is an error, and no policy with a hole in it."""
        for source in ("a; script-src *", "self", "a\r\nb", None):
            self.app = self.makeApp()
            directives = {"scriptSrc": lambda req, source=source: source}
            self.app.use(securityHeaders(contentSecurityPolicy={"directives": directives}))
            self.assertEqual(self.ask().status, 500)
            self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

    def test_wrong(self) -> None:
        """A directive that cannot be, or cannot be meant, is an error at once."""
        for directives in (
            {"": "'self'"},
            {"script src": "'self'"},
            {"scriptSrc;": "'self'"},
            {5: "'self'"},
            {"scriptSrc": "'self'; style-src *"},
            {"scriptSrc": ["a,b"]},
            {"scriptSrc": "a\r\nb"},
            {"scriptSrc": "\u00e9"},
            {"scriptSrc": "self"},
            {"scriptSrc": ["unsafe-inline"]},
            {"scriptSrc": "nonce-abc"},
            {"scriptSrc": "sha256-abc"},
            {"scriptSrc": 5},
            {"scriptSrc": [5]},
            {"scriptSrc": False},
            {"scriptSrc": "a", "script-src": "b"},
            {"defaultSrc": None},
            {"default-src": None},
        ):
            settings = {"directives": directives}
            self.assertRaises(ValueError, securityHeaders, contentSecurityPolicy=settings)
        for settings in (
            {"useDefaults": False},
            {"useDefaults": False, "directives": {"scriptSrc": "'self'"}},
            {"useDefaults": False, "directives": {"defaultSrc": False}},
        ):
            self.assertRaises(ValueError, securityHeaders, contentSecurityPolicy=settings)
