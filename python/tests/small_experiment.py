"""A small experiment on the built-in network, and what a store holds of it: for tests and for scripts/check_cluster.py."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np

import monosplit as ms

EXPERIMENT = """
name = "small"
batch = 2
maps = 3
[model]
file = "network.onnx"
[data]
folder = "data"
validation = "val"
test = "test"
unreadable = "skip"
[[method]]
title = "SplitGrad"
method = "splitgrad"
layers = ["layer3.0.conv2", "layer4.2.conv2"]
absolute = "both"
[[method]]
method = "gradcam"
[[method]]
method = "mask"
[selection]
localisation = ["pointing-game", "attribution-localisation"]
[comparison]
metrics = ["pointing-game", "sparseness", "complexity", "max-sensitivity:samples=2", "pixel-flipping:auc=2"]
[sanity]
images = 2
"""


def make(folder: Path, images: int = 5) -> Path:
    """Writes the experiment with its network and pictures, one of which is broken; returns its file."""
    whole = ms._monosplit.decode_picture(ms.assets.photograph())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "network.onnx").write_bytes(ms.assets.network())
    mask = np.zeros((128, 128, 3), np.uint8)
    mask[:, 30:100] = 255
    for part, shift in (("val", 0), ("test", 40)):
        place = folder / "data" / part
        (place / "images").mkdir(parents=True)
        (place / "masks").mkdir()
        labels = ["file,class"]
        for number in range(images):
            left, top = (17 * number + shift) % (whole.shape[1] - 128), (11 * number) % (whole.shape[0] - 128)
            cut = np.ascontiguousarray(whole[top : top + 128, left : left + 128])
            (place / "images" / f"{number}.png").write_bytes(ms._monosplit.encode_png(cut))
            (place / "masks" / f"{number}.png").write_bytes(ms._monosplit.encode_png(mask))
            labels.append(f"{number}.png,{5 + number % 30}")
        (place / "images" / "broken.png").write_bytes(b"no picture")
        (place / "masks" / "broken.png").write_bytes(ms._monosplit.encode_png(mask))
        labels.append("broken.png,3")
        (place / "labels.csv").write_text("\n".join(labels) + "\n")
    path = folder / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path


def alone(experiment: Path, store: Path) -> None:
    """Runs the experiment on one machine, in one process."""
    command = [sys.executable, "-m", "monosplit", "evaluate", str(experiment), "--store", str(store), "--threads", "1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)


def table(store: Path) -> tuple[list[str], list[tuple]]:
    """The names of the columns but the times, and all rows sorted, with the bits of their values."""
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        names = [column[1] for column in connection.execute("PRAGMA table_info(results)") if column[1] != "seconds"]
        found = connection.execute(f"SELECT {', '.join(names)} FROM results").fetchall()
    finally:
        connection.close()
    return names, sorted(tuple(each.hex() if isinstance(each, float) else str(each) for each in row) for row in found)


def rows(store: Path) -> list[tuple]:
    """All rows but their times, with the bits of their values."""
    return table(store)[1]


def count(store: Path) -> int:
    """The number of rows that are stored, none where there is no store yet."""
    try:
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=30)
        try:
            return connection.execute("SELECT count(*) FROM result").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0


def report(store: Path, folder: Path) -> dict[str, bytes]:
    """The tables of the report, by file name."""
    command = [sys.executable, "-m", "monosplit", "report", str(store), "-o", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*.csv"))}


