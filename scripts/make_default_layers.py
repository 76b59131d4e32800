"""Writes small networks built from torchvision's classes, by both of PyTorch's exporters, for the test of default layers.

    python scripts/make_default_layers.py --out crates/monosplit/tests/fixtures/default_layers

Each family of torchvision's classifiers is there with a few channels and random weights: `FAMILY-EXPORTER.onnx`. Beside
them, `expected.txt` lists for each family the value that its forward pass pools or flattens (`features`), and what enters
its last layer that mixes places (`mixing`), as their shape and the sum of their elements for the input `sin(0.37 i)`, both
taken by forward hooks in PyTorch.
"""

import argparse
import logging
import math
import pathlib
import warnings

import onnx
import torch
from torch import nn
from torchvision.models import convnext, regnet, resnet, shufflenetv2, swin_transformer, vgg, vision_transformer
from torchvision.models.densenet import DenseNet
from torchvision.models.efficientnet import EfficientNet, MBConvConfig
from torchvision.models.googlenet import BasicConv2d, Inception
from torchvision.models.mobilenetv2 import MobileNetV2
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.models.squeezenet import Fire

CLASSES = 5
SEED = 7
SIZE = 64


class SmallResNet(nn.Module):
    """The names and the forward pass of torchvision's ResNet, with four channels."""

    def __init__(self, block, groups=1):
        super().__init__()
        width = {"groups": groups, "base_width": 64 if groups == 1 else 32}
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        out = 4 * block.expansion
        shortcut = nn.Sequential(nn.Conv2d(4, out, 1, 2, bias=False), nn.BatchNorm2d(out))
        self.layer1 = nn.Sequential(block(4, 4, 2, shortcut, **width), block(out, 4, **width))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(out, CLASSES)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layer1(x)), 1))


class Head(nn.Module):
    """Features, pooling and a linear layer, as AlexNet and VGG have them, without their large layers."""

    def __init__(self, features, channels):
        super().__init__()
        self.features, self.avgpool, self.classifier = features, nn.AdaptiveAvgPool2d(1), nn.Linear(channels, CLASSES)

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def alexnet():
    layers = [nn.Conv2d(3, 4, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2), nn.Conv2d(4, 4, 3, 1, 1), nn.ReLU(True)]
    return Head(nn.Sequential(*layers, nn.MaxPool2d(3, 2)), 4)


def vgg_small(batch_norm):
    return Head(vgg.make_layers([4, "M", 4, 4, "M"], batch_norm), 4)


class SmallSqueezeNet(nn.Module):
    def __init__(self):
        super().__init__()
        fires = [Fire(4, 2, 4, 4), Fire(8, 2, 4, 4)]
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(True), nn.MaxPool2d(3, 2), *fires)
        conv = nn.Conv2d(8, CLASSES, 1)
        self.classifier = nn.Sequential(nn.Dropout(), conv, nn.ReLU(True), nn.AdaptiveAvgPool2d(1))

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


class SmallGoogLeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = BasicConv2d(3, 4, kernel_size=7, stride=2, padding=3)
        self.inception5b = Inception(4, 2, 2, 2, 2, 2, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.inception5b(self.conv1(x))), 1))


def mobilenet_v2():
    network = MobileNetV2(CLASSES, 0.125, [[1, 4, 1, 1], [2, 4, 2, 2]], round_nearest=4)
    # It has 1280 channels at the end whatever it is given.
    network.features[-1] = nn.Sequential(nn.Conv2d(4, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True))
    network.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, CLASSES))
    return network


def mobilenet_v3():
    bottleneck = InvertedResidualConfig
    setting = [bottleneck(8, 3, 8, 8, True, "RE", 2, 1, 1.0), bottleneck(8, 3, 16, 8, True, "HS", 1, 1, 1.0)]
    return MobileNetV3(setting, 8, CLASSES)


def efficientnet_small():
    setting = [MBConvConfig(1, 3, 1, 32, 8, 1, 0.25, 1.0), MBConvConfig(2, 3, 2, 8, 8, 2, 1.0, 1.0)]
    return EfficientNet(setting, 0.0, num_classes=CLASSES, last_channel=16)


def regnet_small(se_ratio):
    params = regnet.BlockParams([1, 2, 1, 1], [8, 8, 8, 8], [8, 8, 8, 8], [1.0] * 4, [2, 1, 1, 1], se_ratio)
    return regnet.RegNet(params, CLASSES, stem_width=4)


def shufflenet():
    return shufflenetv2.ShuffleNetV2([2, 2, 2], [4, 8, 8, 8, 16], CLASSES)


def convnext_small():
    block = convnext.CNBlockConfig
    return convnext.ConvNeXt([block(4, 8, 1), block(8, None, 2)], num_classes=CLASSES, layer_scale=0.5)


def swin():
    return swin_transformer.SwinTransformer([8, 8], 4, [1, 1], [2, 2], [2, 2], num_classes=CLASSES)


FAMILIES = {
    "resnet_basic": lambda: SmallResNet(resnet.BasicBlock),
    "resnet_bottleneck": lambda: SmallResNet(resnet.Bottleneck),
    "resnext": lambda: SmallResNet(resnet.Bottleneck, 2),
    "alexnet": alexnet,
    "vgg": lambda: vgg_small(False),
    "vgg_bn": lambda: vgg_small(True),
    "densenet": lambda: DenseNet(4, (2, 2), 4, bn_size=2, num_classes=CLASSES),
    "squeezenet": SmallSqueezeNet,
    "googlenet": SmallGoogLeNet,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "efficientnet": efficientnet_small,
    "regnet_x": lambda: regnet_small(None),
    "regnet_y": lambda: regnet_small(0.25),
    "shufflenet": shufflenet,
    "convnext": convnext_small,
    "vit": lambda: vision_transformer.VisionTransformer(SIZE, 16, 2, 2, 8, 16, num_classes=CLASSES),
    "swin": swin,
}
# The module whose output is the last feature map, and the module whose input or output enters the last mixture of places.
EXPECTED = {
    "resnet_basic": ("layer1.1", "layer1.1.conv2:in"),
    "resnet_bottleneck": ("layer1.1", "layer1.1.conv2:in"),
    "resnext": ("layer1.1", "layer1.1.conv2:in"),
    "alexnet": ("features.4", "features.3:in"),
    "vgg": ("features.6", "features.5:in"),
    "vgg_bn": ("features.9", "features.7:in"),
    "densenet": ("features:relu", "features.denseblock2.denselayer2.conv2:in"),
    "squeezenet": ("classifier.2", "features.4.expand3x3:in"),
    "googlenet": ("inception5b", "inception5b.branch3.1.conv:in"),
    "mobilenet_v2": ("features.4", "features.3.conv.1.0:in"),
    "mobilenet_v3": ("features.3", "features.2.block.1.0:in"),
    "efficientnet": ("features.3", "features.2.1.block.1.0:in"),
    "regnet_x": ("trunk_output", "trunk_output.block4.block4-0.f.b.0:in"),
    "regnet_y": ("trunk_output", "trunk_output.block4.block4-0.f.b.0:in"),
    "shufflenet": ("conv5", "stage4.1.branch2.3:in"),
    "convnext": ("features.3.1", "features.3.1.block.0:in"),
    "vit": ("encoder.layers.encoder_layer_1.ln_1", "encoder.layers.encoder_layer_1.ln_1:out"),
    "swin": ("norm", "features.3.0.norm1:out"),
}


@torch.no_grad()
def randomised(make):
    torch.manual_seed(SEED)
    network = make().eval()
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            module.weight.uniform_(0.6, 1.4)
            module.bias.normal_(std=0.3)
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 1.5)
    return network


def picture(samples):
    count = samples * 3 * SIZE * SIZE
    return torch.tensor([math.sin(0.37 * i) for i in range(count)]).reshape(samples, 3, SIZE, SIZE)


def hooked(network, x, place):
    """The value that enters or leaves a module."""
    name, _, end = place.partition(":")
    found = {}

    def keep(_module, inputs, output):
        found["value"] = inputs[0].clone() if end == "in" else output.clone()

    handle = network.get_submodule(name).register_forward_hook(keep)
    with torch.no_grad():
        network(x)
    handle.remove()
    return found["value"].relu() if end == "relu" else found["value"]


def export(network, exporter, path):
    x = picture(2)
    options = {"input_names": ["x"], "output_names": ["y"]}
    if exporter == "dynamo":
        shapes = ({0: torch.export.Dim("N", min=1, max=64)},)
        options |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False, "verbose": False}
    else:
        options |= {"dynamo": False, "opset_version": 17, "dynamic_axes": {"x": {0: "N"}, "y": {0: "N"}}}
    torch.onnx.export(network, (x,), str(path), **options)
    model = onnx.load(str(path))
    for node in model.graph.node:
        node.doc_string = ""
        kept = [entry for entry in node.metadata_props if entry.key.endswith("name_scopes")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    del model.graph.value_info[:]
    path.write_bytes(model.SerializeToString(deterministic=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="comma-separated families; expected.txt then lists only these")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = []
    for family in arguments.only.split(",") if arguments.only else FAMILIES:
        network = randomised(FAMILIES[family])
        for kind, place in zip(("features", "mixing"), EXPECTED[family]):
            value = hooked(network, picture(1), place)
            shape = "x".join(map(str, value.shape[1:]))
            lines.append(f"{family} {kind} {shape} {value.double().sum():.6e} {value.abs().max():.6e}")
        for exporter in ("torchscript", "dynamo"):
            path = arguments.out / f"{family}-{exporter}.onnx"
            export(network, exporter, path)
            print(path.name, path.stat().st_size, flush=True)
    (arguments.out / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
