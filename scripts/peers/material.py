"""The networks, the pictures as each network wants them, and our program's answers to questions about them."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benches"))

from comparison import network  # noqa: E402
from comparison.models import DEVIATION, GIVEN, MEAN, SIZE, Models  # noqa: E402

PETS = ("test/images/beagle_53.jpg", "test/images/Persian_266.jpg", "test/images/samoyed_72.jpg")
BLUE_GREEN_RED = (103.939, 116.779, 123.68)
NETWORKS = {
    "resnet18": "ResNet18",
    "squeezenet1_1": "SqueezeNet 1.1",
    "vgg16": "VGG16-pets",
    "densenet121": "DenseNet121, random",
    "googlenet": "GoogLeNet, random",
    "mobilenet_v2": "MobileNetV2, random",
}
# A few channels are enough to compare methods that run the network once for each.
NARROW = 64


@dataclass
class Material:
    """A network, two pictures with a class each, and other pictures to compare them with."""

    name: str
    onnx: Path
    network: network.Network
    x: np.ndarray
    classes: list
    baselines: np.ndarray
    places: dict
    folder: Path

    def deviation(self):
        """Noise that is small beside the pictures."""
        return round(0.1 * float(self.x.max() - self.x.min()), 3)

    def explained(self, binary, asked, precision):
        """What our program says: the numbers as it writes them."""
        raw = self.folder / "ours.npy"
        place = self.places.get(asked.place)
        command = [binary, "explain", self.onnx, self.folder / "x.npy", "--raw", raw, "--out", self.folder / "pictures"]
        values = {"folder": self.folder, "low": self.x.min(), "high": self.x.max(), "stdev": self.deviation()}
        # A rule for layers by name is refused where no layer has the name.
        norms = any(isinstance(module, torch.nn.BatchNorm2d) for module in self.network.modules())
        values |= {"norms_pass": ",rules=*norm*=pass" if norms else ""}
        values |= {"norms_epsilon": ",rules=*norm*=epsilon(1e-9)" if norms else ""}
        command += ["--method", asked.method.format(**values)]
        command += ["--channels", "keep", "--precision", precision, *asked.finish]
        command += ["--layer", f"{place}:out"] if place else []
        for c in self.classes:
            command += ["--class", str(c)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return np.load(raw).astype(np.float64)


def pixels(path):
    picture = Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    return np.asarray(picture, np.float32).transpose(2, 0, 1)


def preprocessed(name, path):
    if name == "squeezenet1_1":
        return pixels(path)[::-1] - np.float32(BLUE_GREEN_RED)[:, None, None]
    mean, deviation = (np.float32(v)[:, None, None] for v in (MEAN, DEVIATION))
    return (pixels(path) / 255 - mean) / deviation


def places(net, x):
    """The last map, one in the middle of the network, and the last rectified one with few channels."""
    with torch.no_grad():
        values = net.values(x[:1])
    maps = [n for n in net.nodes if values[n.output].dim() == 4 and values[n.output].shape[-1] > 1]
    ends = [n for n in maps if n.op in ("Relu", "Clip", "Concat")]
    rectified = [n for n in maps if n.op in ("Relu", "Clip")]
    narrow = [n for n in rectified if values[n.output].shape[1] <= NARROW]
    return {"last": ends[-1].name, "middle": rectified[len(rectified) // 2].name, "narrow": narrow[-1].name}


def material(name, shared, cache):
    models = Models(cache, shared / "models")
    path = models.given / GIVEN[name] if name in GIVEN else models.exported(name)[0]
    net = network.read(str(path))
    pets = [shared / "data/pets" / pet for pet in PETS]
    x = np.stack([preprocessed(name, p) for p in (shared / "data/chelsea.png", pets[0])]).astype(np.float32)
    baselines = np.stack([preprocessed(name, p) for p in pets[1:]]).astype(np.float32)
    with torch.no_grad():
        order = net(torch.from_numpy(x)).argsort(1, descending=True)
    # The best class of one picture and the third of the other.
    classes = [int(order[0, 0]), int(order[1, 2])]
    folder = cache / "compare" / name
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", x)
    np.save(folder / "baselines.npy", baselines)
    return Material(name, path, net, x, classes, baselines, places(net, torch.from_numpy(x)), folder)
