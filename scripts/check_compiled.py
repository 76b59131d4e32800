"""Compiles every method that is one graph on every network of a folder, and compares ONNX Runtime with the program.

    python scripts/check_compiled.py MODELS [--program target/release/monosplit] [--pictures FOLDER] [--results FILE]
                                            [--opsets 13 17 26] [--methods a b] [--only WORD] [--double-batches 1 4]
                                            [--layer NAME] [--accurate] [--spread N]

For each file: the checker accepts it, ONNX Runtime runs it on arrays and classes it has not seen (a sample of noise for its
top class, four photographs for four classes), its scores are the network's, and its maps are those `monosplit explain` writes
for the same arrays. Prints a table: of the file as it is compiled unless told otherwise, and of one compiled with
--precision f64, against the program in the same precision.

Two float32 programs decide some ReLUs and maxima differently where they are close, and a gradient then takes another way. Which
of them is to blame is shown by two columns more: how far the file and the program, both in single precision, are from the
program in double precision.

What is measured is kept in --results, and only what is missing there is measured by the next run.

With --layer, maps are read off that layer, which must have this name in every network, in place of each method's own.
With --spread, prints the distances of each of N photographs instead, in order of size: nearly all of one size, and some far beyond.
Among them are those of the file to itself, run a second time without ONNX Runtime's optimisations.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime
from PIL import Image, ImageOps

LOOPS = "cannot be written as one graph"
NO_ATTENTION = "the network has no attention"


def command(program, *words):
    run = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    return run.returncode, run.stdout, run.stderr


def methods(program):
    """The names `monosplit methods` prints."""
    _, listed, _ = command(program, "methods")
    lines = [line for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
    return [line.split()[0] for line in lines]


def session(path, optimised=True):
    options = onnxruntime.SessionOptions()
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def shape_of(network, samples):
    return [d if isinstance(d, int) else samples for d in session(network).get_inputs()[0].shape]


def photographs(network, samples, folder):
    """The first photographs of a folder, cut to the network's input and normalised as ImageNet is."""
    _, _, height, width = shape_of(network, samples)
    paths = sorted(p for p in pathlib.Path(folder).rglob("*") if p.suffix.lower() in (".jpg", ".png"))[:samples]
    assert len(paths) == samples, f"{folder} holds {len(paths)} pictures"
    pictures = [ImageOps.fit(Image.open(p).convert("RGB"), (width, height)) for p in paths]
    x = np.stack([np.asarray(p, np.float32) / 255 for p in pictures]).transpose(0, 3, 1, 2)
    mean, deviation = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    return np.ascontiguousarray((x - mean[:, None, None]) / deviation[:, None, None], np.float32)


def batch(network, samples, seed):
    shape = shape_of(network, samples)
    rng = np.random.default_rng(seed)
    # Smooth noise: what a picture looks like from far.
    x = rng.standard_normal([*shape[:2], 16, 16])
    x = x.repeat(shape[2] // 16, axis=2).repeat(shape[3] // 16, axis=3)
    return (x + 0.3 * rng.standard_normal(shape)).astype(np.float32)


def explained(program, network, x, classes, folder, *further):
    np.save(folder / "x.npy", x)
    words = [word for c in classes for word in ("--class", c)]
    code, out, err = command(
        program, "explain", network, folder / "x.npy", "--raw", folder / "map.npy", "--out", folder / "pictures",
        "--batch", len(x), "--json", *words, *further,
    )
    assert code == 0, err
    exponents = [answer["maps"][0]["exponent"] for answer in json.loads(out)["inputs"]]
    map = np.load(folder / "map.npy").astype(np.float64)
    return map * 2.0 ** np.array(exponents).reshape([-1] + [1] * (map.ndim - 1))


def agreement(found, wanted):
    """Largest relative L2 distance and smallest correlation over samples."""
    worst, least = 0.0, 1.0
    for f, w in zip(found, wanted):
        f, w = f.ravel().astype(np.float64), w.ravel()
        size = np.linalg.norm(w)
        if size == 0:
            worst = max(worst, np.linalg.norm(f))
            continue
        worst = max(worst, np.linalg.norm(f - w) / size)
        if w.std() > 0:
            least = min(least, np.corrcoef(f, w)[0, 1])
    return worst, least


class Case:
    """A method on a network, and what the program says of it."""

    def __init__(self, arguments, network, method, folder):
        self.arguments, self.network, self.method, self.folder = arguments, network, method, folder
        self.natives = {}

    def inputs(self, samples):
        if samples == 1 or not self.arguments.pictures:
            return batch(self.network, samples, samples + 7)
        return photographs(self.network, samples, self.arguments.pictures)

    def native(self, samples, x, classes, precision):
        key = samples, precision
        if key not in self.natives:
            further = ["--method", self.method, "--precision", precision, *self.layer()]
            further += ["--accurate"] if self.arguments.accurate and precision == "f32" else []
            self.natives[key] = explained(self.arguments.program, self.network, x, classes, self.folder, *further)
        return self.natives[key]

    def key(self, opset, precision):
        accurate = ["accurate"] if self.arguments.accurate else []
        return " ".join([self.network.stem, self.method, *self.layer()[1:], *accurate, str(opset), precision])

    def layer(self):
        return ["--layer", self.arguments.layer] if self.arguments.layer else []

    def compiled(self, opset, *further):
        """The file, checked, and how much larger than the network it is; the reason if there is no graph."""
        path = self.folder / "explained.onnx"
        words = ["compile", self.network, "--method", self.method, "--opset", opset, "-o", path, *self.layer(), *further]
        code, _, err = command(self.arguments.program, *words)
        if code:
            raise NoGraph if LOOPS in err or NO_ATTENTION in err else RuntimeError(err.strip())
        onnx.checker.check_model(str(path), full_check=True)
        return path, path.stat().st_size / self.network.stat().st_size - 1

    def maps(self, path, samples, plain, optimised=True):
        """What ONNX Runtime makes of a file: the arrays, the classes, the map."""
        file, x = session(path, optimised), self.inputs(samples)
        logits = plain.run(None, {plain.get_inputs()[0].name: x})[0]
        given = samples > 1
        classes = (np.arange(samples) * 5 + 3) % logits.shape[1] if given else logits.argmax(1)
        feed = {file.get_inputs()[0].name: x} | ({"class": classes} if given else {})
        outputs = dict(zip([o.name for o in file.get_outputs()], file.run(None, feed)))
        # A runtime may fuse the longer graph in another way.
        assert np.allclose(outputs["logits"], logits, rtol=1e-4, atol=1e-4 * np.abs(logits).max())
        assert (outputs["explained_class"] == classes).all()
        name = next(o.name for o in file.get_outputs() if o.name.startswith("saliency/"))
        found, exponents = outputs[name].astype(np.float64), outputs.get(name + "/exponent")
        if exponents is not None:
            found *= 2.0 ** exponents.reshape([-1] + [1] * (found.ndim - 1))
        return x, classes, found

    def measure(self, opset, precision):
        """The worst over samples, of a file in a precision at an operator set."""
        plain = session(self.network)
        path, growth = self.compiled(opset, *(["--precision", "f64"] if precision == "f64" else []))
        result = {"distance": 0.0, "correlation": 1.0, "growth": growth, "file": 0.0, "program": 0.0}
        result |= {"file correlation": 1.0, "program correlation": 1.0}
        for samples in self.arguments.double_batches if precision == "f64" else self.arguments.batches:
            x, classes, found = self.maps(path, samples, plain)
            distance, correlation = agreement(found, self.native(samples, x, classes, precision))
            result["distance"] = max(result["distance"], distance)
            result["correlation"] = min(result["correlation"], correlation)
            if precision == "f32":
                exact = self.native(samples, x, classes, "f64")
                for who, maps in (("file", found), ("program", self.native(samples, x, classes, "f32"))):
                    distance, correlation = agreement(maps, exact)
                    result[who] = max(result[who], distance)
                    result[f"{who} correlation"] = min(result[f"{who} correlation"], correlation)
        return result


    def spread(self):
        """For each photograph, how far from each other the file, the program and the program in double precision are."""
        path, _ = self.compiled(self.arguments.opsets[-1])
        x, classes, found = self.maps(path, self.arguments.spread, session(self.network))
        _, _, again = self.maps(path, self.arguments.spread, session(self.network), optimised=False)
        single, exact = (self.native(len(x), x, classes, precision) for precision in ("f32", "f64"))
        pairs = {"file, program": (found, single), "file, f64": (found, exact), "program, f64": (single, exact)}
        pairs["file, the same file without ONNX Runtime's optimisations"] = (found, again)
        for name, (a, b) in pairs.items():
            distances = sorted(agreement(a[i : i + 1], b[i : i + 1])[0] for i in range(len(x)))
            print(f"{self.network.stem} {self.method} {name}: " + " ".join(f"{d:.0e}" for d in distances), flush=True)


class NoGraph(Exception):
    """The method asks the network many times."""


def measured(arguments, results, network, method):
    """The row of a method on a network, from what is known and what is measured now; nothing if there is no graph."""
    with tempfile.TemporaryDirectory() as folder:
        case = Case(arguments, network, method, pathlib.Path(folder))
        for precision, opsets in (("f32", arguments.opsets), ("f64", arguments.double_opsets)):
            for opset in opsets:
                key = case.key(opset, precision)
                if key in results:
                    continue
                try:
                    results[key] = case.measure(opset, precision)
                except NoGraph:
                    return None
                except Exception as error:
                    results[key] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
                if arguments.results:
                    partial = arguments.results.with_suffix(".part")
                    partial.write_text(json.dumps(results, indent=1))
                    os.replace(partial, arguments.results)
    of = lambda opset, precision: results[case.key(opset, precision)]
    return [of(o, "f32") for o in arguments.opsets], [of(o, "f64") for o in arguments.double_opsets]


def line(network, method, single, double):
    failed = [r["failed"] for r in single + double if "failed" in r]
    if failed:
        return f"| {network.stem} | {method} | FAILED: {failed[0]} |"
    worst = lambda runs, key: max(r[key] for r in runs)

    def apart(runs, who):
        """The distance, with the correlation where it is not one to six places."""
        key = "correlation" if who == "distance" else f"{who} correlation"
        least = min(r.get(key, 1.0) for r in runs)
        return f"{worst(runs, who):.1e}" + (f" ({least:.6f})" if least < 0.9999995 else "")

    # What was compiled in double precision unless told otherwise is compared in that.
    cells = [apart(single, who) for who in ("distance", "file", "program")]
    cells += [f"{100 * worst(single, 'growth'):.2f} %", apart(double, "distance"), f"{100 * worst(double, 'growth'):.2f} %"]
    return f"| {network.stem} | {method} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--program", default="target/release/monosplit")
    parser.add_argument("--pictures", type=pathlib.Path, help="take photographs of this folder for batches")
    parser.add_argument("--results", type=pathlib.Path, help="keep what is measured in this file")
    parser.add_argument("--opsets", nargs="*", type=int, default=[13, 17, 26])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 4])
    parser.add_argument("--double-batches", nargs="*", type=int, default=[1, 4], help="batches of files in double precision, which are slow")
    parser.add_argument("--double-opsets", nargs="*", type=int, help="their operator sets [all of --opsets]")
    parser.add_argument("--spread", type=int, default=0, help="show this many photographs one by one")
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--accurate", action="store_true", help="let the program convolve as it is defined, in single precision")
    parser.add_argument("--layer", help="read maps off this layer, in place of each method's own")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.double_opsets = arguments.double_opsets or arguments.opsets
    known = arguments.results and arguments.results.exists()
    results = json.loads(arguments.results.read_text()) if known else {}
    networks = sorted(p for p in arguments.models.glob("*.onnx") if arguments.only in p.name)
    if arguments.spread:
        for network in networks:
            for method in arguments.methods or methods(arguments.program):
                with tempfile.TemporaryDirectory() as folder:
                    Case(arguments, network, method, pathlib.Path(folder)).spread()
        return
    print("| network | method | L2 | file to f64 | program to f64 | larger by | L2 in f64 | larger by |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for network in networks:
        for method in arguments.methods or methods(arguments.program):
            row = measured(arguments, results, network, method)
            if row:
                print(line(network, method, *row), flush=True)


if __name__ == "__main__":
    main()
