"""Writes one tiny ONNX file per golden operator case.

`OP-NAME-OPSET.onnx` holds a single node. The graph inputs are `x0`, `x1`, … and the graph outputs `y0`, `y1`, …; beside
the node's own weights the file carries the initializers `__x0`, … (the values to feed) and `__y0`, … (the expected
values, from ONNX Runtime with its graph optimisations off), so that a reader of ONNX needs no other format.
The ONNX reference evaluator gives a second opinion; a case on which the two disagree is not written unless it is
listed in `DECIDED` with the side that is right and why.
"""

import argparse
import pathlib
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from op_cases import FAMILIES

RUNTIME = "ONNX Runtime"
REFERENCE = "ONNX reference evaluator"
FLATTENED = "before operator set 13 the axes from `axis` on are one, which the reference ignores"
DECIDED = {
    "Softmax-flattening_axis_1-11": (RUNTIME, FLATTENED),
    "Softmax-flattening_axis_2-11": (RUNTIME, FLATTENED),
    "Softmax-flattening_default-1": (RUNTIME, FLATTENED),
    "Softmax-flattening_axis_0-11": (RUNTIME, FLATTENED),
    "LogSoftmax-flattening-11": (RUNTIME, FLATTENED),
    "LogSoftmax-large_values-13": (RUNTIME, "the reference takes the logarithm of a probability that underflowed"),
    "BatchNormalization-4d-9": (RUNTIME, "the reference takes a stated momentum for training"),
    "LRN-size_5-13": (RUNTIME, "the reference loops over the batch where it means the channels"),
    "LRN-size_3_parameters-13": (RUNTIME, "the reference loops over the batch where it means the channels"),
    "LRN-wider_than_channels-13": (RUNTIME, "the reference loops over the batch where it means the channels"),
    "MaxPool-same_lower-12": (RUNTIME, "SAME means the input size over the stride, rounded up"),
    "GlobalMaxPool-3d-1": (RUNTIME, "the reference loses an axis"),
    "LpNormalization-l1-1": (RUNTIME, "the reference sums signed values"),
}
IGNORED = "the reference ignores the activations"
DECIDED |= {
    stem: (RUNTIME, IGNORED)
    for stem in ["GRU-drawn_1_forward-22", "GRU-drawn_3_bidirectional-22", "LSTM-drawn_2_forward-22",
                 "LSTM-drawn_5_bidirectional-7", "LSTM-drawn_6_reverse-7"]
}
DECIDED["Loop-three_rounds-16"] = (RUNTIME, "the reference joins what it should stack along a new axis")
TOLERANCE = 1e-4


def ir_version(opset):
    if opset <= 18:
        return 8
    return 9 if opset <= 20 else 10


def build(case):
    """The single-node model and the values of its graph inputs."""
    names, graph_inputs, weights, feeds = [], [], [], {}
    for entry, array in zip(case.inputs, case.arrays()):
        if entry is None:
            names.append("")
        elif entry.initializer:
            names.append(f"w{len(weights)}")
            weights.append(onnx.numpy_helper.from_array(array, names[-1]))
        else:
            names.append(f"x{len(feeds)}")
            feeds[names[-1]] = array
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            graph_inputs.append(onnx.helper.make_tensor_value_info(names[-1], kind, array.shape))
    outputs = [f"y{index}" for index in range(case.outputs)]
    node = onnx.helper.make_node(case.op, names, outputs, name=case.name, **case.attributes)
    infos = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = onnx.helper.make_graph([node], case.stem, graph_inputs, infos, weights)
    imports = [onnx.helper.make_opsetid("", case.opset)]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=ir_version(case.opset), producer_name="monosplit")
    return model, feeds


def run_onnxruntime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def run_reference(model, feeds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, feeds)]


def attempt(run, model, feeds):
    """The outputs, or the reason there are none."""
    try:
        return run(model, feeds), None
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"


def disagreement(left, right):
    for one, other in zip(left, right):
        if one.shape != other.shape:
            return f"shapes {one.shape} and {other.shape}"
        if one.dtype != other.dtype:
            return f"types {one.dtype} and {other.dtype}"
        close = np.isclose(one.astype(np.float64), other.astype(np.float64), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        if not close.all():
            return f"{(~close).sum()} of {close.size} values, by up to {np.nanmax(np.abs(one.astype(np.float64) - other)):.3g}"
    return None


def typed_outputs(model, values):
    """Replaces the placeholder output types by what came out, so that the checker sees a complete model."""
    del model.graph.output[:]
    for index, value in enumerate(values):
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"y{index}", kind, value.shape))


def expected_values(case, model, feeds):
    """The values to store and a remark, or None and the reason for leaving the case out."""
    runtime, runtime_failure = attempt(run_onnxruntime, model, feeds)
    reference, reference_failure = attempt(run_reference, model, feeds)
    if runtime is None and reference is None:
        return None, f"neither ran it: {runtime_failure}; {reference_failure}"
    if runtime is None:
        return reference, f"{RUNTIME} does not run it ({runtime_failure}); values from the {REFERENCE}"
    if reference is None:
        return runtime, f"no second opinion ({reference_failure})"
    difference = disagreement(runtime, reference)
    if difference is None:
        return runtime, None
    if case.stem in DECIDED:
        side, why = DECIDED[case.stem]
        return runtime if side == RUNTIME else reference, f"values from the {side}: {why} ({difference})"
    return None, f"{RUNTIME} and the {REFERENCE} disagree: {difference}"


def check(case, model):
    """Shape inference is part of the check, but its verdict on a shape that both evaluators agree on is only printed."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.shape_inference.InferenceError as error:
        onnx.checker.check_model(model)
        print(f"kept {case.stem}: {str(error).strip()}")


def write(case, out):
    model, feeds = build(case)
    values, remark = expected_values(case, model, feeds)
    if values is not None:
        typed_outputs(model, values)
        check(case, model)
        extra = [onnx.numpy_helper.from_array(array, f"__{name}") for name, array in feeds.items()]
        extra += [onnx.numpy_helper.from_array(np.asarray(array), f"__y{index}") for index, array in enumerate(values)]
        model.graph.initializer.extend(extra)
        onnx.checker.check_model(model)
        (out / f"{case.stem}.onnx").write_bytes(model.SerializeToString(deterministic=True))
    if remark:
        print(f"{'kept' if values is not None else 'LEFT OUT'} {case.stem}: {remark}")
    return values is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for stale in arguments.out.glob("*.onnx"):
        stale.unlink()
    cases = [case for family in FAMILIES for case in family.CASES]
    stems = [case.stem for case in cases]
    repeated = {stem for stem in stems if stems.count(stem) > 1}
    if repeated:
        parser.error(f"two cases share a name: {sorted(repeated)}")
    written = sum([write(case, arguments.out) for case in cases])
    size = sum(path.stat().st_size for path in arguments.out.glob("*.onnx"))
    print(f"{written} of {len(cases)} cases written, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
