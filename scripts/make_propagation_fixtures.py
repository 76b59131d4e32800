"""Golden values of LRP, DeepLIFT and DeepSHAP on small networks, by Zennit and Captum in double precision.

One folder per network: `network.onnx`, `x.npy`, `classes.npy`, `baselines.npy`, and `expected.npy` whose rows are the
attributions of the image that the lines of `cases.txt` name. `hidden.npy` is the relevance of the value that the layer named in
`hidden.txt` hands on, by the composite epsilon-plus.

The peers are asked in ways that keep clear of what they do not mean to compute. Captum's max_unpool overwrites where windows
overlap and its max-pool rule reads the first sample's gradient for all, so pools are disjoint where it is asked, and it is asked
one sample at a time. Its rule for a max pool is lost where the pool reads the very tensor that an activation wrote (the
activation's hook sees the gradient first, and DeepLIFT no longer adds up), so pools read a copy; the case `deeplift winner` is
what it computes then. A batch norm that Zennit has
merged still divides by sqrt(1 + eps), so eps is put to zero while it is merged.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from captum.attr import LRP, DeepLift, DeepLiftShap
from captum.attr._utils.lrp_rules import EpsilonRule, GammaRule
from torch import nn
from zennit import composites, rules
from zennit.canonizers import SequentialMergeBatchNorm
from zennit.layer import Sum
from zennit.types import Activation, AvgPool, BatchNorm, Convolution

warnings.filterwarnings("ignore")
LOW, HIGH = -2.5, 2.75


class Merge(SequentialMergeBatchNorm):
    """Merges batch norms and leaves exact identities."""

    def register(self, linears, batch_norm):
        super().register(linears, batch_norm)
        self.eps, batch_norm.eps = batch_norm.eps, 0.0

    def remove(self):
        super().remove()
        self.batch_norm.eps = self.eps


class Add(nn.Module):
    """A sum that Zennit can put a hook on."""

    def __init__(self):
        super().__init__()
        self.sum = Sum()

    def forward(self, a, b):
        if torch.onnx.is_in_onnx_export():
            return a + b
        return self.sum(torch.stack([a, b], dim=-1))


class Plain(nn.Module):
    """No branches: what Captum's LRP can do."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.relu1 = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.relu2 = nn.ReLU(inplace=True)
        self.average = nn.AvgPool2d(2)
        self.fc1 = nn.Linear(32, 10)
        self.relu3 = nn.ReLU()
        self.fc2 = nn.Linear(10, 4)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv1(x)).clone())
        x = self.average(self.relu2(self.conv2(x)))
        return self.fc2(self.relu3(self.fc1(torch.flatten(x, 1))))


class Residual(nn.Module):
    """Batch norms, two residual sums, one with a projection, in-place ReLUs."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.relu1 = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(6)
        self.add1 = Add()
        self.relu2 = nn.ReLU(inplace=True)
        self.conv3 = nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(8)
        self.down = nn.Conv2d(6, 8, 1, stride=2, bias=False)
        self.bn4 = nn.BatchNorm2d(8)
        self.add2 = Add()
        self.relu3 = nn.ReLU(inplace=True)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = self.pool(self.relu1(self.bn1(self.conv1(x))).clone())
        x = self.relu2(self.add1(self.bn2(self.conv2(x)), x))
        x = self.relu3(self.add2(self.bn3(self.conv3(x)), self.bn4(self.down(x))))
        return self.fc(torch.flatten(self.average(x), 1))


class Joined(nn.Module):
    """Concatenation, overlapping pools, a convolution that gives the scores."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3)
        self.relu1 = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.squeeze = nn.Conv2d(6, 4, 1)
        self.relu2 = nn.ReLU(inplace=True)
        self.expand1 = nn.Conv2d(4, 5, 1)
        self.relu3 = nn.ReLU(inplace=True)
        self.expand3 = nn.Conv2d(4, 5, 3, padding=1)
        self.relu4 = nn.ReLU(inplace=True)
        self.head = nn.Conv2d(10, 4, 1)
        self.relu5 = nn.ReLU(inplace=True)
        self.average = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv1(x)))
        x = self.relu2(self.squeeze(x))
        x = torch.cat([self.relu3(self.expand1(x)), self.relu4(self.expand3(x))], 1)
        return torch.flatten(self.average(self.relu5(self.head(x))), 1)


class Reused(nn.Module):
    """One convolution used twice (two modules with the same weights, as the peers keep one value per module), depthwise and
    transposed convolutions, activations of either sign."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.act1 = nn.Tanh()
        self.twice1 = nn.Conv2d(6, 6, 3, padding=1)
        self.act2 = nn.LeakyReLU(0.1)
        self.twice2 = nn.Conv2d(6, 6, 3, padding=1)
        self.twice2.weight, self.twice2.bias = self.twice1.weight, self.twice1.bias
        self.act3 = nn.ELU()
        self.depthwise = nn.Conv2d(6, 6, 3, stride=2, padding=1, groups=6)
        self.act4 = nn.Sigmoid()
        self.up = nn.ConvTranspose2d(6, 5, 2, stride=2)
        self.act5 = nn.Softplus()
        self.average = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(20, 4)

    def forward(self, x):
        x = self.act1(self.conv1(x))
        x = self.act3(self.twice2(self.act2(self.twice1(x))))
        x = self.act5(self.up(self.act4(self.depthwise(x))))
        return self.fc(torch.flatten(self.average(x), 1))


class Scaled(nn.Module):
    """Constants per channel between products and biases, as dynamic quantisation writes layers: the peers see the layers whole."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.relu2 = nn.ReLU(inplace=True)
        self.tokens = nn.Linear(8, 6)
        self.relu3 = nn.ReLU()
        self.fc = nn.Linear(96, 4)

    def forward(self, x):
        if not torch.onnx.is_in_onnx_export():
            x = self.relu2(self.conv2(self.relu1(self.conv1(x))))
            x = self.relu3(self.tokens(x.flatten(2).transpose(1, 2)))
            return self.fc(torch.flatten(x, 1))
        # Powers of two, so that the scaled weights are those of the layers to the last bit.
        scale = lambda count: 2.0 ** (torch.arange(count) % 3 - 1.0) * (1 - 2.0 * (torch.arange(count) % 2))
        per_channel = lambda values: values.view(-1, 1, 1)
        for layer, relu in ((self.conv1, self.relu1), (self.conv2, self.relu2)):
            c = scale(layer.out_channels)
            product = nn.functional.conv2d(x, layer.weight / c.view(-1, 1, 1, 1), None, layer.stride, layer.padding)
            x = relu(product * per_channel(c) + per_channel(layer.bias))
        c = scale(6)
        x = x.flatten(2).transpose(1, 2)
        x = self.relu3(x @ (self.tokens.weight.t() / c) * c + self.tokens.bias)
        return torch.flatten(x, 1) @ (self.fc.weight.t() / 4) * 4.0 + self.fc.bias


def everywhere(rule):
    base = [(Activation, rules.Pass()), (Sum, rules.Norm()), (AvgPool, rules.Norm()), (BatchNorm, rules.Pass())]
    return composites.LayerMapComposite(
        base + [(Convolution, rule), (nn.Linear, rule)], canonizers=[Merge()]
    )


def zennit_cases():
    canonizers = [Merge()]
    yield "epsilon-gamma-box", composites.EpsilonGammaBox(low=LOW, high=HIGH, canonizers=canonizers)
    yield "epsilon-plus", composites.EpsilonPlus(canonizers=canonizers)
    yield "epsilon-plus-flat", composites.EpsilonPlusFlat(canonizers=canonizers)
    yield "epsilon-alpha2-beta1", composites.EpsilonAlpha2Beta1(canonizers=canonizers)
    yield "epsilon-alpha2-beta1-flat", composites.EpsilonAlpha2Beta1Flat(canonizers=canonizers)
    yield "zennit-epsilon", everywhere(rules.Epsilon())
    yield "generalised-gamma", everywhere(rules.Gamma())
    yield "z-plus", everywhere(rules.ZPlus())
    yield "alpha-beta", everywhere(rules.AlphaBeta(alpha=2.0, beta=1.0))
    yield "w-square", everywhere(rules.WSquare())


def zennit(model, composite, x, classes, hidden=None):
    """The relevance of the image, and of what the module `hidden` hands on."""
    kept = []
    x = x.clone().requires_grad_()
    with composite.context(model) as modified:
        module = dict(modified.named_modules()).get(hidden)
        handle = module.register_forward_hook(lambda m, i, o: kept.append(o)) if module else None
        scores = modified(x)
        rows = torch.arange(len(x))
        seed = torch.zeros_like(scores)
        seed[rows, classes] = scores[rows, classes].detach()
        wanted = [x, *kept]
        found = torch.autograd.grad(scores, wanted, seed)
        if handle:
            handle.remove()
    return [f.detach().numpy() for f in found]


def one_by_one(attribute, x, classes):
    return np.concatenate([attribute(x[i : i + 1], int(classes[i])).detach().numpy() for i in range(len(x))])


def captum_lrp(model, rule, x, classes):
    """Captum takes its rules off the modules after every question."""

    def attribute(one, target):
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                module.rule = rule()
            elif isinstance(module, (nn.MaxPool2d, nn.AvgPool2d)):
                module.rule = EpsilonRule()
        return LRP(model).attribute(one, target=target)

    return one_by_one(attribute, x, classes)


def make(name, model, size, hidden, captum, out):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 1.4 / max(1, parameter[0].numel()) ** 0.5
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low in ((module.weight.data, 0.5), (module.running_var, 0.5), (module.bias.data, -0.3)):
                value.copy_(torch.rand(value.shape, generator=generator) + low)
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) * 0.2)
    model.eval()
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    x = (torch.rand(2, 3, size, size, generator=generator) * 4 - 2).float()
    baselines = (torch.randn(3, 3, size, size, generator=generator) * 0.7).float()
    torch.onnx.export(
        model, (x,), folder / "network.onnx", dynamo=False, opset_version=13, input_names=["image"], output_names=["scores"],
        dynamic_axes={"image": {0: "n"}, "scores": {0: "n"}}, training=torch.onnx.TrainingMode.PRESERVE,
    )
    model, x64, b64 = model.double(), x.double(), baselines.double()
    classes = model(x64).argmax(1)
    classes[0] = (classes[0] + 1) % 4
    cases = {key: zennit(model, composite, x64, classes)[0] for key, composite in zennit_cases()}
    if "lrp" in captum:
        cases["epsilon"] = captum_lrp(model, EpsilonRule, x64, classes)
        cases["gamma"] = captum_lrp(model, GammaRule, x64, classes)
    if "deeplift" in captum:

        def lift(baseline):
            def attribute(one, target):
                found, gap = DeepLift(model).attribute(one, baseline, target=target, return_convergence_delta=True)
                assert abs(gap.item()) < 1e-10, f"{name}: Captum misses {gap.item()}"
                return found

            return attribute

        cases["deeplift 0"] = one_by_one(lift(0.0), x64, classes)
        cases["deeplift 0.3"] = one_by_one(lift(0.3), x64, classes)
        cases["deeplift image"] = one_by_one(lift(b64[:1]), x64, classes)
        shap = [
            np.mean([DeepLift(model).attribute(x64[i : i + 1], b64[k : k + 1], target=int(classes[i])).detach().numpy()
                     for k in range(len(b64))], axis=0)
            for i in range(len(x64))
        ]
        cases["deepshap"] = np.concatenate(shap)
        if not any(isinstance(module, nn.MaxPool2d) for module in model.modules()):
            whole = DeepLiftShap(model).attribute(x64, b64, target=classes).detach().numpy()
            assert np.abs(whole - cases["deepshap"]).max() < 1e-12
    if "winner" in captum:
        winner = lambda one, target: DeepLift(model).attribute(one, b64[:1], target=target)
        cases["deeplift winner"] = one_by_one(winner, x64, classes)
    expected = np.stack(list(cases.values()))
    assert np.isfinite(expected).all() and np.abs(expected).max(axis=(1, 2, 3, 4)).min() > 1e-6, name
    np.save(folder / "x.npy", x.numpy())
    np.save(folder / "classes.npy", classes.numpy())
    np.save(folder / "baselines.npy", baselines.numpy())
    np.save(folder / "expected.npy", expected)
    (folder / "cases.txt").write_text("".join(f"{key}\n" for key in cases))
    plus = composites.EpsilonPlus(canonizers=[Merge()])
    np.save(folder / "hidden.npy", zennit(model, plus, x64, classes, hidden)[1])
    (folder / "hidden.txt").write_text(f"{hidden}\n")
    print(f"{name}: {len(cases)} cases, {(folder / 'network.onnx').stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("crates/explain/tests/fixtures/propagation"))
    out = parser.parse_args().out
    torch.manual_seed(0)
    make("plain", Plain(), 8, "pool", {"lrp", "deeplift"}, out)
    make("residual", Residual(), 8, "pool", {"deeplift"}, out)
    make("joined", Joined(), 9, "squeeze", {"winner"}, out)
    make("reused", Reused(), 6, "act2", {"deeplift"}, out)
    make("scaled", Scaled(), 8, "relu1", {"lrp", "deeplift"}, out)


main()
