"""Draws the pictures of docs/src/targets.md.

    python scripts/make_target_pictures.py [--program target/release/monosplit]

The demo's network gets two more outputs: `places`, what its classifier says of every place before they are averaged, as a
segmentation network does, and `embedding`, what enters the classifier. One picture is drawn for each kind of target.
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

ROOT = pathlib.Path(__file__).parent.parent
ASSETS = ROOT / "crates/monosplit/assets"
PICTURES = ROOT / "docs/src/images/targets"
TARGETS = {
    "class": "class:top2",
    "contrast": "contrast:abyssinian,bengal",
    "region": "region:{mask},class=abyssinian,output=places",
    "region-auto": "region:auto,output=places",
    "cell": "cell:places[best=0]",
    "norm": "norm:embedding",
    "similarity": "similarity:{other},output=embedding",
    "head": "head:{head}",
}


def network(folder):
    """The demo's network with its places and its embedding."""
    model = onnx.load(ASSETS / "pets-small.onnx")
    graph = model.graph
    classes, channels = next(one.dims for one in graph.initializer if one.name.startswith("fc.weight"))
    graph.initializer.append(numpy_helper.from_array(np.array([2, 3], "i8"), "places.axes"))
    graph.node.append(helper.make_node("Unsqueeze", ["fc.weight", "places.axes"], ["places.weight"]))
    graph.node.append(helper.make_node("Conv", ["layer4.2.relu", "places.weight", "fc.bias"], ["places"], name="places"))
    for name, shape in [("places", ["N", classes, "H", "W"]), ("flatten", ["N", channels])]:
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = ["embedding" if name == "flatten" else name for name in names]
    graph.output[-1].name = "embedding"
    onnx.save(model, folder / "pets-places.onnx")
    return folder / "pets-places.onnx"


def head(folder):
    """How much of the best place of the picture's left half is class 0."""
    left = helper.make_node("Slice", ["places", "starts", "ends", "axes"], ["left"])
    score = helper.make_node("ReduceMax", ["left"], ["score"], axes=[1, 2, 3], keepdims=0)
    numbers = [("starts", [0, 0]), ("ends", [1, 4]), ("axes", [1, 3])]
    graph = helper.make_graph(
        [left, score],
        "head",
        [helper.make_tensor_value_info("places", TensorProto.FLOAT, ["N", 37, 8, 8])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(np.array(values, "i8"), name) for name, values in numbers],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "head.onnx")
    return folder / "head.onnx"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target/release/monosplit"))
    program = parser.parse_args().program
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        photograph = Image.open(ASSETS / "chelsea.png").convert("RGB")
        mask = np.zeros((photograph.height, photograph.width), "u1")
        mask[: photograph.height // 2, photograph.width // 2 :] = 255
        Image.fromarray(mask).save(folder / "mask.png")
        photograph.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / "other.png")
        files = {"mask": folder / "mask.png", "other": folder / "other.png", "head": head(folder)}
        model = network(folder)
        for kind, target in TARGETS.items():
            words = [program, "explain", model, ASSETS / "chelsea.png", "--target", target.format(**files)]
            words += ["--method", "layercam", "--layer", "layer3.2.conv1", "-o", folder / kind, "--quiet"]
            subprocess.run(words, check=True)
            drawn = Image.open(next((folder / kind).glob("*.png")))
            drawn.convert("RGB").quantize(256).save(PICTURES / f"{kind}.png", optimize=True)


if __name__ == "__main__":
    main()
