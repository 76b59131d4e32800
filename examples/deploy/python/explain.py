"""Shows what a compiled network takes a picture for, and where it sees that: explain.py PICTURE."""

import pathlib
import sys

import numpy as np
import onnxruntime
from PIL import Image

HERE = pathlib.Path(__file__).parent
CLASSES = HERE / "../../../crates/monosplit/assets/pets-classes.txt"
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


def overlay(picture, map):
    """Red where the network found its answer, blue where it found the opposite."""
    strength = np.abs(map) / max(np.abs(map).max(), 1e-30)
    colour = np.where(map[..., None] > 0, [200, 20, 30], [30, 60, 200])
    opacity = 0.75 * strength[..., None]
    return Image.fromarray(np.uint8((1 - opacity) * picture + opacity * colour))


def main():
    # Below errors, the runtime only remarks that some inputs may be left out.
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(HERE / "../explained.onnx")
    image = session.get_inputs()[0]
    try:
        picture = Image.open(sys.argv[1]).convert("RGB").resize(image.shape[:1:-1], Image.Resampling.BICUBIC)
    except OSError as why:
        sys.exit(f"{sys.argv[1]} is not a picture that can be opened: {why}")
    pixels = np.asarray(picture, np.float32)
    x = ((pixels / 255 - MEAN) / STD).transpose(2, 0, 1)[None]

    # Optional inputs ask for another class than the one with the highest score, and for another α:
    # {image.name: x, "class": np.array([5]), "alpha": np.array(0.3, np.float32)}
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, {image.name: x})))
    map = next(value for name, value in outputs.items() if name.startswith("saliency/"))[0]

    logits, best = outputs["logits"][0].astype(np.float64), int(outputs["explained_class"][0])
    probability = 1 / np.exp(logits - logits[best]).sum()
    print(f"{100 * probability:.2f} % {CLASSES.read_text().splitlines()[best]}")
    overlay(pixels, map).resize((512, 512), Image.Resampling.BICUBIC).save(HERE / "explained.png")


main()
