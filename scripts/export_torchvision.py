"""Exports randomly initialised torchvision networks with both PyTorch ONNX exporters.

Every file `STEM.onnx` comes with `STEM.x.npy` (an input batch), `STEM.ort.npy` (the logits ONNX Runtime gives for that
very file, float32) and `STEM.f64.npy` (the logits of the PyTorch network in float64). `exports.csv` lists the files
and `failures.csv` what could not be exported and why.
"""

import argparse
import csv
import gc
import pathlib
import time
import traceback
import warnings
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import torch
import torchvision

TORCHSCRIPT = "torchscript"
DYNAMO = "dynamo"
# The same exporters told to leave the graph alone: batch norm stays, constants are computed by nodes and, for the
# older one, weights are listed among the graph inputs.
TORCHSCRIPT_RAW = "torchscript_raw"
DYNAMO_RAW = "dynamo_raw"
EXPORTER_DEFAULT = None
SEED = 20240607
LOGIT_SPREAD = 3.0


@dataclass(frozen=True)
class Architecture:
    """A torchvision network, the resolution it is fed and the files to make of it."""

    name: str
    size: int
    torchscript: tuple
    dynamo: tuple
    options: tuple = ()
    external: bool = False


RAW = {"resnet18", "densenet121", "mobilenet_v2", "shufflenet_v2_x1_0", "efficientnet_b0", "vit_b_16", "googlenet"}
# The most common networks come first, so that an interrupted run is still useful. A resolution of 224 is
# kept where adaptive pooling or a fixed grid asks for it.
ARCHITECTURES = [
    Architecture("resnet18", 96, (9, 11, 13, 17), (EXPORTER_DEFAULT, "newest")),
    Architecture("resnet50", 96, (11,), (EXPORTER_DEFAULT,)),
    Architecture("mobilenet_v2", 96, (9, 11), (EXPORTER_DEFAULT,)),
    Architecture("vgg16_bn", 224, (11,), (EXPORTER_DEFAULT,)),
    Architecture("alexnet", 224, (9,), (EXPORTER_DEFAULT,)),
    Architecture("squeezenet1_1", 96, (7, 13), (18,)),
    Architecture("densenet121", 96, (11,), (18,)),
    Architecture("efficientnet_b0", 96, (13,), (EXPORTER_DEFAULT,), (), True),
    Architecture("mobilenet_v3_small", 96, (11,), (18,)),
    Architecture("vit_b_16", 96, (17,), (EXPORTER_DEFAULT,), (("image_size", 96),)),
    Architecture("convnext_tiny", 96, (16,), (18,)),
    Architecture("googlenet", 96, (12,), (EXPORTER_DEFAULT,), (("aux_logits", False), ("transform_input", True), ("init_weights", False))),
    Architecture("inception_v3", 128, (11,), (18,), (("aux_logits", False), ("transform_input", True), ("init_weights", False))),
    Architecture("shufflenet_v2_x1_0", 96, (11,), (18,)),
    Architecture("mnasnet0_5", 96, (10,), (EXPORTER_DEFAULT,)),
    Architecture("regnet_y_400mf", 96, (13,), (18,)),
    Architecture("regnet_x_400mf", 96, (12,), (EXPORTER_DEFAULT,)),
    Architecture("mobilenet_v3_large", 96, (14,), ("newest",)),
    Architecture("resnet34", 96, (10,), (18,), (), True),
    Architecture("squeezenet1_0", 96, (8,), (EXPORTER_DEFAULT,)),
    Architecture("swin_t", 224, (17,), (EXPORTER_DEFAULT,)),
    Architecture("resnext50_32x4d", 96, (12,), (18,)),
    Architecture("efficientnet_v2_s", 96, (15,), (18,)),
    Architecture("densenet169", 96, (9,), (EXPORTER_DEFAULT,)),
    Architecture("vgg11", 224, (9,), (18,)),
    Architecture("resnet101", 96, (13,), (EXPORTER_DEFAULT,)),
    Architecture("wide_resnet50_2", 96, (14,), (18,)),
    Architecture("vgg19", 224, (17,), (18,)),
    Architecture("swin_v2_t", 256, (17,), (18,)),
    Architecture("maxvit_t", 224, (17,), (EXPORTER_DEFAULT,)),
    Architecture("shufflenet_v2_x0_5", 96, (13,), (EXPORTER_DEFAULT,)),
    Architecture("mnasnet1_0", 96, (17,), (18,)),
    Architecture("regnet_y_800mf", 96, (18,), (EXPORTER_DEFAULT,)),
    Architecture("efficientnet_b1", 96, (11,), (18,)),
]


def input_batch(size):
    """Two samples with coarse structure and noise, so that their activations differ."""
    generator = torch.Generator().manual_seed(SEED + size)
    coarse = torch.randn(2, 3, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear")
    return smooth + 0.5 * torch.randn(2, 3, size, size, generator=generator)


def last_weighted_layer(network):
    layers = [m for m in network.modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d))]
    return layers[-1]


@torch.no_grad()
def randomise(network, x):
    """Gives every parameter and every batch-norm statistic a value whose loss or misuse would show."""
    for module in network.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
            if not module.weight.any():
                module.weight.normal_(std=module.weight[0].numel() ** -0.5)
            if module.bias is not None:
                module.bias.normal_(std=0.1)
        elif isinstance(module, (torch.nn.BatchNorm2d, torch.nn.BatchNorm1d, torch.nn.LayerNorm)):
            module.weight.uniform_(0.6, 1.4)
            module.bias.normal_(std=0.2)
    for name, parameter in network.named_parameters():
        if name.endswith("layer_scale"):
            parameter.uniform_(0.1, 0.6)
        elif name.endswith("class_token"):
            parameter.normal_(std=0.5)
    calibrate_batch_norm(network, x)
    network.eval()
    layer = last_weighted_layer(network)
    for _ in range(2):
        factor = LOGIT_SPREAD / network(x).std()
        layer.weight.mul_(factor)
        if layer.bias is not None:
            layer.bias.mul_(factor)


@torch.no_grad()
def calibrate_batch_norm(network, x):
    """Statistics near those of real activations, then perturbed: neither 0/1 nor a source of overflow."""
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None
        norm.reset_running_stats()
        norm.train()
    network(x)
    for norm in norms:
        norm.running_mean.add_(0.2 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean))
        norm.running_var.mul_(torch.empty_like(norm.running_var).uniform_(0.7, 1.4)).add_(1e-3)
        norm.eval()


def build(architecture):
    torch.manual_seed(SEED)
    network = torchvision.models.get_model(architecture.name, weights=None, **dict(architecture.options))
    network.eval()
    x = input_batch(architecture.size)
    randomise(network, x)
    return network, x


def newest_opset():
    """The newest operator set that both ONNX and the installed ONNX Runtime know."""
    for opset in range(onnx.defs.onnx_opset_version(), 17, -1):
        try:
            info = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
            y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
            graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "probe", [info], [y])
            imports = [onnx.helper.make_opsetid("", opset)]
            model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
            onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            return opset
        except Exception:
            continue
    return 18


def export(network, x, exporter, opset, external, path):
    options = {"input_names": ["x"], "output_names": ["logits"], "dynamo": exporter in (DYNAMO, DYNAMO_RAW)}
    if opset is not EXPORTER_DEFAULT:
        options["opset_version"] = opset
    if exporter in (DYNAMO, DYNAMO_RAW):
        options["dynamic_shapes"] = ({0: torch.export.Dim("N", min=1, max=4096)},)
        options["external_data"] = external
        options["verbose"] = False
        options["optimize"] = exporter == DYNAMO
    else:
        options["dynamic_axes"] = {"x": {0: "N"}, "logits": {0: "N"}}
    if exporter == TORCHSCRIPT_RAW:
        options["training"] = torch.onnx.TrainingMode.PRESERVE
        options["do_constant_folding"] = False
        options["keep_initializers_as_inputs"] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (x,), str(path), **options)


def run_onnxruntime(path, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def default_opset_of(path):
    model = onnx.load(str(path), load_external_data=False)
    return next(entry.version for entry in model.opset_import if entry.domain == "")


def wanted_files(architecture, newest):
    for opset in architecture.torchscript:
        yield TORCHSCRIPT, opset
    for opset in architecture.dynamo:
        yield DYNAMO, newest if opset == "newest" else opset
    if architecture.name in RAW:
        yield TORCHSCRIPT_RAW, architecture.torchscript[0]
        yield DYNAMO_RAW, EXPORTER_DEFAULT


def export_one(architecture, network, x, reference, exporter, opset, out):
    """Writes one ONNX file and its arrays; returns the row for the table."""
    label = "default" if opset is EXPORTER_DEFAULT else str(opset)
    stem = f"{architecture.name}-{exporter}-{label}"
    path = out / f"{stem}.onnx"
    started = time.time()
    export(network, x, exporter, opset, architecture.external and exporter == DYNAMO, path)
    seconds = time.time() - started
    logits = run_onnxruntime(path, x.numpy())
    single = run_onnxruntime(path, x.numpy()[:1])
    np.save(out / f"{stem}.x.npy", x.numpy())
    np.save(out / f"{stem}.ort.npy", logits)
    np.save(out / f"{stem}.f64.npy", reference)
    scale = np.abs(reference).max()
    return {
        "file": path.name,
        "opset": default_opset_of(path),
        "external_data": path.with_name(path.name + ".data").exists(),
        "input": "x".join(map(str, x.shape)),
        "largest_logit": f"{scale:.3f}",
        "error_against_f64": f"{np.abs(logits - reference).max() / scale:.2e}",
        "batch_1_differs_by": f"{np.abs(single - logits[:1]).max() / scale:.2e}",
        "seconds": f"{seconds:.1f}",
    }


def append_row(path, row):
    fresh = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(row))
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def export_architecture(architecture, out, newest, force):
    pending = []
    for exporter, opset in wanted_files(architecture, newest):
        label = "default" if opset is EXPORTER_DEFAULT else str(opset)
        done = out / f"{architecture.name}-{exporter}-{label}.f64.npy"
        if force or not done.exists():
            pending.append((exporter, opset, label))
    if not pending:
        return
    network, x = build(architecture)
    with torch.no_grad():
        reference = network.double()(x.double()).numpy()
    network.float()
    for exporter, opset, label in pending:
        try:
            row = export_one(architecture, network, x, reference, exporter, opset, out)
            append_row(out / "exports.csv", row)
            print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
        except Exception as error:
            (out / f"{architecture.name}-{exporter}-{label}.onnx").unlink(missing_ok=True)
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = f"{type(error).__name__}: {lines[0][:300] if lines else traceback.format_exc(limit=1)}"
            append_row(out / "failures.csv", {"architecture": architecture.name, "exporter": exporter, "opset": label, "why": why})
            print(f"failed: {architecture.name} {exporter} {label}: {why}", flush=True)
        gc.collect()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--only", help="comma-separated architecture names")
    parser.add_argument("--force", action="store_true", help="export again what is already there")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    newest = newest_opset()
    names = set(arguments.only.split(",")) if arguments.only else None
    unknown = (names or set()) - {a.name for a in ARCHITECTURES}
    if unknown:
        parser.error(f"unknown architectures: {', '.join(sorted(unknown))}")
    for architecture in ARCHITECTURES:
        if names is None or architecture.name in names:
            export_architecture(architecture, arguments.out, newest, arguments.force)


if __name__ == "__main__":
    main()
