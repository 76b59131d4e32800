"""Where networks compute: the processor, or an NVIDIA GPU."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import importlib.util
import os
from typing import Any

from . import _monosplit

LIBRARIES = ("libnvrtc.so.*", "libcublasLt.so.*", "libcudnn.so.*")
"""What the engine for NVIDIA GPUs needs beside the driver."""

_loaded: list[Any] = []


def ready(device: str) -> str:
    """The same device, with its libraries loaded where pip installed them: the engine then finds them wherever they lie."""
    if device.startswith("cuda") and _monosplit.has_cuda and not _loaded:
        for pattern in LIBRARIES:
            for path in _installed(pattern):
                with contextlib.suppress(OSError):
                    _loaded.append(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
                    break
    return device


def _installed(pattern: str) -> list[str]:
    """The files of a library in packages of NVIDIA, the newest first."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    folders = list(found.submodule_search_locations or []) if found is not None else []
    paths = [path for folder in folders for path in glob.glob(os.path.join(folder, "*", "lib", pattern))]
    return sorted(paths, reverse=True)


def of_tensors(tensors: Any) -> str:
    """The device that tensors of torch lie on, where this build computes there."""
    for tensor in tensors:
        if tensor.device.type == "cuda" and _monosplit.has_cuda:
            return f"cuda:{tensor.device.index or 0}"
    return "cpu"
