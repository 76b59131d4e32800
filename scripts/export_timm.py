"""Exports randomly initialised networks of timm with both PyTorch exporters, as `export_torchvision.py` does with
torchvision's: the same files beside each other, in a folder `compare_exports.py --exports` reads.

    python scripts/export_timm.py --out exports-timm [--only resnet26d,mixer_s16_224]

They were chosen to need what torchvision's do not: average pooling in shortcuts, cheap ghost channels, split attention,
token mixing, patches cut out by reshaping. Needs timm beside the other requirements.
"""

import argparse
import pathlib

import timm
import torch

from export_torchvision import DYNAMO, SEED, TORCHSCRIPT, Architecture, append_row, export_one, input_batch, randomise

ARCHITECTURES = [
    Architecture("resnet26d", 96, (13,), (18,)),
    Architecture("regnety_002", 96, (13,), (18,)),
    Architecture("efficientnet_lite0", 96, (11,), (18,)),
    Architecture("ghostnet_100", 96, (13,), (18,)),
    Architecture("resnest14d", 96, (13,), (18,)),
    Architecture("convnext_atto", 96, (17,), (18,)),
    Architecture("mobilevit_xxs", 128, (17,), (18,)),
    Architecture("vit_tiny_patch16_224", 224, (17,), (18,)),
    Architecture("mixer_s16_224", 224, (17,), (20,)),
    Architecture("poolformer_s12", 96, (16,), (18,)),
]


def build(architecture):
    torch.manual_seed(SEED)
    network = timm.create_model(architecture.name, pretrained=False, exportable=True).eval()
    x = input_batch(architecture.size)
    randomise(network, x)
    return network, x


def export_architecture(architecture, out):
    files = [(TORCHSCRIPT, opset) for opset in architecture.torchscript] + [(DYNAMO, opset) for opset in architecture.dynamo]
    pending = [(e, opset) for e, opset in files if not (out / f"{architecture.name}-{e}-{opset}.f64.npy").exists()]
    if not pending:
        return
    network, x = build(architecture)
    with torch.no_grad():
        reference = network.double()(x.double()).numpy()
    network.float()
    for exporter, opset in pending:
        try:
            row = export_one(architecture, network, x, reference, exporter, opset, out)
            append_row(out / "exports.csv", row)
            print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        except Exception as error:  # one network that cannot be exported should not hide the others
            (out / f"{architecture.name}-{exporter}-{opset}.onnx").unlink(missing_ok=True)
            print(f"failed: {architecture.name} {exporter} {opset}: {type(error).__name__}: {error}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="comma-separated names")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    names = arguments.only.split(",") if arguments.only else None
    for architecture in ARCHITECTURES:
        if names is None or architecture.name in names:
            export_architecture(architecture, arguments.out)


if __name__ == "__main__":
    main()
