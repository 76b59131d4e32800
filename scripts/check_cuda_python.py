#!/usr/bin/env python3
"""Checks the Python package on a machine with an NVIDIA GPU, from a wheel built with the feature `cuda`.

    maturin build --release --features cuda
    python3 -m pip install target/wheels/monosplit-*.whl
    python3 scripts/check_cuda_python.py [--out FOLDER] [--device cuda]

Needs PyTorch with CUDA, onnx and onnxscript. Every check prints a line; the exit status is 1 if one fails. `results.json` in
FOLDER holds all lines. Tolerances are those of single precision: convolutions of cuDNN and of the processor add in another
order, and units whose value is nearly zero may change sign. In double precision there is next to no such unit.
"""

import argparse
import copy
import json
import os
import pathlib
import sys
import threading
import time
import traceback

import numpy as np
import torch
from torch import nn

import monosplit as ms

METHODS = {
    "gradient": {},
    "input-x-gradient": {},
    "integrated-gradients": {"steps": 12},
    "splitcam": {},
    "splitgrad": {},
    "gradcam": {},
    "lrp": {},
    "deeplift": {},
    "guided-backprop": {},
    "smoothgrad": {"samples": 6},
    "occlusion": {"window": 16, "stride": 16},
    "rise": {"samples": 32},
}


DEVICE = "cuda"
"""Where the network is computed that is compared with the processor."""


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.conv2(self.relu(self.bn1(self.conv1(x)))))


def network(width=24, classes=10):
    """A residual network with ReLUs that are used twice and in place."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(width), Block(width),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(), Block(2 * width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes),
    )
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_var.uniform_(0.5, 1.5)
    return net.eval()


class Checks:
    def __init__(self):
        self.lines, self.failed = [], 0

    def run(self, name, check):
        begun = time.perf_counter()
        try:
            said, holds = check()
        except Exception as failure:
            traceback.print_exc()
            said, holds = f"{type(failure).__name__}: {failure}", False
        seconds = time.perf_counter() - begun
        self.lines.append({"check": name, "holds": bool(holds), "found": said, "seconds": round(seconds, 3)})
        self.failed += not holds
        print(f"{'ok   ' if holds else 'FAILS'} {name}: {said}", flush=True)


def distance(found, expected):
    """The largest difference over the largest value, and the difference in norm over the norm."""
    found, expected = (np.asarray(torch.as_tensor(value).detach().cpu(), dtype=np.float64) for value in (found, expected))
    assert found.shape == expected.shape, (found.shape, expected.shape)
    gap, largest = np.abs(found - expected), max(np.abs(expected).max(), 1e-300)
    return gap.max() / largest, np.linalg.norm(gap) / max(np.linalg.norm(expected), 1e-300)


def agreement(found, expected, most, norm):
    worst, overall = distance(found, expected)
    return f"largest difference {worst:.1e} (limit {most:g}), in norm {overall:.1e} (limit {norm:g})", worst <= most and overall <= norm


def explained(card, processor, x, method, options, dtype):
    settings = dict(target=[3, 5], layer="" if method not in ("splitcam", "gradcam") else None, dtype=dtype, **options)
    ours, expected = card.explain(x, method, **settings), processor.explain(x.cpu(), method, **settings)
    found = ours.attributions
    if not isinstance(found, torch.Tensor) or found.device != x.device:
        return f"came back as {type(found).__name__} on {getattr(found, 'device', 'no device')}", False
    said, holds = agreement(found, expected.attributions, *((1e-7, 1e-8) if dtype == "float64" else (1e-3, 1e-4)))
    same_class = ours.classes == expected.classes
    return f"{found.dtype} on {found.device}, {said}", holds and same_class and str(found.dtype) == f"torch.{dtype}"


def shared(card, x):
    """Eight threads with one explainer."""
    explainer = card.explainer("splitcam")
    expected, found = explainer(x, target=[3, 5]), [None] * 8

    def work(index):
        for _ in range(5):
            found[index] = explainer(x, target=[3, 5])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    same = sum(one is not None and torch.equal(one, expected) for one in found)
    return f"{same} of 8 threads got the same bits", same == 8


def memory(card, x):
    """Memory of the card and of the process over a thousand calls."""
    explainer = card.explainer("gradient")
    resident = lambda: int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    for _ in range(100):
        explainer(x, target=1)
    card_free = lambda: torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0
    before, free = resident(), card_free()
    for _ in range(1000):
        explainer(x, target=1)
    grown, taken = resident() - before, free - card_free()
    return f"1000 calls took {grown / 1e6:.2f} MB of the process and {taken / 1e6:.2f} MB of the card", max(grown, taken) < 2_000_000


def drop_in(net, exact, x):
    """The drop-in classes compute where the module lies."""
    found = ms.captum.IntegratedGradients(net).attribute(x, target=3, n_steps=16)
    begun = x.detach().double().cpu()
    expected = ms.captum.IntegratedGradients(exact).attribute(begun, target=3, n_steps=16)
    model = ms.from_torch(net, x)
    said, holds = agreement(found, expected, 1e-3, 1e-4)
    device = model._options["device"]
    return f"on {found.device}, computed on {device}, {said}", holds and found.device == x.device and torch.device(device).type == torch.device(DEVICE).type


def autograd(net, x):
    """The gradient in double precision beside that of PyTorch on the card."""
    module, leaf = copy.deepcopy(net).double(), x.double().detach().clone().requires_grad_()
    module(leaf)[:, 3].sum().backward()
    found = ms.from_torch(module, leaf.detach(), device=DEVICE).explain(leaf.detach(), "gradient", target=3, layer="", dtype="float64")
    return agreement(found.attributions, leaf.grad, 1e-9, 1e-9)


def half(net, x):
    """Half precision, of the module and of its input."""
    module = copy.deepcopy(net).half()
    found = ms.from_torch(module, x.half(), device=DEVICE).explain(x.half(), "gradient", target=3, layer="")
    plain = copy.deepcopy(net).half().float()
    expected = ms.from_torch(plain, x, device=DEVICE).explain(x.half().float(), "gradient", target=3, layer="")
    said, holds = agreement(found.attributions, expected.attributions, 1e-6, 1e-6)
    return f"{found.attributions.dtype} on {found.attributions.device}, {said}", holds and found.attributions.dtype == torch.float32


def layers(card, processor, net, x):
    """A layer by its module on the card."""
    found = card.explain(x, "splitgrad", layer=net[7].conv2, target=3)
    expected = processor.explain(x.cpu(), "splitgrad", layer="7.conv2", target=3)
    return agreement(found.attributions, expected.attributions, 1e-3, 1e-4)


def metrics(card, processor, x):
    """A metric computed on the card."""
    values = []
    for model, images in ((card, x), (processor, x.cpu())):
        table = model.evaluate(["gradcam"], images, ["pixel-flipping"], target=[3, 5])
        values.append([row.value for row in table])
    return agreement(values[0], values[1], 1e-2, 1e-2)


def refused():
    """A card that is not there."""
    try:
        ms.load(ms.assets.network(), device="cuda:99")
    except (ValueError, OSError, RuntimeError) as error:
        return str(error), "\n" not in str(error) and len(str(error)) > 10
    return "nothing was refused", False


def finished():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(call, repeats=30):
    call()
    times = []
    for _ in range(repeats):
        finished()
        begun = time.perf_counter()
        call()
        finished()
        times.append(time.perf_counter() - begun)
    return 1e3 * float(np.median(times))


def times(wide, x):
    """What the way of a tensor through the processor's memory costs, beside the explanation."""
    model = ms.from_torch(wide, x, device=DEVICE)
    found = {}
    for method in ("gradient", "splitcam"):
        found[method] = timed(lambda: model.explain(x, method, target=3))
    found["there and back"] = timed(lambda: torch.from_numpy(x.cpu().numpy()).to(x.device))
    leaf = x.detach().clone().requires_grad_()
    net = wide

    def peer():
        leaf.grad = None
        net(leaf)[:, 3].sum().backward()

    found["PyTorch's gradient"] = timed(peer)
    return ", ".join(f"{name} {value:.2f} ms" for name, value in found.items()), True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--device", default=DEVICE, help="cpu tries this script without a GPU")
    arguments = parser.parse_args()
    globals()["DEVICE"] = arguments.device
    checks = Checks()
    checks.run("the wheel is built with CUDA", lambda: (f"monosplit {ms.__version__}", ms._monosplit.has_cuda or DEVICE == "cpu"))
    if DEVICE != "cpu":
        checks.run("PyTorch sees a card", lambda: (f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}", True))
    net = network().to(DEVICE)
    torch.manual_seed(1)
    x = torch.randn(2, 3, 96, 96, device=DEVICE)
    # The processor computes what PyTorch returns there.
    plain = copy.deepcopy(net).cpu()
    models = {}

    def opened():
        models["card"] = ms.from_torch(net, x, device=DEVICE)
        models["processor"] = ms.from_torch(plain, x.cpu(), device="cpu")
        ran = models["card"].run(x)
        said, holds = agreement(ran, net(x), 1e-3, 1e-3)
        return f"scores on {ran.device}, {said}", holds and ran.device == x.device

    checks.run("a module on the card is exported", opened)
    if models:
        card, processor = models["card"], models["processor"]
        for dtype in ("float32", "float64"):
            for method, options in METHODS.items():
                checks.run(f"{method} in {dtype}", lambda: explained(card, processor, x, method, options, dtype))
        checks.run("layers by module", lambda: layers(card, processor, net, x))
        checks.run("threads share an explainer", lambda: shared(card, x))
        checks.run("memory", lambda: memory(card, x))
        checks.run("metrics", lambda: metrics(card, processor, x))
    checks.run("gradient of PyTorch on the card", lambda: autograd(net, x))
    checks.run("half precision", lambda: half(net, x))
    checks.run("drop-in classes", lambda: drop_in(net, copy.deepcopy(plain).double(), x))
    checks.run("a card that is not there", refused)
    for side, count in ((224, 1), (224, 16)):
        images = torch.randn(count, 3, side, side, device=DEVICE)
        checks.run(f"times, batch of {count}", lambda: times(network(64).to(DEVICE), images))
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(checks.lines, indent=1))
    print(f"{len(checks.lines) - checks.failed} of {len(checks.lines)} checks hold")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
