#!/usr/bin/env python3
"""Gives the program a million random networks and damaged files, on all cores, and goes on where it was when it is started again.

    python scripts/fuzz.py [--count 1000000] [--cores N] [--only NAME ...] [--state fuzz-state] [--release] [--as-built]

The inputs are those of the bounded fuzz tests, whose numbers go on where the tests stop: random networks that are run, written,
read again and explained (half of the count), and damaged files for every reader. Work is done in blocks; a block that is done is
noted in the folder of the state, with how long it took. A block that fails leaves its output and the input it failed on there,
the others go on, and the next start tries it again. The test programs are copied there first, so that what is built meanwhile
does not change the run; `--as-built` takes those of an earlier start. The last line says how many inputs were tried and how many
blocks failed; the script ends with 1 if any did.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Package, test binary, test, share of the count, inputs a block.
TESTS = {
    "networks": ("monosplit", "it", "slow_random_networks_are_run_and_explained_or_refused", 0.5, 1000),
    "onnx": ("monosplit-graph", "hostile", "slow_hostile_onnx_files_are_survived", 0.15, 2000),
    "weights": ("monosplit-graph", "hostile", "hostile_weights_are_survived", 0.05, 5000),
    "safetensors": ("monosplit-graph", "hostile", "hostile_safetensors_are_survived", 0.03, 5000),
    "npy": ("monosplit-graph", "hostile", "hostile_arrays_are_survived", 0.03, 5000),
    "npz": ("monosplit-graph", "hostile", "hostile_archives_of_arrays_are_survived", 0.03, 5000),
    "pictures": ("monosplit-image", "hostile", "slow_hostile_pictures_are_survived", 0.1, 5000),
    "experiments": ("monosplit-eval", "hostile", "slow_hostile_experiments_are_survived", 0.06, 2000),
    "stores": ("monosplit-eval", "hostile", "slow_hostile_stores_are_survived", 0.05, 1000),
}


def binaries(release):
    """The test binaries by package and name; cargo builds what is missing. All packages at once: one set of features."""
    command = ["cargo", "test", "--workspace", "--exclude", "monosplit-bench", "--no-run", "--message-format=json"]
    command += ["--test", "it", "--test", "hostile"] + (["--release"] if release else [])
    result = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    found = {}
    for line in result.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            package = Path(message["manifest_path"]).parent.name
            package = "monosplit" if package == "monosplit" else f"monosplit-{package}"
            found[package, message["target"]["name"]] = message["executable"]
    return found


def kept_programs(state, options):
    """The test binaries in the folder of the state, where they are copied unless those of an earlier start are to be taken."""
    folder = state / "programs"
    kept = {(package, target): folder / f"{package}.{target}" for package, target, *_ in TESTS.values()}
    if not options.as_built:
        folder.mkdir(exist_ok=True)
        built = binaries(options.release)
        for package, target in kept:
            new = folder / f"{package}.{target}.new"
            shutil.copy2(built[package, target], new)
            new.rename(kept[package, target])
    return kept


def block(state, binary, name, first, count):
    """One block; none, or what was said where it failed."""
    package, target, test, *_ = TESTS[name]
    folder = state / f"{name}-{first}"
    folder.mkdir(exist_ok=True)
    environment = os.environ | {
        "MONOSPLIT_FUZZ_FIRST": str(first),
        "MONOSPLIT_FUZZ_ITERATIONS": str(count),
        "TMPDIR": str(folder),
    }
    source = REPOSITORY / "crates" / package.removeprefix("monosplit-")
    # libtest's names have their modules before them.
    command = [binary, test, "--nocapture", "--test-threads=1"]
    done = subprocess.run(
        command, cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    ran = re.search(r"(\d+) passed", done.stdout)
    if done.returncode == 0 and ran and int(ran[1]) == 1:
        shutil.rmtree(folder)
        return None
    (folder / "output.txt").write_text(done.stdout)
    lines = [line for line in done.stdout.splitlines() if "panicked" in line or "kept as" in line]
    return "; ".join(lines[:3]) or f"exit code {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="+", choices=TESTS, default=list(TESTS))
    parser.add_argument("--state", type=Path, default=Path("fuzz-state"))
    parser.add_argument("--release", action="store_true", help="with optimisation, and without checks for overflow")
    parser.add_argument("--as-built", action="store_true", help="build nothing, take the programs of an earlier start")
    parser.add_argument("--seconds", type=float, help="begin no block after so many seconds")
    options = parser.parse_args()
    options.state.mkdir(exist_ok=True)
    state = options.state.resolve()
    journal = state / "done.jsonl"
    lines = journal.read_text().splitlines() if journal.exists() else []
    # A block that failed is tried again, so that a run that goes on after a mend says how it is now.
    entries = [entry for entry in map(json.loads, lines) if entry["failure"] is None]
    known = {(entry["name"], entry["first"]): entry for entry in entries}
    programs = kept_programs(state, options)
    work = []
    for name in options.only:
        package, target, _, share, size = TESTS[name]
        for first in range(0, int(options.count * share), size):
            if (name, first) not in known:
                work.append((name, programs[package, target], first, size))
    # Readers in turn, so that a run cut short has tried all of them.
    work.sort(key=lambda item: item[2] / TESTS[item[0]][3])
    start = time.monotonic()
    tried = sum(entry["count"] for entry in known.values())
    failed = 0
    print(f"{tried} inputs were tried before, {len(work)} blocks are left", flush=True)

    def one(item):
        name, binary, first, count = item
        if options.seconds and time.monotonic() - start > options.seconds:
            return None
        begun = time.monotonic()
        failure = block(state, binary, name, first, count)
        seconds = round(time.monotonic() - begun, 1)
        return {"name": name, "first": first, "count": count, "seconds": seconds, "failure": failure}

    with ThreadPoolExecutor(options.cores) as pool, journal.open("a") as file:
        for finished in as_completed([pool.submit(one, item) for item in work]):
            entry = finished.result()
            if entry is None:
                continue
            file.write(json.dumps(entry) + "\n")
            file.flush()
            tried += entry["count"]
            failed += entry["failure"] is not None
            said = f" FAILED: {entry['failure']}" if entry["failure"] else ""
            print(f"{tried} inputs, {time.monotonic() - start:.0f} s: {entry['name']} {entry['first']}{said}", flush=True)
    print(f"{tried} inputs tried, {failed} blocks failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
