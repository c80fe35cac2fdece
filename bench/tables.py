"""Tables of a run in reStructuredText, and their places in the documents of the repository."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import frozen

from bench.cases import OURS, Case
from bench.peers import CHECKOUT
from bench.results import Cell, Results, verdicts

PAGE = CHECKOUT / "bench" / "README.rst"
README = CHECKOUT / "README.rst"

BEGIN = ".. The following table is generated: {}\n"
END = ".. End of the table: {}\n"

CLIENT_BOUND = 0.95
"""From this share of its core on, the load was the limit."""

LEGEND = (
    "Rates are a second, median [least-greatest]. *CPU us* is the time of the server's processes "
    "for a request, *of others* the part of processes beside the first. *Ratio* is the median of "
    "the rounds' ratios of rates: storagegate to that server, or, if the case compares settings, "
    "that setting to the first. ``!``: answers were wrong or lost; ``c``: the load was the limit.\n"
)


@frozen
class Headline:
    """
    A row of the table in the README.

    @ivar note: Words behind the name of the peer.
    """

    text: str
    case: str
    connections: int
    peer: str
    note: str = ""


HEADLINES = (
    Headline("PUT of 4 KiB", "s3/put4k", 64, "rclone", ", not synced"),
    Headline("GET of 4 KiB", "s3/get4k", 64, "rclone"),
    Headline("HTTP, a text", "http/hello", 64, "starlette"),
    Headline("HTTP, JSON echo", "http/echo", 64, "express"),
    Headline("gRPC, unary", "grpc/unary", 64, "grpc.aio"),
    Headline("WebSocket call", "gateway/websocket", 64, "autobahn"),
)


def simpleTable(rows: Sequence[Sequence[str]]) -> str:
    """
    Lay out a simple table.

    @param rows: The first is the head. No first cell may be empty.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "  ".join("=" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        return "  ".join(c.ljust(width) for c, width in zip(row, widths, strict=True)).rstrip()

    head, *body = rows
    return "\n".join([rule, line(head), rule, *map(line, body), rule]) + "\n"


def figure(value: float) -> str:
    """Write a figure with three significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def rateOf(cells: Sequence[Cell]) -> str:
    """Write the median and the range of rates, with marks for doubts."""
    rates = [cell.rate for cell in cells]
    marks = "!" if any(cell.doubts for cell in cells) else ""
    marks += "c" if max(cell.clientCores for cell in cells) >= CLIENT_BOUND else ""
    text = f"{figure(statistics.median(rates))} [{figure(min(rates))}-{figure(max(rates))}]"
    return f"{text} {marks}".rstrip()


def _median(cells: Iterable[Cell], name: str) -> str:
    return figure(statistics.median(getattr(cell, name) for cell in cells))


def cellTable(results: Results, cases: Sequence[Case]) -> str:
    """Write every cell of the cases of a folder."""
    known = {case.name: case for case in cases}
    head = ["case", "server", "rate", "p50 ms", "p99 ms", "CPU us", "of others", "cores", "ratio"]
    rows = [head]
    last = ""
    for place in results.rows(cases[0].folder):
        case, server, connections = place
        cells = results.rounds(*place)
        name = f"{case.partition('/')[2]} x{connections}"
        row = [name if name != last else "\\", server]
        last = name
        if not cells:
            rows.append([*row, "failed", *("-",) * 6])
            continue
        names = ("p50Ms", "p99Ms", "cpuMicros", "othersMicros", "serverCores")
        figures = [_median(cells, each) for each in names]
        first = known[case].servers[0].name
        pair = (place, (case, first, connections))
        if not known[case].isSetting:
            pair = pair[::-1]
        ratios = results.ratios(*pair) if server != first else []
        ratio = f"{statistics.median(ratios):.2f}" if ratios else "-"
        rows.append([*row, rateOf(cells), *figures, ratio])
    return simpleTable(rows)


def askedTable(results: Results, cases: Sequence[Case]) -> str:
    """Write every asked figure; nothing if the cases ask for none."""
    rows = [["asked", "bound", "measured", "verdict"]]
    measured = {case for case, _, _ in results.rows(cases[0].folder)}
    for verdict in verdicts(results, [case for case in cases if case.name in measured]):
        found = "-" if verdict.figure is None else figure(verdict.figure)
        rows.append([verdict.text, verdict.bound, found, verdict.word])
    return simpleTable(rows) if len(rows) > 1 else ""


def describe(results: Results, folder: str) -> str:
    """Describe the place and time of a run, and the versions of a folder's servers."""
    run = results.run
    measured = {server for _, server, _ in results.rows(folder)}
    versions = [f"{k} {v}" for k, v in run.versions.items() if k in measured and v and k != OURS]
    quick = ", quick" if run.quick else ""
    return (
        f"Measured {run.started} at {run.commit} on {run.cores} cores ({run.processor}), Linux "
        f"{run.kernel}, {run.filesystem}, Python {run.python}; {run.rounds} rounds of "
        f"{run.seconds:g} s{quick}; load {run.load:.1f} before. {'; '.join([*versions, ''])}"
    ).rstrip("; ") + ("\n" if not versions else ".\n")


def document(results: Results, cases: Sequence[Case]) -> str:
    """Write the tables of a folder."""
    folder = cases[0].folder
    parts = [describe(results, folder), cellTable(results, cases)]
    if asked := askedTable(results, cases):
        parts.append(asked)
    memory = {k.partition("/")[2]: v for k, v in results.memory.items() if k.startswith(folder)}
    if memory:
        text = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in memory.items())
        parts.append(f"Peak resident memory over the run, in MB: {text}.\n")
    for each in results.failures:
        if each.case.startswith(f"{folder}/"):
            place = f"{each.case} x{each.connections} {each.server}"
            parts.append(f"Not measured: {place}: ``{each.reason.replace('`', '')}``\n")
    counted = {k: v for k, v in results.instructions.items() if k.startswith(f"{folder}/")}
    if counted:
        rows = [["case and server", "instructions of a request"]]
        rows += [[key, f"{value:,.0f}"] for key, value in counted.items()]
        parts.append(simpleTable(rows))
    return "\n".join(parts)


def headlines(results: Results) -> str:
    """Write the table of the README; a row that was not measured is left out."""
    rows = [["a second, one core", OURS, "peer", "", "ratio"]]
    for each in HEADLINES:
        ours = (each.case, OURS, each.connections)
        theirs = (each.case, each.peer, each.connections)
        rates = [results.median(place, lambda cell: cell.rate) for place in (ours, theirs)]
        ratios = results.ratios(ours, theirs)
        if ratios and rates[0] is not None and rates[1] is not None:
            peer = f"{each.peer}{each.note}"
            ratio = f"{statistics.median(ratios):.1f}"
            rows.append([each.text, figure(rates[0]), peer, figure(rates[1]), ratio])
    run = results.run
    note = f"Measured {run.started[:10]} at {run.commit} on {run.processor}.\n"
    return f"{simpleTable(rows)}\n{note}" if len(rows) > 1 else ""


def replaceGenerated(text: str, name: str, table: str) -> str:
    """
    Put a table between its markers in a document.

    @raise ValueError: A marker is missing.
    """
    begin, end = BEGIN.format(name), END.format(name)
    before, found, rest = text.partition(begin)
    _, foundEnd, after = rest.partition(end)
    if not found or not foundEnd:
        raise ValueError(f"the markers of the table {name!r} are missing")
    return f"{before}{begin}\n{table}\n{end}{after}"


def writeTables(
    results: Results, cases: Iterable[Case], page: Path = PAGE, readme: Path = README
) -> None:
    """
    Write the tables of all measured folders into the page of the benchmarks, and the README's.

    @raise ValueError: A marker is missing.
    """
    text = page.read_text()
    every = list(cases)
    for folder in results.folders():
        own = [case for case in every if case.folder == folder]
        text = replaceGenerated(text, folder, document(results, own))
    page.write_text(text)
    if table := headlines(results):
        readme.write_text(replaceGenerated(readme.read_text(), "bench", table))
