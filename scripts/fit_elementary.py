#!/usr/bin/env python3
"""Fits the polynomials of crates/engine/src/cpu/kernels/elementary.rs and prints their coefficients with their largest errors.

    .venv/bin/python scripts/fit_elementary.py

Each polynomial minimises the largest relative error of the function it is part of, by Lawson's iteration: least squares whose
weights grow where the error is large. Needs numpy and mpmath.
"""

import mpmath
import numpy

POINTS = 400
ROUNDS = 40


def fit(function, low, high, degree, weight):
    """Coefficients, lowest first, for the largest error times `weight`, and that error."""
    nodes = [mpmath.cos(mpmath.pi * (2 * i + 1) / (2 * POINTS)) for i in range(POINTS)]
    points = [(low + high) / 2 + (high - low) / 2 * float(node) for node in nodes]
    values = numpy.array([float(function(mpmath.mpf(x))) for x in points], dtype=numpy.longdouble)
    weights = numpy.array([float(weight(mpmath.mpf(x))) for x in points], dtype=numpy.longdouble)
    powers = numpy.array([[numpy.longdouble(x) ** k for k in range(degree + 1)] for x in points])
    emphasis, best = numpy.ones(POINTS), None
    for _ in range(ROUNDS):
        scale = numpy.sqrt(emphasis) * weights.astype(float)
        found = numpy.linalg.lstsq((powers * scale[:, None]).astype(float), (values * scale).astype(float), rcond=None)[0]
        errors = numpy.abs((powers @ found - values) * weights).astype(float)
        if best is None or errors.max() < best[0]:
            best = (errors.max(), found)
        emphasis *= errors / errors.max() + 1e-3
        emphasis /= emphasis.sum()
    return best


def show(name, fitted):
    error, coefficients = fitted
    print(f"{name}: largest relative error {error:.1e}")
    for value in coefficients:
        print(f"    {float(numpy.float32(value))!r},")


def main():
    mpmath.mp.dps = 40
    half = float(mpmath.log(2) / 2) * 1.001
    remainder = lambda r: (mpmath.expm1(r) - r) / r**2 if abs(r) > 1e-12 else mpmath.mpf(1) / 2
    show("EXP", fit(remainder, -half, half, 5, lambda r: r**2 / mpmath.exp(r)))
    root = mpmath.sqrt
    tanh = lambda z: (mpmath.tanh(root(z)) / root(z) - 1) / z
    show("TANH", fit(tanh, 1e-9, 0.625**2, 5, lambda z: z * root(z) / mpmath.tanh(root(z))))
    erf = lambda z: mpmath.erf(root(z)) / root(z) - 1
    show("ERF", fit(erf, 1e-9, 0.93**2, 6, lambda z: root(z) / mpmath.erf(root(z))))
    exponent = lambda x: mpmath.log(mpmath.erfc(x)) / x
    show("ERF_EXPONENT", fit(exponent, 0.92, 4.1, 6, lambda x: x * mpmath.erfc(x) / mpmath.erf(x)))
    centre = lambda z: mpmath.erf(root(z / 2)) / root(z) / 2
    show("CENTRE", fit(centre, 1e-9, 1.0, 6, lambda z: root(z) / (0.5 - root(z) * centre(z))))
    mills = lambda x: mpmath.exp(x * x / 2) * mpmath.erfc(x / root(2)) / 2
    at = lambda t: mills((1 / t - 1) * 4)
    show("TAIL", fit(at, 1 / (1 + 14.5 / 4), 1.0, 9, lambda t: 1 / at(t)))


if __name__ == "__main__":
    main()
