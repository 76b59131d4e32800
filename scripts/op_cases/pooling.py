"""Pooling."""

from .case import Case, x


def pool(op, name, shape, kernel, opset=12, **attributes):
    return Case(op, name, opset, [x(*shape)], {"kernel_shape": kernel, **attributes})


def both(name, shape, kernel, **attributes):
    """Every geometry is tried with maximum and average; average pooling pads are tried with both divisors."""
    cases = [pool("MaxPool", name, shape, kernel, **attributes), pool("AveragePool", name, shape, kernel, 19, **attributes)]
    if "pads" in attributes or "auto_pad" in attributes:
        cases.append(pool("AveragePool", f"{name}_counting_pads", shape, kernel, 19, count_include_pad=1, **attributes))
    return cases


CASES = [
    *both("2x2", (2, 3, 6, 4), [2, 2], strides=[2, 2]),
    *both("2x2_remainder", (2, 3, 7, 5), [2, 2], strides=[2, 2]),
    *both("2x2_ceil", (2, 3, 7, 5), [2, 2], strides=[2, 2], ceil_mode=1),
    *both("3x3_overlapping", (1, 3, 7, 9), [3, 3], strides=[2, 2]),
    *both("3x3_overlapping_ceil", (1, 3, 8, 6), [3, 3], strides=[2, 2], ceil_mode=1),
    *both("3x3_stem", (2, 2, 8, 7), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    *both("3x3_stem_ceil", (1, 2, 8, 7), [3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
    *both("3x3_same_size", (1, 2, 5, 6), [3, 3], pads=[1, 1, 1, 1]),
    *both("pads_unlike", (1, 2, 6, 5), [3, 2], strides=[2, 1], pads=[0, 1, 2, 0]),
    *both("no_strides", (1, 2, 5, 4), [2, 3]),
    *both("stride_over_kernel", (1, 2, 9, 8), [2, 2], strides=[3, 3]),
    *both("stride_over_kernel_ceil", (1, 2, 9, 9), [1, 2], strides=[3, 4], ceil_mode=1),
    *both("whole_map", (2, 3, 4, 5), [4, 5]),
    *both("dilated", (1, 2, 8, 9), [2, 3], dilations=[3, 2], strides=[2, 1]),
    *both("dilated_padded", (1, 2, 7, 7), [3, 3], dilations=[2, 2], pads=[1, 1, 1, 1]),
    *both("same_upper", (1, 2, 7, 6), [3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    *both("same_lower", (1, 2, 7, 6), [2, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    *both("valid", (1, 2, 7, 6), [3, 3], strides=[2, 2], auto_pad="VALID"),
    *both("1d", (2, 3, 9), [3], strides=[2]),
    *both("1d_padded_ceil", (1, 3, 10), [4], strides=[3], pads=[1, 2], ceil_mode=1),
    pool("MaxPool", "older", (1, 2, 7, 6), [3, 3], 8, strides=[2, 2], pads=[1, 1, 1, 1]),
    pool("MaxPool", "older", (1, 2, 7, 6), [3, 3], 1, strides=[2, 2], pads=[1, 1, 1, 1]),
    pool("MaxPool", "older", (1, 2, 7, 6), [3, 3], 10, strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1),
    Case("MaxPool", "all_negative_padded", 12, [x(1, 2, 4, 5, low=-3.0, high=-1.0)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    pool("AveragePool", "older", (1, 2, 7, 6), [3, 3], 7, strides=[2, 2], pads=[1, 1, 1, 1]),
    pool("AveragePool", "older", (1, 2, 7, 6), [3, 3], 10, strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1),
    pool("AveragePool", "older_ceil", (1, 2, 8, 7), [3, 3], 11, strides=[2, 2], ceil_mode=1),
    Case("GlobalAveragePool", "4d", 1, [x(2, 3, 4, 5)]),
    Case("GlobalAveragePool", "3d", 1, [x(2, 3, 7)]),
    Case("GlobalAveragePool", "one_pixel", 1, [x(2, 3, 1, 1)]),
    Case("GlobalMaxPool", "4d", 1, [x(2, 3, 4, 5)]),
    Case("GlobalMaxPool", "3d", 1, [x(2, 3, 7)]),
    Case("GlobalMaxPool", "all_negative", 1, [x(2, 3, 2, 2, low=-3.0, high=-1.0)]),
]
