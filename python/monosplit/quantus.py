"""Explanations as Quantus asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model import MethodSpec, Model
from .torch_export import from_torch


def quantus(model: Model | None = None, method: MethodSpec = "splitcam", **options: Any) -> Callable[..., NDArray[Any]]:
    """A function ``explain(model, inputs, targets)`` for Quantus: maps ``[N, 1, H, W]`` at the size of the input.

    Metrics that change the weights (MPRT) hand over the changed module: where Quantus calls with a module whose weights
    are not those that ``model`` was made from, that module is explained.
    """

    opened = model

    def explain(model: Any, inputs: Any, targets: Any, **_: Any) -> NDArray[Any]:
        explained = _current(opened, model, inputs)
        batch = np.ascontiguousarray(np.asarray(inputs, dtype=np.float32))
        classes = np.asarray(targets).reshape(-1).astype(int).tolist()
        maps: NDArray[Any] = explained.explain(batch, method, target=classes, **options).maps
        return maps[:, np.newaxis]

    return explain


def _current(model: Model | None, module: Any, inputs: Any) -> Model:
    if not hasattr(module, "named_modules"):
        if model is None:
            raise ValueError("give the model to explain: monosplit.quantus(model, method)")
        return model
    import torch

    example = torch.as_tensor(np.asarray(inputs[:1], dtype=np.float32))
    was_training = module.training
    module.eval()
    try:
        # The same weights are exported once.
        return from_torch(module, example)
    finally:
        module.train(was_training)
