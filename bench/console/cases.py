"""The cases of the console."""

from bench.cases import Asked, Case
from bench.console.peers import DAEMONS, MILLION, SETTINGS
from bench.console.recipe import besideConsole, lists
from bench.s3.requests import GET4K, PUT4K

CASES = (
    *(
        Case(
            f"console/{name}",
            f"{name} of 4 KiB over S3 beside a console",
            DAEMONS,
            besideConsole(work, SETTINGS),
            quick=(64,),
            asked=(
                Asked("none", least, ours="unused"),
                Asked("unused", 0.9, ours="live"),
            ),
            warmSeconds=0,
            isSetting=True,
        )
        for name, work, least in (("get4k", GET4K, 0.99), ("put4k", PUT4K, 0.97))
    ),
    Case(
        "console/list1m",
        "1,000 of a million keys by the API",
        (MILLION,),
        lists,
        "pages",
        connections=(1,),
        quick=(1,),
        asked=(Asked("", 25_000, figure="cpuMicros", text="CPU us of a page", isMost=True),),
        isSetting=True,
    ),
)
