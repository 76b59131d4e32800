"""Reductions."""

from .case import Case, constant, x

SHAPE = (2, 3, 4, 2)


def older(op, name, opset, **attributes):
    return Case(op, name, opset, [x(*SHAPE)], attributes)


def newer(op, name, axes, opset=18, **attributes):
    inputs = [x(*SHAPE)] + ([] if axes is None else [constant(axes)])
    return Case(op, name, opset, inputs, attributes)


CASES = []
for op in ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare"]:
    attribute_opset = 11 if op == "ReduceSum" else 13
    CASES += [
        older(op, "spatial", attribute_opset, axes=[2, 3], keepdims=1),
        older(op, "spatial_dropped", attribute_opset, axes=[-2, -1], keepdims=0),
        older(op, "all", attribute_opset),
        newer(op, "spatial", [2, 3], keepdims=1),
        newer(op, "negative_dropped", [-3], keepdims=0),
        newer(op, "first_and_last", [0, 3]),
    ]
CASES += [
    newer("ReduceSum", "axes_input", [1], opset=13, keepdims=0),
    newer("ReduceMean", "all", None),
    newer("ReduceMean", "all_dropped", None, keepdims=0),
    newer("ReduceMean", "no_axes_means_nothing", [], noop_with_empty_axes=1),
    newer("ReduceSum", "no_axes_means_nothing", [], opset=13, noop_with_empty_axes=1),
    newer("ReduceSum", "empty_axes_means_all", [], opset=13),
    older("ReduceMean", "spatial", 1, axes=[2, 3], keepdims=0),
    older("ReduceProd", "last", 13, axes=[-1]),
    older("ReduceLogSumExp", "channel", 13, axes=[1]),
    Case("ArgMax", "channel", 13, [x(2, 5, 3)], {"axis": 1, "keepdims": 0}),
    Case("ArgMax", "last_kept", 13, [x(2, 5, 3)], {"axis": -1}),
]
