"""The notebook runs from its first cell to its last."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_steps.ipynb"


def test_first_steps_run(tmp_path):
    nbformat, nbclient = (pytest.importorskip(name) for name in ("nbformat", "nbclient"))
    for needed in ("torch", "captum", "onnx", "onnxruntime", "matplotlib", "pandas", "ipykernel"):
        pytest.importorskip(needed)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert not list(tmp_path.iterdir())
