"""Lists the layers PyTorch runs in torchvision's networks, with the shapes they produce.

Writes `crates/graph/tests/fixtures/arch/layers.csv`: architecture, module path (a module's second use is called
`relu_1`) and output shape, in the order of execution, for an image of 160 x 192 and 1000 classes.
"""

import collections
import csv
import pathlib

import torch
import torchvision

# One network of every way to lay out layers: the others differ from these in numbers only.
ARCHITECTURES = [
    "alexnet", "vgg11_bn", "resnet18", "resnext50_32x4d", "squeezenet1_0", "squeezenet1_1", "densenet121",
    "googlenet", "mobilenet_v2",
]  # fmt: skip
HEIGHT, WIDTH = 160, 192
FIXTURE = pathlib.Path(__file__).parent.parent / "crates/graph/tests/fixtures/arch/layers.csv"


def layers(name):
    """Yields path and output shape of every leaf module in the order they are run."""
    options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    with torch.device("meta"):
        network = torchvision.models.get_model(name, **options).eval()
        image = torch.empty(1, 3, HEIGHT, WIDTH)
    uses = collections.Counter()
    calls = []

    def record(path, output):
        suffix = f"_{uses[path]}" if uses[path] else ""
        uses[path] += 1
        calls.append((path + suffix, tuple(output.shape[1:])))

    for path, module in network.named_modules():
        if not list(module.children()):
            module.register_forward_hook(lambda _, __, output, path=path: record(path, output))
    network(image)
    return calls


def main():
    FIXTURE.parent.mkdir(parents=True, exist_ok=True)
    with FIXTURE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        for name in ARCHITECTURES:
            table.writerows((name, path, "x".join(map(str, shape))) for path, shape in layers(name))


if __name__ == "__main__":
    main()
