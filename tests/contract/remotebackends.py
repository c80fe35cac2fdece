"""
Blobs of whole daemons in a store on a network: C{STORE_UNDER_TEST=tests.contract.remotebackends}.

The variable C{BLOBS_UNDER_TEST} names the store: C{rados:POOL}, C{s3:URL}; without it the store is
a directory beside the data.
"""

import os
from hashlib import sha256

from attrs import evolve

from storagegate.storage.backends import BLOBS, DEFAULT_BLOBS, BackEndContext, OpenCatalog
from storagegate.storage.cluster.blobs import rados, s3, shared
from storagegate.storage.cluster.blobs.remote import RemoteBlobs

VARIABLE = "BLOBS_UNDER_TEST"


def openBlobs(context: BackEndContext, opened: OpenCatalog) -> RemoteBlobs:
    """Open the blobs of a data directory, apart from those of all others."""
    name = sha256(os.path.abspath(context.directory).encode()).hexdigest()[:16]
    blobs = os.environ.get(VARIABLE, "")
    if blobs.startswith("rados:"):
        blobs = f"{blobs}{'&' if '?' in blobs else '?'}namespace={name}"
        module = rados
    elif blobs.startswith("s3:"):
        blobs = f"{blobs}/{name}"
        module = s3
    else:
        directory = os.path.abspath(context.directory) + "-shared"
        os.makedirs(directory, exist_ok=True)
        blobs, module = f"files:{directory}", shared
    options = {"blobs": blobs, "isNew": True}
    return module.openBlobs(evolve(context, options=options), opened)


def install() -> None:
    """Have every store of this process opened so."""
    BLOBS[DEFAULT_BLOBS] = f"{__name__}:openBlobs"
