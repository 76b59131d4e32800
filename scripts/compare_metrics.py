"""Metrics of our library beside Quantus's, on the same network, photographs, masks and attributions; prints Markdown.

    cargo build --release -p monosplit-bench
    python scripts/compare_metrics.py [--write]

The version of Quantus that is installed decides what is compared: run it once with 0.6 and once with 0.5. Two photographs of pets are
judged, each on its own, by a trained network of 128×128 pixels; the line shows the one where the two sides are further apart. Where a
metric draws random numbers the two draw different ones, and the line says so.
"""

import argparse
import functools
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import quantus
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches"))

from comparison import environment, network, turns  # noqa: E402

warnings.filterwarnings("ignore")
# The order of equal values depends on the machine otherwise.
np.argsort = functools.partial(np.argsort, kind="stable")
VERSION = ".".join(quantus.__version__.split(".")[:2])
OLD = VERSION == "0.5"
PAGE = ROOT / "docs/src/metrics.md"
MARKS = f"<!-- begin: scripts/compare_metrics.py --write, Quantus {VERSION} -->", f"<!-- end: Quantus {VERSION} -->"
SIZE = 128
PHOTOGRAPHS = ("beagle_53", "Persian_266")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
QUIET = {"disable_warnings": True, "display_progressbar": False, "return_aggregate": False}
# Larger steps and patches and fewer samples than by default, so that Quantus is done in minutes.
METRICS = [
    ("pixel-flipping:step=2048", "PixelFlipping", {"features_in_step": 2048}),
    ("pixel-flipping:baseline=running-mean,output=logit,step=2048", "PixelFlipping", {"features_in_step": 2048, "perturb_baseline": "mean", "softmax": False}),
    ("selectivity:patch=16", "Selectivity", {"patch_size": 16}),
    ("region-perturbation:patch=12,regions=10", "RegionPerturbation", {"patch_size": 12, "regions_evaluation": 10}),
    ("infidelity:patch=32", "Infidelity", {"perturb_patch_sizes": [32], "n_perturb_samples": 1}),
    ("faithfulness-correlation:runs=20", "FaithfulnessCorrelation", {"nr_runs": 20}),
    ("road:every=14", "ROAD", {"percentages": list(range(1, 100, 14))}),
    ("attribution-localisation", "AttributionLocalisation", {}),
    ("attribution-localisation:abs=no", "AttributionLocalisation", {"abs": False}),
    ("pointing-game", "PointingGame", {}),
    ("relevance-rank-accuracy", "RelevanceRankAccuracy", {}),
    ("relevance-mass-accuracy", "RelevanceMassAccuracy", {}),
    ("top-k-intersection", "TopKIntersection", {}),
    ("auc", "AUC", {}),
    ("max-sensitivity:samples=5", "MaxSensitivity", {"nr_samples": 5}),
    ("average-sensitivity:samples=5", "AvgSensitivity", {"nr_samples": 5}),
    ("local-lipschitz:samples=5", "LocalLipschitzEstimate", {"nr_samples": 5}),
    ("sparseness", "Sparseness", {}),
    ("complexity", "Complexity", {}),
    ("effective-complexity", "EffectiveComplexity", {}),
    ("random-logit", "RandomLogit", {}),
    ("completeness", "Completeness", {}),
]
DRAWN = {"FaithfulnessCorrelation", "ROAD", "MaxSensitivity", "AvgSensitivity", "LocalLipschitzEstimate", "RandomLogit"}
EXPLAINED = {"MaxSensitivity", "AvgSensitivity", "LocalLipschitzEstimate", "RandomLogit"}
CURVES = {"PixelFlipping", "Selectivity", "RegionPerturbation"}
# 0.6 takes indices of all channels for pixels and fails for more than one.
BROKEN = set() if OLD else {"ROAD"}


def photograph(folder, name, size):
    image = Image.open(folder / "images" / f"{name}.jpg").convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    x = ((np.asarray(image, np.float32) / 255 - MEAN) / DEVIATION).astype(np.float32).transpose(2, 0, 1)
    mask = Image.open(folder / "masks" / f"{name}.png").convert("L").resize((size, size), Image.Resampling.NEAREST)
    return x, (np.asarray(mask) > 0).astype(np.float32)


def gradient(model, inputs, targets, **_):
    x = torch.as_tensor(np.asarray(inputs), dtype=torch.float32).requires_grad_(True)
    score = model(x).gather(1, torch.as_tensor(np.asarray(targets)).long().reshape(-1, 1)).sum()
    return torch.autograd.grad(score, x)[0].mean(1, keepdim=True).numpy()


def theirs(model, name, options, x, label, a, s):
    """Quantus's number for one image; of a map in double precision, because sums of both signs may be near zero."""
    options = dict(options)
    softmax = options.pop("softmax", True)
    if name == "RandomLogit":
        options["num_classes"] = int(model(torch.as_tensor(x[None])).shape[1])
    more = {"explain_func": gradient} if name in EXPLAINED else {}
    found = getattr(quantus, name)(**options, **QUIET)(
        model=model, x_batch=x[None], y_batch=np.array([label]), a_batch=a[None, None].astype(np.float64), s_batch=s[None, None].astype(int),
        softmax=softmax, channel_first=True, device="cpu", **more,
    )
    if name == "ROAD":
        return float(np.mean(list(found.values())))
    return float(np.trapezoid(np.asarray(found[0], float)) if name in CURVES else np.ravel(np.asarray(found, float))[0])


def ours(onnx, folder, text, label):
    """Our numbers for all images, and the maps they are of."""
    words = {"metric": text, "name": "gradient", "class": label, "input": folder / "x.npy", "masks": folder / "masks.npy", "threads": 1}
    # One thread each: nothing is timed.
    with turns.Competitor(environment.our_worker(), ["metric", str(onnx), *(f"{k}={v}" for k, v in words.items())]) as worker:
        worker.go()
        worker.save(folder / "found")
    return np.load(folder / "found/values.npy"), np.load(folder / "found/maps.npy")


def rows(shared, scratch):
    onnx = shared / "models/pets-small.onnx"
    model = network.read(str(onnx)).eval()
    pairs = [photograph(shared / "data/pets/test", name, SIZE) for name in PHOTOGRAPHS]
    x, masks = (np.stack(part) for part in zip(*pairs))
    np.save(scratch / "x.npy", x), np.save(scratch / "masks.npy", masks)
    label = int(model(torch.as_tensor(x[:1])).argmax())
    for text, name, options in METRICS:
        text = f"{text}{',' if ':' in text else ':'}preset=quantus-{VERSION}"
        values, maps = ours(onnx, scratch, text, label)
        if name in BROKEN:
            yield [f"`{text}`", f"{values[0]:.6g}", "fails on three channels", ""]
            continue
        peers = np.array([theirs(model, name, options, x[i], label, maps[i], masks[i]) for i in range(len(x))])
        apart = np.abs(values - peers) / np.maximum(1, np.abs(peers))
        apart[np.isnan(values) & np.isnan(peers)] = 0
        worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        differ = "other draws" if name in DRAWN else f"{apart[worst]:.0e}"
        yield [f"`{text}`", *(f"{v[worst]:.6g}" for v in (values, peers)), differ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="folder with models and data [../shared]")
    parser.add_argument("--write", action="store_true", help="put the table into docs/src/metrics.md")
    arguments = parser.parse_args()
    np.trapz = np.trapezoid
    torch.set_num_threads(1)
    lines = [["metric", "ours", f"Quantus {quantus.__version__}", "apart, of max(1, value)"], ["---", "---:", "---:", "---:"]]
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows(arguments.shared, Path(scratch)):
            print(row, file=sys.stderr, flush=True)
            lines.append(row)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    print(table)
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        PAGE.write_text(f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
