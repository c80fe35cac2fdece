"""The cases of a cluster."""

from bench.cases import Asked, Case
from bench.cluster.peers import BLOBS, CATALOGS, ROWS
from bench.cluster.recipe import EMBEDDED, NODE, catalogLoad
from bench.s3.recipe import WorkLoad
from bench.s3.requests import GET4K, HEAD, MIB, PUT4K, Work

_NODE_CPU = Asked(
    EMBEDDED,
    1.1,
    ours=NODE,
    figure="ownMicros",
    text="CPU of a node, times the embedded daemon's",
    isMost=True,
)
_ALONE = Asked(
    EMBEDDED,
    0.4,
    connections=1,
    ours=NODE,
    figure="p50Ms",
    text="p50 in ms, more than embedded",
    isMost=True,
    isDifference=True,
)

CASES = (
    *(
        Case(
            f"cluster/{name}",
            f"{name} of objects that are rows",
            ROWS,
            WorkLoad(work),
            connections=connections,
            quick=connections if name != "head" else (),
            asked=(Asked(EMBEDDED, 0.6, ours=NODE), *asked),
            warmSeconds=0,
            isSetting=True,
        )
        for name, work, connections, asked in (
            (
                "put4k",
                PUT4K,
                (64,),
                (
                    Asked(NODE, 0.8, ours="standby"),
                    Asked(NODE, 0.9, ours="nodes2"),
                    _NODE_CPU,
                ),
            ),
            ("get4k", GET4K, (64, 1), (_ALONE,)),
            ("head", HEAD, (64,), ()),
        )
    ),
    *(
        Case(
            f"cluster/{name}",
            f"{name} of objects in files and over S3",
            BLOBS,
            WorkLoad(Work(name[:3], keys, MIB)),
            connections=(16,),
            quick=(16,),
            warmSeconds=0,
            isSetting=True,
        )
        for name, keys in (("put1m", 4_000), ("get1m", 32))
    ),
    *(
        Case(
            f"cluster/catalog-{work}",
            f"{what}, in the catalog by itself",
            CATALOGS,
            catalogLoad(work),
            unit,
            connections=connections,
            quick=connections[:1] if work in ("put", "get", "list") else (),
            warmSeconds=0,
            isSetting=True,
        )
        for work, what, unit, connections in (
            ("put", "new rows of 128 bytes", "rows", (64,)),
            ("put4k", "new rows of 4 KiB", "rows", (64,)),
            ("replace", "rows replaced", "rows", (64,)),
            ("get", "look-ups past the cache of records", "rows", (64, 1)),
            ("list", "pages of 1,000 keys", "pages", (1,)),
            ("groups", "pages of 1,000 groups of 25", "pages", (1,)),
        )
    ),
)
