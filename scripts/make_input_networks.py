"""Small networks that take their input in unusual ways, and quantised ones, with ONNX Runtime's values.

    python scripts/make_input_networks.py

Everything goes to `crates/cli/tests/fixtures/inputs`. `NAME.onnx` is a network, `NAME.x.npy` a batch and `NAME.y.npy` its first output
by ONNX Runtime. `picture.png` is read by the networks of pictures: `bytes_*` read bytes and `scaled_nhwc` real numbers up to 255,
which they scale themselves, `normalised` numbers up to 1; `single_score.saliency.npy` and `bytes_nhwc.gradient.npy` are the saliency and the gradient of the best score with
respect to the picture, by PyTorch in double precision. `quantised_*` were written by `onnxruntime.quantization` from
`residual`, whose batch they read.
"""

import pathlib
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from PIL import Image
from torch.nn import functional

FOLDER = pathlib.Path(__file__).parent.parent / "crates/cli/tests/fixtures/inputs"
HEIGHT, WIDTH, CLASSES = 16, 24, 5
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def weights(seed):
    random = np.random.default_rng(seed)
    tensor = lambda *shape: (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return {"conv.weight": tensor(6, 3, 3, 3), "conv.bias": tensor(6), "fc.weight": 3 * tensor(CLASSES, 6), "fc.bias": tensor(CLASSES)}


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def classifier(x):
    """Convolution, rectifier, mean, linear."""
    return [
        helper.make_node("Conv", [x, "conv.weight", "conv.bias"], ["conv"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"], name="relu"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pool"], name="pool"),
        helper.make_node("Flatten", ["pool"], ["flat"], name="flat"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["logits"], name="fc", transB=1),
    ]


def save(name, nodes, inputs, outputs, held, opset=17, check=True):
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
                              [constant(key, value) for key, value in held.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if check:
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, FOLDER / f"{name}.onnx")


def run(name, feeds, output=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(FOLDER / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
    return session.run(output and [output], feeds)[0]


def keep(name, x, output=None, input="x"):
    np.save(FOLDER / f"{name}.x.npy", x)
    np.save(FOLDER / f"{name}.y.npy", run(name, {input: x}, output))


def picture():
    random = np.random.default_rng(7)
    pixels = random.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(FOLDER / "picture.png")
    return pixels


def scaled(x, channels_last):
    shape = (1, 1, 1, 3) if channels_last else (1, 3, 1, 1)
    return {"byte": np.float32(255), "mean": np.reshape(np.float32(MEAN), shape), "std": np.reshape(np.float32(STD), shape)}, [
        helper.make_node("Div", [x, "byte"], ["unit"], name="unit"),
        helper.make_node("Sub", ["unit", "mean"], ["less"], name="less"),
        helper.make_node("Div", ["less", "std"], ["normal"], name="normal"),
    ]


def bytes_networks(pixels):
    cast = helper.make_node("Cast", ["x"], ["real"], name="real", to=TensorProto.FLOAT)
    turn = lambda x: helper.make_node("Transpose", [x], ["planes"], name="planes", perm=[0, 3, 1, 2])
    last, first = ["n", HEIGHT, WIDTH, 3], ["n", 3, HEIGHT, WIDTH]
    scores = [("logits", ["n", CLASSES])]
    held = weights(1)
    own, nodes = scaled("real", True)
    save("bytes_nhwc", [cast, *nodes, turn("normal"), *classifier("planes")], [("x", TensorProto.UINT8, last)], scores, held | own)
    keep("bytes_nhwc", pixels[None])
    own, nodes = scaled("real", False)
    save("bytes_nchw", [cast, *nodes, *classifier("normal")], [("x", TensorProto.UINT8, first)], scores, held | own)
    keep("bytes_nchw", pixels.transpose(2, 0, 1)[None])
    own, nodes = scaled("x", True)
    save("scaled_nhwc", [*nodes, turn("normal"), *classifier("planes")], [("x", TensorProto.FLOAT, last)], scores, held | own)
    keep("scaled_nhwc", pixels[None].astype(np.float32))
    own, nodes = scaled("x", False)
    nodes[1].input[0] = "x"
    save("normalised", [*nodes[1:], *classifier("normal")], [("x", TensorProto.FLOAT, first)], scores, held | own)
    keep("normalised", pixels.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255))
    gradient(pixels, held)


def gradient(pixels, held):
    tensor = {key: torch.tensor(value, dtype=torch.float64) for key, value in held.items()}
    x = torch.tensor(pixels[None], dtype=torch.float64, requires_grad=True)
    normal = (x / 255 - torch.tensor(np.float32(MEAN)).double()) / torch.tensor(np.float32(STD)).double()
    relu = functional.relu(functional.conv2d(normal.permute(0, 3, 1, 2), tensor["conv.weight"], tensor["conv.bias"], padding=1))
    logits = functional.linear(relu.mean((2, 3)), tensor["fc.weight"], tensor["fc.bias"])
    logits.max().backward()
    np.save(FOLDER / "bytes_nhwc.gradient.npy", x.grad.numpy())


def heads(pixels):
    """A sigmoid and a softmax over classes, and the same without either."""
    first = ("x", TensorProto.FLOAT, ["n", 3, HEIGHT, WIDTH])
    ends = [helper.make_node("Sigmoid", ["logits"], ["tags"], name="tags"),
            helper.make_node("Gemm", ["flat", "aux.weight"], ["more"], name="aux"),
            helper.make_node("Softmax", ["more"], ["kinds"], name="kinds", axis=1)]
    held = weights(2) | {"aux.weight": np.random.default_rng(3).standard_normal((6, 3)).astype(np.float32)}
    save("heads", classifier("x") + ends, [first], [("tags", ["n", CLASSES]), ("kinds", ["n", 3])], held)
    x = pixels.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(64) - 2
    keep("heads", x)
    np.save(FOLDER / "heads.kinds.npy", run("heads", {"x": x}, "kinds"))
    save("bare", classifier("x"), [first], [("logits", ["n", CLASSES])], weights(2))
    keep("bare", x)


def single_score(pixels):
    """One score a sample behind a sigmoid, squeezed to `[n]`, and the saliency of what enters the sigmoid, by PyTorch."""
    held = weights(6) | {"axes": np.int64([1])}
    held["fc.weight"], held["fc.bias"] = held["fc.weight"][:1], held["fc.bias"][:1]
    ends = [helper.make_node("Sigmoid", ["logits"], ["probability"], name="probability"),
            helper.make_node("Squeeze", ["probability", "axes"], ["y"], name="squeeze")]
    save("single_score", classifier("x") + ends, [("x", TensorProto.FLOAT, ["n", 3, HEIGHT, WIDTH])], [("y", ["n"])], held)
    planes = pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(64) - 2
    x = np.stack([planes, planes[:, ::-1]])
    keep("single_score", x)
    tensor = {key: torch.tensor(value, dtype=torch.float64) for key, value in held.items()}
    x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    relu = functional.relu(functional.conv2d(x, tensor["conv.weight"], tensor["conv.bias"], padding=1))
    functional.linear(relu.mean((2, 3)), tensor["fc.weight"], tensor["fc.bias"]).sum().backward()
    np.save(FOLDER / "single_score.saliency.npy", x.grad.abs().amax(1).numpy())


def other_types():
    """Networks of half and of double precision, and one whose slope is infinite where its input is zero."""
    for name, kind, numbers in [("half", TensorProto.FLOAT16, np.float16), ("double", TensorProto.DOUBLE, np.float64)]:
        nodes = [helper.make_node("Relu", ["x"], ["h"], name="relu"), helper.make_node("MatMul", ["h", "w"], ["y"], name="product")]
        w = np.random.default_rng(8).standard_normal((4, 3)).astype(numbers)
        info = lambda n, shape: helper.make_tensor_value_info(n, kind, shape)
        graph = helper.make_graph(nodes, name, [info("x", ["n", 4])], [info("y", ["n", 3])], [constant("w", w)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, FOLDER / f"{name}.onnx")
    nodes = [helper.make_node("Sqrt", ["x"], ["root"], name="root"), *classifier("root")]
    save("roots", nodes, [("x", TensorProto.FLOAT, ["n", 3, HEIGHT, WIDTH])], [("logits", ["n", CLASSES])], weights(9))
    np.save(FOLDER / "roots.x.npy", np.zeros((1, 3, HEIGHT, WIDTH), np.float32))


def pooled_tokens(held, product):
    """Positions in the batch as both exporters of PyTorch write them: the row of the last token of every sample, from the flattened
    batch and by pairs of indices, and the elements of a mask that differs from sample to sample."""
    node, integer = helper.make_node, TensorProto.INT64
    held = held | {"zero": np.int64(0), "one": np.int64(1), "last": np.int64(49), "first": np.array([0]), "second": np.array([1]),
                   "third": np.array([2]), "end": np.array([-1]), "places": np.arange(7).reshape(1, 7), "row": np.array([-1, 4]),
                   "none": np.float32(0)}
    nodes = [
        node("Gather", ["table", "ids"], ["rows"], name="embedding"),
        node("Equal", ["ids", "last"], ["is_last"]), node("Cast", ["is_last"], ["whole"], to=TensorProto.INT32),
        node("ArgMax", ["whole"], ["position"], axis=-1, keepdims=0),
        node("Shape", ["ids"], ["shape"]), node("Gather", ["shape", "zero"], ["samples"]), node("Range", ["zero", "samples", "one"], ["batch"]),
        # From the flattened batch.
        node("Gather", ["shape", "second"], ["tokens"]), node("Mul", ["batch", "tokens"], ["starts"]),
        node("Add", ["position", "starts"], ["flat_positions"]), node("Reshape", ["rows", "row"], ["flat"]),
        node("Gather", ["flat", "flat_positions"], ["one_row"]),
        # By pairs of indices.
        node("Unsqueeze", ["batch", "end"], ["batch_column"]), node("Unsqueeze", ["position", "end"], ["column"]),
        node("Concat", ["batch_column", "column"], ["pairs"], axis=-1), node("GatherND", ["rows", "pairs"], ["same_row"]),
        # The elements of the mask, broadcast to one shape for it.
        node("Max", ["batch_column", "places"], ["largest"]), node("Shape", ["largest"], ["all"]),
        node("Expand", ["batch_column", "all"], ["batches"]), node("Expand", ["places", "all"], ["everywhere"]),
        node("Unsqueeze", ["batches", "end"], ["batches_column"]), node("Unsqueeze", ["everywhere", "end"], ["places_column"]),
        node("Concat", ["batches_column", "places_column"], ["addresses"], axis=-1),
        node("GatherND", ["is_last", "addresses"], ["mask"]), node("Cast", ["mask"], ["weights"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["weights", "end"], ["weights_column"]), node("Mul", ["rows", "weights_column"], ["masked"]),
        node("ReduceMax", ["masked"], ["largest_row"], axes=[1], keepdims=0),
        node("IsNaN", ["largest_row"], ["undefined"]), node("Where", ["undefined", "none", "largest_row"], ["kept"]),
        node("Mul", ["one_row", "same_row"], ["squared"]), node("Add", ["squared", "kept"], ["h"]), product,
    ]
    save("pooled_tokens", nodes, [("ids", integer, ["n", 7])], [("y", ["n", 3])], held)
    ids = np.random.default_rng(9).integers(0, 49, (3, 7))
    ids[0, 2] = ids[1, 6] = ids[2, 0] = ids[2, 5] = 49
    keep("pooled_tokens", ids, input="ids")


def odd_networks():
    random = np.random.default_rng(4)
    dense = {"w": random.standard_normal((4, 3)).astype(np.float32)}
    product = helper.make_node("MatMul", ["h", "w"], ["y"], name="product")
    add = helper.make_node("Add", ["a", "b"], ["h"], name="add")
    real, scores = TensorProto.FLOAT, [("y", ["n", 3])]
    save("two_inputs", [add, product], [("a", real, ["n", 4]), ("b", real, ["n", 4])], scores, dense)
    relu = helper.make_node("Relu", ["x"], ["h"], name="relu")
    save("mlp", [relu, product], [("x", real, ["n", 4])], scores, dense)
    keep("mlp", random.standard_normal((2, 4)).astype(np.float32))
    table = dense | {"table": random.standard_normal((50, 4)).astype(np.float32)}
    look_up = [helper.make_node("Gather", ["table", "ids"], ["rows"], name="embedding"),
               helper.make_node("ReduceMean", ["rows"], ["h"], name="mean", axes=[1], keepdims=0), product]
    save("tokens", look_up, [("ids", TensorProto.INT64, ["n", 7])], scores, table)
    keep("tokens", random.integers(0, 50, (2, 7)), input="ids")
    pooled_tokens(table, product)
    save("mixed_types", [relu, product], [("x", real, ["n", 4])], scores, {"w": dense["w"].astype(np.float64)}, check=False)
    save("open_sizes", classifier("x"), [("x", real, ["n", 3, "height", "width"])], [("logits", ["n", CLASSES])], weights(5))


class Batches(CalibrationDataReader):
    def __init__(self, x):
        self.rest = iter([{"x": row[None]} for row in x])

    def get_next(self):
        return next(self.rest, None)


def residual_network():
    torch.manual_seed(0)
    block = lambda: torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, padding=1))

    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.blocks = torch.nn.ModuleList([block(), block()])
            self.fc = torch.nn.Linear(8, CLASSES)

        def forward(self, x):
            x = functional.max_pool2d(functional.relu(self.stem(x)), 2)
            for inner in self.blocks:
                x = functional.relu(x + inner(x))
            return self.fc(x.mean((2, 3)))

    net = Residual().eval()
    torch.onnx.export(net, torch.zeros(1, 3, 32, 32), str(FOLDER / "residual.onnx"), input_names=["x"], output_names=["logits"],
                      dynamic_axes={"x": {0: "n"}, "logits": {0: "n"}}, dynamo=False, opset_version=17)


def quantised():
    residual_network()
    random = np.random.default_rng(11)
    x = random.standard_normal((6, 3, 32, 32)).astype(np.float32)
    keep("residual", x[:4])
    with tempfile.TemporaryDirectory() as folder:
        from onnxruntime.quantization.shape_inference import quant_pre_process

        source = str(pathlib.Path(folder) / "prepared.onnx")
        quant_pre_process(str(FOLDER / "residual.onnx"), source)
        static = {
            "qdq_u8": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QUInt8, False),
            "qdq_s8": (QuantFormat.QDQ, QuantType.QInt8, QuantType.QInt8, True),
            "qoperator_u8": (QuantFormat.QOperator, QuantType.QUInt8, QuantType.QInt8, False),
            "qoperator_s8": (QuantFormat.QOperator, QuantType.QInt8, QuantType.QInt8, True),
        }
        for name, (form, activations, kind, per_channel) in static.items():
            quantize_static(source, str(FOLDER / f"quantised_{name}.onnx"), Batches(x), quant_format=form, activation_type=activations,
                            weight_type=kind, per_channel=per_channel)
        quantize_dynamic(source, str(FOLDER / "quantised_dynamic.onnx"), weight_type=QuantType.QUInt8)
    for name in [*static, "dynamic"]:
        np.save(FOLDER / f"quantised_{name}.y.npy", run(f"quantised_{name}", {"x": x[:4]}))


def quantised_resize():
    """Numbers of eight bits resized as they are, which ONNX Runtime cuts off to whole numbers, and then as real numbers."""
    x = np.random.default_rng(12).standard_normal((2, 2, 4, 5)).astype(np.float32)
    for name, zero in [("u8", np.uint8(117)), ("s8", np.int8(-11))]:
        held = {"scale": np.float32(0.05), "zero": zero, "scales": np.float32([1, 1, 2, 1.5])}
        nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantise"),
                 helper.make_node("Resize", ["q", "", "scales"], ["larger"], name="resize", mode="linear"),
                 helper.make_node("DequantizeLinear", ["larger", "scale", "zero"], ["y"], name="dequantise")]
        name = f"quantised_resize_{name}"
        save(name, nodes, [("x", TensorProto.FLOAT, ["n", 2, 4, 5])], [("y", ["n", 2, 8, 7])], held)
        keep(name, x)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    pixels = picture()
    bytes_networks(pixels)
    heads(pixels)
    single_score(pixels)
    other_types()
    odd_networks()
    quantised()
    quantised_resize()


if __name__ == "__main__":
    main()
