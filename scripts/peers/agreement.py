"""How well two maps agree, and the tables that say so."""

import numpy as np

PEARSON, RELATIVE, DOUBLE = 0.9999, 1e-3, 1e-6


def up_to_sign(ours, theirs):
    """Theirs with the sign of each sample turned to ours."""
    signs = [np.sign((a * b).sum()) or 1.0 for a, b in zip(ours, theirs)]
    return np.stack([sign * b for sign, b in zip(signs, theirs)])


def measured(ours, theirs):
    """Pearson's correlation and the relative L2 distance of the worse sample."""
    if ours.shape != theirs.shape:
        raise ValueError(f"ours is {ours.shape}, theirs {theirs.shape}")
    pearson, distance = 1.0, 0.0
    for a, b in zip(ours, theirs):
        a, b = a.ravel(), b.ravel()
        if not b.any():
            distance = max(distance, float(np.abs(a).max() > 0))
            continue
        distance = max(distance, float(np.linalg.norm(a - b) / np.linalg.norm(b)))
        a, b = a - a.mean(), b - b.mean()
        pearson = min(pearson, float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-300)))
    return {"pearson": pearson, "distance": distance}


def chance(ours, draws, of):
    """What of a difference chance explains: of two means of as many draws, the squared difference over what is to be
    expected; of two variances, one over the other. Both are about 1."""
    if of == "variance":
        return {"ratio": float(ours.sum() / draws.var(0).sum())}
    expected = 2 * draws.var(0, ddof=1).sum() / len(draws)
    return {"ratio": float(((ours - draws.mean(0)) ** 2).sum() / expected)}


def verdict(found):
    """Whether the numbers are what is asked for."""
    single, double = found.get("f32"), found.get("f64")
    if single and "ratio" in single:
        return 0.7 < single["ratio"] < 1.4
    close = single and single["pearson"] >= PEARSON and single["distance"] <= RELATIVE
    return bool(close or (double and double["distance"] <= DOUBLE))


def table(rows):
    """Markdown: a line for each method and peer."""
    lines = ["| method | peer | Pearson | relative L2 | in double precision | |", "|---|---|--:|--:|--:|---|"]
    for row in rows:
        single, double = row.get("f32", {}), row.get("f64", {})
        if "ratio" in single:
            numbers = f"| | {single['ratio']:.2f} × chance | "
        else:
            numbers = f"| {correlation(single)} | {small(single)} | {small(double)}"
        lines.append(f"| {row['title']} | {row['peer']} {numbers} | {row['note']} |")
    return "\n".join(lines)


def correlation(found):
    """As many nines as are true."""
    if not found:
        return ""
    apart = 1 - found["pearson"]
    return "1 − " + f"{max(apart, 1e-16):.0e}".replace("e-0", "e-") if apart < 1e-3 else f"{found['pearson']:.4f}"


def small(found):
    return f"{found['distance']:.1e}".replace("e-0", "e-") if found else ""
