"""Graphs in the manner of other exporters and older operator sets, each with its float64 reference in PyTorch.

Every function returns the model, the input and the reference output.
"""

import numpy as np
import onnx
import torch
from torch.nn import functional as F

from .graph import Builder


def squeeze(b, x, axes):
    return b.add("Squeeze", x, axes=axes) if b.opset < 13 else b.add("Squeeze", x, b.tensor(axes))


def unsqueeze(b, x, axes):
    return b.add("Unsqueeze", x, axes=axes) if b.opset < 13 else b.add("Unsqueeze", x, b.tensor(axes))


def clip(b, x, low, high):
    if b.opset < 11:
        return b.add("Clip", x, min=low, max=high)
    return b.add("Clip", x, b.tensor(low, np.float32), b.tensor(high, np.float32))


def cut(b, x, starts, ends, axes):
    if b.opset < 10:
        return b.add("Slice", x, starts=starts, ends=ends, axes=axes)
    return b.add("Slice", x, b.tensor(starts), b.tensor(ends), b.tensor(axes))


def pad(b, x, pads, value):
    if b.opset < 11:
        return b.add("Pad", x, pads=pads, value=value)
    return b.add("Pad", x, b.tensor(pads), b.tensor(value, np.float32))


def reduce(b, op, x, axes, keepdims):
    as_input = b.opset >= (13 if op == "ReduceSum" else 18)
    if as_input:
        return b.add(op, x, b.tensor(axes), keepdims=keepdims)
    return b.add(op, x, axes=axes, keepdims=keepdims)


def dropout(b, x):
    return b.add("Dropout", x, ratio=0.5) if b.opset < 12 else b.add("Dropout", x, b.tensor(0.5, np.float32))


def enlarge(b, x, scales, mode):
    if b.opset < 9:
        return b.add("Upsample", x, scales=scales, mode=mode)
    values = b.tensor(scales, np.float32)
    if b.opset < 10:
        return b.add("Upsample", x, values, mode=mode)
    if b.opset < 11:
        return b.add("Resize", x, values, mode=mode)
    options = {"coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        options["nearest_mode"] = "floor"
    # Operator set 11 asks for a region of interest even where the mode does not use one.
    region = b.tensor([], np.float32) if b.opset < 13 else ""
    return b.add("Resize", x, region, values, mode=mode, **options)


def split(b, x, parts, axis):
    if b.opset < 13:
        return b.add("Split", x, outputs=len(parts), axis=axis, split=parts)
    return b.add("Split", x, b.tensor(parts), outputs=len(parts), axis=axis)


def every_style(opset):
    """Operators whose parameters moved from attributes to inputs, in the style of the given operator set."""
    b = Builder(opset, 1)
    x, t = b.input(2, 3, 9, 8)
    w1, v1 = b.weight(6, 3, 3, 3)
    y = b.add("Conv", "x", w1, kernel_shape=[3, 3])
    t = F.conv2d(t, v1)
    y, t = clip(b, y, -0.5, 0.75), t.clamp(-0.5, 0.75)
    y, t = pad(b, y, [0, 0, 1, 0, 0, 0, 0, 2], 0.25), F.pad(t, (0, 2, 1, 0), value=0.25)
    y, t = cut(b, y, [1, 0], [-1, 1000], [2, 3]), t[:, :, 1:-1, :]
    left, right = split(b, y, [2, 4], 1)
    t_left, t_right = t.split([2, 4], 1)
    y = b.add("Concat", right, left, axis=1)
    t = torch.cat([t_right, t_left], 1)
    statistics = [b.weight(6), b.weight(6), b.weight(6), b.weight(6, low=0.4, high=1.5)]
    scale, shift, mean, variance = (values for _, values in statistics)
    y = b.add("BatchNormalization", y, *[name for name, _ in statistics], epsilon=1e-3)
    t = F.batch_norm(t, mean, variance, scale, shift, False, 0.0, float(np.float32(1e-3)))
    y, t = enlarge(b, y, [1.0, 1.0, 2.0, 2.0], "nearest"), t.repeat_interleave(2, 2).repeat_interleave(2, 3)
    y, t = dropout(b, y), t
    y, t = reduce(b, "ReduceSum", y, [2], 1), t.sum(2, keepdim=True)
    y, t = reduce(b, "ReduceMean", y, [3], 1), t.mean(3, keepdim=True)
    y, t = squeeze(b, y, [2, 3]), t[:, :, 0, 0]
    y, t = squeeze(b, unsqueeze(b, y, [0]), [0]), t
    w2, v2 = b.weight(6, 4)
    w3, v3 = b.weight(4)
    y, t = b.add("Gemm", y, w2, w3), t @ v2 + v3
    return b.model(x, y, t), x, t


def linear_enlargement(opset):
    b = Builder(opset, 2)
    x, t = b.input(2, 3, 4, 5)
    w, v = b.weight(2, 3, 1, 1)
    y = b.add("Conv", "x", w)
    y = enlarge(b, y, [1.0, 1.0, 2.0, 2.0], "linear")
    t = F.conv2d(t, v)
    for axis in (2, 3):
        # Asymmetric coordinates: every second sample is a source pixel, the others are means; the last one repeats.
        following = torch.cat([t.narrow(axis, 1, t.shape[axis] - 1), t.narrow(axis, t.shape[axis] - 1, 1)], axis)
        t = torch.stack([t, (t + following) / 2], axis + 1).flatten(axis, axis + 1)
    return b.model(x, y, t), x, t


def same_padding(t, kernel, stride, auto_pad, value=0.0):
    """What `auto_pad` stands for, written out."""
    if auto_pad == "VALID":
        return t
    pads = []
    for size, k, s in zip(reversed(t.shape[2:]), reversed(kernel), reversed(stride)):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        small, large = total // 2, total - total // 2
        pads += [large, small] if auto_pad == "SAME_LOWER" else [small, large]
    return F.pad(t, pads, value=value)


def keras(opset, auto_pad):
    """Channels-last input, transposes at both ends of the convolutional part, padding chosen by the runtime."""
    b = Builder(opset, 3)
    x, t = b.input(2, 11, 10, 3)
    t = t.permute(0, 3, 1, 2)
    y = b.add("Transpose", "x", perm=[0, 3, 1, 2])
    y, t = pad(b, y, [0, 0, 0, 0, 0, 0, 1, 1], 0.0), F.pad(t, (0, 1, 0, 1))
    (w1, v1), (b1, a1) = b.weight(6, 3, 4, 3), b.weight(6)
    y = b.add("Conv", y, w1, b1, auto_pad=auto_pad, strides=[2, 2], kernel_shape=[4, 3])
    t = F.conv2d(same_padding(t, (4, 3), (2, 2), auto_pad), v1, a1, 2)
    statistics = [b.weight(6), b.weight(6), b.weight(6), b.weight(6, low=0.4, high=1.5)]
    scale, shift, mean, variance = (values for _, values in statistics)
    y = b.add("BatchNormalization", y, *[name for name, _ in statistics], epsilon=1e-3)
    t = F.batch_norm(t, mean, variance, scale, shift, False, 0.0, float(np.float32(1e-3)))
    y, t = clip(b, y, 0.0, 6.0), t.clamp(0, 6)
    w2, v2 = b.weight(6, 1, 3, 3)
    y = b.add("Conv", y, w2, auto_pad=auto_pad, group=6, kernel_shape=[3, 3], strides=[1, 1], dilations=[1, 1])
    t = F.conv2d(same_padding(t, (3, 3), (1, 1), auto_pad), v2, groups=6)
    y = b.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2], auto_pad=auto_pad)
    t = F.max_pool2d(same_padding(t, (2, 2), (2, 2), auto_pad, value=-torch.inf), 2, 2)
    y = b.add("Transpose", y, perm=[0, 2, 3, 1])
    y, t = reduce(b, "ReduceMean", y, [1, 2], 1), t.mean((2, 3))
    y = squeeze(b, y, [1, 2])
    (w3, v3), (b3, a3) = b.weight(6, 5), b.weight(5)
    y, t = b.add("Add", b.add("MatMul", y, w3), b3), t @ v3 + a3
    y, t = b.add("Softmax", y, axis=1), t.softmax(1)
    return b.model(x, y, t), x, t


def keras_flatten(opset):
    """Flattening in channels-last order, a weight stored channels-last and turned round by nodes, batch norm as Mul and Add."""
    b = Builder(opset, 4)
    x, t = b.input(2, 6, 5, 3)
    w1, v1 = b.weight(3, 2, 3, 4)
    kernel = b.add("Transpose", w1, perm=[3, 2, 0, 1])
    y = b.add("Conv", b.add("Transpose", "x", perm=[0, 3, 1, 2]), kernel, strides=[2, 1])
    t = F.conv2d(t.permute(0, 3, 1, 2), v1.permute(3, 2, 0, 1), stride=(2, 1))
    y = b.add("Transpose", y, perm=[0, 2, 3, 1])
    t = t.permute(0, 2, 3, 1)
    (scale, v_scale), (shift, v_shift) = b.weight(4), b.weight(4)
    y, t = b.add("Add", b.add("Mul", y, scale), shift), t * v_scale + v_shift
    y, t = b.add("Relu", y), t.relu()
    y, t = b.add("Reshape", y, b.tensor([-1, 32])), t.reshape(2, 32)
    (w2, v2), (b2, a2) = b.weight(32, 5), b.weight(1, 5)
    y, t = b.add("Add", b2, b.add("MatMul", y, w2)), t @ v2 + a2
    return b.model(x, y, t), x, t


def caffe(opset):
    """Grouped convolution, LRN, ceil-like end padding, a sum of several, dropout and softmax over one flattened 4-D map."""
    b = Builder(opset, 5)
    x, t = b.input(2, 4, 9, 9)
    (w1, v1), (b1, a1) = b.weight(6, 2, 3, 3), b.weight(6)
    y, t = b.add("Conv", "x", w1, b1, group=2, strides=[2, 2]), F.conv2d(t, v1, a1, 2, groups=2)
    y, t = b.add("Relu", y), t.relu()
    y = b.add("LRN", y, size=3, alpha=0.5, beta=0.75, bias=1.0)
    t = F.local_response_norm(t, 3, 0.5, 0.75, 1.0)
    y = b.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    t = F.max_pool2d(F.pad(t, (0, 1, 0, 1), value=-1e9), 3, 2)
    branches = [b.weight(5, 6, 1, 1) for _ in range(3)]
    y = b.add("Sum", *[b.add("Conv", y, name) for name, _ in branches])
    t = sum(F.conv2d(t, values) for _, values in branches)
    y, t = b.add("GlobalAveragePool", dropout(b, y)), t.mean((2, 3), keepdim=True)
    y, t = b.add("Softmax", y, axis=1), t.softmax(1)
    return b.model(x, y, t), x, t


def softmax_axis(opset):
    """Softmax with axis 1 over a 4-D map: one distribution per sample before operator set 13, per pixel from then on."""
    b = Builder(opset, 6)
    x, t = b.input(2, 3, 4, 4)
    w, v = b.weight(4, 3, 3, 3)
    y, t = b.add("Conv", "x", w), F.conv2d(t, v)
    y = b.add("Softmax", y, axis=1)
    t = t.flatten(1).softmax(1).reshape(t.shape) if opset < 13 else t.softmax(1)
    return b.model(x, y, t), x, t


def gemm_broadcast(opset):
    """Gemm with transposed operands, factors and every shape of the added matrix."""
    b = Builder(opset, 7)
    x, t = b.input(2, 7)
    (w1, v1), (c1, d1) = b.weight(5, 7), b.weight(1, 5)
    y, t = b.add("Gemm", "x", w1, c1, transB=1, alpha=0.5, beta=2.0), 0.5 * t @ v1.T + 2.0 * d1
    (w2, v2), (c2, d2) = b.weight(5, 6), b.weight(1)
    y, t = b.add("Gemm", y, w2, c2), t @ v2 + d2
    (w3, v3), (c3, d3) = b.weight(4, 6), b.weight(4)
    turned = b.add("Transpose", b.add("Relu", y), perm=[1, 0])
    y, t = b.add("Gemm", turned, w3, c3, transA=1, transB=1), t.relu() @ v3.T + d3
    return b.model(x, y, t), x, t


def spatial_batch_norm(opset):
    b = Builder(opset, 8)
    x, t = b.input(2, 4, 3, 3)
    statistics = [b.weight(4), b.weight(4), b.weight(4), b.weight(4, low=0.4, high=1.5)]
    scale, shift, mean, variance = (values for _, values in statistics)
    y = b.add("BatchNormalization", "x", *[name for name, _ in statistics], spatial=1, momentum=0.9, epsilon=0.01)
    t = F.batch_norm(t, mean, variance, scale, shift, False, 0.0, float(np.float32(0.01)))
    y, t = b.add("Flatten", b.add("Relu", y)), t.relu().flatten(1)
    return b.model(x, y, t), x, t


def narrow_weights(kind):
    """Weights stored in another floating-point type and cast to float32 by nodes."""
    b = Builder(13, 9)
    x, t = b.input(2, 3, 6, 6)
    stored = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}[kind]
    code = {"float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16, "float64": onnx.TensorProto.DOUBLE}[kind]

    def cast_weight(*shape):
        values = torch.from_numpy(b.random.uniform(-0.5, 0.5, shape)).to(stored)
        name = f"weight_{len(b.weights)}"
        raw = values.view(torch.int16).numpy().tobytes() if kind == "bfloat16" else values.numpy().tobytes()
        b.weights.append(onnx.helper.make_tensor(name, code, shape, raw, raw=True))
        return b.add("Cast", name, to=onnx.TensorProto.FLOAT), values.float().double()

    (w1, v1), (b1, a1) = cast_weight(4, 3, 3, 3), cast_weight(4)
    y, t = b.add("Relu", b.add("Conv", "x", w1, b1)), F.conv2d(t, v1, a1).relu()
    y, t = b.add("Flatten", b.add("GlobalAveragePool", y)), t.mean((2, 3))
    (w2, v2), (b2, a2) = cast_weight(5, 4), cast_weight(5)
    y, t = b.add("Gemm", y, w2, b2, transB=1), t @ v2.T + a2
    return b.model(x, y, t), x, t


def storage(opset):
    """Weights in typed fields, Constant nodes of several kinds, a shape made by ConstantOfShape, nodes without names."""
    b = Builder(opset, 10)
    x, t = b.input(2, 3, 5, 5)
    w1, v1 = b.weight(4, 3, 3, 3)
    values = onnx.numpy_helper.to_array(b.weights.pop())
    b.weights.append(onnx.helper.make_tensor(w1, onnx.TensorProto.FLOAT, values.shape, values.ravel().tolist()))
    y, t = b.add("Conv", "x", w1), F.conv2d(t, v1)
    factor = onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, [4, 1, 1], [0.5, -1.0, 2.0, 0.25])
    y = b.add("Mul", y, b.add("Constant", value=factor))
    t = t * torch.tensor([0.5, -1.0, 2.0, 0.25]).double().reshape(4, 1, 1)
    y, t = b.add("Add", y, b.add("Constant", value_float=0.75)), t + 0.75
    ones = onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, [1], [1.0])
    y, t = b.add("Sub", y, b.add("ConstantOfShape", b.tensor([1, 4, 1, 1]), value=ones)), t - 1.0
    target = onnx.helper.make_tensor("target", onnx.TensorProto.INT64, [2], [0, -1])
    b.weights.append(target)
    y, t = b.add("Reshape", y, "target"), t.flatten(1)
    y, t = b.add("Gather", y, b.add("Constant", value_ints=[3, 0, 7]), axis=1), t[:, [3, 0, 7]]
    for node in b.nodes:
        node.name = ""
    return b.model(x, y, t), x, t


def shared_weights(opset):
    """One set of weights used twice, weights listed as graph inputs, a value with three consumers."""
    b = Builder(opset, 11, ir_version=3)
    x, t = b.input(2, 4, 6, 6)
    (w, v), (c, d) = b.weight(4, 4, 3, 3), b.weight(4)
    once, t_once = b.add("Relu", b.add("Conv", "x", w, c, pads=[1, 1, 1, 1])), F.conv2d(t, v, d, padding=1).relu()
    twice, t_twice = b.add("Conv", once, w, c, pads=[1, 1, 1, 1]), F.conv2d(t_once, v, d, padding=1)
    y, t = b.add("Add", b.add("Add", once, twice), "x"), t_once + t_twice + t
    y, t = b.add("Add", y, y), 2 * t
    y, t = b.add("Concat", y, once, axis=1), torch.cat([t, t_once], 1)
    y, t = b.add("Flatten", b.add("GlobalMaxPool", y)), t.amax((2, 3))
    return b.model(x, y, t, weights_as_inputs=True), x, t


HANDMADE = {
    "every_style": (every_style, (7, 8, 9, 10, 11, 12, 13, 18, 21, 26)),
    "linear_enlargement": (linear_enlargement, (7, 9, 10, 11, 13)),
    "keras_flatten": (keras_flatten, (8, 13)),
    "caffe": (caffe, (7, 13)),
    "softmax_per_sample": (softmax_axis, (7, 11)),
    "softmax_per_pixel": (softmax_axis, (13,)),
    "gemm_broadcast": (gemm_broadcast, (7, 9, 11, 13)),
    "spatial_batch_norm": (spatial_batch_norm, (7,)),
    "storage": (storage, (12, 21)),
    "shared_weights": (shared_weights, (7,)),
}
KERAS = [(8, "SAME_UPPER"), (11, "SAME_LOWER"), (13, "SAME_UPPER"), (13, "SAME_LOWER"), (18, "VALID")]
STORED_TYPES = ["float16", "bfloat16", "float64"]
