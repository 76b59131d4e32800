"""Nobody wins by computing something else: before anything is timed the results are compared."""

from dataclasses import dataclass

import numpy as np

# Two float32 programs decide some ReLUs and maxima differently where they are close, so maps differ a little.
LOGITS, CORRELATION = 1e-4, 0.999


@dataclass
class Agreement:
    logits: float
    correlation: float

    @property
    def holds(self):
        return self.logits <= LOGITS and self.correlation >= CORRELATION

    def __str__(self):
        words = []
        if self.logits > 0:
            words.append(f"scores {self.logits:.0e}")
        if self.correlation < 1:
            words.append(f"maps 1 − {1 - self.correlation:.0e}")
        text = ", ".join(words) or "equal"
        return text if self.holds else f"**disagrees: {text}**"


def compare(ours, theirs):
    """Scores: largest difference over the largest score. Maps: the smallest correlation of any sample's."""
    ours, theirs = read(ours), read(theirs)
    logits, correlation = 0.0, 1.0
    if "logits" in ours and "logits" in theirs:
        a, b = ours.pop("logits"), theirs.pop("logits")
        logits = float(np.abs(a - b).max() / np.abs(b).max())
    for name, peer in theirs.items():
        mine = [ours[name]] if name in ours else [m for n, m in ours.items() if n != "logits"]
        if name != "logits" and mine:
            correlation = min(correlation, lowest_correlation(mine[0], peer))
    return Agreement(logits, correlation)


def read(folder):
    values = {path.stem: np.load(path).astype(np.float64) for path in folder.glob("*.npy")}
    return {name: value for name, value in values.items() if not name.endswith(".exponent")}


def lowest_correlation(mine, peer):
    if peer.ndim == 4 and mine.ndim == 3:
        peer = peer.sum(1)
    if mine.shape != peer.shape:
        return 0.0
    return min(pearson(a, b) for a, b in zip(mine, peer))


def pearson(a, b):
    """Of two maps; two that are constant agree."""
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norm) if norm > 0 else float(not a.any() and not b.any())
