"""The root key pair: the configured one, or that of the data directory, made at the first start."""

import os
from collections.abc import Callable, Mapping

from twisted.internet.interfaces import IAddress
from twisted.logger import Logger

from storagegate import announce
from storagegate.config import Configuration
from storagegate.credentials import Credentials, loadOrCreate

ROOT_FILE = "root-credentials"
"""Where in the data directory the pair is."""


def rootPair(
    configuration: Configuration,
    directory: str,
    addresses: Mapping[str, IAddress],
    log: Logger,
    show: Callable[[str], object],
) -> Credentials:
    """
    Give the root key pair; make it if there is none.

    @param directory: The data directory as an absolute path; it exists.
    @param addresses: Where the listeners are, by name.
    @param show: Shows the operator a made pair, once.
    @raise CredentialsError: If the file of the pair cannot be used.
    """
    options = configuration.s3
    if options.root is not None:
        return options.root
    path = os.path.join(directory, ROOT_FILE)
    pair, made = loadOrCreate(path)
    if made:
        url = None
        if "s3" in addresses and configuration.listeners.s3 is not None:
            url = announce.clientURL(configuration.listeners.s3, addresses["s3"])
        log.info("generated the root key pair path={path}", path=path)
        show(announce.firstKeyText(pair, options.region, url, path))
    return pair
