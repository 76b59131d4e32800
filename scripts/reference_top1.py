"""Top-1 classes and logits of one network for a folder of images, by ONNX Runtime.

DATA holds `images/` and, where the classes are known, `labels.csv`. The preprocessing follows from the file name of
the network: pets-small is fed 128×128 (antialiased bicubic), SqueezeNet BGR values minus their means, all others
`(v/255 − mean)/std` at the images' own size. The CSV has one line per image: file, top-1 class, its logit, the
second-best logit, and the true class (empty where unknown). `--logits` also stores all logits as one NPY file.
"""

import argparse
import csv
import pathlib

import numpy as np
import onnxruntime
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STANDARD_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)
BGR_MEAN = np.array([103.939, 116.779, 123.68], dtype=np.float32)
BATCH = 16


def preprocess(path, model_name):
    """One image as a CHW float32 array."""
    image = Image.open(path).convert("RGB")
    if model_name.startswith("pets-small"):
        image = image.resize((128, 128), Image.Resampling.BICUBIC)
    pixels = np.asarray(image, dtype=np.float32)
    if model_name.startswith("squeezenet"):
        pixels = pixels[:, :, ::-1] - BGR_MEAN
    else:
        pixels = (pixels / np.float32(255) - MEAN) / STANDARD_DEVIATION
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def true_classes(data, classes):
    """File name to class: the pet classes for a network of 37 outputs, ImageNet's otherwise."""
    table = data / "labels.csv"
    if not table.exists():
        return {}
    column = "pet_class_index" if classes == 37 else "imagenet_index"
    with open(table, newline="") as file:
        return {pathlib.PurePath(row["file"]).stem: int(row[column]) for row in csv.DictReader(file)}


def all_logits(model, files):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    batches = []
    for start in range(0, len(files), BATCH):
        x = np.stack([preprocess(path, model.name) for path in files[start : start + BATCH]])
        batches.append(session.run(None, {name: x})[0])
    return np.concatenate(batches)


def write_table(path, files, logits, truth):
    order = np.argsort(-logits, axis=1, kind="stable")
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "top1", "logit", "second_logit", "class"])
        for row, (image, ranking) in enumerate(zip(files, order)):
            best, second = (repr(float(logits[row, index])) for index in ranking[:2])
            writer.writerow([image.name, ranking[0], best, second, truth.get(image.stem, "")])
    return order[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--logits", type=pathlib.Path, help="also store all logits, in the order of the CSV")
    arguments = parser.parse_args()
    files = sorted(p for p in (arguments.data / "images").iterdir() if p.suffix.lower() in {".jpg", ".jpeg", ".png"})
    if not files:
        parser.error(f"no JPEG or PNG images in {arguments.data / 'images'}")
    logits = all_logits(arguments.model, files)
    truth = true_classes(arguments.data, logits.shape[1])
    winners = write_table(arguments.out, files, logits, truth)
    if arguments.logits:
        np.save(arguments.logits, logits)
    known = [winners[row] == truth[image.stem] for row, image in enumerate(files) if image.stem in truth]
    if known:
        print(f"{arguments.model.name}: top-1 {100 * np.mean(known):.1f} % of {len(known)}")


if __name__ == "__main__":
    main()
