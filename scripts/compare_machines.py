#!/usr/bin/env python3
"""Compares the rows of one small experiment that two machines, or a processor and a GPU, have measured on Ray.

    python3 scripts/compare_machines.py measure ROWS.csv [--simd avx2] [--num-gpus 1] [--keep STORE.sqlite] [--continue STORE.sqlite]
    python3 scripts/compare_machines.py compare ROWS.csv OTHER.csv

`measure` runs the small experiment of the tests on a local cluster and writes all rows with the bits of their values. With
`--keep` it leaves the store without half of its rows, and with `--continue` it goes on with a copy of such a store, which
another machine began. `compare` says how many rows have the same bits, and how far
the others are apart. Run it with a Python that has the package with its extra `ray`.
"""

import argparse
import csv
import math
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))

VALUES = ("value", "undefined")
"""The columns that are compared: a number, of which the bits are written, or the reason why there is none."""

MADE_BY = ("version", "engine", "instructions", "seconds")
"""The columns that say how a row was made."""


def measure(arguments):
    import ray
    import small_experiment

    import monosplit as ms

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        experiment, store = small_experiment.make(folder / "experiment", arguments.images), folder / "rows.sqlite"
        if arguments.going_on:
            shutil.copy(arguments.going_on, store)
        ray.init("local", num_cpus=arguments.workers + 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        gpus = {"num_gpus": arguments.num_gpus} if arguments.num_gpus else {"simd": arguments.simd}
        report = ms.ray.evaluate(experiment, store=store, workers=arguments.workers, **gpus)
        ray.shutdown()
        print(f"{report.rows} rows measured, {report.rate:.1f} rows/s; workers: {dict(report.instructions)}")
        names, found = small_experiment.table(store)
        with open(arguments.rows, "w", newline="") as out:
            csv.writer(out).writerows([names, *found])
        if arguments.keep:
            connection = sqlite3.connect(store)
            gone = connection.execute("DELETE FROM result WHERE (image + metric + configuration) % 2 = 0").rowcount
            connection.commit()
            connection.execute("VACUUM")
            connection.close()
            shutil.copy(store, arguments.keep)
            print(f"{arguments.keep}: without {gone} of {len(found)} rows")


def table(path):
    """The rows of a file by what they are of."""
    with open(path, newline="") as file:
        found = list(csv.DictReader(file))
    return {tuple(value for name, value in row.items() if name not in (*VALUES, *MADE_BY)): row for row in found}


def number(text):
    return math.nan if text in ("None", "") else float.fromhex(text) if "x" in text else float(text)


def compare(arguments):
    one, other = table(arguments.rows), table(arguments.other)
    if not one or not other:
        sys.exit("a file has no rows")
    for path, found in ((arguments.rows, one), (arguments.other, other)):
        made = defaultdict(int)
        for row in found.values():
            made[" ".join(row[name] for name in MADE_BY if name in row)] += 1
        print(f"{path}: {len(found)} rows, {', '.join(f'{count} by {name}' for name, count in made.items())}")
    shared = one.keys() & other.keys()
    print(f"{len(shared)} rows in both, {len(one.keys() ^ other.keys())} in one only")
    equal, apart = 0, defaultdict(list)
    for key in shared:
        if all(one[key][name] == other[key][name] for name in VALUES):
            equal += 1
            continue
        a, b = (number(found[key]["value"]) for found in (one, other))
        if math.isnan(a) != math.isnan(b):
            apart[one[key]["metric"]].append(math.inf)
        elif not math.isnan(a):
            apart[one[key]["metric"]].append(abs(a - b) / max(abs(a), abs(b), 1e-30))
    print(f"{equal} rows have the same bits ({equal / max(len(shared), 1):.1%})")
    for metric, found in sorted(apart.items()):
        print(f"  {metric}: {len(found)} rows differ by {statistics.median(found):.1e} (median), {max(found):.1e} (most)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure", help="run the experiment and write its rows")
    one.add_argument("rows", metavar="ROWS.csv")
    one.add_argument("--simd")
    one.add_argument("--workers", type=int, default=2)
    one.add_argument("--num-gpus", type=float, default=0)
    one.add_argument("--images", type=int, default=24)
    one.add_argument("--continue", dest="going_on", metavar="STORE.sqlite")
    one.add_argument("--keep", metavar="STORE.sqlite")
    two = commands.add_parser("compare", help="compare two files of rows")
    two.add_argument("rows", metavar="ROWS.csv")
    two.add_argument("other", metavar="OTHER.csv")
    arguments = parser.parse_args()
    {"measure": measure, "compare": compare}[arguments.command](arguments)


if __name__ == "__main__":
    main()
