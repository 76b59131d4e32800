"""Compares the program's logits with ONNX Runtime's and with float64 references, file by file.

    python scripts/compare_exports.py --exports DIR --binary target/release/monosplit [--only resnet18,vgg]
    python scripts/compare_exports.py --models ../shared/models --vectors ../shared/vectors --binary …

`--exports` is the folder `export_torchvision.py` filled (`NAME.onnx`, `.x.npy`, `.ort.npy`, `.f64.npy`), `--models` one of
plain ONNX files, which are fed two samples of noise, `--vectors` one of folders with `model.onnx`, `x.npy` and
`expected.npz`. An error is max |a − b| / max |reference|, over all samples and classes. The columns:

f32         the program in single precision against ONNX Runtime on the same file (limit 1e-4)
f64         the program in double precision against the file's own graph evaluated in float64 by `double_reference.py`
            (limit 1e-10)
network     the same logits against the network before it was exported, PyTorch in float64. Exporters round on the way
            to a file: they fold batch normalisation into float32 weights and keep computed constants (a scale √d, an
            image mean) in float32. Then no evaluation of the file comes nearer than that rounding, 1e-10 to 4e-6, and
            the column is for information. Where nothing was rounded it is held to the limit of f64; whether anything was
            is decided by the file alone: its float64 evaluation is farther than 1e-11 from the network's logits.
round trip  the file as monosplit writes it after reading, in ONNX Runtime, against the original there; what is written
            must pass the ONNX checker (limit 1e-4, see `check_roundtrip.py`)

The table is Markdown; `--csv` also writes it as CSV, and a file that passed there is not run again. The exit code is
1 if a limit is passed or a file does not run.
"""

import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import numpy as np
import onnx
import torch

import check_roundtrip
from double_reference import evaluate
from export_torchvision import default_opset_of, run_onnxruntime

SINGLE_LIMIT = 1e-4
DOUBLE_LIMIT = 1e-10
NOTHING_ROUNDED = 1e-11
SEED = 7
LIMITS = {"f32": SINGLE_LIMIT, "f64": DOUBLE_LIMIT, "round trip": check_roundtrip.TOLERANCE}
COLUMNS = ["file", "exporter", "opset", "parameters", "f32", "f64", "network", "round trip"]


@dataclass
class Case:
    """A file, what to call it, and where its input and the known outputs lie."""

    path: pathlib.Path
    name: str
    exporter: str
    x: pathlib.Path | None = None
    ort: pathlib.Path | None = None
    network: pathlib.Path | None = None


def exported(folder):
    for path in sorted(folder.glob("*.onnx")):
        name, exporter, _ = path.stem.rsplit("-", 2)
        beside = {key: path.with_suffix(end) for key, end in (("x", ".x.npy"), ("ort", ".ort.npy"), ("network", ".f64.npy"))}
        yield Case(path, name, exporter, **beside)


def plain(folder):
    for path in sorted(folder.glob("*.onnx")):
        yield Case(path, path.stem, "")


def vectors(folder):
    for path in sorted(folder.glob("*/model.onnx")):
        yield Case(path, path.parent.name, "", path.with_name("x.npy"), None, path.with_name("expected.npz"))


def noise(model):
    """Two samples of the shape the file declares."""
    weights = {tensor.name for tensor in model.graph.initializer}
    value = next(value for value in model.graph.input if value.name not in weights)
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim][1:]
    return np.random.default_rng(SEED).standard_normal([2, *dims]).astype(np.float32)


def parameters(model):
    """Elements of the floating point tensors the file stores."""
    kinds = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    return sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer if tensor.data_type in kinds)


def logits_of_program(arguments, path, x, precision, folder):
    raw = folder / f"{precision}.npy"
    command = [arguments.binary, "run", path, x, "--raw", raw, "--precision", precision, "--json", "--threads", arguments.threads]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
    return np.load(raw)


def reference_of_network(path):
    loaded = np.load(path)
    return loaded["logits"] if path.suffix == ".npz" else loaded


def distance(found, reference):
    if found.shape != reference.shape:
        raise ValueError(f"shape {found.shape}, expected {reference.shape}")
    return float(np.abs(found - reference).max() / np.abs(reference).max())


def compare(case, arguments, folder):
    """One row of the table: numbers where a comparison was made, what went wrong where it could not be."""
    model = onnx.load(str(case.path), load_external_data=False)
    row = {"file": case.name, "exporter": case.exporter, "opset": default_opset_of(case.path), "parameters": parameters(model)}
    x = case.x or folder / "x.npy"
    if case.x is None:
        np.save(x, noise(model))
    batch = np.load(x)

    def single():
        expected = np.load(case.ort) if case.ort else run_onnxruntime(case.path, batch)
        row["f32"] = distance(logits_of_program(arguments, case.path, x, "f32", folder), expected)

    def double():
        found, own = logits_of_program(arguments, case.path, x, "f64", folder), evaluate(case.path, batch)
        row["f64"] = distance(found, own)
        if case.network:
            network = reference_of_network(case.network)
            row["network"] = distance(found, network)
            if distance(own, network) <= NOTHING_ROUNDED < DOUBLE_LIMIT < row["network"]:
                raise ValueError(f"{row['network']:.1e} from the network, though the file was not rounded")

    def round_trip():
        options = argparse.Namespace(roundtrip=str(arguments.roundtrip), opset=None, checker=True, batch=2)
        row["round trip"] = check_roundtrip.check(case.path, options, folder / "written.onnx")

    for column, measure in (("f32", single), ("f64", double), ("round trip", round_trip)):
        if column.split()[0] in arguments.skip:
            continue
        try:
            measure()
        except Exception as error:  # one comparison that fails should not hide the others
            row[column] = f"{type(error).__name__}: {error}".splitlines()[0]
    return row


def good(row):
    return all(isinstance(row[c], float) and row[c] <= limit for c, limit in LIMITS.items() if row.get(c, "") != "")


def shown(value):
    return f"{value:.1e}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def read_rows(path):
    if not path or not path.exists():
        return {}
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["opset"], row["parameters"] = int(row["opset"]), int(row["parameters"])
        for column in COLUMNS[4:]:
            try:
                row[column] = float(row[column])
            except ValueError:
                pass
    return {(row["file"], row["exporter"], row["opset"]): row for row in rows}


def write_rows(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)


def wanted(arguments):
    sources = [(plain, arguments.models), (vectors, arguments.vectors), (exported, arguments.exports)]
    cases = [case for source, folder in sources if folder for case in source(folder)]
    names = arguments.only.split(",") if arguments.only else [""]
    return [case for case in cases if any(case.path.name.startswith(name) or case.name.startswith(name) for name in names)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exports", type=pathlib.Path, help="made by export_torchvision.py")
    parser.add_argument("--models", type=pathlib.Path, help="a folder of ONNX files")
    parser.add_argument("--vectors", type=pathlib.Path, help="a folder of folders with model.onnx, x.npy, expected.npz")
    parser.add_argument("--binary", type=pathlib.Path, default="target/release/monosplit")
    parser.add_argument("--roundtrip", type=pathlib.Path, default="target/release/examples/roundtrip")
    parser.add_argument("--only", help="comma-separated beginnings of file names")
    parser.add_argument("--skip", default="", help="comma-separated comparisons to leave out: f32, f64, round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=pathlib.Path, help="where to keep the table; what passed there is not run again")
    arguments = parser.parse_args()
    arguments.skip = set(filter(None, arguments.skip.split(",")))
    torch.set_num_threads(arguments.threads)
    rows, failures = read_rows(arguments.csv), 0
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for case in wanted(arguments):
        with tempfile.TemporaryDirectory() as folder:
            key = (case.name, case.exporter, default_opset_of(case.path))
            known = key in rows and good(rows[key])
            row = rows[key] if known else compare(case, arguments, pathlib.Path(folder))
        rows[key] = row
        failures += not good(row)
        print("| " + " | ".join(shown(row.get(column, "")) for column in COLUMNS) + " |", flush=True)
        if arguments.csv:
            write_rows(arguments.csv, rows.values())
    print(f"\n{failures} past the limits" if failures else "\nall within the limits")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
