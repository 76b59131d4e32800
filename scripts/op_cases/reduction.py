"""Reductions and running sums."""

import numpy as np

from .case import Case, constant, given, x

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
for exclusive in (0, 1):
    for reverse in (0, 1):
        name = ("exclusive" if exclusive else "inclusive") + ("_reverse" if reverse else "")
        attributes = {"exclusive": exclusive, "reverse": reverse}
        for axis in range(4):
            CASES.append(Case("CumSum", f"{name}_axis_{axis}", 14, [x(2, 3, 4, 5), constant(axis)], attributes))
CASES += [
    Case("CumSum", "older_negative_axis", 11, [x(2, 3, 4), constant([-2], np.int32)]),
    Case("CumSum", "vector", 14, [x(7), constant(0)]),
    Case("CumSum", "one_element", 14, [x(3, 1), constant(1)], {"exclusive": 1}),
    Case("CumSum", "int64", 14, [given([[1, -2, 3], [40, 5, 60000]], np.int64), constant(1)], {"reverse": 1}),
]
