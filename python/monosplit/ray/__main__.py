"""``python -m monosplit.ray evaluate experiment.toml --address auto``."""

from __future__ import annotations

import argparse
import sys

from .driver import evaluate


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m monosplit.ray", description="Evaluations on a Ray cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "evaluate", help="run or go on with an experiment", description="Runs an experiment file on a Ray cluster, or goes on."
    )
    command.add_argument("experiment", metavar="EXPERIMENT.toml")
    command.add_argument("--address", help="the cluster; auto for the one this machine belongs to [default: one is started here]")
    command.add_argument("--store", metavar="FILE", help="the run store, on this machine [default: as the experiment's file]")
    command.add_argument("--model", metavar="FILE", help="a network in place of the one the experiment names")
    command.add_argument("--target", help="what is explained in place of what the experiment says")
    command.add_argument("--data", metavar="FOLDER", help="the data set in place of the one the experiment names")
    command.add_argument("--workers", type=int, metavar="N", help="processes that measure [default: one a processor but one]")
    command.add_argument("--num-cpus", type=float, default=1, metavar="N", help="processors of a worker [default: 1]")
    command.add_argument("--num-gpus", type=float, default=0, metavar="N", help="GPUs of a worker [default: 0]")
    command.add_argument("--threads", type=int, metavar="N", help="threads of a worker [default: as many as processors]")
    command.add_argument("--dtype", default="float32", choices=["float32", "float64"], help="the precision")
    command.add_argument("--simd", choices=["portable", "neon", "avx2", "avx512"], help="vector instructions, the same everywhere")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    given = vars(parser.parse_args(arguments))
    del given["command"]
    quiet = given.pop("quiet")
    try:
        report = evaluate(given.pop("experiment"), progress=not quiet, **given)
    except KeyboardInterrupt:
        print("interrupted; run again to go on", file=sys.stderr)
        return 130
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{report.store}: complete after {report.seconds:.1f} s; {report.rows:,} rows measured, {report.new:,} of them new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
