"""The rows of a run as a table of means, with a paired bootstrap against the best of each column.

    monosplit results fused-vgg16-full.sqlite -o rows.csv
    python scripts/tabulate_front.py rows.csv

Prints Markdown. Bold is the best mean of a column; `≈` marks a mean whose paired difference from the best has a 95 % bootstrap
interval (10,000 draws of pictures) that holds zero; everything else is significantly behind. Pictures on which either value is undefined
are left out of that pair.
"""

import argparse
import csv
from collections import defaultdict

import numpy as np

DRAWS = 10_000


def rows(path, part):
    values, better = defaultdict(dict), {}
    for row in csv.DictReader(open(path, newline="", encoding="utf-8")):
        if row["part"] == part and not row["metric"].startswith("randomised-similarity"):
            values[row["metric"], row["title"]][row["image"]] = float(row["value"]) if row["value"] else np.nan
            better[row["metric"]] = row["better"]
    return values, better


def interval(a, b, generator):
    """The 95 % interval of the mean of `a − b` over the pictures both are defined on."""
    shared = sorted(set(a) & set(b))
    difference = np.array([a[image] - b[image] for image in shared])
    difference = difference[~np.isnan(difference)]
    draws = generator.integers(0, len(difference), (DRAWS, len(difference)))
    return np.percentile(difference[draws].mean(1), [2.5, 97.5])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows")
    parser.add_argument("--part", default="test")
    arguments = parser.parse_args()
    values, better = rows(arguments.rows, arguments.part)
    metrics = list(better)
    titles = list(dict.fromkeys(title for _, title in values))
    generator = np.random.default_rng(0)
    print("| |", " | ".join(f"{m} {'↑' if better[m] == 'higher' else '↓'}" for m in metrics), "|")
    print("|---|" + "--:|" * len(metrics))
    mean = {key: np.nanmean(list(found.values())) for key, found in values.items()}
    first = {}
    for metric in metrics:
        known = [title for title in titles if (metric, title) in mean]
        sign = 1 if better[metric] == "higher" else -1
        first[metric] = max(known, key=lambda title: sign * mean[metric, title])
    for title in titles:
        cells = []
        for metric in metrics:
            if (metric, title) not in mean:
                cells.append("")
                continue
            text = f"{mean[metric, title]:.3f}"
            if title == first[metric]:
                text = f"**{text}**"
            else:
                low, high = interval(values[metric, first[metric]], values[metric, title], generator)
                text += " ≈" if low <= 0 <= high else ""
            cells.append(text)
        print(f"| {title} |", " | ".join(cells), "|")


main()
