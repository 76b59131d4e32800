"""Writes crates/cli/tests/fixtures/maps.npz, maps by the names of images as the documentation shows it (docs/src/evaluating.md).

    python scripts/make_map_fixtures.py

The maps are the masks of the images that crates/cli/tests/it/evaluate.rs cuts out: 1 in columns 30 to 99, else 0. So their
measured values are those of the control `mask`.
"""

from pathlib import Path

import numpy as np

FIXTURE = Path(__file__).parent.parent / "crates/cli/tests/fixtures/maps.npz"


def explain(image):
    return np.tile((np.arange(128) // 10 > 2) & (np.arange(128) < 100), (128, 1)).astype(np.float32)


images = {f"{number}.png": None for number in range(3)}

# begin: docs/src/evaluating.md
maps = {}
for name, image in images.items():   # name as in the data set, such as "Bombay_12.jpg"
    maps[name] = explain(image)      # [height, width] of what the network sees
np.savez_compressed("maps.npz", **maps)
# end

Path("maps.npz").replace(FIXTURE)
