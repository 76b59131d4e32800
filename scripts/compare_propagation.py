"""LRP, DeepLIFT and DeepSHAP against Zennit and Captum on whole networks: Pearson correlation and relative L2 error.

    python scripts/compare_propagation.py --program target/release/monosplit --image cat.jpg NETWORK.onnx ...

The peers get the same network: an ONNX file is put together as PyTorch modules, sums as Zennit's `Sum`, as its canonizers do. Both
sides run in the same precision (--precision f32 or f64). In single precision a ReLU or a pool decides differently where two numbers
are equal to its last digits, which moves whole patches of an attribution; double precision shows whether the rules are the same.

Captum's rule for max pools is lost where a pool reads the tensor that an activation wrote, and overwrites where windows overlap; its
attributions then need not add up. `deeplift winner` is Captum as it is beside the pooling rule `winner`, the same thing where every
pool follows an activation; `deeplift` and `deepshap` are Captum with pools that read a copy and with overlapping windows added up.
The last column is how far the peer's attributions are from adding up to the change of the score, relative to it, and ours.
"""

import argparse
import subprocess
import tempfile
import warnings
from pathlib import Path

import captum.attr._core.deep_lift as captum_deep_lift
import numpy as np
import onnx
import torch
from captum.attr import LRP, DeepLift
from captum.attr._utils.lrp_rules import EpsilonRule, GammaRule
from onnx import numpy_helper
from PIL import Image
from torch import nn
from zennit import composites, rules
from zennit.layer import Sum
from zennit.types import Activation, AvgPool, BatchNorm, Convolution

warnings.filterwarnings("ignore")
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
BLUE_FIRST = np.array([103.939, 116.779, 123.68])


class Network(nn.Module):
    """An ONNX graph of convolutions, pools, activations, sums and the like, as PyTorch modules."""

    def __init__(self, path, copy_before_pools):
        super().__init__()
        graph = onnx.load(path).graph
        self.constants = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = torch.from_numpy(numpy_helper.to_array(node.attribute[0].t).copy())
        source = next(i for i in graph.input if i.name not in self.constants)
        self.source, self.side = source.name, source.type.tensor_type.shape.dim[2].dim_value
        self.result = graph.output[0].name
        self.copy_before_pools = copy_before_pools
        self.steps, self.parts = [], nn.ModuleList()
        for node in graph.node:
            if node.op_type != "Constant":
                module = self.module(node)
                self.parts.append(module if isinstance(module, nn.Module) else nn.Identity())
                self.steps.append((node, module))

    def module(self, node):
        a = {x.name: onnx.helper.get_attribute_value(x) for x in node.attribute}
        weight = lambda i: self.constants[node.input[i]] if len(node.input) > i and node.input[i] else None
        kind = node.op_type
        if kind == "Conv":
            w, b, pads = weight(1), weight(2), a.get("pads", [0, 0, 0, 0])
            even = pads[:2] == pads[2:]
            conv = nn.Conv2d(
                w.shape[1] * a.get("group", 1), w.shape[0], tuple(w.shape[2:]), tuple(a.get("strides", [1, 1])),
                tuple(pads[:2]) if even else 0, tuple(a.get("dilations", [1, 1])), a.get("group", 1), b is not None)
            conv.weight.data = w
            if b is not None:
                conv.bias.data = b
            return conv if even else nn.Sequential(nn.ZeroPad2d((pads[1], pads[3], pads[0], pads[2])), conv)
        if kind == "Gemm":
            w = weight(1) if a.get("transB") else weight(1).T
            linear = nn.Linear(w.shape[1], w.shape[0])
            linear.weight.data, linear.bias.data = w.contiguous(), weight(2)
            return linear
        if kind == "BatchNormalization":
            norm = nn.BatchNorm2d(len(weight(1)), eps=a.get("epsilon", 1e-5))
            norm.weight.data, norm.bias.data = weight(1), weight(2)
            norm.running_mean, norm.running_var = weight(3), weight(4)
            return norm
        if kind in ("MaxPool", "AveragePool"):
            pads, kernel, ceil = a.get("pads", [0] * 4), tuple(a["kernel_shape"]), bool(a.get("ceil_mode", 0))
            ceil = ceil or pads[:2] != pads[2:]  # ONNX pads what PyTorch rounds up
            stride = tuple(a.get("strides", [1, 1]))
            if kind == "MaxPool":
                return nn.MaxPool2d(kernel, stride, tuple(pads[:2]), ceil_mode=ceil)
            return nn.AvgPool2d(kernel, stride, tuple(pads[:2]), count_include_pad=bool(a.get("count_include_pad", 0)))
        if kind == "Add" and any(i in self.constants for i in node.input):
            return a
        if kind == "Clip":
            return nn.ReLU6()
        simple = {"Relu": nn.ReLU, "GlobalAveragePool": lambda: nn.AdaptiveAvgPool2d(1), "Add": Sum}
        return simple[kind]() if kind in simple else a

    def forward(self, x):
        values = {self.source: x}
        for node, module in self.steps:
            inputs = [values[i] for i in node.input if i in values]
            constants = [self.constants[i].to(x) for i in node.input if i in self.constants]
            if node.op_type == "Add" and constants:
                y = inputs[0] + constants[0]
            elif node.op_type == "Mul":
                y = inputs[0] * constants[0]
            elif node.op_type == "Gather":
                y = inputs[0].select(module["axis"], int(constants[0]))
            elif node.op_type == "Unsqueeze":
                y = inputs[0].unsqueeze(int(module["axes"][0] if "axes" in module else constants[0]))
            elif node.op_type == "Add":
                y = module(torch.stack(inputs, dim=-1))
            elif isinstance(module, nn.MaxPool2d) and self.copy_before_pools:
                y = module(inputs[0].clone())
            elif isinstance(module, nn.Module):
                y = module(inputs[0])
            elif node.op_type == "Concat":
                y = torch.cat(inputs, module["axis"])
            elif node.op_type in ("Flatten", "Reshape"):
                y = torch.flatten(inputs[0], 1)
            elif node.op_type == "ReduceMean":
                y = nn.functional.adaptive_avg_pool2d(inputs[0], 1)
                y = y if module.get("keepdims", 1) else torch.flatten(y, 1)
            elif node.op_type in ("Identity", "Dropout"):
                y = inputs[0]
            else:
                raise ValueError(f"no module for {node.op_type}")
            values[node.output[0]] = y
        return values[self.result].flatten(1)


def everywhere(rule, norm):
    base = [(Activation, rules.Pass()), (Sum, rules.Norm(norm)), (AvgPool, rules.Norm(norm)), (BatchNorm, rules.Pass())]
    return composites.LayerMapComposite(base + [(Convolution, rule), (nn.Linear, rule)])


def zennit(model, composite, x, target):
    x = x.clone().requires_grad_()
    with composite.context(model) as modified:
        scores = modified(x)
        return torch.autograd.grad(scores[0, target], x, scores[0, target].detach())[0]


def captum_lrp(model, rule, x, target):
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.rule = rule()
        elif isinstance(module, (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, Sum)):
            module.rule = EpsilonRule()
        elif isinstance(module, (nn.ZeroPad2d, nn.Identity)):
            module.rule = EpsilonRule()
    return LRP(model).attribute(x, target=target).detach()


def adding_unpool(values, indices, kernel, stride, padding, size):
    """max_unpool2d that adds up where windows overlap."""
    flat = torch.zeros(size[0], size[1], size[2] * size[3], dtype=values.dtype)
    return flat.scatter_add_(2, indices.flatten(2), values.flatten(2)).view(size)


def deep_lift(model, x, baseline, target, adding=False):
    kept = captum_deep_lift.F.max_unpool2d
    if adding:
        captum_deep_lift.F.max_unpool2d = adding_unpool
    try:
        return DeepLift(model).attribute(x, baseline, target=target).detach()
    finally:
        captum_deep_lift.F.max_unpool2d = kept


def cases(model, plain, x, target, low, high, baselines, branches):
    """What is asked, how monosplit is asked for it, and how the peer is."""
    channel = lambda v: torch.tensor(v).view(1, -1, 1, 1).to(x)
    box = composites.EpsilonGammaBox(low=channel(low), high=channel(high))
    slashes = lambda v: "/".join(repr(float(b)) for b in v)
    named = {
        "epsilon-plus": composites.EpsilonPlus(), "epsilon-plus-flat": composites.EpsilonPlusFlat(),
        "epsilon-alpha2-beta1": composites.EpsilonAlpha2Beta1(),
        "epsilon-alpha2-beta1-flat": composites.EpsilonAlpha2Beta1Flat(),
    }
    yield ("Zennit", "epsilon-gamma-box", ["lrp", f"low={slashes(low)}", f"high={slashes(high)}"],
           lambda: zennit(model, box, x, target), False)
    for name, composite in named.items():
        yield "Zennit", name, ["lrp", f"composite={name}"], lambda c=composite: zennit(model, c, x, target), False
    yield ("Zennit", "epsilon", ["lrp", "composite=epsilon", "epsilon=1e-6", "stabiliser=1e-6"],
           lambda: zennit(model, everywhere(rules.Epsilon(), 1e-6), x, target), False)
    yield ("Zennit", "z-plus", ["lrp", "composite=z-plus"],
           lambda: zennit(model, everywhere(rules.ZPlus(), 1e-6), x, target), False)
    if not branches:
        yield "Captum", "epsilon", ["lrp", "composite=epsilon"], lambda: captum_lrp(plain, EpsilonRule, x, target), False
        yield "Captum", "gamma", ["lrp", "composite=gamma"], lambda: captum_lrp(plain, GammaRule, x, target), False
    yield "Captum", "deeplift", ["deeplift"], lambda: deep_lift(model, x, torch.zeros_like(x), target, True), True
    yield ("Captum", "deeplift winner", ["deeplift", "pool=winner"],
           lambda: deep_lift(plain, x, torch.zeros_like(x), target), True)
    path, all_baselines = baselines
    mean = lambda: torch.stack([deep_lift(model, x, b[None], target, True) for b in all_baselines]).mean(0)
    yield "Captum", "deepshap", ["deepshap", f"baselines={path}"], mean, "mean"


def ask(program, path, x, target, method, precision, folder):
    np.save(folder / "x.npy", x.numpy().astype(np.float32))
    options = [part for option in method[1:] for part in ("--set", option)]
    command = [program, "explain", path, folder / "x.npy", "--method", method[0], *options, "--class", str(target),
               "--channels", "keep", "--raw", folder / "raw.npy", "--out", folder, "--precision", precision]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return np.load(folder / "raw.npy").astype(np.float64)


def pixels(path, name, size):
    """The picture as the network reads it, and the bounds of what it could have read."""
    image = Image.open(path).convert("RGB").resize((size, size), Image.BICUBIC)
    rgb = np.asarray(image, np.float64)
    if "squeezenet1.1" in name:
        x, low, high = rgb[..., ::-1] - BLUE_FIRST, -BLUE_FIRST, 255 - BLUE_FIRST
    else:
        x, low, high = (rgb / 255 - MEAN) / STD, -MEAN / STD, (1 - MEAN) / STD
    return torch.from_numpy(x.transpose(2, 0, 1)[None].astype(np.float32)), low, high


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--program", default="target/release/monosplit")
    parser.add_argument("--image", required=True)
    parser.add_argument("--precision", choices=["f32", "f64"], default="f32")
    parser.add_argument("--only", help="only the case of this name")
    a = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    print("| network | peer | method | Pearson | relative L2 | peer's gap |\n|---|---|---|---|---|---|")
    for path in a.networks:
        dtype = torch.float64 if a.precision == "f64" else torch.float32
        models = [Network(path, copy).eval().to(dtype) for copy in (True, False)]
        x, low, high = pixels(a.image, path.name, models[0].side)
        x64 = x.to(dtype)
        scores = models[0](x64)
        target = int(scores.argmax())
        branches = any(node.op_type == "Add" for node, _ in models[0].steps)
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            baselines = torch.randn(3, *x.shape[1:]) * x.std()
            np.save(folder / "baselines.npy", baselines.numpy())
            given = folder / "baselines.npy", baselines.to(dtype)
            for peer, name, method, attribute, complete in cases(*models, x64, target, low, high, given, branches):
                if a.only and a.only != name:
                    continue
                theirs = attribute().double().numpy().ravel()
                ours = ask(a.program, path, x, target, method, a.precision, folder).ravel()
                error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
                gap = ""
                if complete:
                    before = given[1] if complete == "mean" else torch.zeros_like(x64)
                    change = (scores[0, target] - models[0](before)[:, target].mean()).item()
                    gap = f"{abs(theirs.sum() - change) / abs(change):.1e} (ours {abs(ours.sum() - change) / abs(change):.1e})"
                print(f"| {path.stem} | {peer} | {name} | {np.corrcoef(ours, theirs)[0, 1]:.7f} | {error:.1e} | {gap} |", flush=True)


main()
