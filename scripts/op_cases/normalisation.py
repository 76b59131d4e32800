"""Normalisations."""

from .case import Case, w, x


def batch_norm(name, shape, opset, **attributes):
    channels = shape[1]
    statistics = [w(channels), w(channels), w(channels), w(channels, low=0.3, high=2.0)]
    return Case("BatchNormalization", name, opset, [x(*shape), *statistics], attributes)


def trained_batch_norm(name, shape, opset, **attributes):
    """With the statistics of the batch; the running averages they are put into come after the normalised values."""
    case = batch_norm(name, shape, opset, training_mode=1, **attributes)
    return Case(case.op, name, opset, case.inputs, case.attributes, 3)


def layer_norm(name, shape, scale, bias=True, opset=17, **attributes):
    inputs = [x(*shape), w(*scale)] + ([w(*scale)] if bias else [])
    return Case("LayerNormalization", name, opset, inputs, attributes)


def group_norm(name, shape, groups, opset, **attributes):
    return Case("GroupNormalization", name, opset, [x(*shape), w(shape[1]), w(shape[1])], {"num_groups": groups, **attributes})


def instance_norm(name, shape, opset=6, **attributes):
    return Case("InstanceNormalization", name, opset, [x(*shape), w(shape[1]), w(shape[1])], attributes)


CASES = [
    batch_norm("4d", (2, 3, 4, 3), 15),
    batch_norm("4d", (2, 3, 4, 3), 7),
    batch_norm("4d", (2, 3, 4, 3), 9, momentum=0.1),
    batch_norm("4d", (2, 3, 4, 3), 14, training_mode=0),
    batch_norm("large_epsilon", (2, 3, 4, 3), 15, epsilon=0.5),
    batch_norm("3d", (2, 3, 5), 15),
    batch_norm("2d", (4, 3), 15),
    batch_norm("spatial_stated", (2, 3, 2, 3), 7, spatial=1),
    trained_batch_norm("training_4d", (3, 2, 4, 3), 15, momentum=0.7),
    trained_batch_norm("training_3d", (2, 3, 5), 14),
    trained_batch_norm("training_2d", (4, 3), 14, epsilon=0.1),
    layer_norm("last_axis", (2, 3, 5), (5,)),
    layer_norm("no_bias", (2, 3, 5), (5,), bias=False),
    layer_norm("two_axes", (2, 3, 4, 5), (4, 5), axis=2),
    layer_norm("negative_axis", (2, 3, 4, 5), (4, 5), axis=-2),
    layer_norm("epsilon", (3, 7), (7,), epsilon=0.1),
    layer_norm("axis_1", (3, 2, 2), (2, 2), axis=1),
    group_norm("groups_2", (2, 4, 3, 5), 2, 21),
    group_norm("one_group", (2, 4, 3, 3), 1, 21, epsilon=0.01),
    group_norm("one_channel_a_group", (2, 3, 3, 3), 3, 21),
    group_norm("3d", (2, 6, 5), 3, 21),
    instance_norm("4d", (2, 3, 4, 5)),
    instance_norm("3d", (2, 3, 7)),
    instance_norm("epsilon", (2, 2, 3, 3), epsilon=0.1),
    instance_norm("4d", (2, 3, 4, 5), opset=22),
    Case("LRN", "size_5", 13, [x(2, 7, 3, 3)], {"size": 5}),
    Case("LRN", "size_3_parameters", 13, [x(1, 5, 3, 4)], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
    Case("LRN", "wider_than_channels", 13, [x(1, 3, 3, 4)], {"size": 9, "alpha": 0.3}),
    Case("LpNormalization", "l2", 1, [x(2, 3, 4)], {"axis": 1, "p": 2}),
    Case("LpNormalization", "l1", 1, [x(2, 3, 4)], {"axis": -1, "p": 1}),
]
