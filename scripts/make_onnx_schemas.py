"""Writes crates/graph/src/onnx/schemas.txt: what ONNX's own checker knows of every operator of the default domain.

One line for each version of an operator that differs from the one before in what is written there:

    NAME SINCE INPUTS OUTPUTS ATTRIBUTE…

INPUTS and OUTPUTS are the least and the largest number, `*` for any. An attribute is its name and the letter of its type (as
`LETTERS` has them), with `!` if it must be there. A version in which the operator is gone has `-` in place of the rest. The
first line is the newest operator set.

Needs the Python package `onnx`; run it from anywhere.
"""

import pathlib

import onnx
from onnx import defs

LETTERS = {
    "INT": "i", "INTS": "I", "FLOAT": "f", "FLOATS": "F", "STRING": "s", "STRINGS": "S", "TENSOR": "t", "TENSORS": "T",
    "GRAPH": "g", "GRAPHS": "G", "SPARSE_TENSOR": "p", "SPARSE_TENSORS": "P", "TYPE_PROTO": "y", "TYPE_PROTOS": "Y",
}  # fmt: skip
MANY = 2**31 - 1


def arity(least, most):
    return f"{least}..{'*' if most >= MANY else most}"


def row(schema):
    if schema.deprecated:
        return "-"
    attributes = [
        f"{name}:{LETTERS[attribute.type.name]}{'!' if attribute.required else ''}"
        for name, attribute in sorted(schema.attributes.items())
    ]
    inputs, outputs = arity(schema.min_input, schema.max_input), arity(schema.min_output, schema.max_output)
    return " ".join([inputs, outputs, *attributes])


def main():
    schemas = [schema for schema in defs.get_all_schemas_with_history() if schema.domain == ""]
    lines = [str(onnx.defs.onnx_opset_version())]
    last = None
    for schema in sorted(schemas, key=lambda schema: (schema.name, schema.since_version)):
        text = row(schema)
        if (schema.name, text) != last:
            lines.append(f"{schema.name} {schema.since_version} {text}")
        last = (schema.name, text)
    target = pathlib.Path(__file__).parent.parent / "crates/graph/src/onnx/schemas.txt"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
