#!/usr/bin/env bash
# Builds the Python package and tests it in a virtual environment of its own, under target/. Needs Rust, Python 3.10 or newer with
# venv, and a package index. Where PyTorch and the packages we are compared with cannot be installed, their tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
environment="$PWD/target/python-venv"
wheels="$PWD/target/wheels"
cargo fmt --manifest-path python/Cargo.toml --check
python3 -m venv "$environment"
# Without pip's cache: PyTorch and what it brings take several gigabytes, and the cache would take as many again.
export PIP_NO_CACHE_DIR=1
pip() { "$environment/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install "maturin>=1.7,<2" pytest mypy numpy pillow onnx onnxruntime psutil pandas tqdm
rm -rf "$wheels"
"$environment/bin/maturin" build --release --out "$wheels" --interpreter "$environment/bin/python"
# One more wheel for an interpreter without the global lock: it has no stable binary interface. PyO3 asks for 3.14 or newer.
for interpreter in python3.15t python3.14t; do
    if command -v "$interpreter" > /dev/null; then
        "$environment/bin/maturin" build --release --out "$wheels" --interpreter "$interpreter"
        break
    fi
done
pip install --force-reinstall --no-deps "$wheels"/monosplit-*abi3*.whl
optional() { timeout 900 "$environment/bin/python" -m pip --quiet --disable-pip-version-check install "$@"; }
if ! optional torch captum grad-cam zennit quantus onnxscript matplotlib nbclient nbformat ipykernel; then
    echo "PyTorch and the packages we are compared with could not be installed; their tests are skipped" >&2
fi
if ! optional "ray[data]" dask; then
    echo "Ray and Dask could not be installed; their tests are skipped" >&2
fi
# Away from the sources, so that the installed package is tested.
tests="$PWD/python/tests"
cd "$environment"
# The package's types refer to PyTorch's.
if "$environment/bin/python" -c "import torch" 2> /dev/null; then
    "$environment/bin/python" -m mypy --strict --config-file "$tests/../../pyproject.toml" -p monosplit
else
    echo "types are not checked: that needs PyTorch" >&2
fi
"$environment/bin/python" -m mypy.stubtest monosplit._monosplit
"$environment/bin/python" -m pytest -q "$tests"
