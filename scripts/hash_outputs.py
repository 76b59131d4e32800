#!/usr/bin/env python3
"""Hashes what the program computes and writes, so that a redesign can be shown to change nothing.

    python3 scripts/hash_outputs.py target/release/monosplit before.txt
    python3 scripts/hash_outputs.py target/release/monosplit after.txt --against before.txt

Every line of the written file is a command and the hash of its result: `run`, `explain` (arrays, pictures and JSON, every
method), `compare`, `compile` (every method), `verify --json` and `evaluate`, on the models in the folder `shared` beside the repository
and on the small networks of the tests. Times are taken out of JSON before hashing. Exit code 1 if a line differs from --against.

Needs nothing but Python's standard library. Takes about five minutes on two cores; --quick does the smallest network only, and
--only NAME those models whose file name contains NAME, without the small networks and without `evaluate`.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
PICTURE = SHARED / "data" / "chelsea.png"
# Methods that ask the network hundreds of times are asked fewer times here.
FEWER = {
    "rise": "rise:samples=32",
    "lime": "lime:samples=32",
    "kernel-shap": "kernel-shap:samples=64",
    "integrated-gradients": "integrated-gradients:steps=8",
    "scorecam": "scorecam:batch=32",
}
# On the larger networks, these would take most of the time.
SMALL_ONLY = {"scorecam", "ablationcam", "kernel-shap", "lime"}
TIMES = {"milliseconds", "seconds", "time"}
METRICS = [
    "selectivity:patch=16",
    "pixel-flipping:auc=20",
    "region-perturbation:patch=12,regions=5",
    "infidelity:patch=32",
    "faithfulness-correlation:runs=5",
    "road:every=28",
    "attribution-localisation",
    "pointing-game",
    "relevance-rank-accuracy",
    "relevance-mass-accuracy",
    "top-k-intersection",
    "auc",
    "max-sensitivity:samples=2",
    "average-sensitivity:samples=2",
    "local-lipschitz:samples=2",
    "sparseness",
    "complexity",
    "effective-complexity",
    "random-logit",
    "completeness",
]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return value


class Program:
    def __init__(self, binary: Path, folder: Path):
        self.binary, self.folder, self.lines = binary, folder, []

    def call(self, *arguments) -> subprocess.CompletedProcess:
        command = [str(self.binary), *map(str, arguments)]
        return subprocess.run(command, cwd=self.folder, capture_output=True, check=False)

    def note(self, key: str, value: str):
        line = f"{key}\t{value}"
        self.lines.append(line)
        print(line, flush=True)

    def hash(self, key: str, arguments: list, files=(), json_output=False):
        """Runs a command and hashes the files it wrote and, if asked, its JSON."""
        for name in files:
            (self.folder / name).unlink(missing_ok=True)
        done = self.call(*arguments)
        if done.returncode == 2:
            # A refusal is a result too; its wording may improve.
            self.note(key, "refused")
            return
        parts = []
        if json_output:
            # Where the repository and its files lie is no result.
            text = re.sub(rf"{re.escape(str(ROOT))}/[^\"]*/", "", done.stdout.decode())
            parsed = without_times(json.loads(text))
            parts.append("json=" + digest(json.dumps(parsed, sort_keys=True).encode()))
        for name in files:
            path = self.folder / name
            parts.append(f"{path.suffix[1:]}=" + (digest(path.read_bytes()) if path.exists() else "absent"))
        self.note(key, f"exit={done.returncode} " + " ".join(parts))


def methods_of(program: Program) -> list:
    listed = json.loads(program.call("methods", "--json").stdout)
    return [method["name"] for method in listed if method["name"] != "mask"]


def one_network(program: Program, model: Path, small: bool):
    name = model.stem
    for precision in ["f32", "f64"] if small else ["f32"]:
        program.hash(
            f"{name} run {precision}",
            ["run", model, PICTURE, "--raw", "logits.npy", "--json", "--precision", precision],
            ["logits.npy"],
            json_output=True,
        )
    program.hash(f"{name} run one thread", ["run", model, PICTURE, "--raw", "logits.npy", "--threads", 1], ["logits.npy"])
    for method in methods_of(program):
        if method in SMALL_ONLY and not small:
            continue
        spelled = FEWER.get(method, method)
        picture = f"explained/chelsea.{method}.png"
        for extra in [[], ["--precision", "f64"]] if small else [[]]:
            program.hash(
                f"{name} explain {spelled} {' '.join(extra)}".strip(),
                ["explain", model, PICTURE, "--method", spelled, "--raw", "map.npy", "-o", "explained", "--json", *extra],
                ["map.npy", picture],
                json_output=True,
            )
    for split in ["splitcam:alpha=0.3,stream=h", "splitgrad:pool=wta,part=plus", "splitlrp:map=pos", "splitcam:stabiliser=shift"]:
        program.hash(
            f"{name} explain {split}",
            ["explain", model, PICTURE, "--method", split, "--raw", "map.npy", "-o", "explained"],
            ["map.npy"],
        )
    program.hash(
        f"{name} compare",
        ["compare", model, PICTURE, "--methods", "splitcam,splitgrad,splitlrp,gradcam,lrp,saliency", "-o", "compare.png"],
        ["compare.png"],
    )
    for method in methods_of(program):
        spelled = FEWER.get(method, method)
        program.hash(
            f"{name} compile {spelled}",
            ["compile", model, "--method", spelled, "-o", "compiled.onnx"],
            ["compiled.onnx"],
        )
    program.hash(f"{name} verify", ["verify", model, PICTURE, "--json"], json_output=True)
    program.hash(f"{name} inspect", ["inspect", model, "--json"], json_output=True)


def fixture_network(program: Program, model: Path, batch: Path):
    """Every method on a small network of the tests; all maps of a network in one line."""
    name = f"{model.parent.name}/{model.stem}"
    program.hash(f"{name} run", ["run", model, batch, "--raw", "logits.npy"], ["logits.npy"])
    parts = []
    for method in methods_of(program):
        (program.folder / "map.npy").unlink(missing_ok=True)
        arguments = ["explain", model, batch, "--method", FEWER.get(method, method), "--raw", "map.npy", "-o", "explained"]
        done = program.call(*arguments)
        found = program.folder / "map.npy"
        parts.append(f"{method}={digest(found.read_bytes())[:8] if done.returncode == 0 else 'refused'}")
    program.note(f"{name} explain", " ".join(parts))
    program.hash(f"{name} compile", ["compile", model, "-o", "compiled.onnx"], ["compiled.onnx"])
    program.hash(f"{name} verify", ["verify", model, batch, "--json"], json_output=True)


def evaluation(program: Program, model: Path):
    pets = SHARED / "data" / "pets"
    methods = ["splitcam", "splitgrad:pool=wta", "gradcam", "saliency", "guided-backprop", "occlusion:stride=32,window=32", "random"]
    text = [
        'name = "hashed"',
        "[model]",
        f'file = "{model}"',
        'preset = "imagenet"',
        'fit = "squash"',
        'filter = "bicubic"',
        "[data]",
        f'folder = "{pets}"',
        'validation = "val"',
        'test = "test"',
        'label-column = "pet_class_index"',
        "validation-images = 2",
        "test-images = 4",
        "[selection]",
        'localisation = ["attribution-localisation", "pointing-game"]',
        "[comparison]",
        f"metrics = {json.dumps(METRICS)}",
    ]
    for method in methods:
        text += ["[[method]]", f'title = "{method}"', 'family = "all"', f'method = "{method}"']
    (program.folder / "experiment.toml").write_text("\n".join(text) + "\n")
    (program.folder / "run.sqlite").unlink(missing_ok=True)
    done = program.call("evaluate", "experiment.toml", "--store", "run.sqlite")
    if done.returncode != 0:
        program.note("evaluate", f"exit={done.returncode} {done.stderr.decode()[-300:]!r}")
        return
    program.call("results", "run.sqlite", "-o", "rows.csv")
    rows = (program.folder / "rows.csv").read_text().splitlines()
    header = rows[0].split(",")
    timed = [i for i, column in enumerate(header) if column in TIMES or "second" in column]
    kept = []
    for row in rows[1:]:
        cells = re.findall(r'(?:"(?:[^"]|"")*"|[^,])*(?:,|$)', row)
        kept.append("".join(cell for i, cell in enumerate(cells) if i not in timed))
    by_metric = {}
    column = header.index("metric")
    for row in sorted(kept):
        metric = re.findall(r'(?:"(?:[^"]|"")*"|[^,])*(?:,|$)', row)[column].strip('",').split(":")[0]
        by_metric.setdefault(metric, []).append(row)
    for metric, found in sorted(by_metric.items()):
        program.note(f"evaluate {metric}", f"rows={len(found)} csv={digest(chr(10).join(found).encode())}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier output to compare with")
    parser.add_argument("--quick", action="store_true", help="only the smallest network")
    parser.add_argument("--only", action="append", metavar="NAME", help="only models whose file name contains this")
    chosen = parser.parse_args()
    if not SHARED.is_dir():
        sys.exit(f"no folder {SHARED}")
    models = sorted((SHARED / "models").glob("*.onnx"), key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(chosen.binary.resolve(), Path(folder))
        for model in models[:1] if chosen.quick else models:
            if not chosen.only or any(name in model.name for name in chosen.only):
                one_network(program, model, small=model == models[0])
        if chosen.only:
            return write(program, chosen)
        for folder in sorted(ROOT.glob("crates/*/tests/fixtures/models/*/")):
            files = sorted(folder.glob("*.onnx"))
            if files and (folder / "x.npy").exists():
                fixture_network(program, files[0], folder / "x.npy")
        evaluation(program, models[0])
    return write(program, chosen)


def write(program: Program, chosen: argparse.Namespace) -> int:
    chosen.output.write_text("\n".join(program.lines) + "\n")
    if not chosen.against:
        return 0
    before = dict(line.split("\t", 1) for line in chosen.against.read_text().splitlines())
    after = dict(line.split("\t", 1) for line in program.lines)
    differing = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    for key in sorted(differing):
        print(f"DIFFERS {key}\n  before {before.get(key)}\n  after  {after.get(key)}")
    print(f"{len(after)} results, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
