"""Makes the golden files of crates/render/tests/fixtures with PyTorch.

Run from the root of the repository:

    python scripts/make_render_values.py
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import interpolate

ROOT = Path("crates/render/tests/fixtures")
SIZES = [(7, 10), (9, 4), (24, 32), (2, 3)]


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    source = np.random.default_rng(0).uniform(-1, 1, (3, 4)).astype(np.float32)
    np.save(ROOT / "source-3x4.npy", source)
    for height, width in SIZES:
        scaled = interpolate(torch.from_numpy(source)[None, None], (height, width), mode="bilinear", align_corners=False)
        np.save(ROOT / f"bilinear-{height}x{width}.npy", scaled[0, 0].numpy())


if __name__ == "__main__":
    main()
