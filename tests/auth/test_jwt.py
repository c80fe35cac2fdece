"""JSON Web Tokens: what is good, and all the ways in which one only looks so."""

import hashlib
import hmac
import json
import time
from base64 import b64decode
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.auth.jwt import JWTProvider, readJWT
from storagegate.auth.tokens import TokenError, extractedJWT
from storagegate.core.invoker import CallCredentials
from tests.support.selection import long, rounds
from tests.support.tokens import (
    AUDIENCE,
    ISSUER,
    SECRET,
    claims,
    ecKey,
    edKey,
    forged,
    makeContext,
    part,
    publicPEM,
    rsaKey,
    signed,
)

CONTEXT = makeContext()
KEYS: tuple[tuple[str, Any], ...] = (
    ("RS256", rsaKey),
    ("RS512", rsaKey),
    ("PS256", rsaKey),
    ("ES256", ecKey),
    ("EdDSA", edKey),
)


def hmacOf(secret: bytes, text: str) -> bytes:
    """Sign by hand, with what no library would take as a secret."""
    return hmac.new(secret, text.encode(), hashlib.sha256).digest()


class JWTCase(SynchronousTestCase):
    """What the cases of this file share."""

    def provider(self, **more: Any) -> JWTProvider:
        """Make a provider, of the secret if nothing else is said."""
        return readJWT(more if "publicKey" in more else {"secret": SECRET, **more})

    def good(self, token: str, **more: Any) -> dict[str, Any]:
        """Verify a token that is good."""
        return self.provider(**more).verify(token, CONTEXT)

    def bad(self, token: str, reason: str = "", **more: Any) -> None:
        """Verify one that is not."""
        error = self.assertRaises(TokenError, self.good, token, **more)
        self.assertIn(reason, str(error))


class SignatureTests(JWTCase):
    """Who has signed a token, and how."""

    def test_algorithms(self) -> None:
        """What another library has signed is good, and the user is the claims."""
        for algorithm in ("HS256", "HS384", "HS512"):
            token = signed(SECRET * 2, algorithm)
            self.assertEqual(
                self.good(token, secret=SECRET * 2, algorithms=[algorithm])["sub"], "ann"
            )
        for algorithm, key in KEYS:
            token = signed(key(), algorithm)
            options = {"publicKey": publicPEM(key()), "algorithms": [algorithm]}
            self.assertEqual(self.good(token, **options)["sub"], "ann")

    def test_none(self) -> None:
        """A token without a signature is invalid, in every form."""
        for algorithm in ("none", "None", "nOnE", "NONE", "", "none ", None, 5, ["none"], {}):
            for signature in (b"", b"x"):
                token = forged({"alg": algorithm, "typ": "JWT"}, None, signature)
                self.bad(token)
                self.bad(token, publicKey=publicPEM(rsaKey()))
        self.bad(forged({"typ": "JWT"}))

    def test_confusion(self) -> None:
        """A public key is no secret, in any form."""
        for key in (rsaKey(), ecKey()):
            pem = publicPEM(key)
            der = b64decode("".join(pem.splitlines()[1:-1]))
            jwk = key.as_dict(private=False)
            forms = (
                pem.encode(),
                pem.strip().encode(),
                pem.replace("\n", "\r\n").encode(),
                der,
                json.dumps(jwk).encode(),
                json.dumps(jwk, separators=(",", ":")).encode(),
            )
            for form in forms:
                for algorithm in ("HS256", "hs256", "HS256 "):
                    text = f"{part({'alg': algorithm})}.{part(claims())}"
                    token = f"{text}.{part(hmacOf(form, text))}"
                    self.bad(token, publicKey=pem)

    def test_confusionByHand(self) -> None:
        """The forgeries of these tests are good forgeries: with the key as secret they hold."""
        text = f"{part({'alg': 'HS256'})}.{part(claims())}"
        token = f"{text}.{part(hmacOf(SECRET.encode(), text))}"
        self.assertEqual(self.good(token)["sub"], "ann")

    def test_otherAlgorithm(self) -> None:
        """An algorithm that is not configured is none, though the key would fit."""
        self.bad(signed(SECRET * 2, "HS512"), secret=SECRET * 2)
        self.bad(signed(rsaKey(), "PS256"), publicKey=publicPEM(rsaKey()))
        self.bad(signed(rsaKey(), "RS512"), publicKey=publicPEM(rsaKey()))

    def test_otherKey(self) -> None:
        """A token of another signer is invalid; the keys in its header do not matter."""
        evil = rsaKey("evil")
        public = evil.as_dict(private=False)
        for header in (
            {},
            {"kid": "rsa"},
            {"kid": "../../dev/null"},
            {"jwk": public},
            {"jku": "https://evil.example/jwks.json"},
            {"x5u": "https://evil.example/cert.pem"},
            {"x5c": ["AAAA"]},
        ):
            token = signed(evil, "RS256", None, **header)
            self.bad(token, "InvalidSignature", publicKey=publicPEM(rsaKey()))

    def test_flips(self) -> None:
        """A token of which one bit is another one is bad, wherever the bit is."""
        provider = self.provider()
        token = signed()
        for position in range(len(token)):
            for bit in range(7):
                flipped = chr(ord(token[position]) ^ 1 << bit)
                changed = token[:position] + flipped + token[position + 1 :]
                self.assertRaises(TokenError, provider.verify, changed, CONTEXT)

    def test_spellings(self) -> None:
        """A token has one spelling: no padding, spaces, other alphabets or spare bits."""
        token = signed()
        head, body, signature = token.split(".")
        # 32 bytes leave two bits of the last character unused.
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        spare = alphabet[alphabet.index(signature[-1]) + 1]
        for changed in (
            f"{head}.{body}.{signature}=",
            f"{head}.{body}.{signature[:-1]}{spare}",
            f"{head}.{body}.{signature}\n",
            f" {token}",
            f"{head}.{body}.{signature[:5]} {signature[5:]}",
            f"{head}.{body}.!{signature}",
            f"{head}.{body}",
            f"{head}.{body}.{signature}.",
            f"{head}..{signature}",
            "",
            "..",
        ):
            self.bad(changed)

    def test_nested(self) -> None:
        """Parts that are nested too deeply, or are no objects, are bad and nothing worse."""
        for header in (b"[" * 6000, b'{"a":' * 1000, b"{", b"[]", b'"HS256"', b"\xff", b"null"):
            self.bad(f"{part(header)}.{part(claims())}.{part(b'x')}")
        for body in (b"[" * 5000, b"[]", b"1", b'"x"', b"\xff\xfe", b"{", b"NaN"):
            text = f"{part({'alg': 'HS256'})}.{part(body)}"
            self.bad(f"{text}.{part(hmacOf(SECRET.encode(), text))}")

    def test_critical(self) -> None:
        """A token with extensions that have to be understood is bad."""
        for header in (
            {"crit": ["exp"]},
            {"crit": []},
            {"crit": "b64", "b64": False},
            {"crit": ["b64"], "b64": False},
            {"b64": False},
            {"crit": None},
            {"crit": [5]},
        ):
            text = f"{part({'alg': 'HS256', **header})}.{part(claims())}"
            self.bad(f"{text}.{part(hmacOf(SECRET.encode(), text))}")

    def test_long(self) -> None:
        """A token of a megabyte is refused unread."""
        self.bad("eyJ" + "A" * 1_000_000 + ".e30.", "too long")

    @long("takes seconds")
    @settings(max_examples=rounds(40, 200), deadline=None)
    @given(st.text(max_size=40), st.binary(max_size=40), st.binary(max_size=40))
    def test_anything(self, text: str, header: bytes, body: bytes) -> None:
        """Whatever it is, it is bad and nothing worse."""
        signature = hmacOf(SECRET.encode(), f"{part(header)}.{part(body)}")
        for token in (
            text,
            f"{text}.{text}.{text}",
            f"{part(header)}.{part(body)}.{part(signature)}",
        ):
            self.bad(token)


class ClaimTests(JWTCase):
    """The validity and the audience of a token."""

    def test_end(self) -> None:
        """A token ends; clocks may differ by the leeway, and no more."""
        now = int(time.time())
        self.bad(signed(given=claims(exp=now - 10)), "Expired")
        self.bad(signed(given=claims(exp=now - 130)), "Expired", leeway=120)
        self.good(signed(given=claims(exp=now - 60)), leeway=120)
        self.bad(signed(given=claims(exp=now - 1)), "Expired", leeway=0)

    def test_endRequired(self) -> None:
        """A token that never ends is bad, and so is one whose end is no time."""
        self.bad(signed(given=claims(exp=None)), "MissingRequired")
        for end in ("never", [], {}, False, "1e400"):
            self.bad(signed(given=claims(exp=end)))
        for literal in ("Infinity", "NaN", "1e400", "null", "9" * 400, "9" * 5000):
            body = json.dumps(claims(exp=0)).replace('"exp": 0', f'"exp": {literal}')
            text = f"{part({'alg': 'HS256'})}.{part(body.encode())}"
            self.bad(f"{text}.{part(hmacOf(SECRET.encode(), text))}")

    def test_begin(self) -> None:
        """A token that begins later, or was made later, is bad; the leeway holds for it, too."""
        later = int(time.time()) + 60
        for name in ("nbf", "iat"):
            self.bad(signed(given=claims(**{name: later})), "ImmatureSignature")
            self.good(signed(given=claims(**{name: later})), leeway=120)
            self.bad(signed(given=claims(**{name: "soon"})))

    def test_audience(self) -> None:
        """With an audience, a token is for it: exactly, or in a list."""
        for audience in (AUDIENCE, [AUDIENCE], ["other", AUDIENCE]):
            self.good(signed(given=claims(aud=audience)), audience=AUDIENCE)
        self.bad(signed(given=claims(aud=None)), "MissingRequired", audience=AUDIENCE)
        for audience in ("order", "orders2", "Orders", "", [], ["other"], [5], 5, {AUDIENCE: 1}):
            self.bad(signed(given=claims(aud=audience)), audience=AUDIENCE)

    def test_audiences(self) -> None:
        """Of a list of audiences one is enough."""
        self.good(signed(given=claims(aud="b")), audience=["a", "b"])
        self.bad(signed(given=claims(aud="c")), audience=["a", "b"])

    def test_issuer(self) -> None:
        """With an issuer, a token is of that one, to the letter."""
        self.good(signed(), issuer=ISSUER)
        self.bad(signed(given=claims(iss=None)), "MissingRequired", issuer=ISSUER)
        for issuer in (ISSUER[:-1], ISSUER + "x", ISSUER.upper(), "", " " + ISSUER):
            self.bad(signed(given=claims(iss=issuer)), issuer=ISSUER)
        for issuer in ([ISSUER], {ISSUER: 1}, 5):
            text = f"{part({'alg': 'HS256'})}.{part(claims(iss=issuer))}"
            self.bad(f"{text}.{part(hmacOf(SECRET.encode(), text))}", issuer=ISSUER)

    def test_unsaid(self) -> None:
        """Without audience and issuer, a token may have any, or none."""
        self.good(signed(given=claims(aud="anybody", iss="another")))
        self.good(signed(given=claims(aud=None, iss=None)))


class RecognitionTests(JWTCase):
    """Which tokens this provider decides about."""

    def test_shapes(self) -> None:
        """What has three parts and begins as a JSON object is a JWT, unsigned ones included."""
        for token in (signed(), forged({"alg": "none"}), part(b'{\n"alg":1}') + ".."):
            self.assertEqual(extractedJWT(None, "http", CallCredentials(token)), token)
        for token in ("", "key", "a.b.c", "ACCESS:a.b.c", "sk.live.1", "..", signed() + ".x"):
            self.assertIsNone(extractedJWT(None, "http", CallCredentials(token)), token)

    def test_place(self) -> None:
        """It is where the wire has tokens, or where the user's own function finds it."""
        token = signed()
        native = {"deep": [token]}
        credentials = CallCredentials(None, None, native)
        self.assertIsNone(self.provider().recognises(CONTEXT, credentials))
        found = self.provider().recognises(CONTEXT, CallCredentials(token))
        self.assertEqual(found, token)
        extract = {"extractToken": lambda native: native["deep"][0]}
        self.assertEqual(self.provider(**extract).recognises(CONTEXT, credentials), token)
        for nothing in ({}, {"deep": []}, {"deep": None}, None, {"deep": [5]}):
            given = CallCredentials(token, None, nothing)
            self.assertIsNone(self.provider(**extract).recognises(CONTEXT, given))
