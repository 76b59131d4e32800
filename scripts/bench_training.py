"""A training step of `monosplit train` against the same step in PyTorch, in turns: ratios of time, ours to theirs.

    python scripts/bench_training.py mlp_maxout cnn_maxout None DICIN [--threads 2] [--processor-time]

The same layers, batch, loss and optimiser on both sides; an epoch is so many steps. Ours is
`cargo bench -p monosplit-train --bench steps -- --turns`. On a machine that does other work, `--processor-time` compares
the processor time of one thread each.
"""

import argparse
import pathlib
import statistics
import subprocess
import time

import torch
from torch import nn
from torch.nn import functional

BATCH = 100
REPEATS = 15
ROOT = pathlib.Path(__file__).resolve().parent.parent
RESTRICTIONS = ["None", "IC", "Mon", "Diff_None", "DIC", "DM", "DICIN", "DMIN"]


class Positive(nn.Module):
    """An affine map or norm computed with ReLU of its parameters."""

    def __init__(self, layer, weight):
        super().__init__()
        self.layer, self.positive_weight = layer, weight

    def forward(self, x):
        p = functional.relu
        layer = self.layer
        weight = p(layer.weight) if self.positive_weight else layer.weight
        bias = None if layer.bias is None else p(layer.bias)
        if isinstance(layer, nn.Linear):
            return functional.linear(x, weight, bias)
        if isinstance(layer, nn.Conv2d):
            return functional.conv2d(x, weight, bias, padding=layer.padding)
        return functional.batch_norm(x, layer.running_mean, layer.running_var, weight, bias, self.training)


class Maxout(nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1, 2, *x.shape[2:]).max(2)[0]


def layers(name):
    if name == "mlp_maxout":
        stack = [nn.Flatten()]
        for width in (784, 800, 800):
            stack += [nn.Linear(width, 1600, bias=False), nn.BatchNorm1d(1600), Maxout()]
        return stack + [nn.Linear(800, 10)]
    stack = []
    for inputs, outputs, pool in ((1, 64, False), (32, 128, True), (64, 256, False), (128, 256, True)):
        stack += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), Maxout()]
        stack += [nn.MaxPool2d(2)] if pool else []
    stack.append(nn.Flatten())
    for inputs, outputs in ((6272, 2048), (1024, 512)):
        stack += [nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), Maxout()]
    return stack + [nn.Linear(256, 10)]


def stream(name, restriction):
    if restriction in ("None", "Diff_None"):
        return nn.Sequential(*layers(name))
    stack, affine = [], 0
    for layer in layers(name):
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            layer.weight.data.abs_()
            layer = Positive(layer, affine > 0 or "M" in restriction)
            affine += 1
        elif isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer = Positive(layer, True)
        stack.append(layer)
    return nn.Sequential(*stack)


class Theirs:
    """Steps of PyTorch."""

    def __init__(self, name, restriction):
        self.images, self.labels = torch.rand(BATCH, 1, 28, 28), torch.arange(BATCH) % 10
        self.inverted = restriction.endswith("IN")
        count = 2 if restriction.startswith("D") else 1
        self.streams = nn.ModuleList(stream(name, restriction) for _ in range(count))
        self.optimiser = torch.optim.Adam(self.streams.parameters(), lr=1e-3, weight_decay=1e-3)
        self.process = "self"

    def step(self):
        logits = self.streams[0](self.images)
        if len(self.streams) == 2:
            logits = logits - self.streams[1](1 - self.images if self.inverted else self.images)
        loss = functional.cross_entropy(logits, self.labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        loss.item()


class Ours:
    """Steps of monosplit, in a process of its own."""

    def __init__(self, name, restriction, threads, executable):
        built = ["cargo", "bench", "-q", "-p", "monosplit-train", "--bench", "steps", "--"]
        command = [executable.resolve()] if executable else built
        command += [name, restriction, "--threads", str(threads), "--turns"]
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        self.process = self.child.stdout.readline().strip()

    def step(self):
        self.child.stdin.write("\n")
        if not self.child.stdout.readline():
            raise SystemExit("the bench ended early")

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def processor_seconds(process):
    """Time all threads of a process have been running, from Linux's books."""
    books = pathlib.Path("/proc", process, "task").glob("*/schedstat")
    return sum(int(book.read_text().split()[0]) for book in books) * 1e-9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--executable", type=pathlib.Path, help="the bench, if it is built already")
    parser.add_argument("--processor-time", action="store_true")
    arguments = parser.parse_args()
    threads = 1 if arguments.processor_time else arguments.threads
    torch.set_num_threads(threads)
    clock = processor_seconds if arguments.processor_time else lambda _: time.perf_counter()
    for name in (n for n in arguments.names if n.endswith("_maxout")):
        for restriction in (r for r in arguments.names if r in RESTRICTIONS):
            ours, theirs = Ours(name, restriction, threads, arguments.executable), Theirs(name, restriction)
            times = {ours: [], theirs: []}
            for turn in range(arguments.repeats + 1):
                for side in times:
                    began = clock(side.process)
                    side.step()
                    times[side].append(clock(side.process) - began)
            ours.end()
            least, middle = ([f(times[side][1:]) for side in (ours, theirs)] for f in (min, statistics.median))
            print(
                f"{name} {restriction}: {1e3 * least[0]:.1f} ms a step of {BATCH}, PyTorch {1e3 * least[1]:.1f} ms; "
                f"ratio of minima {least[0] / least[1]:.2f}, of medians {middle[0] / middle[1]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
