"""Resize and Upsample."""

import numpy as np

from .case import Case, constant, x

EMPTY = constant([], np.float32)
MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
UP = [1.0, 1.0, 2.0, 1.5]
# Exact in binary, so that which pixel is nearest never hangs on the rounding of a scale.
DOWN = [1.0, 1.0, 0.375, 0.5]


def by_scales(name, shape, scales, opset=13, **attributes):
    return Case("Resize", name, opset, [x(*shape), None, constant(scales, np.float32)], attributes)


def by_sizes(name, shape, sizes, opset=13, **attributes):
    return Case("Resize", name, opset, [x(*shape), None, None, constant(sizes)], attributes)


CASES = []
for transform in MODES:
    for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
        options = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
        CASES.append(by_scales(f"nearest_up_{transform}_{rounding}", (1, 2, 3, 4), UP, **options))
        CASES.append(by_scales(f"nearest_down_{transform}_{rounding}", (1, 2, 8, 6), DOWN, **options))
    for mode in ["linear", "cubic"]:
        options = {"mode": mode, "coordinate_transformation_mode": transform}
        CASES.append(by_scales(f"{mode}_up_{transform}", (1, 2, 3, 4), UP, **options))
        CASES.append(by_scales(f"{mode}_down_{transform}", (1, 2, 8, 6), DOWN, **options))
        CASES.append(by_sizes(f"{mode}_sizes_{transform}", (1, 2, 4, 5), [1, 2, 7, 3], **options))

CASES += [
    by_scales("nearest_default", (1, 2, 3, 3), [1.0, 1.0, 2.0, 2.0]),
    by_sizes("nearest_sizes", (1, 2, 3, 4), [1, 2, 7, 5], coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    by_sizes("nearest_sizes", (1, 2, 3, 4), [1, 2, 7, 5], opset=19, coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    by_sizes("linear_to_one_pixel", (1, 2, 3, 4), [1, 2, 1, 1], mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
    by_sizes("linear_to_one_pixel_aligned", (1, 2, 3, 4), [1, 2, 1, 3], mode="linear", coordinate_transformation_mode="align_corners"),
    by_scales("cubic_a_half", (1, 2, 4, 4), [1.0, 1.0, 2.0, 1.5], mode="cubic", cubic_coeff_a=-0.5),
    by_scales("cubic_exclude_outside", (1, 2, 4, 4), [1.0, 1.0, 2.0, 1.5], mode="cubic", exclude_outside=1),
    by_scales("linear_3d", (1, 2, 5), [1.0, 1.0, 2.0], mode="linear"),
    by_scales("nearest_3d", (1, 2, 5), [1.0, 1.0, 2.0], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    by_scales("linear_newer", (1, 2, 3, 4), UP, opset=18, mode="linear"),
    by_scales("linear_antialias", (1, 2, 6, 7), [1.0, 1.0, 0.5, 0.5], opset=18, mode="linear", antialias=1),
    by_sizes("linear_antialias_sizes", (1, 2, 9, 7), [1, 2, 4, 3], opset=18, mode="linear", antialias=1),
    by_sizes("linear_antialias_aligned", (1, 2, 9, 7), [1, 2, 4, 3], opset=18, mode="linear", antialias=1, coordinate_transformation_mode="align_corners"),
    by_sizes("cubic_antialias", (1, 2, 9, 8), [1, 2, 3, 5], opset=18, mode="cubic", antialias=1),
    by_sizes("cubic_antialias_excluding", (1, 2, 9, 8), [1, 2, 3, 5], opset=18, mode="cubic", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5),
    by_sizes("linear_antialias_one_axis_grows", (1, 2, 9, 4), [1, 2, 4, 7], opset=18, mode="linear", antialias=1),
    Case("Resize", "linear_axes", 18, [x(1, 2, 3, 4), None, constant([2.0, 1.5], np.float32)], {"mode": "linear", "axes": [2, 3]}),
    Case("Resize", "nearest_axes_sizes", 18, [x(1, 2, 3, 4), None, None, constant([6, 4])], {"axes": [2, 3], "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    Case("Resize", "roi_given_but_unused", 11, [x(1, 2, 3, 4), EMPTY, constant(UP, np.float32)], {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    Case("Resize", "sizes_with_empty_scales", 11, [x(1, 2, 3, 4), EMPTY, EMPTY, constant([1, 2, 5, 8])], {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    Case("Resize", "nearest", 10, [x(1, 2, 3, 4), constant([1.0, 1.0, 2.0, 2.0], np.float32)], {"mode": "nearest"}),
    Case("Resize", "linear", 10, [x(1, 2, 3, 4), constant(UP, np.float32)], {"mode": "linear"}),
    Case("Upsample", "nearest", 7, [x(1, 2, 3, 4)], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}),
    Case("Upsample", "linear", 7, [x(1, 2, 3, 4)], {"mode": "linear", "scales": UP}),
    Case("Upsample", "nearest", 9, [x(1, 2, 3, 4), constant([1.0, 1.0, 2.0, 3.0], np.float32)], {"mode": "nearest"}),
    Case("Upsample", "linear", 9, [x(1, 2, 3, 4), constant(UP, np.float32)], {"mode": "linear"}),
]
