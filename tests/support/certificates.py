"""Certificates for tests, and an authority that issues them."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""The key usage of an authority."""


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def keyText(key: PrivateKey, password: bytes | None = None) -> bytes:
    """Encode a key as PEM."""
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        lock = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


class Authority:
    """
    A certificate authority.

    @ivar path: The PEM file of its own certificate.
    """

    def __init__(
        self, directory: Path, name: str = "authority", issuer: "Authority | None" = None
    ) -> None:
        """
        @param issuer: The authority above an intermediate one.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        issuer = issuer or self
        certificate = (
            issuer._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .sign(issuer._key, hashes.SHA256())
        )
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        host: str = "localhost",
        file: str | None = None,
        days: int = 1,
        address: str = "127.0.0.1",
        isNamed: bool = True,
        isRSA: bool = False,
    ) -> tuple[Path, Path]:
        """
        Make a certificate for a host and its address, or for a client with that name.

        @param file: The base name of the files; the default is the host.
        @param days: Validity in days from now; negative for an expired certificate.
        @param isNamed: Whether it has a subject alternative name, which old certificates lack.
        @param isRSA: Whether its key is for RSA, not for ECDSA.
        @return: The paths of the certificate and its key.
        """
        key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        if isRSA:
            key = rsa.generate_private_key(65537, 2048)
        names = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address(address))]
        builder = self._builder(_name(host), key.public_key(), days)
        if isNamed:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        paths = (
            self._directory / f"{file or host}.crt",
            self._directory / f"{file or host}.key",
        )
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(keyText(key))
        return paths

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, days: int = 1
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            # Python 3.13 requires it by default.
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(now + datetime.timedelta(days=days))
        )
