"""Tiny PyTorch networks, one per pattern that real exports show."""

import torch
from torch import nn
from torch.nn import functional as F


class ResidualBlock(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + shortcut)


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 6, 7, 2, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        ResidualBlock(6, 6, 1), ResidualBlock(6, 9, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 7),
    )  # fmt: skip


def vgg():
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(5, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(),
        nn.Linear(32, 11), nn.ReLU(), nn.Dropout(0.5), nn.Linear(11, 7),
    )  # fmt: skip


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(6 + 4 * index) for index in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(6 + 4 * index, 4, 3, padding=1, bias=False) for index in range(3)])
        self.transition = nn.Sequential(nn.BatchNorm2d(18), nn.ReLU(), nn.Conv2d(18, 8, 1, bias=False), nn.AvgPool2d(2, 2))
        self.norm = nn.BatchNorm2d(8)
        self.classifier = nn.Linear(8, 7)

    def forward(self, x):
        features = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs):
            features.append(conv(F.relu(norm(torch.cat(features, 1)))))
        y = F.relu(self.norm(self.transition(torch.cat(features, 1))))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(y, (1, 1)), 1))


class Fire(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.expand1 = nn.Conv2d(4, 6, 1)
        self.expand3 = nn.Conv2d(4, 6, 3, padding=1)
        self.classifier = nn.Conv2d(12, 7, 1)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.stem(x)), 3, 2, ceil_mode=True)
        y = F.relu(self.squeeze(y))
        y = torch.cat([F.relu(self.expand1(y)), F.relu(self.expand3(y))], 1)
        y = F.relu(self.classifier(F.dropout(y, 0.5, self.training)))
        return torch.flatten(F.adaptive_avg_pool2d(y, 1), 1)


class InvertedResidual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6())
        self.block = nn.Sequential(
            nn.Conv2d(6, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6(),
            nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False), nn.BatchNorm2d(12), nn.ReLU6(),
            nn.Conv2d(12, 6, 1, bias=False), nn.BatchNorm2d(6),
        )  # fmt: skip
        self.classifier = nn.Linear(6, 7)

    def forward(self, x):
        y = self.stem(x)
        y = y + self.block(y)
        return self.classifier(y.mean([2, 3]))


class SqueezeExcite(nn.Module):
    def __init__(self, gate, activation):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.reduce = nn.Conv2d(8, 3, 1)
        self.expand = nn.Conv2d(3, 8, 1)
        self.gate = gate
        self.activation = activation
        self.classifier = nn.Linear(8, 7)

    def forward(self, x):
        y = self.activation(self.stem(x))
        y = y * self.gate(self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(y, 1)))))
        return self.classifier(y.mean((2, 3)))


class ChannelShuffle(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4))
        self.classifier = nn.Linear(8, 7)

    def forward(self, x):
        kept, changed = self.stem(x).chunk(2, dim=1)
        y = torch.cat((kept, self.branch(changed)), 1)
        batch, channels, height, width = y.size()
        y = y.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous().view(batch, channels, height, width)
        return self.classifier(F.relu(y).mean([2, 3]))


class ViewFlatten(nn.Module):
    """`x.view(x.size(0), -1)`: older exporters compute the target shape by nodes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.classifier = nn.Linear(4 * 6 * 6, 7)

    def forward(self, x):
        y = F.relu(self.conv(x))
        return self.classifier(y.view(y.size(0), -1))


class Interpolate(nn.Module):
    def __init__(self, by_size=False, **options):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)
        self.head = nn.Conv2d(4, 2, 3, padding=1)
        self.options = options
        self.by_size = by_size

    def forward(self, x):
        y = F.relu(self.conv(x))
        target = {"size": x.shape[2:]} if self.by_size else {"scale_factor": 2.0}
        return self.head(F.interpolate(y, **target, **self.options))


class Transformer(nn.Module):
    def __init__(self, activation=None):
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 12))
        self.position = nn.Parameter(torch.randn(1, 10, 12))
        self.norm1 = nn.LayerNorm(12)
        self.qkv = nn.Linear(12, 36)
        self.project = nn.Linear(12, 12)
        self.norm2 = nn.LayerNorm(12)
        self.mlp = nn.Sequential(nn.Linear(12, 24), activation or nn.GELU(), nn.Linear(24, 12))
        self.head = nn.Linear(12, 7)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.position
        batch, length, width = y.shape
        q, k, v = self.qkv(self.norm1(y)).reshape(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
        weights = ((q @ k.transpose(-2, -1)) * (width // 2) ** -0.5).softmax(-1)
        y = y + self.project((weights @ v).transpose(1, 2).reshape(batch, length, width))
        y = y + self.mlp(self.norm2(y))
        return self.head(y[:, 0])


class Attention(nn.Module):
    """The framework's own attention module, which exporters spell out in their own way."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = self.norm(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        return self.head((x + y).mean(1))


def normalised(norm):
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), norm, nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(64, 7))


def sequence():
    return nn.Sequential(
        nn.Conv1d(3, 6, 5, 2, 2), nn.BatchNorm1d(6), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(6, 6, 3, padding=2, dilation=2, groups=3), nn.ReLU(), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 5),
    )  # fmt: skip


def decoder():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1), nn.BatchNorm2d(4), nn.ReLU(),
        nn.ConvTranspose2d(4, 4, 4, 2, 1, groups=2, bias=False), nn.Tanh(), nn.Conv2d(4, 2, 1),
    )  # fmt: skip


def activated(*activations):
    layers = []
    for index, activation in enumerate(activations):
        layers += [nn.Conv2d(3 if index == 0 else 4, 4, 3, padding=1), activation]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 36, 5))


def response_normalised():
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.LocalResponseNorm(5, alpha=0.3, beta=0.75, k=1.5), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(96, 5))


class CeilPools(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = F.relu(self.conv(x))
        most = F.max_pool2d(y, 3, 2, ceil_mode=True)
        mean = F.avg_pool2d(y, 3, 2, padding=1, ceil_mode=True, count_include_pad=False)
        return self.head(torch.cat([most.amax((2, 3)), mean.mean((2, 3))], 1))


class AsymmetricPad(nn.Module):
    def __init__(self, mode, value):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2)
        self.head = nn.Linear(4, 5)
        self.mode = mode
        self.value = value

    def forward(self, x):
        extra = {"value": self.value} if self.mode == "constant" else {}
        y = F.relu(self.conv(F.pad(x, (0, 1, 2, 1), mode=self.mode, **extra)))
        return self.head(y.mean((2, 3)))


class InputTransform(nn.Module):
    """Channels taken apart, rescaled and joined again, as the Inception networks do with ImageNet images."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        channels = [x[:, index].unsqueeze(1) * (0.2 + 0.1 * index) + (0.1 - 0.2 * index) for index in range(3)]
        return F.relu(self.conv(torch.cat(channels, 1))).amax((2, 3))


class Separate(nn.Module):
    """Slices with steps, splits, stacking and a residual scaled by a learned factor."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(12, 6, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(6, 1, 1))
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        parts = [x[:, :, row::2, column::2] for row in (0, 1) for column in (0, 1)]
        y = self.conv(torch.cat(parts, 1))
        first, second = torch.split(y, [2, 4], dim=1)
        y = y + self.scale * torch.cat([second, first], 1).abs().sqrt()
        return F.log_softmax(self.head(y.mean((2, 3))), dim=1)


IMAGE = (2, 3, 12, 12)

# name: (constructor, input shape, operator sets for the older exporter, for the newer one). "raw" stands for an
# export that leaves the graph alone; None for the newer exporter's own choice.
NETWORKS = {
    "resnet": (resnet, (2, 3, 17, 17), (7, 11, "raw 13"), (None, "raw")),
    "vgg": (vgg, (2, 3, 16, 16), (8, "raw 11", 17), (18, "raw")),
    "densenet": (DenseNet, (2, 3, 8, 8), ("raw 9", 13), (18, "raw")),
    "fire": (Fire, (2, 3, 15, 15), (10, 20), (18,)),
    "inverted_residual": (InvertedResidual, IMAGE, (9, "raw 11", 13), (None, 26)),
    "squeeze_excite_sigmoid": (lambda: SqueezeExcite(nn.Sigmoid(), nn.SiLU()), IMAGE, (11,), (None,)),
    "squeeze_excite_hard": (lambda: SqueezeExcite(nn.Hardsigmoid(), nn.Hardswish()), IMAGE, (9, 11, 14, 17), (18,)),
    "channel_shuffle": (ChannelShuffle, IMAGE, (9, 13, "raw 11"), (18, "raw")),
    "view_flatten": (ViewFlatten, IMAGE, (7, 9, 13, "raw 11"), (None, "raw")),
    "interpolate_nearest": (lambda: Interpolate(mode="nearest"), IMAGE, (9, 11, 17), (18,)),
    "interpolate_bilinear": (lambda: Interpolate(mode="bilinear", align_corners=False), IMAGE, (11, 13), (None,)),
    "interpolate_aligned": (lambda: Interpolate(mode="bilinear", align_corners=True), IMAGE, (11, 13), (18,)),
    "interpolate_bicubic": (lambda: Interpolate(mode="bicubic", align_corners=False), IMAGE, (11, 17), (18,)),
    "interpolate_to_size": (lambda: Interpolate(by_size=True, mode="bilinear", align_corners=False), (2, 3, 11, 13), (11, 17), (18,)),
    "transformer": (Transformer, IMAGE, (9, 17), (18, None, "raw")),
    "transformer_tanh_gelu": (lambda: Transformer(nn.GELU(approximate="tanh")), IMAGE, (20,), (None,)),
    "attention": (Attention, (2, 6, 8), (14,), (18, None)),
    "group_norm": (lambda: normalised(nn.GroupNorm(3, 6)), IMAGE, (9, 13, 18), (18, None, 26)),
    "instance_norm": (lambda: normalised(nn.InstanceNorm2d(6, affine=True)), IMAGE, (9, 13), (18,)),
    "sequence": (sequence, (2, 3, 21), (9, 13, "raw 11"), (18,)),
    "decoder": (decoder, IMAGE, (9, 13), (18,)),
    "prelu_elu": (lambda: activated(nn.PReLU(4), nn.ELU(0.7), nn.PReLU()), (2, 3, 6, 6), (7, 9, 16), (18,)),
    "selu_celu": (lambda: activated(nn.SELU(), nn.CELU(1.3), nn.LeakyReLU(0.2)), (2, 3, 6, 6), (12,), (18,)),
    "softplus_mish_silu": (lambda: activated(nn.Softplus(), nn.Mish(), nn.SiLU()), (2, 3, 6, 6), (9, 13, 18), (18, None)),
    "tanh_sigmoid_clamp": (lambda: activated(nn.Tanh(), nn.Sigmoid(), nn.Hardtanh(-0.4, 0.3)), (2, 3, 6, 6), (9, 11), (18,)),
    "local_response_norm": (response_normalised, (2, 3, 11, 11), (9, 13), (18,)),
    "ceil_pools": (CeilPools, (2, 3, 10, 12), (10, 13, 19), (None,)),
    "pad_constant": (lambda: AsymmetricPad("constant", 0.5), IMAGE, (9, 11, 13), (18,)),
    "pad_zero": (lambda: AsymmetricPad("constant", 0.0), IMAGE, (9, 11), (18,)),
    "pad_reflect": (lambda: AsymmetricPad("reflect", 0.0), IMAGE, (10, 13), (18,)),
    "pad_replicate": (lambda: AsymmetricPad("replicate", 0.0), IMAGE, (11,), (18,)),
    "input_transform": (InputTransform, IMAGE, (9, 13), (18,)),
    "separate": (Separate, IMAGE, (10, 13), (18, None)),
}
