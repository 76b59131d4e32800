"""Compares the default layers of networks as both of PyTorch's exporters write them, and as `--arch` builds them.

    python scripts/check_default_layers.py --exports FOLDER [--grad-cam resnet18,resnet34,resnet50]

Exports torchvision's families with random weights into the folder (what is there is kept) and asks the example
`default_layers` for the layers. Prints a table; the default layers of a network have to hold the same numbers however it
was written. For the networks of `--grad-cam` the maps of Grad-CAM and LayerCAM are compared with those of the package
grad-cam at the last block. Fails if a layer or a map differs.
"""

import argparse
import pathlib
import subprocess
import sys

import numpy as np
import torch
from export_torchvision import ARCHITECTURES, DYNAMO, TORCHSCRIPT, build, export

ROOT = pathlib.Path(__file__).parent.parent
PROGRAM = ROOT / "target/debug/monosplit"
EXAMPLE = ROOT / "target/debug/examples/default_layers"
# Not one of the split's methods: their shift counts nodes, and exporters write attention with more or fewer of them.
METHOD = "gradcam:relu=no"
PLACES = ("LastFeatures", "LastMixingInput")
# Exporters fold batch norms in single precision, and a ReLU near zero may then decide otherwise; another layer is ten times
# as far away.
TOLERANCE = 2e-2


def exported(architecture, folder):
    """The files of a network: two exports and, for `--arch`, its weights."""
    files = {name: folder / f"{architecture.name}-{name}.onnx" for name in (TORCHSCRIPT, DYNAMO)}
    weights, x = folder / f"{architecture.name}.pth", folder / f"{architecture.name}.x.npy"
    if not all(path.exists() for path in (*files.values(), weights, x)):
        network, batch = build(architecture)
        torch.save(network.state_dict(), weights)
        np.save(x, batch.numpy())
        for exporter, path in files.items():
            export(network, batch, exporter, 17 if exporter == TORCHSCRIPT else None, False, path)
    return files, weights, x


def layers(arguments):
    """For each place, the name of the default layer, its shape and what it is."""
    said = subprocess.run([EXAMPLE, *arguments], check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in said.splitlines()]
    return {place: (name, shape, what) for _, place, name, shape, what in rows}


def raw_map(network, x, method, folder, layer=None):
    out = folder / "map.npy"
    named = ["--layer", layer] if layer else []
    command = [PROGRAM, "explain", *network, x, "--method", method, "--class", "0", "--raw", out, "--out", folder / "pictures", *named]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return np.load(out).astype(np.float64)


def distance(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(b)) if a.shape == b.shape else float("inf")


def is_known(name):
    """Whether the program can build an architecture from its weights."""
    command = [PROGRAM, "inspect", "--arch", name, "--weights", "none.pth"]
    return "there is no architecture" not in subprocess.run(command, capture_output=True, text=True).stderr


def compare_families(folder, only):
    failed = []
    print("| network | last feature map | what enters the last mixture of places | `--arch` | largest distance |")
    print("|---|---|---|---|--:|")
    for architecture in ARCHITECTURES:
        if only and architecture.name not in only:
            continue
        files, weights, x = exported(architecture, folder)
        ways = {exporter: ([str(path)], str(path)) for exporter, path in files.items()}
        if is_known(architecture.name):
            size = f"3,{architecture.size},{architecture.size}"
            built = ["--arch", architecture.name, "--weights", str(weights), "--input-shape", size]
            ways["arch"] = (built, f"{architecture.name}={weights}")
        names = {way: layers([file]) for way, (_, file) in ways.items()}
        found = 0.0
        for place in PLACES:
            maps = [raw_map(given, x, METHOD, folder, names[way][place][0]) for way, (given, _) in ways.items()]
            found = max(found, *(distance(other, maps[0]) for other in maps[1:]))
        shown = [" = ".join(dict.fromkeys(names[way][place][0] for way in names)) for place in PLACES]
        print(f"| {architecture.name} | {' | '.join(shown)} | {'yes' if 'arch' in ways else ''} | {found:.0e} |", flush=True)
        if not found <= TOLERANCE:
            failed.append(architecture.name)
    return failed


def compare_grad_cam(folder, names):
    from pytorch_grad_cam import GradCAM, LayerCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    failed = []
    for architecture in (architecture for architecture in ARCHITECTURES if architecture.name in names):
        files, _, x = exported(architecture, folder)
        network, batch = build(architecture)
        for method, peer in {"gradcam": GradCAM, "layercam": LayerCAM}.items():
            with peer(model=network, target_layers=[network.layer4[-1]]) as cam:
                activations = cam.activations_and_grads
                targets = [ClassifierOutputTarget(0)] * len(batch)
                cam(input_tensor=batch, targets=targets)
                layer = network.layer4[-1]
                a, g = activations.activations[0].numpy(), activations.gradients[0].numpy()
                expected = np.maximum(cam.get_cam_image(batch, layer, targets, a, g, False), 0)
            for exporter, path in files.items():
                found = distance(raw_map([str(path)], x, method, folder), expected)
                print(f"{architecture.name}, {exporter}, {method}: {found:.1e} from grad-cam", flush=True)
                if not found <= TOLERANCE:
                    failed.append(f"{architecture.name} {method}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exports", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="comma-separated networks")
    parser.add_argument("--grad-cam", default="", help="comma-separated networks")
    arguments = parser.parse_args()
    arguments.exports.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    only = set(arguments.only.split(",")) if arguments.only else None
    failed = compare_families(arguments.exports, only)
    failed += compare_grad_cam(arguments.exports, set(arguments.grad_cam.split(",")))
    if failed:
        sys.exit(f"differ: {', '.join(failed)}")


if __name__ == "__main__":
    main()
