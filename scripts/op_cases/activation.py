"""Activations and softmax."""

from .case import Case, given, scalar, w, x

# Kinks, saturation and the ends of the usable range.
EXTREMES = [-100.0, -88.0, -20.0, -6.0, -3.0, -1.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 6.0, 20.0, 88.0, 100.0]


def activation(op, opset, name="spread", **attributes):
    return Case(op, name, opset, [x(2, 3, 5, low=-5.0, high=5.0)], attributes)


def extremes(op, opset, **attributes):
    return Case(op, "extremes", opset, [given(EXTREMES)], attributes)


def softmax(op, name, shape, opset, **attributes):
    return Case(op, name, opset, [x(*shape, low=-4.0, high=4.0)], attributes)


PLAIN = [("Relu", 14), ("LeakyRelu", 16), ("Elu", 6), ("Selu", 6), ("Celu", 12), ("Sigmoid", 13), ("Tanh", 13), ("Softplus", 1), ("Softsign", 1), ("HardSigmoid", 6), ("HardSwish", 14), ("Gelu", 20), ("Erf", 13), ("Mish", 18), ("ThresholdedRelu", 10)]

CASES = [activation(op, opset) for op, opset in PLAIN]
CASES += [extremes(op, opset) for op, opset in PLAIN]
CASES += [
    activation("Relu", 6, "older"),
    activation("LeakyRelu", 16, "alpha", alpha=0.3),
    activation("LeakyRelu", 6, "alpha", alpha=0.2),
    activation("Elu", 6, "alpha", alpha=0.4),
    activation("Selu", 6, "parameters", alpha=1.2, gamma=0.9),
    activation("Celu", 12, "alpha", alpha=2.5),
    activation("HardSigmoid", 6, "parameters", alpha=0.16666667, beta=0.5),
    activation("Gelu", 20, "tanh", approximate="tanh"),
    activation("ThresholdedRelu", 10, "alpha", alpha=2.0),
    activation("Softsign", 22, "newer"),
    Case("PRelu", "per_channel", 16, [x(2, 3, 4, 2), w(3, 1, 1)]),
    Case("PRelu", "one_slope", 16, [x(2, 3, 4, 2), w(1)]),
    Case("PRelu", "scalar_slope", 9, [x(2, 5), w()]),
    Case("PRelu", "per_feature", 9, [x(4, 5), w(5)]),
    Case("PRelu", "full_slope", 9, [x(2, 3, 2), w(3, 2)]),
    Case("Clip", "relu6", 13, [x(3, 5, low=-8, high=8), scalar(0.0), scalar(6.0)]),
    Case("Clip", "relu6", 11, [x(3, 5, low=-8, high=8), scalar(0.0), scalar(6.0)]),
    Case("Clip", "relu6", 6, [x(3, 5, low=-8, high=8)], {"min": 0.0, "max": 6.0}),
    Case("Clip", "min_only", 13, [x(3, 5), scalar(-0.5)]),
    Case("Clip", "max_only", 13, [x(3, 5), None, scalar(0.5)]),
    Case("Clip", "min_only", 6, [x(3, 5)], {"min": -0.5}),
    Case("Clip", "max_only", 6, [x(3, 5)], {"max": 0.5}),
    Case("Clip", "no_bounds", 13, [x(3, 5)]),
    softmax("Softmax", "default_axis", (3, 5), 13),
    softmax("Softmax", "axis_1_of_4d", (2, 3, 2, 4), 13, axis=1),
    softmax("Softmax", "axis_negative", (2, 3, 4), 13, axis=-2),
    softmax("Softmax", "axis_0", (3, 4), 13, axis=0),
    softmax("Softmax", "flattening_axis_1", (2, 3, 2, 2), 11, axis=1),
    softmax("Softmax", "flattening_axis_2", (2, 3, 2, 2), 11, axis=2),
    softmax("Softmax", "flattening_default", (2, 3, 4), 1),
    softmax("Softmax", "flattening_axis_0", (2, 3), 11, axis=0),
    softmax("Softmax", "flattening_negative", (2, 3, 4), 11, axis=-1),
    Case("Softmax", "large_values", 13, [given([[1000.0, 1001.0, 999.0], [-1000.0, -1e4, -1001.0]])]),
    softmax("LogSoftmax", "default_axis", (3, 5), 13),
    softmax("LogSoftmax", "axis_1", (2, 3, 4), 13, axis=1),
    softmax("LogSoftmax", "flattening", (2, 3, 4), 11, axis=1),
    Case("LogSoftmax", "large_values", 13, [given([[1000.0, 1001.0, 999.0], [-1000.0, -1e4, -1001.0]])]),
]
