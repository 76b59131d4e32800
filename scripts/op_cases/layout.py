"""Operators that move, select or repeat elements."""

import numpy as np

from .case import Case, constant, given, scalar, x


def reshape(name, shape, target, opset=13, **attributes):
    return Case("Reshape", name, opset, [x(*shape), constant(target)], attributes)


def cut(name, shape, starts, ends, axes=None, steps=None, opset=13):
    rest = [None if value is None else constant(value) for value in (axes, steps)]
    while rest and rest[-1] is None:
        rest.pop()
    return Case("Slice", name, opset, [x(*shape), constant(starts), constant(ends), *rest])


def pad(name, shape, pads, opset=13, value=None, axes=None, **attributes):
    inputs = [x(*shape), constant(pads)]
    if value is not None or axes is not None:
        inputs.append(None if value is None else scalar(value))
    if axes is not None:
        inputs.append(constant(axes))
    return Case("Pad", name, opset, inputs, attributes)


CASES = [
    Case("Concat", "channels", 13, [x(2, 3, 2, 3), x(2, 1, 2, 3)], {"axis": 1}),
    Case("Concat", "three", 4, [x(2, 3), x(2, 1), x(2, 2)], {"axis": 1}),
    Case("Concat", "negative_axis", 11, [x(2, 3, 2), x(2, 3, 4)], {"axis": -1}),
    Case("Concat", "batch", 13, [x(1, 3), x(2, 3)], {"axis": 0}),
    Case("Concat", "one", 13, [x(2, 3)], {"axis": 1}),
    Case("Concat", "with_constant", 13, [constant(np.ones((2, 1, 3)), np.float32), x(2, 4, 3)], {"axis": 1}),
    Case("Split", "equal", 13, [x(2, 6, 3)], {"axis": 1}, 3),
    Case("Split", "uneven", 13, [x(2, 6, 3), constant([1, 2, 3])], {"axis": 1}, 3),
    Case("Split", "attribute", 11, [x(2, 6, 3)], {"axis": 1, "split": [2, 4]}, 2),
    Case("Split", "equal", 2, [x(4, 3)], {"axis": 0}, 2),
    Case("Split", "negative_axis", 11, [x(2, 3, 4)], {"axis": -1}, 2),
    Case("Split", "num_outputs", 18, [x(2, 6, 3)], {"axis": 1, "num_outputs": 2}, 2),
    Case("Split", "num_outputs_uneven", 18, [x(7, 3)], {"num_outputs": 3}, 3),
    cut("middle", (4, 6, 3), [1, 2], [3, 5], [0, 1]),
    cut("default_axes", (4, 6), [1, 0], [3, 1000]),
    cut("negative_bounds", (4, 6), [-3], [-1], [1]),
    cut("negative_axis", (2, 4, 6), [1], [5], [-1]),
    cut("step_2", (2, 9), [1], [8], [1], [2]),
    cut("step_3_to_end", (10, 2), [0], [2**31 - 1], [0], [3]),
    cut("reversed", (2, 5), [-1], [-(2**31)], [1], [-1]),
    cut("reversed_step_2", (7, 2), [5], [0], [0], [-2]),
    cut("largest_end", (3, 5), [2], [2**63 - 1], [1], [1]),
    cut("steps_without_axes", (5, 4), [0, 3], [5, 0], None, [2, -1]),
    cut("start_past_begin", (3, 5), [-100], [3], [1]),
    cut("empty_result", (3, 5), [3], [3], [1]),
    cut("channels", (2, 4, 3, 3), [2], [4], [1], opset=10),
    Case("Slice", "attributes", 1, [x(4, 6)], {"starts": [1, -4], "ends": [3, 1000], "axes": [0, 1]}),
    Case("Slice", "attributes_no_axes", 9, [x(4, 6)], {"starts": [0, 1], "ends": [2, -1]}),
    pad("constant", (1, 2, 3, 4), [0, 0, 1, 2, 0, 0, 3, 0]),
    pad("constant_value", (2, 3), [1, 0, 0, 2], value=-1.5),
    pad("channels", (1, 2, 2, 2), [0, 1, 0, 0, 0, 2, 0, 0], value=0.0),
    pad("negative", (1, 2, 5, 6), [0, 0, -1, 2, 0, 0, 1, -2], value=0.5),
    pad("reflect", (1, 2, 4, 5), [0, 0, 2, 1, 0, 0, 1, 3], mode="reflect"),
    pad("edge", (1, 2, 3, 4), [0, 0, 2, 1, 0, 0, 1, 3], mode="edge"),
    pad("reflect_1d", (1, 2, 5), [0, 0, 3, 0, 0, 2], mode="reflect"),
    pad("axes", (1, 2, 3, 4), [1, 2, 0, 1], opset=18, value=0.25, axes=[2, 3]),
    pad("axes_negative", (1, 2, 3, 4), [1, 2], opset=18, axes=[-1]),
    pad("wrap", (1, 1, 3, 4), [0, 0, 1, 2, 0, 0, 2, 1], opset=19, mode="wrap"),
    Case("Pad", "attributes", 2, [x(1, 2, 3, 4)], {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "value": 1.5}),
    Case("Pad", "attributes_reflect", 2, [x(1, 2, 4, 4)], {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "mode": "reflect"}),
    reshape("plain", (2, 3, 4), [4, 6]),
    reshape("inferred", (2, 3, 4), [2, -1]),
    reshape("kept", (2, 3, 4), [0, -1]),
    reshape("kept_in_the_middle", (2, 3, 4), [-1, 3, 0], opset=5),
    reshape("more_axes", (2, 12), [2, 3, 2, 2]),
    reshape("to_scalar", (1, 1), []),
    reshape("allow_zero_off", (2, 3, 4), [0, 0, 2, 2], opset=14, allowzero=0),
    reshape("allow_zero_on", (0, 3), [3, 0], opset=14, allowzero=1),
    Case("Flatten", "default", 13, [x(2, 3, 4)]),
    Case("Flatten", "axis_0", 13, [x(2, 3, 4)], {"axis": 0}),
    Case("Flatten", "axis_2", 13, [x(2, 3, 2, 2)], {"axis": 2}),
    Case("Flatten", "axis_rank", 13, [x(2, 3)], {"axis": 2}),
    Case("Flatten", "negative_axis", 11, [x(2, 3, 4)], {"axis": -1}),
    Case("Flatten", "older", 1, [x(2, 3, 4)], {"axis": 1}),
    Case("Squeeze", "attribute", 11, [x(2, 1, 3, 1)], {"axes": [1, 3]}),
    Case("Squeeze", "attribute_negative", 11, [x(2, 1, 3, 1)], {"axes": [-1]}),
    Case("Squeeze", "input", 13, [x(2, 1, 3, 1), constant([1, -1])]),
    Case("Squeeze", "every_one", 13, [x(2, 1, 3, 1)]),
    Case("Squeeze", "every_one", 1, [x(1, 2, 1, 3)]),
    Case("Unsqueeze", "attribute", 11, [x(2, 3)], {"axes": [0, 3]}),
    Case("Unsqueeze", "attribute_unsorted", 11, [x(2, 3)], {"axes": [3, 1]}),
    Case("Unsqueeze", "input", 13, [x(2, 3), constant([-1, 0])]),
    Case("Unsqueeze", "scalar", 13, [x(), constant([0])]),
    Case("Transpose", "default_reverses", 13, [x(2, 3, 4)]),
    Case("Transpose", "to_channels_last", 13, [x(2, 3, 2, 4)], {"perm": [0, 2, 3, 1]}),
    Case("Transpose", "to_channels_first", 1, [x(2, 2, 4, 3)], {"perm": [0, 3, 1, 2]}),
    Case("Transpose", "shuffle", 13, [x(1, 2, 3, 2, 2)], {"perm": [0, 2, 1, 3, 4]}),
    Case("Transpose", "heads", 13, [x(2, 5, 2, 3)], {"perm": [0, 2, 3, 1]}),
    Case("Expand", "new_axes", 13, [x(3, 1), constant([2, 1, 4])]),
    Case("Expand", "smaller_target", 8, [x(2, 3, 4), constant([1, 4])]),
    Case("Expand", "from_scalar", 13, [x(), constant([2, 3])]),
    Case("Gather", "rows", 13, [x(5, 3), constant([4, 0, 2])]),
    Case("Gather", "scalar_index", 13, [x(2, 4, 3), constant(1)], {"axis": 1}),
    Case("Gather", "negative_index", 11, [x(2, 4, 3), constant([-1, -4])], {"axis": 1}),
    Case("Gather", "negative_axis", 13, [x(2, 4, 3), constant([2, 2, 0])], {"axis": -1}),
    Case("Gather", "matrix_of_indices", 13, [x(4, 2), constant([[0, 3], [1, 1], [2, 0]])]),
    Case("Gather", "int32_index", 1, [x(4, 2), constant([1, 2], np.int32)]),
    Case("Gather", "from_int64", 13, [given([5, 6, 7, 8], np.int64), constant([3, 1])]),
    Case("Shape", "plain", 13, [x(2, 3, 4)]),
    Case("Shape", "range", 15, [x(2, 3, 4)], {"start": 1, "end": -1}),
    Case("Size", "plain", 13, [x(2, 3, 4)]),
    Case("Tile", "plain", 13, [x(2, 3), constant([2, 3])]),
    Case("ConstantOfShape", "zeros", 9, [constant([2, 3])]),
    Case("Range", "int64", 11, [constant(1), constant(9), constant(3)]),
    Case("GatherElements", "axis_1", 13, [x(2, 4), constant([[0, 3, -1], [1, 1, 2]])], {"axis": 1}),
    Case("GatherElements", "axis_0", 13, [x(3, 4), constant([[2, 0, 1], [0, 0, -3]])], {"axis": 0}),
    Case("GatherElements", "indices_given", 13, [x(2, 4, 3), given([[[0, 2], [3, -1]], [[1, 1], [2, 0]]], np.int64)], {"axis": 1}),
    Case("GatherElements", "of_int64", 11, [given([[5, 6, 7], [8, 9, 4]], np.int64), given([[2, 0], [-1, 1]], np.int64)], {"axis": -1}),
    Case("GatherElements", "expanded_vector", 13, [constant([[5.0, 6.0, 7.0]], np.float32), given([[2, 0, 1, 1]], np.int64)], {"axis": 1}),
    Case("GatherND", "batch_dims_1", 13, [x(2, 3, 4), given([[[2], [0]], [[1], [1]]], np.int64)], {"batch_dims": 1}),
    Case("GatherND", "batch_dims_1_constant", 12, [x(2, 3, 4), constant([[2, -1], [0, 3]])], {"batch_dims": 1}),
    Case("GatherND", "pixels", 13, [x(3, 4, 2), constant([[0, 1], [2, -1]])]),
    Case("ScatterND", "rows", 16, [x(4, 3), constant([[1], [3]]), x(2, 3)]),
    Case("ScatterND", "elements", 11, [x(4, 3), constant([[1, 2], [0, 0]]), x(2)]),
    Case("Trilu", "upper", 14, [x(2, 3, 4)]),
    Case("Trilu", "lower_shifted", 14, [x(3, 4), constant(1)], {"upper": 0}),
    Case("DepthToSpace", "dcr", 13, [x(1, 8, 2, 3)], {"blocksize": 2}),
    Case("DepthToSpace", "crd", 13, [x(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", "plain", 13, [x(1, 2, 4, 6)], {"blocksize": 2}),
]
