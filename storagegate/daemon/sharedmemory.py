"""What the workers of one daemon share: made by the supervisor, attached by each worker."""

import os
from typing import Any

from storagegate.net.ipc import WorkerIPC


def makeMemory() -> dict[str, int]:
    """
    Make the memory that workers share; blocking.

    @return: Descriptors by name.
    """
    from storagegate.core.ratelimit import makeRateMemory
    from storagegate.gateway.transports.udp.replycache import makeAnswerMemory
    from storagegate.storage.multiprocess.memory import ProcessGroupConfig

    store = os.memfd_create("storagegate-store")
    os.ftruncate(store, ProcessGroupConfig.memorySize())
    return {"rates": makeRateMemory(), "answers": makeAnswerMemory(), "store": store}


def attachStores(link: WorkerIPC) -> dict[str, Any]:
    """Give the parts of L{GatewayResources<storagegate.gateway.host>} that are shared."""
    from storagegate.core.ratelimit import sharedRateStores
    from storagegate.core.sharedtable import SharedTable
    from storagegate.gateway.transports.udp.replycache import SharedAnswerCache

    return {
        "rateStore": sharedRateStores(link.memory["rates"]),
        "turn": link,
        "makeAnswers": lambda: SharedAnswerCache(SharedTable.attach(link.memory["answers"])),
    }


def shareStore(link: WorkerIPC) -> Any:
    """Give the L{ProcessGroupConfig<storagegate.storage.multiprocess.memory.ProcessGroupConfig>}
    of a worker."""
    from storagegate.storage.multiprocess.memory import ProcessGroupConfig

    return ProcessGroupConfig(
        link.index, link.count, link.memory["store"], link.broadcast, link.subscribe
    )
