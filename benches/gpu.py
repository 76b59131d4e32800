"""Times monosplit and PyTorch on the same NVIDIA GPU: forward pass, plain saliency, and SplitCAM with SplitGrad at all layers,
of VGG16 and ResNet18, for one picture and 32. Both run one repeat each in turn; times are GPU time without transfers. Needs
PyTorch, torchvision, onnx and the worker:

    cargo build --release -p monosplit-bench --features cuda
    python3 benches/gpu.py --worker target/release/bench-worker
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import numpy as np
import onnx
import torch
import torchvision

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from comparison.turns import Competitor

LAYERS = {"Conv", "Relu", "MaxPool", "GlobalAveragePool", "Add", "Gemm"}
TARGETS = {
    ("saliency", "vgg16", 1): 1.6, ("saliency", "vgg16", 32): 13.0,
    ("saliency", "resnet18", 1): 0.9, ("saliency", "resnet18", 32): 5.0,
    ("split", "vgg16", 1): 2.5, ("split", "vgg16", 32): 35.0,
    ("split", "resnet18", 1): 1.5, ("split", "resnet18", 32): 9.0,
    ("split, cached", "vgg16", 1): 2.0, ("split, cached", "vgg16", 32): 28.0,
    ("split, cached", "resnet18", 1): 1.2, ("split, cached", "resnet18", 32): 7.5,
}


def exported(name, folder):
    """torchvision's network with random weights, on the GPU, and as a file with the names of its layers."""
    torch.manual_seed(1)
    module = getattr(torchvision.models, name)(weights=None).eval()
    path = folder / f"{name}.onnx"
    torch.onnx.export(module, torch.zeros(1, 3, 224, 224), str(path), opset_version=17, dynamo=False,
                      input_names=["input"], output_names=["logits"], dynamic_axes={"input": {0: "N"}, "logits": {0: "N"}})
    nodes = [n for n in onnx.load(path).graph.node if n.op_type in LAYERS]
    inputs = {}
    for node in nodes:
        inputs.setdefault(node.input[0], node.name)
    return module.cuda(), path, nodes[0].name, list(inputs.values())


def forward(module, x):
    with torch.no_grad():
        module(x)


def saliency(module, x):
    x = x.detach().requires_grad_(True)
    logits = module(x)
    logits.gather(1, logits.argmax(1, keepdim=True)).sum().backward()


def on_gpu(work):
    """Milliseconds of GPU time."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--networks", default="vgg16,resnet18")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--profile", metavar="FOLDER", type=pathlib.Path, help="write where the time goes, one file for each line")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "tf32"
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {arguments.precision}, milliseconds, median of {arguments.repeats}")
    print("| work | network | batch | monosplit on the GPU | PyTorch on the GPU | ratio | target |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in arguments.networks.split(","):
            module, path, first, layers = exported(name, folder)
            for batch in map(int, arguments.batches.split(",")):
                x = np.random.default_rng(3).standard_normal((batch, 3, 224, 224)).astype(np.float32)
                np.save(folder / "x.npy", x)
                on = torch.from_numpy(x).cuda()
                common = [f"input={folder / 'x.npy'}", "engine=cuda", f"precision={arguments.precision}", "clock=gpu"]
                everything = [f"layers={','.join(layers)}", "name=splitcam,splitgrad", "class=0"]
                jobs = [
                    ("forward", ["forward"], [], lambda: forward(module, on)),
                    ("saliency", ["method"], ["name=gradient", f"layers={first}"], lambda: saliency(module, on)),
                    ("split", ["method"], everything, lambda: saliency(module, on)),
                    ("split, cached", ["method"], everything + ["remembering=yes"], lambda: saliency(module, on)),
                ]
                for work, kind, options, peer in jobs:
                    with Competitor([arguments.worker], [*kind, path, *common, *options]) as ours:
                        for _ in range(4):
                            ours.go()
                            on_gpu(peer)
                        times, theirs = [], []
                        for _ in range(arguments.repeats):
                            times.append(1e3 * ours.go())
                            theirs.append(on_gpu(peer))
                        if arguments.profile and kind == ["method"] and "remembering=yes" not in options:
                            arguments.profile.mkdir(parents=True, exist_ok=True)
                            ours.ask("profile", (arguments.profile / f"{work}-{name}-{batch}.txt").resolve())
                    target = TARGETS.get((work, name, batch))
                    median = statistics.median
                    print(f"| {work} | {name} | {batch} | {median(times):.2f} | {median(theirs):.2f} "
                          f"| {median(times) / median(theirs):.2f} | {target or ''} |", flush=True)


if __name__ == "__main__":
    main()
