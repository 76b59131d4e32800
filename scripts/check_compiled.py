"""Compiles every method that is one graph on every network of a folder, and compares ONNX Runtime with the program.

    python scripts/check_compiled.py MODELS [--program target/release/monosplit] [--opsets 13 17 26] [--methods a b] [--double]

For each file: the checker accepts it, ONNX Runtime runs it at batch 1 and 4 on noise and classes it has not seen, its
scores are the network's, and its maps are those `monosplit explain` writes for the same arrays. Prints a table of the largest
relative L2 distance and the smallest correlation.

Two float32 programs decide some ReLUs and maxima differently where they are close, and a gradient then takes another way.
--double shows that single precision is to blame and not the file: it adds how far the file, run by `monosplit explain` in double precision, is from
the native explanation in double precision. The file holds constants such as 1/169 in single precision, so that this may be
some 1e-8; what is left without a common factor follows.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
import onnxruntime

LOOPS = "cannot be written as one graph"


def command(program, *words):
    run = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    return run.returncode, run.stdout, run.stderr


def methods(program):
    """The names `monosplit methods` prints."""
    _, listed, _ = command(program, "methods")
    lines = [line for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
    return [line.split()[0] for line in lines]


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def batch(network, samples, seed):
    shape = [d if isinstance(d, int) else samples for d in session(network).get_inputs()[0].shape]
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


def in_double(program, network, method, opset, folder):
    """The relative L2 distance of the compiled file from the native explanation, both in double precision."""
    path, x, classes = folder / "explained.onnx", batch(network, 1, 7), [3]
    code, _, err = command(program, "compile", network, "--method", method, "--opset", opset, "-o", path)
    assert code == 0, err
    double = ["--precision", "f64"]
    file = explained(program, path, x, classes, folder, *double)
    native = explained(program, network, x, classes, folder, "--method", method, *double)
    factor = np.vdot(file, native) / max(np.vdot(native, native), 1e-300)
    whole, shape = agreement(file, native)[0], agreement(file / factor, native)[0]
    return f"{'' if shape <= 1e-9 and whole <= 1e-7 else 'FAR '}{whole:.1e}, {shape:.1e}"


def check(program, network, method, opset, folder, natives):
    """A cell of the table; `natives` remembers what does not depend on the operator set."""
    path = folder / "explained.onnx"
    code, _, err = command(program, "compile", network, "--method", method, "--opset", opset, "-o", path)
    if code:
        return "no graph" if LOOPS in err else f"REFUSED: {err.strip()}"
    onnx.checker.check_model(str(path), full_check=True)
    growth = path.stat().st_size / pathlib.Path(network).stat().st_size - 1
    compiled, plain = session(path), session(network)
    name = next(o.name for o in compiled.get_outputs() if o.name.startswith("saliency/"))
    worst, least = 0.0, 1.0
    for samples, given in [(1, True), (4, True), (4, False)]:
        x = batch(network, samples, samples + given)
        logits = plain.run(None, {plain.get_inputs()[0].name: x})[0]
        classes = np.arange(samples) * 5 + 3 if given else logits.argmax(1)
        feed = {compiled.get_inputs()[0].name: x} | ({"class": classes} if given else {})
        outputs = dict(zip([o.name for o in compiled.get_outputs()], compiled.run(None, feed)))
        # A runtime may fuse the longer graph in another way.
        assert np.allclose(outputs["logits"], logits, rtol=1e-4, atol=1e-4 * np.abs(logits).max())
        found = outputs[name].astype(np.float64)
        exponents = outputs.get(name + "/exponent")
        if exponents is not None:
            found *= 2.0 ** exponents.reshape([-1] + [1] * (found.ndim - 1))
        if (samples, given) not in natives:
            natives[samples, given] = explained(program, network, x, classes, folder, "--method", method)
        w, l = agreement(found, natives[samples, given])
        worst, least = max(worst, w), min(least, l)
    good = worst <= 1e-4 and least >= 0.9999
    return f"{'' if good else 'FAR '}{worst:.1e} {least:.6f} {100 * growth:+.2f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=pathlib.Path)
    parser.add_argument("--program", default="target/release/monosplit")
    parser.add_argument("--opsets", nargs="*", type=int, default=[13, 17, 26])
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--double", action="store_true", help="also compare in double precision, at the last operator set")
    arguments = parser.parse_args()
    networks = sorted(p for p in arguments.models.glob("*.onnx") if arguments.only in p.name)
    columns = [f"opset {o}" for o in arguments.opsets] + ["in float64"] * arguments.double
    print("| network | method | " + " | ".join(columns) + " |")
    print("|---|---|" + "---|" * len(columns))
    for network in networks:
        for method in arguments.methods or methods(arguments.program):
            row, natives = [], {}
            for opset in arguments.opsets:
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        row.append(check(arguments.program, network, method, opset, pathlib.Path(folder), natives))
                    except Exception as error:
                        row.append(f"FAILED: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
                if row[-1] == "no graph":
                    break
            if arguments.double and row != ["no graph"]:
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        row.append(in_double(arguments.program, network, method, arguments.opsets[-1], pathlib.Path(folder)))
                    except Exception as error:
                        row.append(f"FAILED: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
            if row != ["no graph"]:
                print(f"| {network.stem} | {method} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
