"""Makes the reference values of the methods that ask a network many times.

    python scripts/make_repeated_fixtures.py

One small network with a residual sum, `network.onnx`, two images, and what Captum and grad-cam say of them. The network
runs in float64 for Captum and in float32 for grad-cam, which knows nothing else. Sampled methods are kept as the mean of many
draws and its standard error. `slic-image.npy` and `slic-labels.npy` are a picture and scikit-image's superpixels of it.
"""

import argparse
import copy
import pathlib

import captum.attr
import numpy as np
import pytorch_grad_cam
import skimage.segmentation
import torch
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

FOLDER = pathlib.Path(__file__).parent.parent / "crates/explain/tests/fixtures/repeated"
SEED = 11
CLASSES = [2, 0]
STEPS = 7
DRAWS_AT_ONCE = 200
ROUNDS = 20
QUADRATURES = ["gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"]


class Network(torch.nn.Module):
    """Two convolutions with a sum around the second."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.pool = torch.nn.MaxPool2d(2)
        self.second = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.last = torch.nn.ReLU()
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        x = self.pool(torch.relu(self.first(x)))
        x = self.last(x + self.second(x))
        return self.head(x.mean(dim=(2, 3)))


def save(name, array):
    array = np.asarray(array)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    np.save(FOLDER / f"{name}.npy", array)


def integrated_gradients(network, images, baseline):
    method = captum.attr.IntegratedGradients(network)
    for quadrature in QUADRATURES:
        found, gap = method.attribute(
            images, baseline, CLASSES, n_steps=STEPS, method=quadrature, return_convergence_delta=True
        )
        save(f"integrated-gradients-{quadrature}", found.detach())
        save(f"integrated-gradients-{quadrature}-gap", gap.detach())
    layer = captum.attr.LayerIntegratedGradients(network, network.second)
    save("integrated-gradients-second", layer.attribute(images, baseline, CLASSES, n_steps=STEPS).detach())


def perturbation(network, images, baseline):
    occlusion = captum.attr.Occlusion(network)
    for name, window, stride in [("overlapping", (3, 4, 3), (3, 3, 2)), ("disjoint", (3, 5, 4), (3, 5, 4))]:
        found = occlusion.attribute(images, window, stride, baselines=0.3, target=CLASSES)
        save(f"occlusion-{name}", found[:, 0].detach())
    rng = np.random.default_rng(SEED)
    places = rng.integers(0, 6, (12, 10)) * 3 - 4
    elements = rng.integers(0, 5, (3, 12, 10))
    save("mask-places", places)
    save("mask-elements", elements)
    ablation = captum.attr.FeatureAblation(network)
    for name, mask in [("places", places + 4), ("elements", elements)]:
        mask = torch.from_numpy(mask).reshape((1, -1, 12, 10))
        found = ablation.attribute(images, baseline, CLASSES, feature_mask=mask)
        save(f"feature-ablation-{name}", found.detach())
    shapley = captum.attr.ShapleyValues(network)
    mask = torch.from_numpy(elements).unsqueeze(0)
    save("shapley-elements", shapley.attribute(images, baseline, CLASSES, feature_mask=mask).detach())


def sampled(network, images, baselines):
    """Mean and standard error of single draws, and the mean of their squares for the variance."""
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    gradients = captum.attr.NoiseTunnel(captum.attr.Saliency(network))
    shap = captum.attr.GradientShap(network)
    many, classes = images.repeat((DRAWS_AT_ONCE, 1, 1, 1)), CLASSES * DRAWS_AT_ONCE
    noisy, points = [], []
    for _ in range(ROUNDS):
        found = gradients.attribute(many, nt_samples=1, stdevs=0.4, target=classes, abs=False)
        noisy.append(found.detach().numpy().reshape((DRAWS_AT_ONCE, *images.shape)))
        found = shap.attribute(many, baselines, 1, 0.2, classes)
        points.append(found.detach().numpy().reshape((DRAWS_AT_ONCE, *images.shape)))
    noisy, points = np.concatenate(noisy), np.concatenate(points)
    for name, draws in [("smoothgrad", noisy), ("gradientshap", points)]:
        save(f"{name}-mean", draws.mean(0))
        save(f"{name}-error", draws.std(0) / len(draws) ** 0.5)
    save("vargrad", noisy.var(0))


def activation_maps(network, images):
    network = copy.deepcopy(network).float()
    targets = [ClassifierOutputTarget(index) for index in CLASSES]
    for name, kind in [("ablationcam", pytorch_grad_cam.AblationCAM), ("scorecam", pytorch_grad_cam.ScoreCAM)]:
        class Raw(kind):
            """Keeps the map before it is rectified and scaled."""

            def get_cam_image(self, *arguments, **options):
                self.raw = super().get_cam_image(*arguments, **options)
                return self.raw

        cam = Raw(network, [network.last])
        cam(images.float(), targets)
        save(name, cam.raw)


def superpixels():
    rng = np.random.default_rng(SEED)
    y, x = np.mgrid[0:48, 0:60] / 48
    picture = np.zeros((48, 60, 3))
    for _ in range(7):
        cy, cx, size = rng.uniform(0, 1), rng.uniform(0, 1.25), rng.uniform(0.1, 0.3)
        inside = ((y - cy) ** 2 + (x - cx) ** 2) < size**2
        picture[inside] = rng.uniform(0, 1, 3)
    picture = (picture + 0.03 * rng.normal(size=picture.shape)).astype(np.float32)
    save("slic-image", picture.transpose(2, 0, 1))
    labels = skimage.segmentation.slic(picture.astype(np.float64), n_segments=24, compactness=10, start_label=0)
    save("slic-labels", labels.astype(np.uint8))


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    network = Network().eval()
    images, baseline = torch.randn(2, 3, 12, 10), 0.3 * torch.randn(1, 3, 12, 10)
    baselines = 0.5 * torch.randn(5, 3, 12, 10)
    torch.onnx.export(
        network, (images,), str(FOLDER / "network.onnx"), dynamo=False, opset_version=13,
        input_names=["image"], output_names=["scores"], dynamic_axes={"image": {0: "N"}, "scores": {0: "N"}},
    )
    for name, array in [("images", images), ("baseline", baseline), ("baselines", baselines)]:
        save(name, array)
    activation_maps(network, images)
    network, images, baseline, baselines = (t.double() for t in (network, images, baseline, baselines))
    save("scores", network(images).detach())
    integrated_gradients(network, images, baseline)
    perturbation(network, images, baseline)
    sampled(network, images, baselines)
    superpixels()


if __name__ == "__main__":
    main()
