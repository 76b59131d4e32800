"""The golden cases of `make_op_cases.py`, one module per family of operators."""

from . import activation, convolution, elementwise, layout, linear, normalisation, pooling, quantised, reduction, resize

FAMILIES = [activation, convolution, elementwise, layout, linear, normalisation, pooling, quantised, reduction, resize]
