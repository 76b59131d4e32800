"""Tests which results the guard accepts and which it rejects.

    python -m unittest comparison.guard_test
"""

import pathlib
import tempfile
import unittest

import numpy as np

from . import guard

random = np.random.default_rng(0)
LOGITS, MAP = random.normal(size=(1, 10)), random.normal(size=(1, 8, 8))


def holds(ours, theirs):
    with tempfile.TemporaryDirectory() as folder:
        folders = [pathlib.Path(folder) / side for side in ("ours", "theirs")]
        for place, values in zip(folders, (ours, theirs)):
            place.mkdir()
            for name, value in values.items():
                np.save(place / f"{name}.npy", value)
        return guard.compare(*folders).holds


class Guard(unittest.TestCase):
    def test_equal_results_pass(self):
        self.assertTrue(holds({"logits": LOGITS, "gradient@x": MAP}, {"logits": LOGITS, "map": MAP}))
        self.assertTrue(holds({"a@x": MAP / 8, "a@x.exponent": np.array([3])}, {"a@x": MAP}))
        self.assertTrue(holds({"a@x": MAP}, {"map": np.stack([MAP[0] / 2] * 2)[None]}))

    def test_a_constant_map_agrees_with_a_constant_one_only(self):
        constant = np.full_like(MAP, 3.0)
        noise = constant * (1 + 1e-15 * MAP)
        self.assertTrue(holds({"a@x": constant}, {"a@x": noise}))
        self.assertFalse(holds({"a@x": 2 * constant}, {"a@x": noise}))
        self.assertFalse(holds({"a@x": constant}, {"map": MAP}))
        self.assertFalse(holds({"a@x": MAP}, {"map": noise}))

    def test_nothing_to_compare_is_stopped(self):
        self.assertFalse(holds({}, {}))
        self.assertFalse(holds({"logits": LOGITS}, {}))

    def test_a_missing_result_is_stopped(self):
        self.assertFalse(holds({}, {"logits": LOGITS}))
        self.assertFalse(holds({"logits": LOGITS}, {"logits": LOGITS, "map": MAP}))
        self.assertFalse(holds({"a@x": MAP}, {"a@x": MAP, "a@y": MAP}))

    def test_wrong_numbers_are_stopped(self):
        broken = MAP.copy()
        broken[0, 0, 0] = np.nan
        self.assertFalse(holds({"a@x": broken}, {"map": MAP}))
        self.assertFalse(holds({"a@x": broken, "a@y": MAP}, {"a@x": MAP, "a@y": MAP}))
        self.assertFalse(holds({"logits": LOGITS * np.nan}, {"logits": LOGITS}))
        self.assertFalse(holds({"logits": LOGITS + 1e-2}, {"logits": LOGITS}))
        self.assertFalse(holds({"a@x": random.normal(size=MAP.shape)}, {"map": MAP}))
        self.assertFalse(holds({"a@x": 2 * MAP}, {"a@x": MAP}))

    def test_wrong_shapes_are_stopped(self):
        self.assertFalse(holds({"logits": LOGITS[:, :5]}, {"logits": LOGITS}))
        self.assertFalse(holds({"a@x": MAP[:, :4]}, {"map": MAP}))
