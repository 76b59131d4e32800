"""Golden values of a small network written down in training mode, whose batch norms take the statistics of the batch.

    python scripts/make_training_mode.py

`network-OPSET.onnx` is the network as PyTorch exports it from training mode; `x.npy` a batch and `classes.npy` a class for each
sample; `scores.npy` the class scores, and `gradient.npy` the gradient of the sum of the explained ones with respect to the batch,
by PyTorch in double precision. ONNX Runtime must agree with the scores. All weights are numbers of single precision.
"""

import pathlib
import warnings

import numpy as np
import onnxruntime
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent.parent / "crates/cli/tests/fixtures/training_mode"
SAMPLES, CLASSES = 5, 4


def network():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10), nn.BatchNorm1d(10, eps=1e-2), nn.ReLU(), nn.Linear(10, CLASSES),
    )


def export(net, x, opset):
    path = FOLDER / f"network-{opset}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, x, str(path), opset_version=opset, dynamo=False, training=torch.onnx.TrainingMode.TRAINING,
                          do_constant_folding=False, input_names=["x"], output_names=["scores"], dynamic_axes={"x": {0: "n"}})
    return path


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(9)
    net = network().train()
    for module in net.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(module.weight, 0.6, 1.4)
            nn.init.uniform_(module.bias, -0.3, 0.3)
    x = torch.randn(SAMPLES, 3, 8, 8)
    files = [export(net, x, opset) for opset in (12, 17)]
    classes = np.arange(SAMPLES) % CLASSES
    net.double()
    batch = x.double().requires_grad_()
    scores = net(batch)
    scores[torch.arange(SAMPLES), torch.from_numpy(classes)].sum().backward()
    expected = scores.detach().numpy()
    found = onnxruntime.InferenceSession(str(files[-1])).run(["scores"], {"x": x.numpy()})[0]
    assert np.abs(found - expected).max() < 1e-5, "the file is of another network"
    arrays = {"x": x.numpy(), "classes": classes, "scores": expected, "gradient": batch.grad.numpy()}
    for name, array in arrays.items():
        np.save(FOLDER / f"{name}.npy", array)


if __name__ == "__main__":
    main()
