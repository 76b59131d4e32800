"""The paper's algorithm to the letter, in PyTorch and float64, for networks of ReLU, convolution, linear layers,
pooling, addition and concatenation.

Every activation is a pair `(a⁺, a⁻)`, weights are materialised as `W⁺ = max(W, 0)` and `W⁻ = max(−W, 0)`, so that an
affine layer takes four maps forward and eight backward. The original network's activations and gradients are cached;
they correct pairs and sensitivities and decide every mask and winner. Scaling stabiliser, convex max pooling, input
in halves, the shift at every node: the program's defaults.
"""

import torch
from torch import nn
from torch.nn import functional

THETA, LIMIT, ALPHA = 0.1, 10.0, 0.4
UNCOUNTED = {"Flatten", "Concat"}


class Affine:
    """A convolution or a linear layer with its weights split by sign."""

    def __init__(self, layer):
        self.layer = layer
        self.plus, self.minus = layer.weight.clamp(min=0), (-layer.weight).clamp(min=0)
        bias = layer.weight.new_zeros(layer.weight.shape[0]) if layer.bias is None else layer.bias
        self.bias = bias.clamp(min=0), (-bias).clamp(min=0)

    def options(self):
        layer = self.layer
        return {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}

    def map(self, weight, a, bias=None):
        if isinstance(self.layer, nn.Linear):
            return functional.linear(a, weight, bias)
        return functional.conv2d(a, weight, bias, **self.options())

    def transposed(self, weight, y, shape):
        if isinstance(self.layer, nn.Linear):
            return y @ weight
        return nn.grad.conv2d_input(shape, weight, y, **self.options())

    def forward(self, p, q):
        plus = self.map(self.plus, p, self.bias[0]) + self.map(self.minus, q)
        minus = self.map(self.minus, p, self.bias[1]) + self.map(self.plus, q)
        return plus, minus

    def backward(self, p, q, shape):
        plus = self.transposed(self.plus, p, shape) + self.transposed(self.minus, q, shape)
        minus = self.transposed(self.minus, p, shape) + self.transposed(self.plus, q, shape)
        return plus, minus


def window_sums(pool, a):
    return functional.avg_pool2d(a, pool.kernel_size, pool.stride, pool.padding, pool.ceil_mode, divisor_override=1)


def winners(pool, a):
    """The places of the maxima, by the original activations."""
    options = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    return functional.max_pool2d(a, *options, return_indices=True)[1]


def max_pooled(pool, a, p, q):
    """`max_j{a⁺_j + Σ_{i≠j} a⁻_i}` and `Σ_i a⁻_i`."""
    at = winners(pool, a)
    best = (p - q).flatten(2).gather(2, at.flatten(2)).view_as(at)
    minus = window_sums(pool, q)
    return best + minus, minus


def max_pooled_back(pool, a, p, q):
    """The winner gets the pair, every other member of the window `(0, δ⁺ + δ⁻)`."""
    at = winners(pool, a).flatten(2)
    plus = torch.zeros_like(a).flatten(2).scatter_add_(2, at, p.flatten(2)).view_as(a)
    return plus, linear_back(lambda x: window_sums(pool, x), a, p + q) - plus


def linear_back(function, a, y):
    """The transpose of a module that is linear."""
    with torch.enable_grad():
        x = torch.zeros_like(a, requires_grad=True)
        return torch.autograd.grad(function(x), x, y)[0]


class FourStreams:
    def __init__(self, network):
        self.network = network.double()
        steps = zip(network.nodes, network.functions)
        self.affine = {n.name: Affine(f) for n, f in steps if n.op in ("Conv", "Gemm")}

    def steps(self):
        return list(zip(self.network.nodes, self.network.functions))

    def explain(self, x, classes, layers):
        """Class scores, and at the input of each layer SplitCAM and SplitGrad of stream g, by name."""
        x = x.double()
        logits, original, gradients = self.cached(x, classes)
        with torch.no_grad():
            self.forward(x, original)
            g = self.backward(original, gradients, classes)
            maps = {"logits": logits}
            for node in self.network.nodes:
                if node.name in layers:
                    maps |= self.maps(node, original, g)
        return maps

    def maps(self, node, original, g):
        a, (plus, minus) = original[node.inputs[0]], g[node.inputs[0]]
        sensitivity = (plus - minus) / 2
        cam, grad = sensitivity * a, sensitivity
        if a.dim() == 4:
            cam, grad = cam.sum(1), grad.mean(1)
        return {f"splitcam-g@{node.name}": cam, f"splitgrad-g@{node.name}": grad}

    def cached(self, x, classes):
        """The original network's own activations and gradients."""
        with torch.enable_grad():
            original = self.network.values(x.clone().requires_grad_(True))
            logits = original[self.network.nodes[-1].output]
            score = logits.gather(1, classes[:, None]).sum()
            gradients = torch.autograd.grad(score, list(original.values()))
        detached = {name: a.detach() for name, a in original.items()}
        return logits.detach(), detached, dict(zip(original, gradients))

    def forward(self, x, original):
        pairs = {self.network.source: (x / 2, -x / 2)}
        for node, function in self.steps():
            operands = [pairs[i] for i in node.inputs]
            a = original[node.output]
            pair = self.split(node, function, operands, original)
            pair = corrected(*pair, a)
            pairs[node.output] = pair if node.op == "Concat" else stabilised(*pair, a)
        return pairs

    def split(self, node, function, operands, original):
        p, q = operands[0]
        if node.name in self.affine:
            return self.affine[node.name].forward(p, q)
        if node.op == "Relu":
            return torch.where(original[node.inputs[0]] >= 0, p, q), q
        if node.op == "MaxPool":
            return max_pooled(function, original[node.inputs[0]], p, q)
        if node.op == "Flatten":
            return p.flatten(1), q.flatten(1)
        return tuple(function(*parts) for parts in zip(*operands))

    def backward(self, original, gradients, classes):
        """The two sensitivities of stream g at every value, computed along with those of stream h."""
        scores = self.network.nodes[-1].output
        seed = functional.one_hot(classes, original[scores].shape[1]).double()
        zero = torch.zeros_like(seed)
        g, h = {scores: shifted(seed, zero)}, {scores: shifted(zero, seed)}
        for node, function in reversed(self.steps()):
            g[node.output], h[node.output] = balanced(g[node.output], h[node.output], gradients[node.output])
            for stream in (g, h):
                received = self.back(node, function, original, *stream[node.output])
                for name, pair in zip(node.inputs, received):
                    pair = pair if node.op in UNCOUNTED else shifted(*pair)
                    before = stream.get(name)
                    stream[name] = pair if before is None else (before[0] + pair[0], before[1] + pair[1])
        source = self.network.source
        g[source], h[source] = balanced(g[source], h[source], gradients[source])
        return g

    def back(self, node, function, original, p, q):
        """What each operand receives."""
        a = original[node.inputs[0]]
        if node.name in self.affine:
            return [self.affine[node.name].backward(p, q, a.shape)]
        if node.op == "Relu":
            active = a >= 0
            return [(torch.where(active, p, 0), torch.where(active, q, p + q))]
        if node.op == "MaxPool":
            return [max_pooled_back(function, a, p, q)]
        if node.op == "Flatten":
            return [(p.view_as(a), q.view_as(a))]
        if node.op == "Add":
            return [(p, q)] * 2
        if node.op == "Concat":
            lengths = [original[i].shape[1] for i in node.inputs]
            return list(zip(p.split(lengths, 1), q.split(lengths, 1)))
        return [(linear_back(function, a, p), linear_back(function, a, q))]


def corrected(p, q, a):
    """The forward invariant `a⁺ − a⁻ = a`."""
    error = (a - (p - q)) / 2
    return p + error, q - error


def stabilised(p, q, a):
    """Pairs past the limit are multiplied by θ, sample by sample, and corrected again."""
    largest = torch.maximum(p.abs(), q.abs()).flatten(1).amax(1)
    factor = torch.where(largest > LIMIT, THETA, 1.0).view(-1, *[1] * (a.dim() - 1))
    return corrected(p * factor, q * factor, a)


def shifted(p, q):
    offset = ALPHA * (p + q)
    return p - offset, q - offset


def balanced(g, h, gradient):
    """The backward invariant `(δ⁺ᵍ − δ⁻ᵍ)/2 − (δ⁺ʰ − δ⁻ʰ)/2 = ∂f/∂a`."""
    error = (gradient - ((g[0] - g[1]) - (h[0] - h[1])) / 2) / 2
    return (g[0] + error, g[1] - error), (h[0] - error, h[1] + error)
