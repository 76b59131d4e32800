"""Makes crates/monosplit/tests/fixtures/inputs: small networks of two inputs or of other axes than pictures have, and what
PyTorch and Captum attribute to them.

    python scripts/make_input_fixtures.py

`text.onnx` is a transformer of one layer that reads `ids` [N, 6] and `mask` [N, 6], both int64, and returns `scores` [N, 3].
`pair.onnx` reads `picture` [N, 1, 6, 6] and `facts` [N, 4] and returns `scores` [N, 3]. `NETWORK.INPUT.npy` holds two samples,
`text.baseline.npy` the token ids that a path starts from.

`recurrent.onnx` (a bidirectional LSTM and a GRU) and `newest.onnx` (Attention and RMSNormalization, by the newest exporter) read `x` of
shape [N, 5, 3]; `series.onnx`, `volume.onnx` and `table.onnx` read `x` of shape [N, 2, 12], [N, 1, 4, 6, 6] and [N, 5]. Their Grad-CAM is that of
the second convolution, without the final ReLU.

`NETWORK.METHOD.INPUT.npy` holds attributions in double precision for the class with the highest score: of token ids with
respect to the embedding, summed over it (the gradient: averaged over it).
"""

import pathlib
import warnings

import numpy as np
import onnx
import torch
from captum.attr import IntegratedGradients, LayerGradCam, LayerGradientXActivation, LayerIntegratedGradients, Occlusion
from torch import nn

FOLDER = pathlib.Path(__file__).parent.parent / "crates/monosplit/tests/fixtures/inputs"
STEPS = 20


class Text(nn.Module):
    """A transformer over tokens; where the mask is 0, nothing is attended to."""

    def __init__(self, words=11, tokens=6, width=8, heads=2):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(tokens, width)
        self.projection, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.scores, self.heads = nn.Linear(width, 3), heads

    def forward(self, ids, mask):
        return self.from_embedding(self.words(ids), mask)

    def from_embedding(self, words, mask):
        x = words + self.places(torch.arange(words.shape[1]))
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.projection(x).chunk(3, 2))
        similar = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        similar = similar + (1 - mask.to(similar.dtype))[:, None, None] * -10000.0
        mixed = (similar.softmax(3) @ v).transpose(1, 2).flatten(2)
        x = self.first(x + self.out(mixed))
        x = self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))
        return self.scores(x[:, 0])


class Pair(nn.Module):
    """A picture and four numbers that are known of it."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.facts = nn.Sequential(nn.Linear(4, 5), nn.Tanh())
        self.scores = nn.Sequential(nn.Linear(41, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, picture, facts):
        return self.scores(torch.cat([self.trunk(picture), self.facts(facts)], 1))


def export(net, name, inputs, **options):
    axes = {one: {0: "N"} for one in [*inputs, "scores"]}
    options = {"dynamo": False, "opset_version": 17, "dynamic_axes": axes, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(), tuple(inputs.values()), str(FOLDER / name), input_names=list(inputs), output_names=["scores"], **options)
    if options["dynamo"]:
        tidy(FOLDER / name)


def tidy(path):
    """One file, without the paths of the machine that the newest exporter notes at each node."""
    model = onnx.load(path)
    path.with_suffix(".onnx.data").unlink(missing_ok=True)
    del model.graph.metadata_props[:]
    for part in [*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]:
        part.doc_string = ""
        del part.metadata_props[:]
    del model.metadata_props[:]
    onnx.save(model, path)


def save(name, value):
    np.save(FOLDER / f"{name}.npy", value.detach().numpy())


def gradients(score, inputs, classes):
    values = [value.detach().requires_grad_() for value in inputs]
    picked = score(*values).gather(1, classes[:, None]).sum()
    return list(zip(torch.autograd.grad(picked, values), values))


def text():
    net = Text()
    ids = torch.tensor([[1, 7, 4, 9, 2, 0], [1, 3, 3, 10, 5, 2]])
    mask, baseline = (ids != 0).long(), torch.tensor([[1, 0, 0, 0, 0, 2]])
    export(net, "text.onnx", {"ids": ids, "mask": mask})
    for name, value in [("ids", ids), ("mask", mask), ("baseline", baseline)]:
        save(f"text.{name}", value)
    net = net.double().eval()
    classes = net(ids, mask).argmax(1)
    save("text.scores", net(ids, mask))
    [(gradient, words)] = gradients(lambda words: net.from_embedding(words, mask), [net.words(ids)], classes)
    save("text.gradient.ids", gradient.mean(2))
    save("text.input-x-gradient.ids", (gradient * words).sum(2))
    way = LayerIntegratedGradients(net, net.words)
    for name, start in [("zero", None), ("padded", baseline.expand_as(ids))]:
        if start is None:
            found = IntegratedGradients(lambda words, mask: net.from_embedding(words, mask)).attribute(
                words.detach(), additional_forward_args=mask, target=classes, n_steps=STEPS)
        else:
            found = way.attribute(ids, baselines=start, additional_forward_args=mask, target=classes, n_steps=STEPS)
        save(f"text.integrated-gradients-{name}.ids", found.sum(2))
    found = Occlusion(net.from_embedding).attribute(
        words.detach(), (1, words.shape[2]), strides=(1, words.shape[2]), additional_forward_args=mask, target=classes)
    save("text.occlusion.ids", found[:, :, 0])
    found = LayerGradientXActivation(net, net.wide).attribute(ids, additional_forward_args=mask, target=classes)
    save("text.input-x-gradient-wide.ids", found.sum(2))


def pair():
    net = Pair()
    inputs = {"picture": torch.randn(2, 1, 6, 6), "facts": torch.randn(2, 4)}
    export(net, "pair.onnx", inputs)
    for name, value in inputs.items():
        save(f"pair.{name}", value)
    net, values = net.double().eval(), tuple(value.double() for value in inputs.values())
    classes = net(*values).argmax(1)
    save("pair.scores", net(*values))
    for name, (gradient, value) in zip(inputs, gradients(net, values, classes)):
        save(f"pair.gradient.{name}", gradient)
        save(f"pair.input-x-gradient.{name}", gradient * value)
    found = IntegratedGradients(net).attribute(values, target=classes, n_steps=STEPS)
    for name, value in zip(inputs, found):
        save(f"pair.integrated-gradients.{name}", value)
    found = Occlusion(net).attribute(values, ((1, 2, 2), (1,)), strides=((1, 2, 2), (1,)), target=classes)
    for name, value in zip(inputs, found):
        save(f"pair.occlusion.{name}", value)


def convolutional(convolution, pool, channels):
    """Two convolutions with a pool between them, over any number of axes."""

    class Mean(nn.Module):
        def forward(self, x):
            return x.flatten(2).mean(2)

    return nn.Sequential(
        convolution(channels, 4, 3, padding=1), nn.ReLU(), pool(2),
        convolution(4, 5, 3, padding=1), nn.ReLU(), Mean(), nn.Linear(5, 3),
    )


class Recurrent(nn.Module):
    """A bidirectional LSTM and a GRU behind it, which are written out step by step when they are read."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 4, batch_first=True)
        self.scores = nn.Linear(4, 3)

    def forward(self, x):
        return self.scores(self.gru(self.lstm(x)[0])[0][:, -1])


class Newest(nn.Module):
    """What the newest exporter writes as Attention and RMSNormalization."""

    def __init__(self):
        super().__init__()
        self.embedding, self.projection = nn.Linear(3, 8), nn.Linear(8, 24)
        # Of the default, each precision has its own.
        self.norm, self.scores = nn.RMSNorm(8, eps=2**-20), nn.Linear(8, 3)

    def forward(self, x):
        h = self.norm(self.embedding(x))
        q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in self.projection(h).chunk(3, 2))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.scores((h + mixed.transpose(1, 2).flatten(2)).mean(1))


def sequence(name, net, **options):
    """A network of five steps of three numbers."""
    x = torch.randn(2, 5, 3)
    export(net, f"{name}.onnx", {"x": x}, **options)
    save(f"{name}.x", x)
    net, x = net.double().eval(), x.double()
    classes = net(x).argmax(1)
    save(f"{name}.scores", net(x))
    [(gradient, value)] = gradients(net, [x], classes)
    save(f"{name}.gradient.x", gradient)
    save(f"{name}.input-x-gradient.x", gradient * value)
    save(f"{name}.integrated-gradients.x", IntegratedGradients(net).attribute(x, target=classes, n_steps=STEPS))


def axes(name, net, shape, window):
    x = torch.randn(2, *shape)
    export(net, f"{name}.onnx", {"x": x})
    save(f"{name}.x", x)
    net, x = net.double().eval(), x.double()
    classes = net(x).argmax(1)
    save(f"{name}.scores", net(x))
    [(gradient, value)] = gradients(net, [x], classes)
    save(f"{name}.gradient.x", gradient)
    save(f"{name}.input-x-gradient.x", gradient * value)
    save(f"{name}.integrated-gradients.x", IntegratedGradients(net).attribute(x, target=classes, n_steps=STEPS))
    # Captum's windows have channels too; ours cover all of them.
    wide = (shape[0], *window) if len(shape) > 1 else window
    found = Occlusion(net).attribute(x, wide, strides=wide, target=classes)
    save(f"{name}.occlusion.x", found[:, 0] if len(shape) > 1 else found)
    if len(shape) > 1:
        save(f"{name}.gradcam.x", LayerGradCam(net, net[3]).attribute(x, target=classes)[:, 0])


def make(folder, draw=0):
    """All networks and values; another draw has other weights and samples."""
    global FOLDER
    FOLDER = folder
    FOLDER.mkdir(parents=True, exist_ok=True)
    newest = {"dynamo": True, "opset_version": 23, "dynamic_axes": None, "dynamic_shapes": ({0: torch.export.Dim("N")},)}
    for seed, write in [(29, text), (30, pair), (40, lambda: sequence("recurrent", Recurrent())),
                       (41, lambda: sequence("newest", Newest(), **newest))]:
        torch.manual_seed(seed + 1000 * draw)
        write()
    for seed, (name, net, shape, window) in enumerate([
        ("series", lambda: convolutional(nn.Conv1d, nn.MaxPool1d, 2), (2, 12), (3,)),
        ("volume", lambda: convolutional(nn.Conv3d, nn.MaxPool3d, 1), (1, 4, 6, 6), (2, 3, 2)),
        ("table", lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), (5,), (1,)),
    ], 31):
        torch.manual_seed(seed + 1000 * draw)
        axes(name, net(), shape, window)


if __name__ == "__main__":
    make(FOLDER)
