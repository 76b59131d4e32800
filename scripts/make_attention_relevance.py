"""Golden values of AttnLRP on one small transformer block, by a transcription of its rules in double precision.

    python scripts/make_attention_relevance.py

`network.onnx` has patches, a class token, positions, a block with two heads and a gated feed-forward layer, and a head;
`x.npy`, `classes.npy`; `image.npy` and `block.npy` are the relevance of the image and of what goes into the block, by the
rules of Achtibat et al. 2024 (https://arxiv.org/abs/2402.05602), handed down step by step with NumPy: nothing here
differentiates anything. All weights are numbers of single precision. `gamma.npy` is the image's relevance where affine layers have
the generalised gamma rule.
"""

import pathlib
import warnings

import numpy as np
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent.parent / "crates/explain/tests/fixtures/attention"
WIDTH, HEADS, PATCH, CLASSES = 8, 2, 2, 3
EPSILON, NORM_EPSILON, GAMMA = 1e-6, 2.0**-10, 0.25


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, NORM_EPSILON), nn.LayerNorm(WIDTH, NORM_EPSILON)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(WIDTH, 6), nn.Linear(WIDTH, 6), nn.Linear(6, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).reshape(n, t, HEADS, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(2, 3) * 0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, WIDTH))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.token, self.position = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 5, WIDTH))
        self.block, self.norm, self.head = Block(), nn.LayerNorm(WIDTH, NORM_EPSILON), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.block(x))[:, 0])


def stab(z):
    return z + np.where(z >= 0, EPSILON, -EPSILON)


def shares(x, z, r):
    """What `x` gets of the relevance of a sum `z` it is a term of."""
    return x * r / stab(z)


class Linear:
    """`z = x W + b` over the last axis; by the rule epsilon or the generalised rule gamma."""

    def __init__(self, weight, bias):
        self.w, self.b = weight, bias

    def forward(self, x):
        self.x, self.z = x, x @ self.w + self.b
        return self.z

    def down(self, r, gamma):
        if gamma is None:
            return self.x * ((r / stab(self.z)) @ self.w.T)
        above = lambda v: v + gamma * v.clip(min=0)
        below = lambda v: v + gamma * v.clip(max=0)
        plus, minus = self.x.clip(min=0), self.x.clip(max=0)
        total = 0.0
        for chosen, one, other in ((self.z > 0, above, below), (self.z < 0, below, above)):
            z = plus @ one(self.w) + minus @ other(self.w) + one(self.b)
            c = np.where(chosen, r, 0) / stab(z)
            total = total + plus * (c @ one(self.w).T) + minus * (c @ other(self.w).T)
        return total


class Norm:
    def __init__(self, scale, bias):
        self.scale, self.bias = scale, bias

    def forward(self, x):
        self.x, self.mean = x, x.mean(-1, keepdims=True)
        self.centred = x - self.mean
        self.scaled = self.centred / np.sqrt((self.centred**2).mean(-1, keepdims=True) + NORM_EPSILON) * self.scale
        return self.scaled + self.bias

    def down(self, r):
        # The bias is a term of the sum; the deviation and the scale hand relevance on as it is.
        r = shares(self.scaled, self.scaled + self.bias, r)
        of_mean = shares(-self.mean, self.centred, r).sum(-1, keepdims=True)
        return shares(self.x, self.centred, r) + shares(self.x / self.x.shape[-1], self.mean, of_mean)


class Reference:
    def __init__(self, net, gamma):
        state = {name: value.double().numpy() for name, value in net.state_dict().items()}
        linear = lambda name: Linear(state[name + ".weight"].T, state[name + ".bias"])
        norm = lambda name: Norm(state[name + ".weight"], state[name + ".bias"])
        self.gamma, self.token, self.position = gamma, state["token"], state["position"]
        self.patches = Linear(state["patches.weight"].reshape(WIDTH, -1).T, state["patches.bias"])
        self.q, self.k, self.v, self.out = (linear("block." + name) for name in ("q", "k", "v", "out"))
        self.gate, self.up, self.lower = (linear("block." + name) for name in ("gate", "up", "down"))
        self.norm1, self.norm2, self.norm, self.head = norm("block.norm1"), norm("block.norm2"), norm("norm"), linear("head")

    def heads(self, x):
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

    def joined(self, x):
        return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)

    def forward(self, image):
        n = len(image)
        self.shape = image.shape
        tiles = image.reshape(n, 2, PATCH, 2, PATCH).transpose(0, 1, 3, 2, 4).reshape(n, 4, PATCH * PATCH)
        self.tokens = np.concatenate([np.broadcast_to(self.token, (n, 1, WIDTH)), self.patches.forward(tiles)], 1)
        self.x = self.tokens + self.position
        y = self.norm1.forward(self.x)
        self.qh, self.kh, self.vh = (self.heads(f.forward(y)) for f in (self.q, self.k, self.v))
        self.dots = self.qh @ self.kh.swapaxes(2, 3)
        self.logits = self.dots * 0.5
        e = np.exp(self.logits - self.logits.max(-1, keepdims=True))
        self.weights = e / e.sum(-1, keepdims=True)
        self.mixed = self.weights @ self.vh
        self.attended = self.out.forward(self.joined(self.mixed))
        self.middle = self.x + self.attended
        y = self.norm2.forward(self.middle)
        pre = torch.from_numpy(self.gate.forward(y))
        self.gated, self.signal = nn.functional.silu(pre).numpy(), self.up.forward(y)
        self.product = self.gated * self.signal
        self.fed = self.lower.forward(self.product)
        self.end = self.middle + self.fed
        return self.head.forward(self.norm.forward(self.end)[:, 0])

    def down(self, scores, classes):
        r = np.where(np.arange(CLASSES) == classes[:, None], scores, 0)
        r_tokens = np.zeros_like(self.end)
        r_tokens[:, 0] = self.head.down(r, self.gamma)
        r = self.norm.down(r_tokens)
        r_middle, r = shares(self.middle, self.end, r), shares(self.fed, self.end, r)
        r = self.lower.down(r, self.gamma)
        half = 0.5 * shares(self.product, self.product, r)
        # The activation hands relevance on as it is.
        r = self.norm2.down(self.gate.down(half, self.gamma) + self.up.down(half, self.gamma))
        r_middle = r_middle + r
        r_x, r = shares(self.x, self.middle, r_middle), shares(self.attended, self.middle, r_middle)
        r = self.heads(self.out.down(r, self.gamma))
        c = 0.5 * r / stab(self.mixed)
        r_weights = np.einsum("nhij,nhip,nhjp->nhij", self.weights, c, self.vh)
        r_values = np.einsum("nhij,nhip,nhjp->nhjp", self.weights, c, self.vh)
        r = self.logits * (r_weights - self.weights * r_weights.sum(-1, keepdims=True))
        c = 0.5 * r / stab(self.dots)
        r_queries = np.einsum("nhij,nhip,nhjp->nhip", c, self.qh, self.kh)
        r_keys = np.einsum("nhij,nhip,nhjp->nhjp", c, self.qh, self.kh)
        pairs = ((self.q, r_queries), (self.k, r_keys), (self.v, r_values))
        r = self.norm1.down(sum(f.down(self.joined(r), self.gamma) for f, r in pairs))
        r_x = r_x + r
        r = shares(self.tokens, self.x, r_x)[:, 1:]
        r = self.patches.down(r, self.gamma)
        n = len(r)
        return r.reshape(n, 2, 2, PATCH, PATCH).transpose(0, 1, 3, 2, 4).reshape(self.shape), r_x


def network():
    torch.manual_seed(4)
    net = Transformer().eval()
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.6, 1.4)
                module.bias.uniform_(-0.3, 0.3)
    return net


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    net = network()
    image = np.random.default_rng(4).standard_normal((3, 1, 4, 4)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, torch.from_numpy(image), str(FOLDER / "network.onnx"), opset_version=17, dynamo=False,
                          input_names=["x"], dynamic_axes={"x": {0: "n"}})
    plain, raised = Reference(net, None), Reference(net, GAMMA)
    scores = plain.forward(image.astype(np.float64))
    expected = net.double()(torch.from_numpy(image).double()).detach().numpy()
    assert np.abs(scores - expected).max() < 1e-12, "the transcription is of another network"
    classes = np.array([0, 1, 2])
    of_image, of_block = plain.down(scores, classes)
    of_raised, _ = raised.down(raised.forward(image.astype(np.float64)), classes)
    arrays = {"x": image, "classes": classes, "image": of_image, "block": of_block, "gamma": of_raised}
    for name, array in arrays.items():
        np.save(FOLDER / f"{name}.npy", array)
    print(scores[np.arange(3), classes], of_image.sum((1, 2, 3)), of_block.sum((1, 2)), of_raised.sum((1, 2, 3)))


if __name__ == "__main__":
    main()
