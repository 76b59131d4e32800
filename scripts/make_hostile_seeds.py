"""Small files that ask for too much, to start fuzzing from: fuzz/seeds.

Each is a few kilobytes and would, read naively, take gigabytes, minutes or a file it has no business with.
"""

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
DOMAIN = "local"
INPUT = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])
OUTPUT = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)


def model(nodes, initializers=(), functions=(), inputs=(INPUT,)):
    graph = helper.make_graph(nodes, "hostile", list(inputs), [OUTPUT], list(initializers))
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(graph, functions=list(functions), opset_imports=opsets)
    return made.SerializeToString()


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def function(name, nodes):
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, ["a"], ["b"], nodes, opsets)


def chain(count, make):
    """`count` nodes from `a` to `b`, one after the other."""
    names = ["a", *(f"t{i}" for i in range(1, count)), "b"]
    return [make(names[i], names[i + 1]) for i in range(count)]


def calls(name, count):
    return chain(count, lambda a, b: helper.make_node(name, [a], [b], domain=DOMAIN))


def unfolded(counts, body, name="call"):
    """Functions that call each other so often that `body` is written out the product of `counts` times."""
    functions = [function(f"f{i}", calls(f"f{i + 1}", count)) for i, count in enumerate(counts)]
    functions.append(function(f"f{len(counts)}", body))
    return [helper.make_node("f0", ["x"], ["y"], name=name, domain=DOMAIN)], functions


def branch(value):
    weight = numpy_helper.from_array(np.zeros([1, 3, 32, 32], np.float32), "w")
    node = helper.make_node("Add", [value, "w"], ["inner"])
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    return helper.make_graph([node], "branch", [], [output], [weight])


def networks():
    relu = helper.make_node("Relu", ["x"], ["y"])
    yield "cycle", model([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
                          helper.make_node("Relu", ["b"], ["y"])])
    yield "dangling", model([helper.make_node("Relu", ["ghost"], ["y"])])
    yield "absurd-input", model([relu], inputs=[
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2**62, 2**62])])
    weight = numpy_helper.from_array(np.zeros([1], np.float32), "w")
    weight.dims[:] = [2**40, 2**20]
    yield "absurd-weight", model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])
    for name, node in {
        "absurd-padding": helper.make_node("Pad", ["x", "n"], ["y"]),
        "absurd-expansion": helper.make_node("Expand", ["x", "n"], ["y"]),
        "absurd-filling": helper.make_node("ConstantOfShape", ["n"], ["y"]),
    }.items():
        yield name, model([node], [ints("n", [0, 0, 2**61, 2**61] * (2 if node.op_type == "Pad" else 1))])
    for name, shape in {"empty-first": [0, 2**40, 2**40], "empty-last": [2**30, 0]}.items():
        yield name, model([helper.make_node("ConstantOfShape", ["n"], ["c"]),
                           helper.make_node("Transpose", ["c"], ["t"]),
                           helper.make_node("Concat", ["t", "t"], ["y"], axis=0)], [ints("n", shape)])
    window = numpy_helper.from_array(np.zeros([3, 1, 1, 1], np.float32), "w")
    yield "absurd-stride", model([helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], strides=[2**62, 2**62], dilations=[2**31, 2**31])], [window])
    yield "absurd-window", model([helper.make_node(
        "MaxPool", ["x"], ["y"], kernel_shape=[2**62, 3], pads=[2**62, 1, 2**62, 1], ceil_mode=1)])
    for name, location in {"outside": "../secret", "absolute": "/etc/hostname"}.items():
        weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
        weight.external_data.add(key="location", value=location)
        yield name, model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])
    yield "calls-itself", model([helper.make_node("f0", ["x"], ["y"], domain=DOMAIN)],
                                functions=[function("f0", calls("f0", 1))])
    nested = helper.make_graph([relu], "inner", [], [OUTPUT])
    for _ in range(20):
        node = helper.make_node("If", ["c"], ["y"], then_branch=nested, else_branch=helper.make_graph(
            [], "none", [], []))
        nested = helper.make_graph([node], "inner", [], [OUTPUT])
    yield "nested-branches", model(list(nested.node), [numpy_helper.from_array(np.array(True), "c")])

    nodes, functions = unfolded([50, 50, 50], chain(1, lambda a, b: helper.make_node("Relu", [a], [b])))
    yield "unfolding", model(nodes, functions=functions)
    true = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True), ""))
    either = helper.make_node("If", ["c"], ["b"], then_branch=branch("a"), else_branch=branch("a"))
    nodes, functions = unfolded([25, 25, 25], [true, either])
    wide = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 32, 32])
    yield "unfolding-weights", model(nodes, functions=functions, inputs=[wide])
    nodes, functions = unfolded([170, 170], chain(1, lambda a, b: helper.make_node("Identity", [a], [b])), "n" * 8192)
    yield "unfolding-names", model(nodes, functions=functions)
    ones = helper.make_node("Constant", [], ["k"], value_ints=[1] * 8192)
    nodes, functions = unfolded([25, 25, 25], [ones, helper.make_node("Relu", ["a"], ["b"])])
    yield "unfolding-attributes", model(nodes, functions=functions)
    body = [helper.make_node("Constant", [], ["n"], value_ints=[2**20]),
            helper.make_node("ConstantOfShape", ["n"], ["zeros"], value=ints("", [0])),
            helper.make_node("Constant", [], ["i"], value_int=0)]
    picks = [helper.make_node("Gather", ["zeros", "i"], [f"p{k}"]) for k in range(500)]
    total = helper.make_node("Max", [f"p{k}" for k in range(500)], ["m"])
    cast = helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT)
    long = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2**35])
    yield "absurd-sequence", model([helper.make_node("SplitToSequence", ["x"], ["s"], axis=1),
                                    helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1)], inputs=[long])
    yield "long-list-read-often", model([*body, *picks, total, cast, helper.make_node("Add", ["x", "f"], ["y"])])


def pickles():
    yield "deep", b"\x80\x02" + b"(" * 20000 + b"t" * 20000 + b"."
    yield "deep-lists", b"\x80\x02" + b"]" * 10000 + b"a" * 9999 + b"."
    yield "system", b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
    yield "long-integer", b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\xff" * 64 + b"."
    yield "far-memo", b"\x80\x02Nr\xff\xff\xff\x7fj\xff\xff\xff\x7f."


def arrays():
    for name, shape in {
        "huge": f"({2**62}, {2**62})", "empty-and-huge": f"(0, {2**62}, {2**62})", "negative": "(-1, 3)",
        "nested": "(" * 5000, "many-axes": "(" + "1, " * 5000 + ")",
    }.items():
        header = f"{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}, }}\n".encode()
        yield name, b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(4)


def archives():
    """Archives of arrays whose headers promise more than there is, or more than may be unpacked."""
    for name, shape, size in [("bomb", f"({2**32},)", 2**24), ("promises-more", "(4096,)", 64), ("holds-more", "(4,)", 2**20)]:
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(size)
        yield name, zipped([("x.npy", array)])
    yield "no-arrays", zipped([("readme.txt", b"nothing")])
    yield "many-arrays", zipped([(f"{i}.npy", b"") for i in range(300)])


def zipped(entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def headers():
    """Safetensors files whose headers are not what they should be."""
    tensor = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    for name, header in {
        "twice": f'{{"a":{tensor},"a":{tensor}}}', "deep": '{"a":' + "[" * 5000, "long-shape": tensor.replace(
            "[1]", "[" + "1," * 5000 + "1]").join(['{"a":', "}"]),
        "overlapping": f'{{"a":{tensor},"b":{tensor}}}', "many": "{" + ",".join(
            f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(2000)) + "}",
        "long-name": f'{{"{"n" * 20000}":{tensor}}}',
    }.items():
        yield name, len(header).to_bytes(8, "little") + header.encode() + bytes(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("fuzz/seeds"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for end, files in {"onnx": networks(), "pth": pickles(), "npy": arrays(), "npz": archives(),
                       "safetensors": headers()}.items():
        for name, content in files:
            (out / f"{name}.{end}").write_bytes(content)


if __name__ == "__main__":
    main()
