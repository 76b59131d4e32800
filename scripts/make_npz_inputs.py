"""Writes the arrays of crates/cli/tests/fixtures/npz: the inputs of a small golden model as NumPy archives.

    python scripts/make_npz_inputs.py

Needs numpy. Run it after make_small_models.py. The network reads one input, `x`.
"""

import pathlib

import numpy as np

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "crates/cli/tests/fixtures"


def main():
    out = FIXTURES / "npz"
    out.mkdir(exist_ok=True)
    x = np.load(FIXTURES / "models/vgg/x.npy")
    np.savez(out / "one.npz", images=x)
    np.savez_compressed(out / "compressed.npz", x)
    np.savez_compressed(out / "fortran.npz", y=np.arange(len(x)), x=np.asfortranarray(x.astype(np.float64)))
    np.savez(out / "several.npz", images=x, labels=np.arange(len(x)))


if __name__ == "__main__":
    main()
