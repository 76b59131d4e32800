"""A thin hand for putting ONNX graphs together node by node."""

import numpy as np
import onnx
import torch


class Builder:
    """Collects nodes and weights; `add` returns the name of the new node's output."""

    def __init__(self, opset, seed, ir_version=8):
        self.opset = opset
        self.ir_version = ir_version
        self.nodes = []
        self.weights = []
        self.random = np.random.default_rng(seed)

    def add(self, op, *inputs, outputs=1, **attributes):
        names = [f"{op.lower()}_{len(self.nodes)}" + (f"_{index}" if outputs > 1 else "") for index in range(outputs)]
        node_name = f"{op}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, list(inputs), names, name=node_name, **attributes))
        return names[0] if outputs == 1 else names

    def tensor(self, values, dtype=np.int64, name=None):
        name = name or f"const_{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.array(values, dtype=dtype), name))
        return name

    def weight(self, *shape, low=-1.0, high=1.0):
        """A random float32 initializer: its name and its values in float64 for the reference."""
        fan = max(1, int(np.prod(shape[1:])))
        scale = 1.0 if low > 0 or len(shape) < 2 else 1.5 / fan**0.5
        array = (self.random.uniform(low, high, shape) * scale).astype(np.float32)
        return self.tensor(array, np.float32, f"weight_{len(self.weights)}"), torch.from_numpy(array).double()

    def input(self, *shape):
        array = self.random.normal(size=shape).astype(np.float32)
        return array, torch.from_numpy(array).double()

    def model(self, x, output, expected, weights_as_inputs=False):
        """The finished model, with a symbolic batch axis."""
        inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", *x.shape[1:]])]
        if weights_as_inputs:
            inputs += [onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims) for w in self.weights]
        outputs = [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, ["N", *expected.shape[1:]])]
        graph = onnx.helper.make_graph(self.nodes, "handmade", inputs, outputs, self.weights)
        imports = [onnx.helper.make_opsetid("", self.opset)]
        return onnx.helper.make_model(graph, opset_imports=imports, ir_version=self.ir_version, producer_name="monosplit")
