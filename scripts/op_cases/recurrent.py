"""RNN, GRU and LSTM, their attributes drawn at random, and loops of a known number of rounds."""

import random

import numpy as np
import onnx
from onnx import TensorProto, helper

from .case import Case, constant, w, x

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DRAWN = 8


def recurrent(op, index):
    draw = random.Random(f"{op} {index}")
    opset, direction = draw.choice([7, 14, 22]), draw.choice(["forward", "reverse", "bidirectional"])
    directions = 2 if direction == "bidirectional" else 1
    steps, samples, width, hidden, gates = draw.choice([1, 4]), 2, 3, 5, GATES[op]
    attributes = {"hidden_size": hidden, "direction": direction}
    inputs = [x(steps, samples, width), w(directions, gates * hidden, width), w(directions, gates * hidden, hidden)]
    inputs.append(w(directions, 2 * gates * hidden) if draw.random() < 0.7 else None)
    # All steps of all samples.
    inputs.append(constant([steps] * samples, np.int32) if draw.random() < 0.3 else None)
    inputs.append(x(directions, samples, hidden, low=-1.0, high=1.0) if draw.random() < 0.6 else None)
    if op == "LSTM":
        inputs.append(x(directions, samples, hidden, low=-1.0, high=1.0) if draw.random() < 0.6 else None)
        inputs.append(w(directions, 3 * hidden) if draw.random() < 0.5 else None)
    if op == "GRU":
        attributes["linear_before_reset"] = draw.choice([0, 1])
    if draw.random() < 0.3:
        own = {"RNN": ["Relu"], "GRU": ["HardSigmoid", "Tanh"], "LSTM": ["Sigmoid", "Relu", "Tanh"]}[op]
        attributes["activations"] = own * directions
    while inputs[-1] is None:
        inputs.pop()
    return Case(op, f"drawn_{index}_{direction}", opset, inputs, attributes, 3 if op == "LSTM" else 2)


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def loop():
    """The state grows by the number of the round times a weight; each round's state is an output."""
    nodes = [
        helper.make_node("Cast", ["round"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["state", "number"], ["product"]),
        helper.make_node("Tanh", ["product"], ["bent"]),
        helper.make_node("Add", ["bent", "step"], ["next"]),
        helper.make_node("Identity", ["next"], ["seen"]),
        helper.make_node("Identity", ["goes_on"], ["still"]),
    ]
    step = onnx.numpy_helper.from_array(np.array([0.5, -0.25, 1.0], np.float32), "step")
    return helper.make_graph(
        nodes, "body",
        [value("round", TensorProto.INT64, []), value("goes_on", TensorProto.BOOL, []), value("state", TensorProto.FLOAT, [2, 3])],
        [value("still", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [2, 3]), value("seen", TensorProto.FLOAT, [2, 3])],
        [step],
    )


def scan():
    """A running sum that forgets, and its square at each step."""
    nodes = [
        helper.make_node("Mul", ["state", "half"], ["kept"]),
        helper.make_node("Add", ["kept", "part"], ["next"]),
        helper.make_node("Mul", ["next", "next"], ["square"]),
    ]
    half = onnx.numpy_helper.from_array(np.array(0.5, np.float32), "half")
    return helper.make_graph(
        nodes, "body", [value("state", TensorProto.FLOAT, [3]), value("part", TensorProto.FLOAT, [3])],
        [value("next", TensorProto.FLOAT, [3]), value("square", TensorProto.FLOAT, [3])], [half],
    )


TRUE = constant(True, np.bool_)
CASES = [recurrent(op, index) for op in GATES for index in range(DRAWN)] + [
    Case("Loop", "three_rounds", 16, [constant(3), TRUE, x(2, 3)], {"body": loop()}, 2),
    Case("Loop", "no_condition", 13, [constant(2), None, x(2, 3)], {"body": loop()}, 2),
    Case("Scan", "forward", 16, [x(3), x(4, 3)], {"body": scan(), "num_scan_inputs": 1}, 2),
    Case("Scan", "backward_along_axis_1", 16, [x(3), x(3, 4)], {
        "body": scan(), "num_scan_inputs": 1, "scan_input_axes": [1], "scan_input_directions": [1],
        "scan_output_axes": [1], "scan_output_directions": [1]}, 2),
]
