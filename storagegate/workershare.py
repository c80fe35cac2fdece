"""What the workers of one daemon share: made by the supervisor, attached by each worker."""

import os
from typing import Any

from storagegate.net.workerlink import WorkerLink


def makeMemory() -> dict[str, int]:
    """
    Make the memory that workers share; blocking.

    @return: Descriptors by name.
    """
    from storagegate.core.sharedrates import makeRateMemory
    from storagegate.gateway.sharedanswers import makeAnswerMemory
    from storagegate.storage.sharing import Sharing

    store = os.memfd_create("storagegate-store")
    os.ftruncate(store, Sharing.memorySize())
    return {"rates": makeRateMemory(), "answers": makeAnswerMemory(), "store": store}


def attachStores(link: WorkerLink) -> dict[str, Any]:
    """Give the parts of L{Surroundings<storagegate.gateway.surroundings>} that are shared."""
    from storagegate.core.sharedrates import sharedRateStores
    from storagegate.core.sharedtable import SharedTable
    from storagegate.gateway.sharedanswers import SharedAnswerCache

    return {
        "rateStore": sharedRateStores(link.memory["rates"]),
        "turn": link,
        "makeAnswers": lambda: SharedAnswerCache(SharedTable.attach(link.memory["answers"])),
    }


def shareStore(link: WorkerLink) -> Any:
    """Give the L{Sharing<storagegate.storage.sharing.Sharing>} of a worker."""
    from storagegate.storage.sharing import Sharing

    return Sharing(link.index, link.count, link.memory["store"], link.broadcast, link.subscribe)
