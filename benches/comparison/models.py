"""The networks and pictures of the comparison: given ONNX files where there are any, otherwise randomly initialised
torchvision networks, exported when needed. Everything made is kept in the cache folder."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision
from PIL import Image
from torch.fx.experimental.optimization import fuse

from . import network
from .environment import ROOT

GIVEN = {
    "vgg16": "vgg16-pets.onnx",
    "resnet18": "resnet18-imagenet.onnx",
    "squeezenet1_1": "squeezenet1.1-imagenet.onnx",
}
PICTURE = ROOT / "crates/monosplit/assets/chelsea.png"
SIZE = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Operators whose input is a layer of its own; the others only move elements.
LAYERS = {"Conv", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool", "Add", "Concat", "Gemm"}


@dataclass
class Case:
    """A network as a file for all, a module for PyTorch, and its layers by name."""

    name: str
    onnx: Path
    module: Path
    top: int
    first: str
    last: str
    layers: list


class Models:
    def __init__(self, cache, given):
        self.cache, self.given, self.cases = cache, given, {}
        cache.mkdir(parents=True, exist_ok=True)

    def case(self, name):
        """The network `name`, which is torchvision's."""
        if name not in self.cases:
            path = self.given / GIVEN[name] if self.given and name in GIVEN else None
            path = path if path and path.exists() else self.exported(name)[0]
            self.cases[name] = self.described(name, path)
        return self.cases[name]

    def described(self, name, path):
        module = self.cache / f"{path.stem}.pt"
        if not module.exists() or module.stat().st_mtime < path.stat().st_mtime:
            torch.save(self.pytorch(name, path), module)
        graph = onnx.load(path, load_external_data=False).graph
        nodes = [n for n in graph.node if n.op_type in LAYERS]
        constants = {tensor.name for tensor in graph.initializer}
        (source,) = (i.name for i in graph.input if i.name not in constants)
        first = next(n.name for n in graph.node if source in n.input and n.op_type in LAYERS)
        inputs = {}
        for node in nodes:
            inputs.setdefault(node.input[0], node.name)
        end = next((i for i, n in enumerate(nodes) if "Average" in n.op_type or n.op_type == "Gemm"), len(nodes))
        rectifiers = [n.name for n in nodes[:end] if n.op_type in ("Relu", "Clip")]
        last = rectifiers[-1] if rectifiers else nodes[:end][-1].name
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        top = session.run(None, {session.get_inputs()[0].name: np.load(self.batch(1))})[0][0].argmax()
        return Case(name, path, module, int(top), first, last, list(inputs.values()))

    def pytorch(self, name, path):
        """The network for PyTorch: a module for every node of the file, or, where there are nodes the bench does not read,
        torchvision's own with the weights the file was made of, batch norms folded."""
        try:
            return network.read(str(path))
        except NotImplementedError:
            module = torchvision.models.get_model(name, weights=None)
            module.load_state_dict(torch.load(self.exported(name)[1], weights_only=True))
            return fuse(module.eval()).requires_grad_(False)

    def exported(self, name):
        """A random network as an ONNX file and as the weights of torchvision's."""
        sys.path.insert(0, str(ROOT / "scripts"))
        import export_torchvision as export

        path, weights = self.cache / f"{name}.onnx", self.cache / f"{name}.pth"
        if not path.exists() or not weights.exists():
            module, x = export.build(export.Architecture(name, SIZE, (), ()))
            torch.save(module.state_dict(), weights)
            export.export(module, x, export.TORCHSCRIPT, 17, False, path)
        return path, weights

    def picture(self):
        """One photograph as a JPEG file."""
        path = self.cache / "picture.jpg"
        if not path.exists():
            Image.open(PICTURE).convert("RGB").save(path, quality=92)
        return path

    def batch(self, samples):
        """The photograph preprocessed, each sample moved a little further."""
        path = self.cache / f"x{samples}.npy"
        if not path.exists():
            picture = Image.open(PICTURE).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
            x = (np.asarray(picture, np.float32) / 255 - MEAN) / DEVIATION
            x = x.astype(np.float32).transpose(2, 0, 1)
            np.save(path, np.stack([np.roll(x, 9 * i, axis=2) for i in range(samples)]))
        return path
