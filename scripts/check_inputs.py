"""Compiles the networks of crates/monosplit/tests/fixtures/inputs, runs the files in ONNX Runtime, and compares them with the
values of PyTorch and Captum beside them (`make_input_fixtures.py`).

    cargo build --release
    python scripts/check_inputs.py [PROGRAM]
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).parent.parent
FIXTURES = ROOT / "crates/monosplit/tests/fixtures/inputs"
METHODS = {"gradient": "gradient", "input-x-gradient": "input-x-gradient",
           "integrated-gradients:steps=20": "integrated-gradients"}
LIMITS = {"f32": 1e-4, "f64": 1e-7}


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/monosplit"
    onnxruntime.set_default_logger_severity(3)
    worst = 0.0
    for network, inputs, of in [("text", ["ids", "mask"], ["ids"]), ("pair", ["picture", "facts"], ["picture", "facts"]),
                                ("series", ["x"], ["x"]), ("volume", ["x"], ["x"]), ("table", ["x"], ["x"]), ("recurrent", ["x"], ["x"]), ("newest", ["x"], ["x"])]:
        for precision, limit in LIMITS.items():
            with tempfile.TemporaryDirectory() as folder:
                file = f"{folder}/compiled.onnx"
                keep = [] if network == "text" else ["--channels", "keep"]
                subprocess.run([program, "compile", FIXTURES / f"{network}.onnx", "--of", ",".join(of), "-o", file, "--methods",
                                ",".join(METHODS), "--precision", precision, "--quiet", *keep],
                               check=True, stdout=subprocess.DEVNULL)
                session = onnxruntime.InferenceSession(file)
            given = {name: np.load(FIXTURES / f"{network}.{name}.npy") for name in inputs}
            names = [output.name for output in session.get_outputs()]
            found = dict(zip(names, session.run(None, given)))
            for method, reference in METHODS.items():
                if (network, reference) == ("text", "integrated-gradients"):
                    reference += "-zero"
                for name in of:
                    wanted = np.load(FIXTURES / f"{network}.{reference}.{name}.npy")
                    value = found[f"saliency/{method.split(':')[0]}/{name}"].reshape(wanted.shape)
                    error = abs(value - wanted).max() / abs(wanted).max()
                    print(f"{network:<8}{name:<9}{method:<31}{precision}  {error:.0e}{'' if error < limit else '  FAILS'}")
                    worst = max(worst, error / limit)
    sys.exit(worst >= 1)


if __name__ == "__main__":
    main()
