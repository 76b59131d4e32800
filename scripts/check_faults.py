#!/usr/bin/env python3
"""Does to the program what machines do: kills it, fills the disk, damages its stores, takes rights away, replaces files it has open.

    python scripts/check_faults.py [--program target/release/monosplit] [--only NAME ...] [--kills 20] [--pictures 500]

Needs Linux, NumPy, Pillow, and for small disks and read-only folders the right to mount (root, or user namespaces: the script
starts itself again under `unshare`). Prints one line for each fault and what was found; ends with 1 if anything is not as
docs/src/reliability.md promises.
"""

import argparse
import csv
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
NETWORK = REPOSITORY / "crates/monosplit/assets/pets-small.onnx"
PICTURE = REPOSITORY / "crates/monosplit/assets/chelsea.png"

EXPERIMENT = """
name = "small"
batch = 2
[model]
file = "{network}"
[data]
folder = "data"
validation = "val"
test = "test"
[[method]]
title = "SplitGrad"
method = "splitgrad"
layers = ["layer3.0.conv2", "layer4.2.conv2"]
absolute = "both"
[[method]]
method = "gradcam"
[comparison]
metrics = ["pointing-game", "attribution-localisation", "pixel-flipping:auc=20,step=4096"]
"""


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


class Bench:
    """The program and a folder to work in."""

    def __init__(self, program, folder, options):
        self.program, self.folder, self.options = str(program), Path(folder), options
        self.random = random.Random(7)

    def start(self, *arguments, folder=None, **how):
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | how
        command = [self.program, *map(str, arguments)]
        return subprocess.Popen(command, cwd=folder or self.folder, text=True, errors="replace", **how)

    def run(self, *arguments, folder=None, limit=600):
        process = self.start(*arguments, folder=folder)
        try:
            out, error = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failure(f"{' '.join(map(str, arguments))} takes longer than {limit} s") from None
        return process.returncode, out, error

    def succeed(self, *arguments, **how):
        code, out, error = self.run(*arguments, **how)
        expect(code == 0, f"{' '.join(map(str, arguments))}: exit code {code}: {error.strip()[-300:]}")
        return out

    def check_refusal(self, what, code, error):
        """Exit code 2 and lines of the program, none of a panic."""
        expect(code == 2, f"{what}: exit code {code}: {error.strip()[-300:]}")
        expect("panicked" not in error and error.strip(), f"{what}: {error.strip()[-300:]!r}")

    def make_data(self):
        from PIL import Image

        picture = Image.open(PICTURE).convert("RGB")
        for part, shift in (("val", 0), ("test", 40)):
            images, masks = self.folder / "data" / part / "images", self.folder / "data" / part / "masks"
            images.mkdir(parents=True)
            masks.mkdir(parents=True)
            rows = ["file,class"]
            for number in range(4):
                left, top = 25 * number + shift, 20 * number
                picture.crop((left, top, left + 128, top + 128)).save(images / f"{number}.png")
                mask = Image.new("L", (128, 128))
                mask.paste(255, (30, 0, 100, 128))
                mask.save(masks / f"{number}.png")
                rows.append(f"{number}.png,{5 + number}")
            (self.folder / "data" / part / "labels.csv").write_text("\n".join(rows) + "\n")
        (self.folder / "experiment.toml").write_text(EXPERIMENT.format(network=NETWORK))

    def make_digits(self):
        """Idx files of 8×8 pictures of two classes."""
        folder = self.folder / "digits"
        folder.mkdir()
        for name, count in (("train", 400), ("t10k", 60)):
            labels = bytes(i % 2 for i in range(count))
            pixels = bytearray()
            for sample in range(count):
                for place in range(64):
                    noise = (sample * 2654435761 + place * 40503 >> 7) % 100
                    pixels.append(noise + (120 if (place < 32) == (sample % 2 == 0) else 0))
            head = struct.pack(">BBBBIII", 0, 0, 8, 3, count, 8, 8)
            (folder / f"{name}-images-idx3-ubyte").write_bytes(head + bytes(pixels))
            (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + labels)
        (folder / "small.txt").write_text("conv 8 3\nnorm\nmaxout 2\npool 2\ndense 12\nscores\n")
        return folder

    def rows(self, store):
        """The rows of a store but for the times, or none where the program refuses it."""
        out = self.folder / "rows.csv"
        out.unlink(missing_ok=True)
        code, _, error = self.run("results", store, "-o", out)
        if code != 0:
            self.check_refusal(f"results {store}", code, error)
            return None
        with open(out, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            row.pop("seconds", None)
        return sorted(tuple(sorted(row.items())) for row in rows)


def kills(bench):
    """SIGKILL of `evaluate`, two processes on one store: the rows of a run that nothing disturbed, none lost, none doubled."""
    whole, store = bench.folder / "whole.sqlite", bench.folder / "killed.sqlite"
    bench.succeed("evaluate", "experiment.toml", "--store", whole, "--threads", 1)
    expected = bench.rows(whole)
    arguments = ("evaluate", "experiment.toml", "--store", store, "--threads", 1)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [bench.start(*arguments, **quiet) for _ in range(2)]
    killed = 0
    while killed < bench.options.kills:
        time.sleep(bench.random.uniform(0.05, 0.6))
        victim = bench.random.randrange(2)
        killed += running[victim].poll() is None
        running[victim].kill()
        running[victim].wait()
        running[victim] = bench.start(*arguments, **quiet)
        if all(process.poll() == 0 for process in running):
            break
    for process in running:
        process.wait()
    bench.succeed(*arguments)
    expect(bench.rows(store) == expected, f"after {killed} kills the rows differ")
    return f"{killed} processes killed, {len(expected)} rows equal"


def stores(bench):
    """A store cut short or with a flipped bit is refused, or its rows are what they were."""
    store = bench.folder / "sound.sqlite"
    bench.succeed("evaluate", "experiment.toml", "--store", store, "--threads", 1)
    expected = bench.rows(store)
    database = sqlite3.connect(store)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.execute("PRAGMA journal_mode=DELETE")
    database.close()
    sound = store.read_bytes()
    refused = same = 0
    damaged = bench.folder / "damaged.sqlite"
    for number in range(bench.options.damages):
        for ending in ("", "-wal", "-shm"):
            Path(f"{damaged}{ending}").unlink(missing_ok=True)
        data = bytearray(sound)
        if number % 4 == 0:
            del data[bench.random.randrange(len(data)) :]
        else:
            data[bench.random.randrange(len(data))] ^= 1 << bench.random.randrange(8)
        damaged.write_bytes(data)
        rows = bench.rows(damaged)
        refused += rows is None
        same += rows == expected
        if rows is not None and rows != expected:
            kept = bench.folder.parent / "changed.sqlite"
            shutil.copy(damaged, kept)
            raise Failure(f"a damaged store gives other rows and nothing is said ({kept})")
    return f"{refused} refused, {same} with the rows they had"


def training(bench):
    """`train` killed and resumed writes the bytes of a training that nothing disturbed."""
    folder = bench.folder / "digits"
    # Two epochs a kill, so that the training lasts longer than all kills.
    epochs = max(6, 2 * bench.options.kills)
    base = ("train", folder, "--arch", folder / "small.txt", "--restriction", "DICIN", "--epochs", epochs, "--batch", 20)
    base = (*base, "--checkpoint-every", 5, "--threads", 1)
    bench.succeed(*base, "--out", bench.folder / "whole.onnx")
    out, checkpoint = bench.folder / "resumed.onnx", bench.folder / "resumed.checkpoint.safetensors"

    def written():
        return checkpoint.stat().st_mtime_ns if checkpoint.exists() else None

    resumed = 0
    for kill in range(bench.options.kills):
        before = written()
        again = ("--resume",) if before else ()
        resumed += bool(again)
        process = bench.start(*base, "--out", out, *again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Every fifth is killed as it starts, the others when they have gone on, at any moment between two checkpoints.
        while kill % 5 and process.poll() is None and written() == before:
            time.sleep(0.002)
        time.sleep(bench.random.uniform(0, 0.05))
        expect(process.poll() is None, f"the training ended before kill {kill + 1}: exit code {process.returncode}")
        process.kill()
        process.wait()
    bench.succeed(*base, "--out", out, *(("--resume",) if checkpoint.exists() else ()))
    same = out.read_bytes() == (bench.folder / "whole.onnx").read_bytes()
    expect(same, f"after {bench.options.kills} kills another network")
    return f"{bench.options.kills} kills, resumed {resumed} times and at the end, the same bytes"


def commands(bench, out):
    """Every command that writes, with what it writes into `out`, and the files it must have written."""
    network, picture = NETWORK, PICTURE
    store = bench.folder / "sound.sqlite"
    if not store.exists():
        bench.succeed("evaluate", "experiment.toml", "--store", store, "--threads", 1)
    digits = bench.folder / "digits"
    return {
        "run --raw": ("run", network, picture, "--raw", out / "scores.npy"),
        "explain": ("explain", network, picture, "--out", out / "maps"),
        "explain --raw": ("explain", network, picture, "--out", bench.folder / "elsewhere", "--raw", out / "map.npy"),
        "compare": ("compare", network, picture, "--methods", "splitcam,gradcam", "--out", out / "figure.png"),
        "compare svg": ("compare", network, picture, "--methods", "splitcam,gradcam", "--out", out / "figure.svg"),
        "compare pdf": ("compare", network, picture, "--methods", "splitcam,gradcam", "--out", out / "figure.pdf"),
        "figure split": ("figure", "split", network, picture, "--out", out / "split.png"),
        "compile": ("compile", network, "--out", out / "compiled.onnx"),
        "split": ("split", network, "--out-g", out / "g.onnx", "--out-h", out / "h.onnx"),
        "demo": ("demo", "--out", out / "demo"),
        "diff": ("diff", network, network, picture, "--out", out / "diff.html"),
        "evaluate": ("evaluate", "experiment.toml", "--store", out / "run.sqlite", "--threads", 1),
        "results csv": ("results", store, "-o", out / "rows.csv"),
        "results parquet": ("results", store, "-o", out / "rows.parquet"),
        "report": ("report", store, "--out", out / "report"),
        "train": ("train", digits, "--arch", digits / "small.txt", "--epochs", 1, "--out", out / "trained.onnx"),
        "maxout draw": ("maxout", "draw", bench.folder / "maxout.txt", "--out", out / "maxout.svg"),
    }


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def disk(bench):
    """A full disk during every command that writes: exit code 2, one line, and no file that is there in part."""
    whole = bench.folder / "whole"
    small = bench.folder / "small"
    small.mkdir()
    tried = refused = 0
    for name in commands(bench, whole):
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        bench.succeed(*commands(bench, whole)[name])
        complete = files(whole)
        total = sum(map(len, complete.values()))
        for share in (0, 0.3, 0.8):
            size = max(4096, int(total * share) // 4096 * 4096)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", small], check=True)
            try:
                code, _, error = bench.run(*commands(bench, small)[name])
                tried += 1
                if code == 0:
                    left = {path: data for path, data in files(small).items()}
                    missing = [str(path) for path in complete if path not in left]
                    expect(not missing, f"{name} on {size} bytes: exit code 0 without {missing}")
                    continue
                refused += 1
                bench.check_refusal(f"{name} on {size} bytes", code, error)
                for path, data in files(small).items():
                    if ".sqlite" in path.name or path.name.endswith((".csv", ".checkpoint.safetensors")):
                        continue  # Stores are journals and logs grow; both are checked where they are read.
                    expected = complete.get(path)
                    expect(expected is not None, f"{name} on {size} bytes leaves {path}")
                    expect(same_kind(path, data, expected), f"{name} on {size} bytes leaves a part of {path}")
            finally:
                subprocess.run(["umount", small], check=True)
    return f"{tried} runs, {refused} met the end of the disk"


def same_kind(path, data, expected):
    """Whether a file is complete: of the length it had, or with its proper end where times differ in it."""
    if len(data) == len(expected):
        return True
    return path.suffix in {".html", ".svg", ".md", ".txt", ".json"} and data[-8:] == expected[-8:]


def rights(bench):
    """Folders that may only be read: exit code 2 and one line; reading from them works."""
    folder = bench.folder / "fixed"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=True)
    try:
        shutil.copy(NETWORK, folder / "network.onnx")
        shutil.copy(PICTURE, folder / "picture.png")
        if (bench.folder / "sound.sqlite").exists():
            shutil.copy(bench.folder / "sound.sqlite", folder / "store.sqlite")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        refused = 0
        for name, command in commands(bench, folder).items():
            code, _, error = bench.run(*command)
            bench.check_refusal(f"{name} into a read-only folder", code, error)
            refused += 1
        bench.succeed("run", folder / "network.onnx", folder / "picture.png", folder=folder)
        if (folder / "store.sqlite").exists():
            bench.succeed("results", folder / "store.sqlite", folder=folder)
    finally:
        subprocess.run(["umount", folder], check=True)
    return f"{refused} commands refused, two read"


def replaced(bench):
    """A network that changes while it is mapped: renamed over, nothing happens; cut short, one line."""
    import numpy as np

    network, batch = bench.folder / "changing.onnx", bench.folder / "batch.npy"
    np.save(batch, np.zeros((64, 3, 128, 128), np.float32))
    shutil.copy(NETWORK, network)
    arguments = ("explain", network, batch, "--method", "occlusion", "--raw", bench.folder / "o.npy", "--out", "o")
    ended = {"renamed": 0, "cut": 0}
    for number in range(8):
        shutil.copy(NETWORK, network)
        process = bench.start(*arguments, "--threads", 1)
        time.sleep(bench.random.uniform(0.0, 0.4))
        how = "renamed" if number % 2 else "cut"
        if how == "renamed":
            shutil.copy(NETWORK, bench.folder / "other.onnx")
            os.replace(bench.folder / "other.onnx", network)
            time.sleep(0.3)
            expect(process.poll() in (None, 0), f"renamed over: {process.poll()}")
            process.kill()
            process.communicate()
        else:
            os.truncate(network, 4096)
            try:
                _, error = process.communicate(timeout=5)
                if process.returncode != 0:
                    bench.check_refusal("cut short", process.returncode, error)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        ended[how] += 1
    return f"{ended['renamed']} times renamed over, {ended['cut']} times cut short"


def pictures(bench):
    """Many pictures through one process: memory does not grow."""
    many = bench.folder / "many"
    many.mkdir()
    for number in range(bench.options.pictures):
        os.link(bench.folder / "picture.png", many / f"{number:05}.png")
    process = bench.start("explain", NETWORK, many, "--out", bench.folder / "maps", stdout=subprocess.DEVNULL)
    early = late = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        resident = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
        done = len(list((bench.folder / "maps").glob("*"))) if (bench.folder / "maps").exists() else 0
        if done < bench.options.pictures // 4:
            early = max(early, resident)
        elif done > bench.options.pictures // 2:
            late = max(late, resident)
        time.sleep(0.1)
    expect(process.wait() == 0, f"exit code {process.returncode}")
    expect(late <= early * 1.1 + 4096, f"{early} kB in the first quarter, {late} kB in the second half")
    return f"{bench.options.pictures} pictures, {early} kB in the first quarter, {late} kB in the second half"


FAULTS = {
    "kills": kills,
    "stores": stores,
    "training": training,
    "disk": disk,
    "rights": rights,
    "replaced": replaced,
    "pictures": pictures,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=REPOSITORY / "target/release/monosplit", type=Path)
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--damages", type=int, default=100)
    parser.add_argument("--pictures", type=int, default=500)
    options = parser.parse_args()
    if os.geteuid() != 0 and "MONOSPLIT_UNSHARED" not in os.environ:
        os.environ["MONOSPLIT_UNSHARED"] = "1"
        os.execvp("unshare", ["unshare", "-rm", sys.executable, *sys.argv])
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    failed = 0
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            bench = Bench(options.program.resolve(), folder, options)
            if name in ("kills", "stores", "disk", "rights"):
                bench.make_data()
            bench.make_digits()
            shutil.copy(PICTURE, bench.folder / "picture.png")
            (bench.folder / "maxout.txt").write_text(MAXOUT)
            start = time.monotonic()
            try:
                found = FAULTS[name](bench)
            except Failure as failure:
                failed += 1
                found = f"FAILED: {failure}"
            print(f"{name}: {found} ({time.monotonic() - start:.0f} s)", flush=True)
    sys.exit(1 if failed else 0)


MAXOUT = """input x, y
s = max(2x - y + 1/2, 0)
f = x * s
output f
"""


if __name__ == "__main__":
    main()
