"""Trains a small vision transformer on MNIST and asks whether maps of it lie on the strokes.

    python scripts/transformer_localisation.py --mnist MNIST --out FOLDER [--program target/release/monosplit] [--write]

MNIST holds the four gzipped files. The transformer (28 000 weights) is trained in FOLDER unless it is there, and exported. For
test digits that it gets right, the program's maps are held against the strokes, pixels above one half (attention, its rollout and
attention times gradient are also computed with PyTorch, and must agree):

- AUC: how often a pixel on a stroke has a larger value than one that is not; a random map has 1/2;
- share: how much of the positive part of a map lies on strokes, over how much of the image strokes are; a random map has 1.

Intervals are 95 % bootstrap intervals over images. Maps that are multiplied with the image are zero where the image is zero, which
is all that is not a stroke; they are listed apart. The same is asked of a transformer with random weights: what it has too is not due to
what was learned. `--write` puts the table into docs/src/beyond-relu.md.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import warnings

import numpy as np
import torch
from torch import nn

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/src/beyond-relu.md"
BEGIN, END = "<!-- table of transformer_localisation.py -->", "<!-- end of the table -->"
SIDE, PATCH, WIDTH, HEADS, DEPTH = 28, 4, 32, 2, 3
GRID = SIDE // PATCH
DIGITS, SAMPLES = 300, 2000
# Titles, the program's options, and whether the map is multiplied with the image.
METHODS = [
    ("raw attention, last block", ["--method", "attention"], False),
    ("attention rollout", ["--method", "attention-rollout"], False),
    ("attention × gradient", ["--method", "attention-x-gradient"], False),
    ("SplitCAM g, last block", ["--method", "splitcam", "--layer", "LAST"], False),
    ("SplitCAM g, size, last block", ["--method", "splitcam", "--layer", "LAST", "--abs", "map"], False),
    ("SplitCAM g, size, first block", ["--method", "splitcam", "--layer", "FIRST", "--abs", "map"], False),
    ("SplitCAM h, last block", ["--method", "splitcam", "--stream", "h", "--layer", "LAST"], False),
    ("SplitCAM g, first block", ["--method", "splitcam", "--layer", "FIRST"], False),
    ("SplitGrad g, image", ["--method", "splitgrad", "--layer", "IMAGE"], False),
    ("SplitGrad g, size, image", ["--method", "splitgrad", "--layer", "IMAGE", "--abs", "map"], False),
    ("SplitGrad h, size, image", ["--method", "splitgrad", "--stream", "h", "--layer", "IMAGE", "--abs", "map"], False),
    ("SplitLRP comb, first block", ["--method", "splitlrp", "--layer", "FIRST"], False),
    ("SplitLRP comb, size, first block", ["--method", "splitlrp", "--layer", "FIRST", "--abs", "map"], False),
    ("SplitLRP pos, first block", ["--method", "splitlrp", "--map", "pos", "--layer", "FIRST"], False),
    ("SplitLRP comb, size of channels, first block", ["--method", "splitlrp", "--layer", "FIRST", "--abs", "channels"], False),
    ("SplitCAM g, size of channels, first block", ["--method", "splitcam", "--layer", "FIRST", "--abs", "channels"], False),
    ("SplitCAM g, size of channels, last block", ["--method", "splitcam", "--layer", "LAST", "--abs", "channels"], False),
    ("HiResCAM, size of channels, first block", ["--method", "hirescam", "--layer", "FIRST", "--abs", "channels"], False),
    ("AttnLRP, size of channels, first block", ["--method", "attn-lrp", "--layer", "FIRST", "--abs", "channels"], False),
    ("AttnLRP, first block", ["--method", "attn-lrp", "--layer", "FIRST"], False),
    ("AttnLRP, size, first block", ["--method", "attn-lrp", "--layer", "FIRST", "--abs", "map"], False),
    ("gradient", ["--method", "gradient", "--layer", "IMAGE"], False),
    ("saliency", ["--method", "saliency", "--layer", "IMAGE"], False),
    ("SmoothGrad of squares", ["--method", "smoothgrad:samples=20,stdev=0.2,of=square"], False),
    ("HiResCAM, last block", ["--method", "hirescam", "--layer", "LAST"], False),
    ("occlusion", ["--method", "occlusion:window=4,stride=4"], False),
    ("SplitCAM g, image", ["--method", "splitcam", "--layer", "IMAGE"], True),
    ("SplitLRP comb, image", ["--method", "splitlrp", "--layer", "IMAGE"], True),
    ("AttnLRP, image", ["--method", "attn-lrp", "--layer", "IMAGE"], True),
    ("gradient × input", ["--method", "input-x-gradient", "--layer", "IMAGE"], True),
    ("integrated gradients", ["--method", "integrated-gradients"], True),
]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        self.weights = torch.softmax(q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5, -1)
        return self.out((self.weights @ v).transpose(1, 2).reshape(n, t, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.position = nn.Parameter(0.02 * torch.randn(1, GRID**2 + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def read(folder, part):
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
    images = np.frombuffer(images, np.uint8).reshape(-1, 1, SIDE, SIDE).astype(np.float32) / 255
    return torch.from_numpy(images), torch.from_numpy(np.frombuffer(labels, np.uint8).astype(np.int64))


def train(net, images, labels, epochs):
    """On a graphics processor where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net, images, labels = net.to(device), images.to(device), labels.to(device)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.02)
    steps = epochs * (len(images) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for epoch in range(epochs):
        order = torch.randperm(len(images)).to(device)
        for chosen in order[: len(images) // 128 * 128].split(128):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(images[chosen]), labels[chosen])
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
    net.cpu()


def export(net, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, torch.zeros(1, 1, SIDE, SIDE), str(path), opset_version=17, dynamo=False,
                          input_names=["image"], dynamic_axes={"image": {0: "n"}})


def prepared(arguments):
    """The trained transformer and one with random weights, both as files too."""
    torch.manual_seed(0)
    random = Transformer().eval()
    trained, weights = Transformer(), arguments.out / "transformer.pt"
    if weights.exists():
        trained.load_state_dict(torch.load(weights))
    else:
        train(trained, *read(arguments.mnist, "train"), arguments.epochs)
        torch.save(trained.state_dict(), weights)
    trained.eval()
    for name, net in (("trained", trained), ("random", random)):
        export(net, arguments.out / f"{name}.onnx")
    return trained, random


# What goes into the first and into the last block, and the image.
LAYERS = {"FIRST": "blocks.0.norm1", "LAST": f"blocks.{DEPTH - 1}.norm1", "IMAGE": "patches"}


def asked(program, file, images, classes, options, folder):
    """The program's maps, at the size of the image."""
    np.save(folder / "x.npy", images.numpy())
    words = [LAYERS.get(word, word) for word in options]
    for label in classes.tolist():
        words += ["--class", str(label)]
    subprocess.run([program, "explain", file, folder / "x.npy", "--raw", folder / "map.npy", "--size", "input", "--out",
                    folder / "pictures", "--quiet", *words], check=True, capture_output=True)
    return np.load(folder / "map.npy").astype(np.float64).reshape(len(images), SIDE, SIDE)


def enlarged(tokens):
    """A number for each patch, at the size of the image."""
    grid = tokens.reshape(-1, 1, GRID, GRID)
    return nn.functional.interpolate(grid, (SIDE, SIDE), mode="bilinear").squeeze(1).detach().numpy().astype(np.float64)


def attentions(net, images, classes):
    """Attention from the class token in the last block, rolled out over all, and times its gradient, by PyTorch."""
    scores = net(images)
    weights = [block.attention.weights for block in net.blocks]
    slopes = torch.autograd.grad(scores.gather(1, classes[:, None]).sum(), weights)
    rolled = times = identity = torch.eye(GRID**2 + 1)
    for w, slope in zip(weights, slopes):
        rolled = (0.5 * w.mean(1) + 0.5 * identity) @ rolled
        times = times + (w * slope).clamp(min=0).mean(1) @ times
    return {
        "raw attention, last block": enlarged(weights[-1].mean(1)[:, 0, 1:]),
        "attention rollout": enlarged(rolled[:, 0, 1:]),
        "attention × gradient": enlarged(times[:, 0, 1:]),
    }


def auc(map, mask):
    """The probability that a place on the mask has the larger value, ties counted half."""
    values, places = np.unique(map, return_inverse=True)
    counts = np.bincount(places.ravel(), minlength=len(values))
    ranks = np.cumsum(counts) - (counts - 1) / 2
    on = mask.ravel()
    inside, outside = on.sum(), (~on).sum()
    return (ranks[places.ravel()][on].sum() - inside * (inside + 1) / 2) / (inside * outside)


def share(map, mask):
    positive = map.clip(min=0)
    total = positive.sum()
    return positive[mask].sum() / total / mask.mean() if total > 0 else 1.0


def interval(values, rng):
    draws = rng.choice(values, (SAMPLES, len(values))).mean(1)
    return float(values.mean()), *map(float, np.quantile(draws, [0.025, 0.975]))


def scored(maps, masks, rng):
    found = {"auc": np.array([auc(m, k) for m, k in zip(maps, masks)]), "share": np.array([share(m, k) for m, k in zip(maps, masks)])}
    return {name: interval(values, rng) for name, values in found.items()}


def measured(arguments, net, file, images, classes):
    rng = np.random.default_rng(0)
    masks = images.squeeze(1).numpy() > 0.5
    rows = {"random": (scored(rng.standard_normal((len(images), SIDE, SIDE)), masks, rng), False)}
    expected = attentions(net, images, classes)
    for name, options, trivial in METHODS:
        maps = asked(arguments.program, file, images, classes, options, arguments.out)
        assert np.isfinite(maps).all(), name
        if name in expected:
            distance = np.linalg.norm(maps - expected[name]) / np.linalg.norm(expected[name])
            assert distance < 1e-4, f"{name} is {distance} from PyTorch"
        rows[name] = (scored(maps, masks, rng), trivial)
        print(name, rows[name], flush=True)
    return rows


def table(trained, random, accuracy):
    lines = [f"{DIGITS} test digits the transformer gets right (it gets {100 * accuracy:.1f} % of all); mean over images and 95 % interval.", "",
             "| map | AUC | share | AUC, random weights |", "|---|---|---|---|"]
    text = lambda v: f"{v[0]:.3f} ({v[1]:.3f}–{v[2]:.3f})"
    order = sorted(trained, key=lambda name: (trained[name][1], -trained[name][0]["auc"][0]))
    for name in order:
        row, trivial = trained[name]
        star = " *" if trivial else ""
        lines.append(f"| {name}{star} | {text(row['auc'])} | {text(row['share'])} | {text(random[name][0]['auc'])} |")
    return "\n".join(lines + ["", "\\* multiplied with the image, which is zero off the strokes: the network has no part in that."])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--program", default=str(ROOT / "target/release/monosplit"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    trained, random = prepared(arguments)
    images, labels = read(arguments.mnist, "t10k")
    with torch.no_grad():
        right = trained(images).argmax(1) == labels
    accuracy = right.float().mean().item()
    print(f"{100 * accuracy:.2f} % right", flush=True)
    images, classes = images[right][:DIGITS], labels[right][:DIGITS]
    rows = [measured(arguments, net, arguments.out / f"{name}.onnx", images, classes)
            for name, net in (("trained", trained), ("random", random))]
    text = table(*rows, accuracy)
    print(text)
    (arguments.out / "rows.json").write_text(json.dumps(rows, indent=1))
    if arguments.write:
        document = DOCUMENT.read_text()
        before, rest = document.split(BEGIN)
        DOCUMENT.write_text(before + BEGIN + "\n\n" + text + "\n\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
