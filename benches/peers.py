#!/usr/bin/env python3
"""Times monosplit against its peers, all taking turns in one process tree, and prints ratios as Markdown.

    python3 benches/peers.py [--only WORD…] [--write]

Makes a virtual environment with the peers and a release build of monosplit if they are not there yet. Below 1 is
faster (or smaller) than the peer. Results are compared before they are timed; the exit status is 1 if any disagree.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import sys
import tempfile

from comparison import environment

TABLE = environment.ROOT / "docs/src/speed.md"
MARKS = "<!-- begin: benches/peers.py --write -->", "<!-- end -->"
HEAD = ["work", "against", "ratio of minima", "ratio of medians", "target", "results differ by"]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only items with one of these words in their name")
    parser.add_argument("--list", action="store_true", help="print the names of the items and stop")
    parser.add_argument("--repeats", type=int, default=9, help="turns each competitor gets at least [9]")
    parser.add_argument("--seconds", type=float, default=4.0, help="short work is repeated for about this long [4]")
    parser.add_argument("--threads", type=int, default=2, help="threads of every competitor [2]")
    parser.add_argument("--models", type=pathlib.Path, help="folder with the given networks [../shared/models if there]")
    parser.add_argument("--cache", type=pathlib.Path, help="where networks are exported to [target/peers]")
    parser.add_argument("--venv", type=pathlib.Path, help="the virtual environment [target/peers/venv, MONOSPLIT_PEERS_VENV]")
    parser.add_argument("--processor-time", action="store_true", help="one thread, processor time: for a machine that does other work")
    parser.add_argument("--write", action="store_true", help="put the table into docs/src/speed.md")
    arguments = parser.parse_args()
    if arguments.processor_time:
        arguments.threads = 1
        if arguments.write:
            parser.error("the table in the documentation is of elapsed time; leave out --processor-time")
    return arguments


def table(rows):
    lines = [HEAD, ["---", "---", "---:", "---:", "---:", "---"], *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write(text):
    before, _, rest = TABLE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    temporary = TABLE.with_suffix(".tmp")
    temporary.write_text(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{after}")
    temporary.replace(TABLE)


@contextlib.contextmanager
def alone(cache):
    """Two comparisons at once would time each other."""
    with open(cache / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another comparison is under way in {cache}; wait for it to end")
        yield


def run(arguments, cache):
    from comparison.items import Comparison, Row, items
    from comparison.models import Models
    from comparison.turns import Failed

    every = items()
    if arguments.list:
        print("\n".join(every))
        return []
    given = arguments.models or environment.ROOT.parent / "shared" / "models"
    models = Models(cache, given if given.exists() else None)
    rows = []
    with alone(cache), tempfile.TemporaryDirectory() as scratch:
        turns = (arguments.threads, arguments.repeats, arguments.seconds, arguments.processor_time)
        comparison = Comparison(models, pathlib.Path(scratch), *turns)
        for name, item in every.items():
            if arguments.only and not any(word in name for word in arguments.only):
                continue
            try:
                found = list(item(comparison))
            except Failed as failure:
                found = [Row(name, "", note=f"failed: {failure}")]
            for row in found:
                # The targets are of elapsed time on two threads.
                row.target = None if arguments.processor_time else row.target
                print("|", " | ".join(row.cells()), "|", file=sys.stderr, flush=True)
            rows += found
    return rows


def main():
    arguments = options()
    cache = (arguments.cache or environment.TARGET / "peers").resolve()
    place = arguments.venv or os.environ.get("MONOSPLIT_PEERS_VENV") or cache / "venv"
    environment.enter(pathlib.Path(place).absolute())
    os.chdir(environment.BENCHES)
    if not arguments.list:
        environment.build()
    rows = run(arguments, cache)
    if not rows:
        return
    clock = " Ratios of processor time." if arguments.processor_time else ""
    text = f"{environment.machine(arguments.threads)}{clock}\n\n{table(rows)}"
    print(text)
    if arguments.write:
        write(text)
    sys.exit(any(row.wrong or row.note.startswith("failed") for row in rows))


if __name__ == "__main__":
    main()
