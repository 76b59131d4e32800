"""The golden cases of `make_op_cases.py`, one module per family of operators."""

from . import (
    activation, attention, convolution, elementwise, layout, linear, normalisation, pooling, quantised, recurrent, reduction, resize,
)

FAMILIES = [
    activation, attention, convolution, elementwise, layout, linear, normalisation, pooling, quantised, recurrent, reduction, resize,
]
