"""Elementwise arithmetic, comparison, logic and conversion."""

import numpy as np

from .case import Case, constant, given, scalar, w, x

BOOLEANS = [[True, False, True], [False, False, True]]
OTHER_BOOLEANS = [[True, True, False], [False, True, True]]
HALVES = [-2.5, -1.5, -1.0, -0.5, -0.2, 0.0, 0.2, 0.5, 1.0, 1.5, 2.5, 3.5]

BROADCASTS = [
    ("same", (2, 3, 4), (2, 3, 4)),
    ("per_channel", (2, 3, 2, 2), (3, 1, 1)),
    ("last_axis", (2, 3, 4), (4,)),
    ("both_ways", (2, 1, 4), (3, 1)),
    ("left_smaller", (4,), (2, 3, 4)),
    ("scalar", (2, 3), ()),
    ("one_element_right", (2, 3), (1, 1, 1)),
]

CASES = []
for op in ["Add", "Sub", "Mul", "Div"]:
    for name, left, right in BROADCASTS:
        right_input = x(*right, low=0.5, high=2.0) if op == "Div" else x(*right)
        CASES.append(Case(op, name, 14, [x(*left), right_input]))
    CASES.append(Case(op, "constant_left", 13, [w(3, 1), x(2, 3, 4, low=0.5, high=2.0)]))
    CASES.append(Case(op, "older", 7, [x(2, 3, 2, 2), w(1, 3, 1, 1, low=0.5)]))
    CASES.append(Case(op, "int64", 14, [given([7, -7, 9, 8], np.int64), constant([2, 2, -4, 3])]))

CASES += [
    Case("Sub", "from_itself_shape_0d", 14, [x(), x()]),
    Case("Neg", "plain", 13, [x(2, 3, 4)]),
    Case("Abs", "plain", 13, [x(2, 3, 4)]),
    Case("Sqrt", "plain", 13, [x(2, 3, 4, low=0.0, high=9.0)]),
    Case("Exp", "plain", 13, [x(2, 3, 4, low=-5.0, high=5.0)]),
    Case("Log", "plain", 13, [x(2, 3, 4, low=0.01, high=9.0)]),
    Case("Reciprocal", "plain", 13, [x(2, 3, 4, low=0.2, high=3.0)]),
    Case("Sign", "plain", 13, [given([-3.0, -0.1, 0.0, 0.1, 7.0])]),
    Case("Floor", "plain", 13, [given(HALVES)]),
    Case("Ceil", "plain", 13, [given(HALVES)]),
    Case("Round", "half_to_even", 11, [given(HALVES)]),
    Case("Sin", "plain", 7, [x(2, 5)]),
    Case("Cos", "plain", 7, [x(2, 5)]),
    Case("Pow", "squared", 13, [x(2, 3, 4), scalar(2.0)]),
    Case("Pow", "cubed", 15, [x(2, 3, 4), scalar(3.0)]),
    Case("Pow", "root", 13, [x(2, 3, 4, low=0.1), scalar(0.5)]),
    Case("Pow", "inverse_root", 13, [x(2, 3, 4, low=0.1), scalar(-0.5)]),
    Case("Pow", "integer_exponent", 13, [x(2, 3), constant(2)]),
    Case("Pow", "broadcast", 7, [x(2, 3, 4, low=0.1), w(3, 1, low=-2.0, high=2.0)]),
    Case("Mod", "float", 13, [x(2, 3, low=-7, high=7), scalar(2.5)], {"fmod": 1}),
    Case("Sum", "three", 13, [x(2, 3), x(3), x(2, 1)]),
    Case("Sum", "one", 8, [x(2, 3)]),
    Case("Mean", "three", 13, [x(2, 3), x(3), x(2, 1)]),
    Case("Max", "two", 13, [x(2, 3, 4), x(3, 1)]),
    Case("Max", "three", 12, [x(2, 3), x(3), x(2, 1)]),
    Case("Max", "one", 8, [x(2, 3)]),
    Case("Min", "two", 13, [x(2, 3, 4), x(3, 1)]),
    Case("Min", "three", 12, [x(2, 3), x(3), x(2, 1)]),
    Case("Min", "with_constant", 13, [x(2, 3), scalar(0.25)]),
    Case("Where", "same_shape", 16, [given(BOOLEANS, np.bool_), x(2, 3), x(2, 3)]),
    Case("Where", "broadcast_condition", 9, [given([[True], [False]], np.bool_), x(2, 3), x(3)]),
    Case("Where", "scalars", 16, [given(BOOLEANS, np.bool_), scalar(1.5), scalar(-2.0)]),
    Case("Where", "int64", 16, [given(BOOLEANS, np.bool_), constant([1, 2, 3]), constant([7])]),
    Case("Equal", "int64", 13, [given([1, 2, 3, -4], np.int64), constant([1, 0, 3, 4])]),
    Case("Equal", "float", 13, [given([[1.0, 2.0], [3.0, 0.0]]), scalar(2.0)]),
    Case("Equal", "bool", 13, [given(BOOLEANS, np.bool_), given(OTHER_BOOLEANS, np.bool_)]),
    Case("Not", "plain", 1, [given(BOOLEANS, np.bool_)]),
    Case("And", "plain", 7, [given(BOOLEANS, np.bool_), given(OTHER_BOOLEANS, np.bool_)]),
    Case("Or", "broadcast", 7, [given(BOOLEANS, np.bool_), given([[True], [False]], np.bool_)]),
    Case("Xor", "plain", 7, [given(BOOLEANS, np.bool_), given(OTHER_BOOLEANS, np.bool_)]),
    Case("IsNaN", "plain", 13, [given([1.0, float("nan"), float("inf")])]),
    Case("Identity", "plain", 14, [x(2, 3)]),
    Case("Identity", "int64", 1, [given([3, -1], np.int64)]),
    Case("Dropout", "ratio_attribute", 7, [x(2, 3)], {"ratio": 0.5}),
    Case("Dropout", "ratio_attribute", 10, [x(2, 3)], {"ratio": 0.3}),
    Case("Dropout", "ratio_input", 13, [x(2, 3), scalar(0.5)]),
    Case("Dropout", "training_false", 12, [x(2, 3), scalar(0.5), constant(False, np.bool_)]),
    Case("Dropout", "bare", 22, [x(2, 3)]),
    Case("CastLike", "to_float", 15, [given([3, -1], np.int64), scalar(0.0)]),
    Case("Mod", "int64", 13, [given([7, -7, 8], np.int64), constant([3, 3, -3])]),
    Case("Div", "int64_shape_arithmetic", 13, [given([7, 8], np.int64), constant(2)]),
    Case("Cast", "float_to_int64", 13, [given([-2.7, -0.5, 0.0, 0.5, 2.7])], {"to": 7}),
    Case("Cast", "float_to_int32", 9, [given([-2.7, -0.5, 0.0, 0.5, 2.7])], {"to": 6}),
    Case("Cast", "float_to_bool", 13, [given([-1.0, 0.0, 0.5])], {"to": 9}),
    Case("Cast", "int64_to_float", 13, [given([-3, 0, 16777217], np.int64)], {"to": 1}),
    Case("Cast", "bool_to_float", 13, [given(BOOLEANS, np.bool_)], {"to": 1}),
    Case("Cast", "half_to_float", 13, [given([0.1, -3.5, 65504.0, 6e-8], np.float16)], {"to": 1}),
    Case("Cast", "double_to_float", 13, [given([0.1, 1e-20, 1e30], np.float64)], {"to": 1}),
    Case("Cast", "float_to_double", 13, [given([0.1, 1e-20, 1e30])], {"to": 11}),
    Case("Cast", "float_to_half", 13, [given([0.1, 1.0009765, 2049.0, 1e-7])], {"to": 10}),
]
for op, opset in [("Less", 13), ("Greater", 13), ("LessOrEqual", 16), ("GreaterOrEqual", 16)]:
    CASES.append(Case(op, "broadcast", opset, [given([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]), constant([1.0, 1.0, 1.5], np.float32)]))
    CASES.append(Case(op, "int64", opset, [given([1, 2, 3], np.int64), constant(2)]))
