"""The choice of the encryption of a write."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from storagegate.objects.encryption.requests import (
    SSE_C,
    SSE_KMS,
    SSE_S3,
    BucketEncryption,
    CustomerKey,
    RequestedEncryption,
)
from storagegate.objects.encryption.service import Encryption, masterKeyName
from storagegate.objects.errors import AccessDenied

REQUESTS = st.one_of(
    st.none(),
    st.just(RequestedEncryption(SSE_S3)),
    st.builds(RequestedEncryption, st.just(SSE_KMS), st.sampled_from(["", "team", "arn:a/other"])),
    st.just(RequestedEncryption(SSE_C, customerKey=CustomerKey(bytes(32), "digest"))),
)
CONFIGURATIONS = st.one_of(
    st.none(),
    st.builds(
        BucketEncryption,
        st.sampled_from(["", SSE_S3, SSE_KMS]),
        st.sampled_from(["", "default-of-bucket"]),
        st.sampled_from([None, True, False]),
        st.sampled_from([(), ("SSE-C",), ("NONE",)]),
    ),
)


class ChoiceTests(SynchronousTestCase):
    """Every request with every default."""

    @given(REQUESTS, CONFIGURATIONS, st.booleans())
    def test_chosen(
        self,
        requested: RequestedEncryption | None,
        configuration: BucketEncryption | None,
        encryptAll: bool,
    ) -> None:
        """The request wins, whole; then the bucket; then the store. A block is of requests."""
        catalog: Any = None
        service = Encryption(catalog, None, lambda: 0.0, encryptAll, 300, lambda: 0.0)
        blocked = () if configuration is None else configuration.blocked
        if requested is not None and requested.kind == SSE_C and "SSE-C" in blocked:
            self.assertRaises(AccessDenied, service.chosen, configuration, requested)
            return
        found = service.chosen(configuration, requested)
        if requested is not None:
            self.assertIs(found, requested)
        elif configuration is not None and configuration.kind:
            wanted = (configuration.kind, configuration.keyId, configuration.bucketKeyEnabled)
            assert found is not None
            self.assertEqual((found.kind, found.keyId, found.bucketKeyEnabled), wanted)
            self.assertEqual((found.context, found.customerKey), ("", None))
        else:
            self.assertEqual(found, RequestedEncryption(SSE_S3) if encryptAll else None)

    def test_names(self) -> None:
        """A key id is a name, or an ARN or an alias that ends in one."""
        for kind, keyId, name in (
            (SSE_KMS, "", ""),
            (SSE_KMS, "team", "team"),
            (SSE_KMS, "alias/team", "team"),
            (SSE_KMS, "arn:aws:kms:us-east-1:123456789012:key/team", "team"),
            (SSE_KMS, "arn:aws:kms:us-east-1:123456789012:alias/team", "team"),
            # Keys of the store have no names for clients.
            (SSE_S3, "team", ""),
        ):
            self.assertEqual(masterKeyName(RequestedEncryption(kind, keyId)), name, keyId)
