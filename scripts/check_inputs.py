"""Holds explanations of texts, series, volumes, tables, recurrent networks and several inputs against PyTorch and Captum.

    cargo build --release
    python scripts/check_inputs.py [--program PROGRAM] [--draw N]

The networks and the values beside them are those of crates/monosplit/tests/fixtures/inputs (`make_input_fixtures.py`); with
`--draw N` networks with other weights and other samples are made and explained by PyTorch and Captum first. `monosplit explain`
must agree in double precision to 1e-5 of the largest number of a map (LayerIntegratedGradients, IntegratedGradients, Occlusion,
LayerGradCam, and autograd for the gradient and input times gradient), and compiled files in ONNX Runtime to 1e-4 in single and to
1e-7 in double precision. The exit code is 1 if a limit is passed.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

import make_input_fixtures

ROOT = pathlib.Path(__file__).parent.parent
FIXTURES = ROOT / "crates/monosplit/tests/fixtures/inputs"
COMPILED = {"gradient": "gradient", "input-x-gradient": "input-x-gradient",
            "integrated-gradients:steps=20": "integrated-gradients"}
EXPLAINED, LIMITS = 1e-5, {"f32": 1e-4, "f64": 1e-7}
# The windows of Captum's occlusion, and the layer of its Grad-CAM.
WINDOWS = {"text": "1", "pair": "2", "series": "3", "volume": "2x3x2", "table": "1"}
LAYER = {"series": "3", "volume": "3"}
NETWORKS = [("text", ["ids", "mask"], ["ids"]), ("pair", ["picture", "facts"], ["picture", "facts"]), ("series", ["x"], ["x"]),
            ("volume", ["x"], ["x"]), ("table", ["x"], ["x"]), ("recurrent", ["x"], ["x"]), ("newest", ["x"], ["x"])]


def asked(*words):
    done = subprocess.run([*map(str, words), "--quiet"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")


def distance(found, wanted):
    return float(abs(found.reshape(wanted.shape) - wanted).max() / abs(wanted).max())


def wanted(folder, network, reference, name):
    if (network, reference) == ("text", "integrated-gradients"):
        reference += "-zero"
    return np.load(folder / f"{network}.{reference}.{name}.npy")


def explained(program, folder, network, inputs, of, scratch):
    """The distance of each map of `monosplit explain`."""
    methods = dict(COMPILED)
    if network == "text":
        baseline = folder / "text.baseline.npy"
        methods[f"integrated-gradients:steps=20,baseline={baseline}"] = "integrated-gradients-padded"
    if network in WINDOWS and network != "pair":
        methods[f"occlusion:window={WINDOWS[network]},stride={WINDOWS[network]}"] = "occlusion"
    for method, reference in methods.items():
        given = [word for name in inputs for word in ("--input", f"{name}={folder}/{network}.{name}.npy")]
        keep = [] if network == "text" or reference == "occlusion" else ["--channels", "keep"]
        asked(program, "explain", folder / f"{network}.onnx", *given, "--of", ",".join(of), "--method", method, "--precision", "f64",
              "--raw", scratch / "map.npy", "-o", scratch / "drawn", *keep)
        for name in of:
            file = scratch / ("map.npy" if len(of) == 1 else f"map.{name}.npy")
            yield name, method.split("baseline=")[0], distance(np.load(file), wanted(folder, network, reference, name))
    if network in LAYER:
        asked(program, "explain", folder / f"{network}.onnx", folder / f"{network}.x.npy", "--method", "gradcam", "--layer",
              f"{LAYER[network]}:out", "--precision", "f64", "--raw", scratch / "map.npy", "-o", scratch / "drawn", "--set", "relu=no",
              "--size", "layer")
        yield "x", "gradcam", distance(np.load(scratch / "map.npy"), wanted(folder, network, "gradcam", "x"))


def compiled(program, folder, network, inputs, of, precision, scratch):
    """The distance of each map of a compiled file in ONNX Runtime."""
    file = scratch / "compiled.onnx"
    keep = [] if network == "text" else ["--channels", "keep"]
    asked(program, "compile", folder / f"{network}.onnx", "--of", ",".join(of), "-o", file, "--methods", ",".join(COMPILED),
          "--precision", precision, *keep)
    session = onnxruntime.InferenceSession(file)
    given = {name: np.load(folder / f"{network}.{name}.npy") for name in inputs}
    found = dict(zip([output.name for output in session.get_outputs()], session.run(None, given)))
    for method, reference in COMPILED.items():
        for name in of:
            value = found[f"saliency/{method.split(':')[0]}/{name}"]
            yield name, method, distance(value, wanted(folder, network, reference, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "target/release/monosplit")
    parser.add_argument("--draw", type=int, default=0)
    options = parser.parse_args()
    onnxruntime.set_default_logger_severity(3)
    worst = 0.0
    with tempfile.TemporaryDirectory() as made:
        scratch = pathlib.Path(made)
        folder = FIXTURES
        if options.draw:
            folder = scratch / "networks"
            make_input_fixtures.make(folder, options.draw)
        for network, inputs, of in NETWORKS:
            runs = [("explain", EXPLAINED, explained(options.program, folder, network, inputs, of, scratch))]
            runs += [(precision, limit, compiled(options.program, folder, network, inputs, of, precision, scratch))
                     for precision, limit in LIMITS.items()]
            for how, limit, found in runs:
                for name, method, error in found:
                    print(f"{network:<10}{name:<9}{method:<34}{how:<8}{error:.0e}{'' if error <= limit else '  FAILS'}", flush=True)
                    worst = max(worst, error / limit)
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
