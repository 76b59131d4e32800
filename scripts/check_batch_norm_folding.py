"""Shows what folded batch norms do to comparisons with Captum and Zennit in double precision.

    python scripts/check_batch_norm_folding.py --binary target/debug/monosplit

Integrated Gradients of a random ResNet34, from a file whose batch norms were kept and from one into which the exporter
folded them in single precision, against Captum and against gradients by PyTorch added up; and LRP of a random
MobileNetV2 against Zennit with its canonizer, and against Zennit on a network whose batch norms PyTorch folded.
"""

import argparse
import copy
import pathlib
import subprocess
import tempfile
import warnings

import numpy as np
import torch
from captum.attr import IntegratedGradients
from export_torchvision import ARCHITECTURES, build
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from zennit import composites
from zennit.attribution import Gradient
from zennit.canonizers import SequentialMergeBatchNorm
from zennit.layer import Sum

STEPS = 20


class Residual(nn.Module):
    """A block of MobileNetV2 with its sum as Zennit wants it."""

    def __init__(self, block):
        super().__init__()
        self.conv, self.sum = block.conv, Sum()

    def forward(self, x):
        return self.sum(torch.stack([x, self.conv(x)], dim=-1))


def fold(module):
    """Folds batch norms into the convolutions before them, in the precision of the module."""
    children = list(module.named_children())
    for (name, first), (after, second) in zip(children, children[1:]):
        if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
            setattr(module, name, fuse_conv_bn_eval(first, second))
            setattr(module, after, nn.Identity())
    for child in module.children():
        fold(child)


def distance(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


class Program:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def map(self, network, x, method, label, folded):
        file, array, out = (self.folder / name for name in ("network.onnx", "x.npy", "map.npy"))
        kept = {} if folded else {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
        torch.onnx.export(network, (x,), str(file), dynamo=False, opset_version=17, **kept)
        np.save(array, x.numpy())
        command = [self.binary, "explain", file, array, "--method", method, "--precision", "f64", "--channels", "keep"]
        command += ["--class", label, "--raw", out, "--out", self.folder / "pictures"]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        return np.load(out).astype(np.float64)


def architecture(name):
    return next(architecture for architecture in ARCHITECTURES if architecture.name == name)


def summed_gradients(network, x, label):
    points, weights = np.polynomial.legendre.leggauss(STEPS)
    total = torch.zeros_like(x)
    for point, weight in zip((points + 1) / 2, weights / 2):
        at = (point * x).requires_grad_(True)
        total += weight * torch.autograd.grad(network(at)[0, label], at)[0]
    return (total * x).numpy()


def integrated_gradients(program, size):
    network, _ = build(architecture("resnet34"))
    x = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(3))
    double = copy.deepcopy(network).double()
    label = int(double(x.double()).argmax())
    method = {"n_steps": STEPS, "method": "gausslegendre", "internal_batch_size": 4}
    captum = IntegratedGradients(double).attribute(x.double(), target=label, **method).numpy()
    added = summed_gradients(double, x.double(), label)
    for folded in (False, True):
        found = program.map(network, x, f"integrated-gradients:steps={STEPS}", label, folded)
        print(f"integrated gradients, folded by the exporter {folded}: {distance(found, captum):.1e} from Captum, "
              f"{distance(found, added):.1e} from added gradients", flush=True)


def relevance(program, size):
    network, _ = build(architecture("mobilenet_v2"))
    x = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(3))
    double = copy.deepcopy(network).double()
    blocks = [Residual(block) if getattr(block, "use_res_connect", False) else block for block in double.features]
    double = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), double.classifier).eval()
    label = int(double(x.double()).argmax())
    low, high = x.double().min().item(), x.double().max().item()
    found = program.map(network, x, f"lrp:low={low!r},high={high!r},seed=one", label, False)
    by_hand = copy.deepcopy(double)
    fold(by_hand)
    for title, net, canonizers in (("its canonizer", double, [SequentialMergeBatchNorm()]), ("PyTorch", by_hand, [])):
        with Gradient(net, composites.EpsilonGammaBox(low=low, high=high, canonizers=canonizers)) as attributor:
            seed = nn.functional.one_hot(torch.tensor([label]), 1000).double()
            expected = attributor(x.double(), seed)[1].detach().numpy()
        print(f"LRP epsilon-gamma-box: {distance(found, expected):.1e} from Zennit, batch norms folded by {title}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--size", type=int, default=224, help="of the picture for Integrated Gradients")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        program = Program(arguments.binary, pathlib.Path(folder))
        relevance(program, 64)
        integrated_gradients(program, arguments.size)


if __name__ == "__main__":
    main()
