"""Prints, as Rust, PyTorch's values (double precision) of every elementwise function at a few points.

Usage: python scripts/make_engine_values.py   # paste into the tests of crates/engine/src/cpu/kernels/activation.rs
"""

import torch
import torch.nn.functional as F

x = torch.tensor([-3.0, -1.0, -0.25, 0.0, 0.5, 2.0, 7.0], dtype=torch.float64)
functions = [
    ("Unary::Relu", F.relu),
    ("Unary::LeakyRelu { slope: 0.1 }", lambda x: F.leaky_relu(x, 0.1)),
    ("Unary::Elu { alpha: 1.5 }", lambda x: F.elu(x, 1.5)),
    ("Unary::Selu { alpha: 1.6732632423543772, gamma: 1.0507009873554805 }", F.selu),
    ("Unary::Celu { alpha: 0.7 }", lambda x: F.celu(x, 0.7)),
    ("Unary::Sigmoid", torch.sigmoid),
    ("Unary::Tanh", torch.tanh),
    ("Unary::Softplus", lambda x: torch.log1p(torch.exp(x))),
    ("Unary::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 }", F.hardsigmoid),
    ("Unary::HardSwish", F.hardswish),
    ("Unary::Silu", F.silu),
    ("Unary::Gelu", F.gelu),
    ("Unary::GeluTanh", lambda x: F.gelu(x, approximate="tanh")),
    ("Unary::Erf", torch.erf),
    ("Unary::Mish", F.mish),
    ("Unary::Neg", torch.neg),
    ("Unary::Abs", torch.abs),
    ("Unary::Exp", torch.exp),
    ("Unary::Sin", torch.sin),
    ("Unary::Cos", torch.cos),
    ("Unary::Sign", torch.sign),
    ("Unary::Floor", torch.floor),
    ("Unary::Ceil", torch.ceil),
    ("Unary::Round", torch.round),
    ("Unary::Clip { min: -0.5, max: 6.0 }", lambda x: torch.clamp(x, -0.5, 6.0)),
]
print(f"const GOLDEN: [(Unary, [f64; {len(x)}]); {len(functions)}] = [")
for name, function in functions:
    values = f"{function(x).tolist()}".replace("0.6931471805599453", "std::f64::consts::LN_2")
    print(f"    ({name}, {values}),".replace("-0.0,", "0.0,"))
print("];")

print("\nPyTorch's resized values, for the tests of crates/engine/src/cpu/kernels/resize.rs")
row = torch.tensor([0.3, -1.2, 2.5, 0.7, 4.0], dtype=torch.float64)
image = row.reshape(1, 1, 1, 5)
for size in (8, 3):
    for mode, corners in (("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True)):
        resized = F.interpolate(image, size=(1, size), mode=mode, align_corners=corners)
        print(mode, corners, size, resized.flatten().tolist())
    print("nearest", size, F.interpolate(row.reshape(1, 1, 5), size=size, mode="nearest").flatten().tolist())
    print("nearest-exact", size, F.interpolate(row.reshape(1, 1, 5), size=size, mode="nearest-exact").flatten().tolist())
