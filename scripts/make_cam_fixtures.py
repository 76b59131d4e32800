"""Golden values of gradients, modified backpropagation and class activation maps on small networks, by Captum and grad-cam.

One folder per network: `network.onnx`, `x.npy`, `classes.npy`, `image.npy` whose rows are the attributions of the image that the
lines of `image.txt` name, and for line `i` of `layers.txt` the file `map-i.npy` whose rows are the maps of that layer that the
lines of `maps.txt` name. In `image.txt` a method at a layer is followed by the layer.

The networks use a convolution twice and a ReLU that works in place everywhere, as people write them, and are exported so; the
peers, which keep one value per module, see the file with a module for each node (`benches/comparison/network.py`), in double precision.
grad-cam's Eigen-CAM and everything else it gives before scaling are kept as they are; the sign of Eigen-CAM is arbitrary.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from peers import material  # finds the comparison
from captum import attr
from comparison import network
from comparison.methods import Job
from peers import captum_methods, grad_cam_methods
from torch import nn

warnings.filterwarnings("ignore")
CLASSES = 4


class Reused(nn.Module):
    """One convolution and one in-place ReLU used again and again; overlapping max pools with ties, one of them on the image."""

    layers = ("/pool_1/MaxPool", "/relu_3/Relu")
    size = 12

    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.first = nn.Conv2d(3, 5, 3, padding=1)
        self.twice = nn.Conv2d(5, 5, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(5 * 9, CLASSES)

    def forward(self, x):
        x = self.relu(self.first(self.pool(x)))
        x = self.pool(self.relu(self.twice(x)))
        x = self.relu(self.twice(self.relu(x)))
        return self.head(torch.flatten(x, 1))


class Residual(nn.Module):
    """Batch norms that stay, residual sums with and without projection, strided convolutions; the mean of every channel and a
    linear layer at the end, where Grad-CAM is CAM."""

    layers = ("/relu_1/Relu", "/relu_2/Relu")
    size = 10

    def __init__(self):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.inner, self.norm2 = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.outer, self.norm3 = nn.Conv2d(6, 7, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(7)
        self.down = nn.Conv2d(6, 7, 1, stride=2)
        self.relu = nn.ReLU(inplace=True)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(7, CLASSES)

    def forward(self, x):
        x = self.relu(self.norm1(self.first(x)))
        x = self.relu(self.norm2(self.inner(x)) + x)
        x = self.relu(self.norm3(self.outer(x)) + self.down(x))
        return self.fc(torch.flatten(self.average(x), 1))


class Joined(nn.Module):
    """Concatenations, a batch norm before a ReLU, depthwise convolutions, average pools with padding, ReLU6; the scores come
    from a convolution."""

    layers = ("/norm/BatchNormalization", "/Concat_1")
    size = 11

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, stride=2)
        self.six = nn.ReLU6()
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.average = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        self.norm = nn.BatchNorm2d(12)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.grouped = nn.Conv2d(12, 8, 3, padding=1, groups=2)
        self.point = nn.Conv2d(12, 4, 1)
        self.head = nn.Conv2d(12, CLASSES, 1)
        self.mean = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        x = self.six(self.first(x))
        x = torch.cat([self.depthwise(x), self.average(x)], 1)
        x = self.pool(self.relu(self.norm(x)))
        x = torch.cat([self.relu(self.grouped(x)), self.relu(self.point(x))], 1)
        return torch.flatten(self.mean(self.head(x)), 1)


IMAGE = {
    "gradient": lambda job: attr.Saliency(job.network).attribute(job.x, target=job.target(), abs=False),
    "saliency": lambda job: attr.Saliency(job.network).attribute(job.x, target=job.target()),
    "input-x-gradient": lambda job: attr.InputXGradient(job.network).attribute(job.x, target=job.target()),
    "guided-backprop": lambda job: attr.GuidedBackprop(captum_methods.apart(job.network)).attribute(job.x, target=job.target()),
    "deconvolution": lambda job: attr.Deconvolution(captum_methods.apart(job.network)).attribute(job.x, target=job.target()),
}
MAPS = {
    "gradcam": captum_methods.layer_grad_cam(False),
    "gradcam rectified": grad_cam_methods.unscaled("GradCAM"),
    "gradcam++": grad_cam_methods.unscaled("GradCAMPlusPlus", rectified=False),
    "layercam": grad_cam_methods.unscaled("LayerCAM", rectified=False),
    "hirescam": grad_cam_methods.unscaled("HiResCAM", rectified=False),
    "xgradcam": grad_cam_methods.unscaled("XGradCAM", rectified=False),
    "eigencam": grad_cam_methods.unscaled("EigenCAM", rectified=False),
}


def guided(coarse):
    def run(job):
        map = coarse(job)[:, None].to(job.x.dtype).clamp(min=0)
        fine = IMAGE["guided-backprop"](job)
        return fine * nn.functional.interpolate(map, job.x.shape[-2:], mode="nearest")

    return run


GUIDED = {"guided-gradcam": guided(MAPS["gradcam"]), "guided-layercam": guided(MAPS["layercam"])}


def randomised(model, generator):
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 1.4 / max(1, parameter[0].numel()) ** 0.5
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low in ((module.weight.data, 0.5), (module.running_var, 0.5), (module.bias.data, -0.3)):
                value.copy_(torch.rand(value.shape, generator=generator) + low)
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) * 0.2)
    return model.eval()


def pictures(size, generator):
    """Halves, so that pools on the image meet ties, and a patch of one colour."""
    x = (torch.randn(2, 3, size, size, generator=generator) * 2).round() / 2
    x[0, :, 3:8, 2:7] = 0.5
    return x


def make(name, model, folder):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model, x = randomised(model, generator), pictures(model.size, generator)
    folder.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        model, (x,), folder / "network.onnx", dynamo=False, opset_version=13, input_names=["image"], output_names=["scores"],
        dynamic_axes={"image": {0: "n"}, "scores": {0: "n"}}, training=torch.onnx.TrainingMode.PRESERVE,
    )
    net = network.read(str(folder / "network.onnx")).double()
    x64 = x.double()
    assert (net(x64) - model.double()(x64)).abs().max() < 1e-9, name
    scores = net(x64)
    classes = torch.stack([scores[0].argmin(), scores[1].argmax()])

    def job(layer=None):
        return Job(net, x64, classes, {"last": layer})

    image = {key: method(job()) for key, method in IMAGE.items()}
    for i, layer in enumerate(model.layers):
        maps = [method(job(layer)).double() for method in MAPS.values()]
        save(folder / f"map-{i}.npy", torch.stack(maps))
        image.update({f"{key} {layer}": method(job(layer)) for key, method in GUIDED.items()})
    save(folder / "image.npy", torch.stack(list(image.values())))
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "classes.npy", classes.numpy())
    for file, lines in [("image.txt", image), ("maps.txt", MAPS), ("layers.txt", model.layers)]:
        (folder / file).write_text("".join(f"{line}\n" for line in lines))


def save(path, values):
    values = values.detach().numpy()
    assert np.isfinite(values).all() and np.abs(values).reshape(len(values), -1).max(1).min() > 0, path
    np.save(path, values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = material.ROOT / "crates/explain/tests/fixtures/cams"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    for name, model in [("reused", Reused()), ("residual", Residual()), ("joined", Joined())]:
        make(name, model, out / name)


main()
