"""Writes the small golden models: one folder per network.

`NETWORK/x.npy` is the input and `NETWORK/y64.npy` the output in float64, of the PyTorch network or, for graphs made by
hand, of the same computation written in PyTorch. Each `NETWORK/EXPORTER-OPSET.onnx` is one way of writing that network
down, and `NETWORK/EXPORTER-OPSET.y.npy` what ONNX Runtime computes for it in float32 (the ONNX reference evaluator where
ONNX Runtime cannot; the manifest says so). `manifest.json` lists every file with its operator set, its exporter, its
error and what could not be made and why.
"""

import argparse
import json
import logging
import pathlib
import shutil
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator

from small_models.handmade import HANDMADE, KERAS, STORED_TYPES, keras, narrow_weights
from small_models.networks import NETWORKS

SEED = 4711
TOLERANCE = 1e-5
LARGEST_MODEL = 40 * 1024
EXTERNAL = {"vgg/dynamo-18", "resnet/torchscript-11"}


@torch.no_grad()
def randomise(network):
    """Statistics and affine parameters that are neither 0 nor 1, so that a lost one shows."""
    for module in network.modules():
        if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 1.5)
        if isinstance(module, (torch.nn.modules.batchnorm._NormBase, torch.nn.GroupNorm, torch.nn.LayerNorm)):
            module.weight.uniform_(0.6, 1.4)
            module.bias.normal_(std=0.3)
        if isinstance(module, torch.nn.PReLU):
            module.weight.uniform_(-0.3, 0.6)


def run_onnxruntime(path, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def float32_output(path, x):
    """The float32 output and the name of the program that computed it."""
    try:
        return run_onnxruntime(path, x), "onnxruntime"
    except Exception:
        model = onnx.load(str(path))
        return ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x})[0], "onnx.reference"


def export(network, x, exporter, opset, raw, path):
    axes = {0: "N"}
    options = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
    if exporter == "dynamo":
        shapes = ({0: torch.export.Dim("N", min=1, max=1024)},)
        options |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False, "optimize": not raw, "verbose": False}
    else:
        options |= {"dynamo": False, "dynamic_axes": {"x": axes, "y": axes}}
        if raw:
            training = torch.onnx.TrainingMode.PRESERVE
            options |= {"training": training, "do_constant_folding": False, "keep_initializers_as_inputs": True}
    torch.onnx.export(network, (x,), str(path), **options)


def without_source_locations(model, keep_names):
    """The newer exporter records how each node came about, down to the line of source; at most the module names stay."""
    for node in model.graph.node:
        node.doc_string = ""
        kept = [entry for entry in node.metadata_props if keep_names and entry.key.endswith("name_scopes")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    return model


def save_model(path, model, external):
    if external:
        onnx.save(model, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=64)
    else:
        path.write_bytes(model.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(path))
    if path.stat().st_size > LARGEST_MODEL:
        raise ValueError(f"the file has {path.stat().st_size} bytes, more than {LARGEST_MODEL}")


def save_shared(path, array):
    """Every file of one network shares its input and its float64 output."""
    if path.exists() and not np.array_equal(np.load(path), array):
        raise ValueError(f"{path.name} differs from that of another file of this network")
    np.save(path, array)


def store(path, model, x, reference, external):
    """Writes and checks one model; returns its manifest entry, or raises with the reason it is no good."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(path, model, external)
    y, source = float32_output(path, x)
    reference = np.asarray(reference)
    if y.shape != reference.shape:
        raise ValueError(f"{source} gives the shape {y.shape}, the float64 reference {reference.shape}")
    error = float(np.abs(y - reference).max() / np.abs(reference).max())
    if not error < TOLERANCE:
        raise ValueError(f"{source} is {error:.2e} from the float64 reference")
    save_shared(path.parent / "x.npy", x)
    save_shared(path.parent / "y64.npy", reference)
    np.save(path.with_suffix(".y.npy"), y)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    return {"opset": opset, "float32_from": source, "error_against_f64": float(f"{error:.1e}")}


class Collection:
    """The models made so far and those that could not be."""

    def __init__(self, out):
        self.out = out
        self.models = []
        self.failures = []

    def add(self, name, exporter, make):
        path = self.out / f"{name}.onnx"
        try:
            model, x, reference = make()
            self.models.append({"name": name, "exporter": exporter, **store(path, model, x, reference, name in EXTERNAL)})
        except Exception as error:
            path.unlink(missing_ok=True)
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
            self.failures.append({"name": name, "exporter": exporter, "why": f"{type(error).__name__}: {lines[0][:200]}"})
            print(f"failed {name}: {self.failures[-1]['why']}", flush=True)

    def finish(self):
        note = f"every float32 output is within {TOLERANCE:g} of the float64 output, relative to its largest value"
        lines = [json.dumps(entry) for entry in sorted(self.models, key=lambda entry: entry["name"])]
        listing = ",\n".join(lines)
        missing = json.dumps(self.failures)
        (self.out / "manifest.json").write_text(f'{{"tolerance": "{note}",\n"not_made": {missing},\n"models": [\n{listing}\n]}}\n')
        size = sum(path.stat().st_size for path in self.out.rglob("*") if path.is_file())
        print(f"{len(self.models)} models, {len(self.failures)} not made, {size / 1024:.0f} KiB")


def exported(constructor, shape, exporter, opset, raw, scratch):
    torch.manual_seed(SEED)
    network = constructor().eval()
    randomise(network)
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))
    export(network, x, exporter, opset, raw, scratch)
    model = without_source_locations(onnx.load(str(scratch)), keep_names=raw)
    with torch.no_grad():
        reference = network.double()(x.double()).numpy()
    return model, x.numpy(), reference


def add_networks(collection, scratch, only):
    for name, (constructor, shape, torchscript, dynamo) in NETWORKS.items():
        if only and name not in only:
            continue
        for exporter, variants in (("torchscript", torchscript), ("dynamo", dynamo)):
            for variant in variants:
                words = str(variant or "default").split()
                raw = words[0] == "raw"
                opset = int(words[-1]) if words[-1].isdigit() else None
                stem = f"{name}/" + "-".join([exporter, *words])
                make = lambda: exported(constructor, shape, exporter, opset, raw, scratch)
                collection.add(stem, f"torch.onnx {exporter}{' raw' if raw else ''}", make)


def add_handmade(collection):
    for name, (make, opsets) in HANDMADE.items():
        for opset in opsets:
            collection.add(f"{name}/handmade-{opset}", "by hand", lambda: make(opset))
    for opset, auto_pad in KERAS:
        collection.add(f"keras_{auto_pad.lower()}/handmade-{opset}", "by hand", lambda: keras(opset, auto_pad))
    for kind in STORED_TYPES:
        collection.add(f"weights_{kind}/handmade-13", "by hand", lambda: narrow_weights(kind))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="replaced if it exists")
    parser.add_argument("--only", help="comma-separated networks; the manifest then lists only these")
    arguments = parser.parse_args()
    if arguments.out.exists() and any(arguments.out.iterdir()) and not (arguments.out / "manifest.json").exists():
        parser.error(f"{arguments.out} holds something else: name a folder that does not exist or one made by this script")
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    torch.set_num_threads(2)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    collection = Collection(arguments.out)
    only = arguments.only.split(",") if arguments.only else None
    if not only:
        add_handmade(collection)
    scratch = arguments.out / "export.tmp"
    add_networks(collection, scratch, only)
    scratch.unlink(missing_ok=True)
    collection.finish()


if __name__ == "__main__":
    main()
