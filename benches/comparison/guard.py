"""Compares results before anything is timed. Every result of a peer must have a counterpart of ours; if there is nothing to
compare, the comparison fails."""

from dataclasses import dataclass

import numpy as np

# Two float32 programs decide some ReLUs and maxima differently where they are close, so maps differ a little.
LOGITS, CORRELATION, SIZE = 1e-4, 0.999, 2e-2
# A map that varies by less than this part of its size is constant.
ROUNDING = 1e-6


@dataclass
class Agreement:
    """How far results differ: scores relative to the largest, maps by correlation and, where both sides define
    the map alike, by relative L2; numbers of a metric relative to the largest. `None` where there was nothing of the kind."""

    logits: float | None = None
    correlation: float | None = None
    size: float | None = None
    values: float | None = None
    tolerance: float = 0.0
    missing: str = ""

    @property
    def holds(self):
        # Written so that NaN does not hold.
        found = [
            (self.logits, lambda v: v <= LOGITS),
            (self.correlation, lambda v: v >= CORRELATION),
            (self.size, lambda v: v <= SIZE),
            (self.values, lambda v: v <= self.tolerance),
        ]
        verdicts = [fits(value) for value, fits in found if value is not None]
        return bool(verdicts) and all(verdicts) and not self.missing

    def __str__(self):
        words = [f"{self.missing} missing"] if self.missing else []
        if self.logits is not None:
            words.append(f"scores {self.logits:.0e}")
        if self.correlation is not None:
            words.append(f"maps 1 − {abs(1 - self.correlation):.0e}")
        if self.size is not None:
            words.append(f"L2 {self.size:.0e}")
        if self.values is not None:
            words.append(f"values {self.values:.0e}")
        text = ", ".join(words) or "nothing was compared"
        return text if self.holds else f"**disagrees: {text}**"


def compare(ours, theirs):
    """The worst of all results of the peer, read from two folders."""
    ours, theirs = read(ours), read(theirs)
    agreement = Agreement()
    for name, peer in theirs.items():
        mine = counterpart(name, ours)
        if mine is None:
            agreement.missing = name
        elif name == "logits":
            agreement.logits = relative(mine, peer, lambda v: np.abs(v).max())
        else:
            agreement.correlation = worse(min, agreement.correlation, lowest_correlation(mine, peer))
            if name in ours:
                agreement.size = worse(max, agreement.size, relative(mine, peer, np.linalg.norm))
    return agreement


def compare_values(ours, theirs, tolerance):
    """The numbers a metric gave, relative to the largest."""
    ours, theirs = np.load(ours / "values.npy"), np.load(theirs / "values.npy")
    return Agreement(values=relative(ours, theirs, lambda v: np.abs(v).max()), tolerance=tolerance)


def read(folder):
    """Arrays by name, multiplied by two to the power of their exponents where they have any."""
    arrays = {path.name.removesuffix(".npy"): np.load(path) for path in folder.glob("*.npy")}
    values = {}
    for name, array in arrays.items():
        if not name.endswith(".exponent"):
            exponents = arrays.get(f"{name}.exponent", np.zeros(len(array)))
            powers = np.exp2(exponents.astype(np.float64)).reshape(-1, *[1] * (array.ndim - 1))
            values[name] = array.astype(np.float64) * powers
    return values


def counterpart(name, ours):
    """Our result of that name; a peer's nameless `map` is our only one."""
    maps = [value for key, value in ours.items() if key != "logits"]
    if name == "map":
        return maps[0] if len(maps) == 1 else None
    return ours.get(name)


def worse(choose, before, now):
    if before is None or np.isnan(now):
        return now
    return before if np.isnan(before) else choose(before, now)


def relative(mine, peer, norm):
    return float(norm((mine - peer).ravel()) / norm(peer.ravel())) if mine.shape == peer.shape else float("inf")


def lowest_correlation(mine, peer):
    if peer.ndim == 4 and mine.ndim == 3:
        peer = peer.sum(1)
    if mine.shape != peer.shape or not len(mine):
        return 0.0
    correlations = [pearson(a, b) for a, b in zip(mine, peer)]
    return float(np.min(correlations))


def pearson(a, b):
    """Of two maps. Two that are constant agree: before global average pooling a gradient is the same at every position."""
    constant = [np.ptp(v) <= ROUNDING * np.abs(v).max() for v in (a, b)]
    if any(constant):
        return float(all(constant))
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
