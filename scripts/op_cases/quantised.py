"""Casts to types of fewer bits, and quantised operators. Scales and zero points are initializers, as quantisers write them."""

import numpy as np

from .case import Case, Input, given, x


def held(values, dtype=np.float32):
    """An initializer with the given values."""
    return Input(values=values, dtype=dtype, initializer=True)


def integers(*shape, low, high, dtype, initializer=True):
    """Random integers."""
    return Input(shape, low, high, dtype=dtype, initializer=initializer)


U8, S8 = np.uint8, np.int8
BEYOND = [-1.0, -1.5, 300.7, 255.9, 256.0, -129.0, 127.0, 0.3]

CASES = [
    Case("Cast", "float_to_uint8", 13, [given(BEYOND)], {"to": 2}),
    Case("Cast", "float_to_int8", 13, [given(BEYOND)], {"to": 3}),
    Case("Cast", "int64_to_uint8", 13, [given([-1, 300, 256, -(2**33) + 5], np.int64)], {"to": 2}),
    Case("Cast", "int64_to_int32", 13, [given([-1, 2**31, -(2**33) + 5], np.int64)], {"to": 6}),
    Case("Cast", "uint8_to_int8", 13, [given([0, 127, 128, 255], U8)], {"to": 3}),
    Case("QuantizeLinear", "uint8", 13, [x(2, 3, 4), held(0.02), held(101, U8)]),
    Case("QuantizeLinear", "int8_ties", 13, [given([-0.75, -0.25, 0.25, 0.75, 1.25, 99.0, -99.0]), held(0.5), held(3, S8)]),
    Case("QuantizeLinear", "per_axis", 13, [x(2, 3, 4), held([0.01, 0.02, 0.05]), held([3, 100, 255], U8)], {"axis": 1}),
    Case("DequantizeLinear", "uint8", 13, [integers(2, 3, low=0, high=255, dtype=U8, initializer=False), held(0.1), held(7, U8)]),
    Case("DequantizeLinear", "per_axis", 13, [integers(3, 2, low=-128, high=127, dtype=S8, initializer=False), held([0.1, 2.0, 0.3]), held([1, 0, -7], S8)],
         {"axis": 0}),
    Case("QLinearConv", "per_channel", 10,
         [integers(1, 2, 5, 6, low=0, high=255, dtype=U8, initializer=False), held(0.02), held(120, U8), integers(3, 2, 3, 3, low=-128, high=127, dtype=S8),
          held([0.01, 0.02, 0.005]), held([0, 0, 0], S8), held(0.05), held(90, U8), integers(3, low=-900, high=900, dtype=np.int32)],
         {"pads": [1, 0, 1, 1], "strides": [2, 1]}),
    Case("QLinearMatMul", "plain", 10,
         [integers(2, 4, low=0, high=255, dtype=U8, initializer=False), held(0.02), held(120, U8), integers(4, 3, low=0, high=255, dtype=U8), held(0.01),
          held(128, U8), held(0.03), held(100, U8)]),
    Case("ConvInteger", "zero_point", 10,
         [integers(1, 2, 4, 4, low=0, high=255, dtype=U8, initializer=False), integers(3, 2, 3, 3, low=0, high=255, dtype=U8), held(11, U8), held(128, U8)]),
    Case("MatMulInteger", "zero_points", 10,
         [integers(2, 4, low=0, high=255, dtype=U8, initializer=False), integers(4, 3, low=-128, high=127, dtype=S8), held(9, U8), held(0, S8)]),
]
