"""Compares the program with ONNX Runtime on a folder of photographs, from the JPEG on, image for image.

For each of the four networks of `reference_top1.py` the program runs on `DATA/images` with the options that mean the same
preprocessing and writes its logits; ONNX Runtime reads pictures decoded and scaled by Pillow. Printed are the number of
images, how many have the same top-1 class, and the largest difference of a logit relative to the largest logit. `--golden`
also writes ONNX Runtime's classes of every tenth image, which a test of the repository compares with.
"""

import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from reference_top1 import all_logits

OPTIONS = {
    "pets-small": ["--fit", "squash", "--filter", "bicubic"],
    "resnet18-imagenet": [],
    "squeezenet1.1-imagenet": ["--preset", "imagenet-bgr"],
    "vgg16-pets": [],
}
EVERY = 10


def logits_of_program(program, model, images, options):
    with tempfile.TemporaryDirectory() as folder:
        raw = pathlib.Path(folder) / "logits.npy"
        command = [program, "run", model, images, "--raw", raw, "--top", "1", *options]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        return np.load(raw)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default="target/debug/monosplit")
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--golden", type=pathlib.Path, help="write ONNX Runtime's classes of every tenth image")
    arguments = parser.parse_args()
    images = arguments.data / "images"
    files = sorted(path for path in images.iterdir() if path.suffix.lower() in {".jpg", ".jpeg", ".png"})
    classes, agree = {}, True
    print("network, images, same top-1, largest difference")
    for name, options in OPTIONS.items():
        model = arguments.models / f"{name}.onnx"
        expected = all_logits(model, files)
        found = logits_of_program(arguments.program, model, images, options)
        classes[name] = expected.argmax(axis=1)
        same = int((found.argmax(axis=1) == classes[name]).sum())
        agree &= same == len(files)
        difference = np.abs(found - expected).max() / np.abs(expected).max()
        print(f"{name}, {len(files)}, {same}, {difference:.1e}")
    if arguments.golden:
        with open(arguments.golden, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["file", *OPTIONS])
            for row in range(0, len(files), EVERY):
                writer.writerow([files[row].name, *(classes[name][row] for name in OPTIONS)])
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
