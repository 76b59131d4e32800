"""Golden values of metrics by Quantus, and of similarities by scikit-image and SciPy.

    python make_metric_fixtures.py            # with Quantus 0.6 installed, then again with 0.5

Writes `quantus-0.6.safetensors` or `quantus-0.5.safetensors`, after the version that is installed, and with 0.6 also
`others.safetensors`. A network of two linear layers explains two images, of three channels and of one, by gradient times input.
A scalar called `c3|METRIC` is the value that `METRIC`, written as our catalogue writes it, has for the image of three channels;
NaN is an undefined value. What Quantus draws at random is stored with the value: `c3|METRIC|drawn`.

NumPy's order of equal values depends on the machine; here sorting is stable, which decides it.
"""

import argparse
import functools
import warnings
from pathlib import Path

import numpy as np
import quantus
import torch
from safetensors.numpy import save_file

warnings.filterwarnings("ignore")
np.argsort = functools.partial(np.argsort, kind="stable")
VERSION = ".".join(quantus.__version__.split(".")[:2])
OLD = VERSION == "0.5"
SIZE, HIDDEN, CLASSES = 12, 8, 5


class Subject:
    """An image, a network and a map."""

    def __init__(self, channels):
        draw = np.random.RandomState(channels)
        torch.manual_seed(channels)
        self.x = draw.randn(1, channels, SIZE, SIZE).astype(np.float32)
        features = channels * SIZE * SIZE
        self.model = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(features, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
        ).eval()
        with torch.no_grad():
            self.model[1].weight.mul_(2)
            self.model[3].weight.mul_(2)
            self.y = self.model(torch.as_tensor(self.x)).argmax(1).numpy()
        self.s = np.zeros((1, 1, SIZE, SIZE), int)
        self.s[:, :, 3:8, 2:9] = 1
        self.targets, self.maps = [], []
        self.a = self.explain(self.model, self.x, self.y)

    def explain(self, model, inputs, targets, **_):
        """Gradient times input, channels added up."""
        x = torch.as_tensor(np.asarray(inputs), dtype=torch.float32).requires_grad_(True)
        score = model(x)[torch.arange(len(x)), torch.as_tensor(np.asarray(targets)).long()].sum()
        gradient = torch.autograd.grad(score, x)[0]
        found = (gradient * x).sum(1, keepdim=True).detach().numpy()
        self.targets.append(int(np.asarray(targets).ravel()[0]))
        self.maps.append(found[0, 0])
        return found

    def call(self, metric, softmax=True, explain=False, batch_size=64):
        options = {"explain_func": self.explain} if explain else {}
        values = metric(
            model=self.model, x_batch=self.x, y_batch=self.y, a_batch=self.a.copy(), s_batch=self.s,
            softmax=softmax, device="cpu", channel_first=True, batch_size=batch_size, **options,
        )
        return values

    def arrays(self):
        first, last = self.model[1], self.model[3]
        named = {"x": self.x, "map": self.a[0, 0], "mask": self.s[0, 0].astype(np.float32), "class": self.y.astype(np.int64)}
        named |= {"w1": first.weight, "b1": first.bias, "w2": last.weight, "b2": last.bias}
        return {k: np.ascontiguousarray(v.detach().numpy() if torch.is_tensor(v) else v) for k, v in named.items()}

    def output(self, image, softmax):
        with torch.no_grad():
            scores = self.model(torch.as_tensor(image[None], dtype=torch.float32))
        return float((scores.softmax(1) if softmax else scores)[0, self.y[0]])


QUIET = {"disable_warnings": True, "display_progressbar": False, "return_aggregate": False}


def made(name, **options):
    return getattr(quantus, name)(**options, **QUIET)


def curves(subject):
    """Metrics whose value is the area under a curve."""
    flip = lambda softmax=True, **o: quantus_area(subject.call(made("PixelFlipping", **o), softmax))
    patch = lambda name, **o: quantus_area(subject.call(made(name, **o)))
    yield "pixel-flipping", flip()
    yield "pixel-flipping:step=12", flip(features_in_step=12)
    yield "pixel-flipping:output=logit,step=12", flip(False, features_in_step=12)
    yield "pixel-flipping:baseline=running-mean,step=12", flip(features_in_step=12, perturb_baseline="mean")
    yield "pixel-flipping:abs=yes,baseline=white,step=6", flip(features_in_step=6, perturb_baseline="white", abs=True)
    for size in (8, 5, 4):
        yield f"selectivity:patch={size}", patch("Selectivity", patch_size=size)
        yield f"region-perturbation:patch={size},regions=3", patch("RegionPerturbation", patch_size=size, regions_evaluation=3)
    yield "region-perturbation:order=lerf,patch=4", patch("RegionPerturbation", patch_size=4, order="lerf")


def quantus_area(curve):
    return float(np.trapezoid(np.asarray(curve[0], float)))


def plain(subject):
    """Metrics of one number."""
    one = lambda name, **o: float(np.asarray(subject.call(made(name, **o)), float).ravel()[0])
    yield "attribution-localisation", one("AttributionLocalisation")
    yield "attribution-localisation:abs=no", one("AttributionLocalisation", abs=False)
    yield "pointing-game", one("PointingGame")
    yield "pointing-game:abs=yes", one("PointingGame", abs=True)
    yield "relevance-rank-accuracy", one("RelevanceRankAccuracy")
    yield "relevance-rank-accuracy:abs=yes", one("RelevanceRankAccuracy", abs=True)
    yield "relevance-mass-accuracy", one("RelevanceMassAccuracy")
    yield "top-k-intersection:k=20", one("TopKIntersection", k=20)
    yield "top-k-intersection:concept-influence=yes,k=33", one("TopKIntersection", k=33, concept_influence=True)
    yield "auc", one("AUC")
    yield "auc:abs=yes", one("AUC", abs=True)
    yield "sparseness", one("Sparseness")
    yield "complexity", one("Complexity")
    yield "effective-complexity", one("EffectiveComplexity")
    yield "effective-complexity:threshold=0.3", one("EffectiveComplexity", eps=0.3)
    yield "completeness", one("Completeness")
    yield "infidelity", one("Infidelity", n_perturb_samples=2)
    yield "infidelity:abs=yes,normalise=yes,patch=3", one("Infidelity", n_perturb_samples=1, perturb_patch_sizes=[3], normalise=True, abs=True)
    if subject.x.shape[1] == 1 or OLD:
        # 0.6 takes indices of all channels for pixels and fails for more than one.
        percentages = subject.call(made("ROAD", noise=0.0))
        yield "road:noise=0", float(np.mean(list(percentages.values())))


def random_logit(subject):
    """The class that was drawn is an option of ours."""
    value = subject.call(made("RandomLogit", num_classes=CLASSES), explain=True)
    yield f"random-logit:other={subject.targets[-1]}", float(np.ravel(value)[0])


def robustness(subject):
    functions = quantus.functions.perturb_func
    uniform, gaussian = ("uniform_noise", "gaussian_noise") if OLD else ("batch_uniform_noise", "batch_gaussian_noise")

    def recorded(name, noise, **options):
        drawn = []

        def perturb(arr, **rest):
            found = getattr(functions, noise)(arr=arr, **rest)
            drawn.append(found.astype(np.float32).reshape(subject.x.shape[1:]))
            return found

        np.random.seed(3)
        value = subject.call(made(name, nr_samples=5, perturb_func=perturb, **options), explain=True)
        return float(np.ravel(value)[0]), np.stack(drawn)

    yield "max-sensitivity", *recorded("MaxSensitivity", uniform)
    yield "max-sensitivity:abs=yes,normalise=yes", *recorded("MaxSensitivity", uniform, abs=True, normalise=True)
    yield "average-sensitivity", *recorded("AvgSensitivity", uniform)
    yield "local-lipschitz", *recorded("LocalLipschitzEstimate", gaussian)


def faithfulness_correlation(subject):
    drawn, choice = [], np.random.choice

    def recording(*arguments, **options):
        drawn.append(choice(*arguments, **options))
        return drawn[-1]

    np.random.seed(4)
    np.random.choice = recording
    value = subject.call(made("FaithfulnessCorrelation", nr_runs=12, subset_size=20))
    np.random.choice = choice
    yield "faithfulness-correlation:subset=20", float(np.ravel(value)[0]), np.stack(drawn).astype(np.int64)


def mprt(subject):
    for name, option in (("mprt", "return_average_correlation"), ("mprt:summary=last", "return_last_correlation")):
        subject.maps.clear()
        value = float(subject.call(made("MPRT", **{option: True}), explain=True)[0])
        # The first map is that of the network as it is.
        yield name, value, np.stack(subject.maps[1:])


def golden():
    tensors = {}
    for channels in (3, 1):
        subject, name = Subject(channels), f"c{channels}"
        tensors |= {f"{name}.{key}": value for key, value in subject.arrays().items()}
        for part in (curves, plain, random_logit, robustness, faithfulness_correlation, mprt):
            for metric, value, *drawn in part(subject):
                text = f"{metric},preset=quantus-{VERSION}" if ":" in metric else f"{metric}:preset=quantus-{VERSION}"
                tensors[f"{name}|{text}"] = np.array(value, np.float64)
                tensors |= {f"{name}|{text}|drawn": d for d in drawn}
                print(f"{name}  {value:12.6f}  {text}")
    return tensors


def papers(subject):
    """Pixel Flipping by the paper's words, and Insertion and Deletion by those of RISE, in the plainest NumPy."""
    import scipy.ndimage

    x, a = subject.x[0], subject.a[0, 0].ravel()
    order, pixels = np.argsort(-a), a.size
    for percent in (5, 20, 100):
        for step in (7, 16):
            removed, drops, image = [0.0], [0.0], x.copy().reshape(len(x), -1)
            for start in range(0, pixels, step):
                image[:, order[start : start + step]] = x.mean()
                removed.append(min(start + step, pixels) / pixels)
                drops.append(subject.output(x, False) - subject.output(image.reshape(x.shape), False))
            end = percent / 100
            grid = np.array(sorted({r for r in removed if r < end} | {end}))
            yield f"pixel-flipping:auc={percent},preset=paper,step={step}", float(np.trapezoid(np.interp(grid, removed, drops), grid))

    impulse = np.zeros((11, 11))
    impulse[5, 5] = 1
    kernel = scipy.ndimage.gaussian_filter(impulse, 5)
    blurred = np.stack([scipy.ndimage.convolve(plane.astype(float), kernel, mode="constant") for plane in x]).astype(np.float32)
    order = np.flip(np.argsort(a))
    for name, start, end in (("deletion", x, np.zeros_like(x)), ("insertion", blurred, x)):
        image, scores = start.copy().reshape(len(x), -1), [subject.output(start, True)]
        for first in range(0, pixels, SIZE):
            chosen = order[first : first + SIZE]
            image[:, chosen] = end.reshape(len(x), -1)[:, chosen]
            scores.append(subject.output(image.reshape(x.shape), True))
        scores = np.array(scores)
        yield name, float((scores.sum() - scores[0] / 2 - scores[-1] / 2) / (len(scores) - 1))


def others():
    import scipy.stats
    from skimage.feature import hog
    from skimage.metrics import structural_similarity as ssim

    tensors = {}
    for channels in (3, 1):
        subject = Subject(channels)
        tensors |= {f"c{channels}.{key}": value for key, value in subject.arrays().items()}
        tensors |= {f"c{channels}|{metric}": np.array(value) for metric, value in papers(subject)}
    subject = Subject(3)
    gone = np.argsort(-subject.a.ravel())[:60]
    tensors["imputed"] = quantus.functions.perturb_func.noisy_linear_imputation(subject.x[0].astype(float), gone, noise=0.0)
    tensors["imputed.removed"] = gone.astype(np.int64)

    draw = np.random.RandomState(7)
    smooth = np.cumsum(np.cumsum(draw.randn(2, 40, 37), 1), 2)
    for name, (a, b) in {"smooth": smooth, "ties": np.round(smooth / 8), "noise": draw.randn(2, 29, 31)}.items():
        span = max(a.max(), b.max()) - min(a.min(), b.min())
        features = [hog(v) for v in (a, b)]
        values = {
            "ssim": ssim(a, b, data_range=span),
            "ssim-gaussian": ssim(a, b, data_range=span, gaussian_weights=True),
            "ssim-flat": ssim(a.ravel(), b.ravel(), data_range=span),
            "hog": scipy.stats.pearsonr(*features)[0],
            "spearman": scipy.stats.spearmanr(a.ravel(), b.ravel())[0],
            "spearman-absolute": scipy.stats.spearmanr(np.abs(a).ravel(), np.abs(b).ravel())[0],
            "pearson": scipy.stats.pearsonr(a.ravel(), b.ravel())[0],
        }
        tensors |= {f"{name}.a": np.ascontiguousarray(a), f"{name}.b": np.ascontiguousarray(b), f"{name}.features": features[0]}
        tensors |= {f"{name}.{key}": np.array(value, np.float64) for key, value in values.items()}
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parent.parent / "crates/eval/tests/fixtures"
    parser.add_argument("--out", type=Path, default=default)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    np.trapz = np.trapezoid
    torch.set_num_threads(1)
    save_file(golden(), folder / f"quantus-{VERSION}.safetensors")
    if not OLD:
        save_file(others(), folder / "others.safetensors")


if __name__ == "__main__":
    main()
