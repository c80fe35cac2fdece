#!/usr/bin/env python3
"""
Make reStructuredText out of a bench run.

    python bench/table.py RESULTS.jsonl [MORE.jsonl] [--into bench/README.rst]

Without C{--into} the tables are printed; with it they replace what stands between the two markers
of their bench in that file.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.goals import OURS, verdicts
from bench.results import Results, Run, readResults

BEGIN = ".. begin of the generated {} tables\n"
END = ".. end of the generated {} tables\n"
COUNTED = {
    "s3": "Requests",
    "http": "Requests",
    "grpc": "Calls, or messages of streams,",
    "gateway": "Calls",
    "overhead": "Requests",
    "growth": "Requests",
    "cluster": "Requests",
    "console": "Requests",
}
"""What is counted, by bench."""

SHARES = (
    "Medians of what the rounds have, each setting against the first of its case: its rate; how "
    "much more CPU time a request takes, of all of the daemon's processes; what those beside the "
    "first take of a request; how many cores the daemon and the client used:"
)

CLIENT_BOUND = 0.95
"""From this share of its core on, the client was the limit."""


def simpleTable(rows: Sequence[Sequence[str]]) -> str:
    """
    Lay a simple table out.

    @param rows: The first is the head. No first cell may be empty.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "  ".join("=" * width for width in widths)

    def line(row: Sequence[str]) -> str:
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return "  ".join([first, *rest]).rstrip()

    head, *body = rows
    return "\n".join([rule, line(head), rule, *map(line, body), rule]) + "\n"


def figure(value: float) -> str:
    """Write a rate with three digits that mean something."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def rateCell(results: Results, server: str, case: str, connections: int) -> str:
    """Write a median and its range; C{-} where nothing was measured, marks where doubtful."""
    cells = results.cells(server, case, connections)
    rate = results.rate(server, case, connections)
    if rate is None:
        return "-"
    low, high = min(cell.rate for cell in cells), max(cell.rate for cell in cells)
    marks = "!" if any(cell.complaints for cell in cells) else ""
    marks += "c" if max(cell.clientCpu for cell in cells) >= CLIENT_BOUND else ""
    return f"{figure(rate)} [{figure(low)}-{figure(high)}]{' ' + marks if marks else ''}"


def ratioCell(results: Results, peer: str, case: str, connections: int) -> str:
    """Write the ratio of our rate to a peer's."""
    ours = results.rate(OURS, case, connections)
    theirs = results.rate(peer, case, connections)
    return f"{ours / theirs:.2f}" if ours and theirs else "-"


def peersOf(results: Results) -> list[str]:
    """List those that we were measured beside."""
    servers = results.servers()
    return [each for each in servers if OURS in servers and not each.startswith(OURS)]


def rateTable(results: Results) -> str:
    """Write all rates."""
    return cellTable(results, results.servers(), rateCell)


def ratioTable(results: Results) -> str:
    """Write our rates in relation to those of each peer."""
    return cellTable(results, peersOf(results), ratioCell)


def cellTable(
    results: Results,
    servers: Sequence[str],
    write: Callable[[Results, str, str, int], str],
) -> str:
    """Write a table with a row for each case and a column for each server."""
    rows = [["case", *servers]]
    for case, connections in results.rows():
        cells = [write(results, server, case, connections) for server in servers]
        rows.append([f"{case} x{connections}", *cells])
    return simpleTable(rows)


def costCell(results: Results, server: str, case: str, connections: int) -> str:
    """Write median latency, that of the slowest hundredth, and the CPU time of a request."""
    median = results.median(server, case, connections, lambda cell: cell.p50Ms)
    slow = results.median(server, case, connections, lambda cell: cell.p99Ms)
    cpu = results.median(server, case, connections, lambda cell: cell.cpuMicrosPerRequest)
    if median is None or slow is None or cpu is None:
        return "-"
    return f"{median:.3g} / {slow:.3g} / {figure(cpu)}"


def costTable(results: Results) -> str:
    """Write what a request takes."""
    return cellTable(results, results.servers(), costCell)


def goalTable(results: Results) -> str:
    """Write each goal, and whether it was reached."""
    rows = [["goal", "needed", "measured", "verdict"]]
    for verdict in verdicts(results):
        rows.append([verdict.text, verdict.needed, verdict.measured or "-", verdict.word])
    return simpleTable(rows)


def memoryTable(results: Results) -> str:
    """Write the peak memory of each server."""
    rows = [["server", "MB"]]
    rows += [[server, f"{size / 1e6:.0f}"] for server, size in results.memory.items()]
    return simpleTable(rows)


def grownTable(results: Results) -> str:
    """Write how much memory open streams took; nothing where that was not measured."""
    rows = [["case", "server", "MB"]]
    for case, connections in results.rows():
        for server in results.servers():
            cells = results.cells(server, case, connections)
            grown = [cell.grownBytes / 1e6 for cell in cells if cell.grownBytes is not None]
            if grown:
                rows.append([case, server, f"{statistics.median(grown):.1f}"])
    return simpleTable(rows) if len(rows) > 1 else ""


def describeRun(run: Run) -> str:
    """Say where and how it was measured."""
    versions = "; ".join(f"{name} {text}" for name, text in run.versions.items())
    load = "" if run.load is None else f"; the load was {run.load:.1f} before"
    return (
        f"Measured {run.started} on {run.cores} cores ({run.processor}), Linux {run.kernel}, "
        f"{run.filesystem}; {run.rounds} rounds of {run.seconds:g} s{load}. {versions}.\n"
    )


def shareTable(results: Results) -> str:
    """Write each of our settings in relation to the first of its case, both of the same round."""
    rows = [["case", "setting", "of", "rate", "CPU us more", "of others", "server", "client"]]
    for case, connections in results.rows():
        measured = [each for each in results.servers() if results.cells(each, case, connections)]
        rows += [_shareRow(results, each, measured[0], case, connections) for each in measured]
    return simpleTable(rows)


def _shareRow(results: Results, server: str, first: str, case: str, connections: int) -> list[str]:
    cells = results.cells(server, case, connections)
    ratios = results.ratios(server, first, case, connections)
    pairs = zip(cells, results.cells(first, case, connections), strict=False)
    more = [ours.cpuMicrosPerRequest - theirs.cpuMicrosPerRequest for ours, theirs in pairs]
    return [
        f"{case} x{connections}",
        server,
        first,
        f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]",
        f"{statistics.median(more):+.1f} [{min(more):+.1f} to {max(more):+.1f}]",
        f"{statistics.median(cell.besideMicros or 0 for cell in cells):.1f}",
        f"{statistics.median(cell.serverCpu for cell in cells):.2f}",
        f"{statistics.median(cell.clientCpu for cell in cells):.2f}",
    ]


def document(results: Results) -> str:
    """Write all tables."""
    parts = [describeRun(run) for run in results.runs]
    parts += ["Goals:\n", goalTable(results)]
    if results.rows():
        counted = COUNTED[results.bench]
        parts += [f"{counted} per second, median [range]:\n", rateTable(results)]
        parts += ["``!`` answers were wrong or lost, ``c`` the client was the limit.\n"]
    if results.bench in ("overhead", "growth", "cluster", "console"):
        parts += [f"{SHARES}\n", shareTable(results)]
    if peersOf(results):
        parts += ["How many times the rate of each peer:\n", ratioTable(results)]
    if results.rows():
        parts += ["Milliseconds p50 / p99 / CPU microseconds of the server:\n", costTable(results)]
    if grown := grownTable(results):
        parts += ["Memory that the open streams took, MB:\n", grown]
    parts += ["Peak resident memory over the whole run, MB:\n", memoryTable(results)]
    for failure in results.failures:
        place = f"{failure.server} {failure.case} x{failure.connections}"
        parts.append(f"Not measured: {place}: ``{failure.reason}``\n")
    return "\n".join(parts)


def replaceGenerated(text: str, bench: str, tables: str) -> str:
    """
    Put tables between the markers of their bench in a document.

    @raise ValueError: If a marker is missing.
    """
    begin, end = BEGIN.format(bench), END.format(bench)
    before, found, rest = text.partition(begin)
    _, foundEnd, after = rest.partition(end)
    if not found or not foundEnd:
        raise ValueError(f"the markers of the generated {bench} tables are not there")
    return f"{before}{begin}\n{tables}\n{end}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Tables out of bench runs.")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, help="the file whose generated parts are replaced")
    options = parser.parse_args(arguments)
    for results in readResults(options.results):
        tables = document(results)
        if options.into is None:
            print(tables)
        else:
            text = options.into.read_text()
            options.into.write_text(replaceGenerated(text, results.bench, tables))


if __name__ == "__main__":
    main()
