"""The training of `monosplit train` written in PyTorch, to try settings where there is a GPU.

    python scripts/search_training.py MNIST_FOLDER mlp_maxout DM,Mon --rate 1e-3 --epochs 20 [--seeds 3] [--samples N]
        [--optimiser adam] [--decay 1e-3] [--spread 1] [--batch 100]

Layers, restrictions, first weights, batches and the cosine schedule are those of `monosplit train`; the random numbers are
PyTorch's. It prints the test accuracy in % after every epoch.
"""

import argparse
import gzip
import math
import pathlib

import numpy as np
import torch
from bench_training import Positive, stream
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIMISERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def idx(folder, name, header):
    path = folder / f"{name}-ubyte"
    data = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes())
    return torch.tensor(np.frombuffer(data, np.uint8)[header:].copy()).to(DEVICE)


def samples(folder, part):
    images = idx(folder, f"{part}-images-idx3", 16).view(-1, 1, 28, 28).float() / 255
    return images, idx(folder, f"{part}-labels-idx1", 8).long()


class Network(nn.Module):
    def __init__(self, name, restriction, spread):
        super().__init__()
        self.inverted = restriction.endswith("IN")
        self.streams = nn.ModuleList(stream(name, restriction) for _ in range(2 if restriction.startswith("D") else 1))
        positive = {m.layer: m.positive_weight for m in self.modules() if isinstance(m, Positive)}
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                deviation = layer.weight[0].numel() ** -0.5
                layer.weight.data.normal_(0, deviation)
                if positive.get(layer):
                    layer.weight.data.abs_().mul_(spread)
                if layer.bias is not None:
                    layer.bias.data.normal_(0, deviation).abs_().mul_(spread if layer in positive else 0)
            elif layer in positive:
                layer.bias.data.normal_().abs_().mul_(spread)

    def forward(self, x):
        scores = self.streams[0](x)
        return scores - self.streams[1](1 - x if self.inverted else x) if len(self.streams) == 2 else scores


def train(train_on, test_on, restriction, seed, arguments):
    torch.manual_seed(seed)
    network = Network(arguments.name, restriction, arguments.spread).to(DEVICE)
    optimiser = OPTIMISERS[arguments.optimiser](network.parameters(), lr=arguments.rate, weight_decay=arguments.decay)
    (images, labels), (test_images, test_labels) = train_on, test_on
    chosen = torch.randperm(len(images), device=DEVICE)[: arguments.samples]
    steps, done, accuracies = len(chosen) // arguments.batch, 0, []
    for _ in range(arguments.epochs):
        network.train()
        order = chosen[torch.randperm(len(chosen), device=DEVICE)]
        for batch in order[: steps * arguments.batch].split(arguments.batch):
            factor = 0.5 + 0.5 * math.cos(math.pi * done / (steps * arguments.epochs))
            optimiser.param_groups[0]["lr"] = arguments.rate * factor
            loss = functional.cross_entropy(network(images[batch]), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
        network.eval()
        with torch.no_grad():
            found = torch.cat([network(part).argmax(1) for part in test_images.split(500)])
        accuracies.append(100 * (found == test_labels).float().mean().item())
    print(arguments.name, restriction, f"seed {seed}:", *(f"{a:.2f}" for a in accuracies), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("name")
    parser.add_argument("restrictions", help="with commas between")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=1e-3)
    parser.add_argument("--spread", type=float, default=1.0)
    parser.add_argument("--optimiser", choices=OPTIMISERS, default="adam")
    arguments = parser.parse_args()
    data = samples(arguments.data, "train"), samples(arguments.data, "t10k")
    for restriction in arguments.restrictions.split(","):
        for seed in range(arguments.seeds):
            train(*data, restriction, seed, arguments)


if __name__ == "__main__":
    main()
