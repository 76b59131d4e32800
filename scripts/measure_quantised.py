"""How far the scores of quantised networks are from ONNX Runtime's: the table in docs/src/own-model.md.

    python scripts/measure_quantised.py target/release/monosplit MODELS_FOLDER PICTURES_FOLDER

Each network is quantised by `onnxruntime.quantization` in both static formats and dynamically, calibrated on eight pictures and run on
eight others. Printed are the largest difference of a score over the largest score, to ONNX Runtime as it is, to ONNX Runtime
without graph optimisations, and between these two; and how often the best class is the same.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image

NETWORKS = ["pets-small", "squeezenet1.1-imagenet", "resnet18-imagenet"]
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])


class Batches(CalibrationDataReader):
    def __init__(self, name, batches):
        self.rest = iter([{name: batch} for batch in batches])

    def get_next(self):
        return next(self.rest, None)


def pictures(folder, side):
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*.jpg"))[:16]:
        pixels = np.asarray(Image.open(path).convert("RGB").resize((side, side), Image.BILINEAR), np.float32) / 255
        found.append(((pixels - MEAN) / STD).transpose(2, 0, 1)[None])
    return found


def scores(path, name, batches, optimised):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {name: batch})[0].reshape(1, -1) for batch in batches])


def main(program, models, photographs):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for network in NETWORKS:
            source = folder / "prepared.onnx"
            quant_pre_process(str(pathlib.Path(models) / f"{network}.onnx"), str(source), skip_symbolic_shape=True)
            declared = onnx.load(source).graph.input[0]
            name, side = declared.name, declared.type.tensor_type.shape.dim[2].dim_value
            batches = pictures(photographs, side)
            known, unknown = batches[:8], batches[8:]
            np.save(folder / "x.npy", np.concatenate(unknown))
            for form in ["QDQ", "QOperator", "dynamic"]:
                path = folder / f"{form}.onnx"
                if form == "dynamic":
                    quantize_dynamic(str(source), str(path), weight_type=QuantType.QUInt8)
                else:
                    quantize_static(str(source), str(path), Batches(name, known), quant_format=QuantFormat[form],
                                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=form == "QDQ")
                command = [program, "-q", "run", path, folder / "x.npy", "--raw", folder / "y.npy"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                own = np.load(folder / "y.npy")
                fast, plain = (scores(path, name, unknown, optimised) for optimised in (True, False))
                apart = lambda a, b: 100 * np.abs(a - b).max() / np.abs(fast).max()
                same = np.mean(own.argmax(1) == fast.argmax(1))
                print(f"{network:24} {form:10} {apart(own, fast):5.2f} % {apart(own, plain):5.2f} % {apart(fast, plain):5.2f} % {same:.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
