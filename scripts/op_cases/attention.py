"""Attention, RotaryEmbedding and RMSNormalization, their attributes drawn at random."""

import random

import numpy as np

from .case import Case, Input, given, w, x

DRAWN = 14


def attention(index):
    draw = random.Random(f"attention {index}")
    heads, groups = draw.choice([(2, 2), (4, 2), (4, 1)])
    size, width, queries, keys = draw.choice([2, 4]), draw.choice([2, 3]), draw.choice([3, 5]), draw.choice([3, 4])
    flat, opset = draw.random() < 0.5, draw.choice([23, 24])
    attributes = {}
    if flat:
        attributes.update(q_num_heads=heads, kv_num_heads=groups)
    if draw.random() < 0.4:
        attributes["scale"] = 0.3
    if draw.random() < 0.4:
        attributes["softcap"] = 1.5
    causal = draw.random() < 0.4
    if causal:
        attributes["is_causal"] = 1
        queries = keys

    def operand(heads, rows, size):
        return x(2, rows, heads * size) if flat else x(2, heads, rows, size)

    inputs = [operand(heads, queries, size), operand(groups, keys, size), operand(groups, keys, width)]
    mask = draw.choice(["none", "added", "truth", "each"])
    if mask == "added":
        inputs.append(x(queries, keys))
    elif mask == "each":
        inputs.append(x(2, heads, queries, keys))
    elif mask == "truth":
        allowed = np.random.default_rng(index).random((queries, keys)) < 0.6
        np.fill_diagonal(allowed, True)
        inputs.append(given(allowed, np.bool_))
    past = mask == "none" and not causal and draw.random() < 0.5
    if past:
        inputs += [None, x(2, groups, 2, size), x(2, groups, 2, width)]
    name = f"drawn_{index}_{'flat' if flat else 'heads'}_{mask}{'_causal' if causal else ''}{'_past' if past else ''}"
    return Case("Attention", name, opset, inputs, attributes, 3 if past else 1)


def rotary(index):
    draw = random.Random(f"rotary {index}")
    heads, size, rows = draw.choice([1, 3]), draw.choice([4, 8]), draw.choice([3, 5])
    flat, whole = draw.random() < 0.5, draw.random() < 0.5
    attributes = {"interleaved": draw.choice([0, 1])}
    width = size if whole else size // 2
    if not whole:
        attributes["rotary_embedding_dim"] = width
    if flat:
        attributes["num_heads"] = heads
    value = x(2, rows, heads * size) if flat else x(2, heads, rows, size)
    if draw.random() < 0.5:
        places = np.random.default_rng(index).integers(0, 7, (2, rows))
        inputs = [value, w(7, width // 2), w(7, width // 2), Input(values=places, dtype=np.int64, initializer=True)]
    else:
        inputs = [value, w(2, rows, width // 2), w(2, rows, width // 2)]
    return Case("RotaryEmbedding", f"drawn_{index}", 23, inputs, attributes)


CASES = [attention(index) for index in range(DRAWN)] + [rotary(index) for index in range(10)] + [
    Case("RMSNormalization", "last_axis", 23, [x(2, 3, 5), w(5)]),
    Case("RMSNormalization", "two_axes", 23, [x(2, 3, 4, 5), w(4, 5)], {"axis": 2}),
    Case("RMSNormalization", "epsilon", 23, [x(3, 7), w(7)], {"epsilon": 0.1, "axis": 1}),
    Case("RMSNormalization", "axis_0", 23, [x(2, 3), w(2, 3)], {"axis": 0}),
]
