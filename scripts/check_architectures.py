"""Holds architectures built from bare weights against PyTorch.

For every architecture: random weights (with batch statistics that matter) saved as `.pth` and as `.safetensors`, a
graph built from each by `cargo run --example build_arch`, written as ONNX, checked, run by ONNX Runtime, and its logits
compared with those of torchvision's own network, at 224 x 224 and at a size that pools unevenly. Prints a table and
fails if a relative error exceeds the tolerance.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import safetensors.torch
import torch
import torchvision

ROOT = pathlib.Path(__file__).parent.parent
SIZES = [(224, 224), (160, 192)]
BATCH = 2
CLASSES = 37
TOLERANCE = 1e-4


def build_example():
    subprocess.run(["cargo", "build", "-q", "-p", "monosplit-graph", "--example", "build_arch"], cwd=ROOT, check=True)
    return ROOT / "target/debug/examples/build_arch"


def networks(binary):
    """The architectures the library lists, asked from it so that none is forgotten."""
    return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.split()


def random_network(name):
    options = {"init_weights": False, "aux_logits": True, "transform_input": True} if name == "googlenet" else {}
    network = torchvision.models.get_model(name, num_classes=CLASSES, **options).eval()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.3, 0.3)
            module.running_var.uniform_(0.5, 1.5)
            torch.nn.init.uniform_(module.weight, 0.7, 1.3)
            torch.nn.init.uniform_(module.bias, -0.3, 0.3)
        elif isinstance(module, torch.nn.Linear):
            torch.nn.init.kaiming_normal_(module.weight)
            torch.nn.init.uniform_(module.bias, -0.3, 0.3)
    return network


def save(network, stem):
    """Both formats; those of DenseNet's `.pth` under the names torchvision's published checkpoints use."""
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    safetensors.torch.save_file(state, stem.with_suffix(".safetensors"))
    old = {}
    for name, tensor in state.items():
        layer, dot, rest = name.rpartition(".denselayer")
        for part in ("norm1", "norm2", "conv1", "conv2") if dot else ():
            rest = rest.replace(f".{part}.", f".{part[:-1]}.{part[-1]}.")
        old[layer + dot + rest] = tensor
    torch.save(old, stem.with_suffix(".pth"))


def largest_error(binary, name, weights, height, width, network):
    path = weights.with_suffix(".onnx")
    subprocess.run([binary, name, weights, path, str(height), str(width)], check=True)
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    image = torch.randn(BATCH, 3, height, width)
    (found,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    with torch.no_grad():
        expected = network(image).numpy()
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="architectures to check; all by default")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    binary = build_example()
    columns = [(suffix, size) for suffix in (".pth", ".safetensors") for size in SIZES]
    print("| architecture |", " | ".join(f"{suffix} {h}×{w}" for suffix, (h, w) in columns), "|")
    print("|---|" + "---|" * len(columns))
    failed = []
    for name in arguments.names or networks(binary):
        network = random_network(name)
        with tempfile.TemporaryDirectory() as folder:
            stem = pathlib.Path(folder) / name
            save(network, stem)
            errors = [largest_error(binary, name, stem.with_suffix(s), h, w, network) for s, (h, w) in columns]
        print(f"| {name} |", " | ".join(f"{error:.1e}" for error in errors), "|", flush=True)
        if not max(errors) <= TOLERANCE:
            failed.append(name)
    if failed:
        sys.exit(f"more than {TOLERANCE} off: {', '.join(failed)}")


if __name__ == "__main__":
    main()
