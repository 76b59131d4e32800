"""What can be explained: arrays, tensors, pictures, files, and lists of these, as one array with samples along its first axis."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from . import _monosplit

if TYPE_CHECKING:
    import PIL.Image
    import torch

Input = Union[
    NDArray[Any],
    "torch.Tensor",
    "PIL.Image.Image",
    str,
    "os.PathLike[str]",
    bytes,
    Sequence[Any],
]
"""A batch, a sample, a picture, the path of a picture or of a ``.npy`` file, the bytes of a picture file, or a list of these."""


@dataclass
class Samples:
    """Samples along the first axis, and the pictures they were made from."""

    array: NDArray[Any]
    pictures: list[NDArray[np.uint8] | None]
    origin: Any = None
    """A torch tensor among what was given: results go back to its device."""
    has_pictures: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_pictures = all(picture is not None for picture in self.pictures)


def is_torch(value: object) -> bool:
    """Whether a value is a torch tensor, found out without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def is_pil(value: object) -> bool:
    """Whether a value is a picture of Pillow, found out without importing it."""
    return hasattr(value, "convert") and hasattr(value, "tobytes") and hasattr(value, "getexif")


def numpy_of(value: Any) -> NDArray[Any]:
    """A tensor of torch as an array of numpy, which has no bfloat16."""
    value = value.detach()
    if value.dtype.is_floating_point and value.dtype.itemsize < 4:
        value = value.float()
    found: NDArray[Any] = value.cpu().numpy()
    return found


def readable(array: NDArray[Any], dtype: str, kind: str = "float") -> NDArray[Any]:
    """An array as the compiled part reads it: contiguous, and of one of the types it knows."""
    if array.dtype.kind == "b":
        wanted: Any = np.bool_ if kind == "bool" else (np.int64 if kind == "int" else dtype)
    elif array.dtype.kind in "iu" and kind != "float":
        wanted = np.int64
    elif array.dtype.kind in "iuf":
        wanted = dtype
    else:
        raise TypeError(f"expected an array of numbers, found one of {array.dtype}")
    return np.ascontiguousarray(array, dtype=wanted)


def finite(array: NDArray[Any]) -> NDArray[Any]:
    """The same array; an error if a number is not finite, because everything computed from it would be NaN without a word."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        sample, *place = (int(index) for index in np.argwhere(~np.isfinite(array))[0])
        value = array[(sample, *place)]
        raise ValueError(f"sample {sample} holds {value} at {place}, expected finite numbers; replace it first")
    return array


def upright(image: Any) -> NDArray[np.uint8]:
    """The pixels of a picture of Pillow, turned as its camera says. Transparency is dropped, as it is of files."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    return np.ascontiguousarray(np.asarray(turned.convert("RGB"), dtype=np.uint8))


def pixels(value: Any) -> NDArray[np.uint8] | None:
    """The pixels of what is a picture; none if it is something else."""
    if is_pil(value):
        return upright(value)
    if isinstance(value, bytes):
        return _monosplit.decode_picture(value)
    if isinstance(value, (str, os.PathLike)) and not os.fspath(value).endswith((".npy", ".npz")):
        with open(value, "rb") as file:
            try:
                return _monosplit.decode_picture(file.read())
            except ValueError as error:
                raise type(error)(f"{os.fspath(value)}: {error}") from None
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3:
        return np.ascontiguousarray(value)
    return None


def array_of(value: Any) -> NDArray[Any]:
    """What is no picture as an array."""
    if is_torch(value):
        return numpy_of(value)
    if isinstance(value, (str, os.PathLike)):
        loaded = np.load(value, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                names = loaded.files
                if len(names) != 1:
                    raise ValueError(f"{os.fspath(value)}: expected one array, found {len(names)}")
                return np.asarray(loaded[names[0]])
        return np.asarray(loaded)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return np.from_dlpack(value)
    return np.asarray(value)


def dtype_name(dtype: Any) -> str:
    """The name of a type of numpy or torch, or the name itself."""
    if isinstance(dtype, str):
        return dtype
    name = str(dtype).removeprefix("torch.")
    return name if name in ("float32", "float64") else np.dtype(dtype).name


def samples(value: Input, network: _monosplit.Network, dtype: str) -> Samples:
    """What was given, as the network reads it."""
    shape = tuple(network.sample_shape)
    kind = network.input_kind
    if value is None or isinstance(value, (bool, int, float)):
        raise TypeError(f"expected an array, a tensor, a picture or a list of these, found {value!r}")
    items = list(value) if isinstance(value, (list, tuple)) and _is_list_of_inputs(value) else [value]
    if not items:
        raise ValueError("there is nothing to explain: the list is empty")
    arrays: list[NDArray[Any]] = []
    pictures: list[NDArray[np.uint8] | None] = []
    for item in items:
        found = pixels(item)
        # An array of bytes that already has the shape of a sample is a sample: a network that reads bytes.
        if found is not None and not (isinstance(item, np.ndarray) and item.shape == shape):
            sample, seen = network.prepare(found)
            arrays.append(np.asarray(sample, dtype=dtype) if kind == "float" else np.asarray(sample))
            pictures.append(seen)
            continue
        array = array_of(item)
        if array.shape == shape:
            array = array[np.newaxis]
        if array.shape[1:] != shape:
            raise ValueError(f"expected samples of shape {shape}, or batches of them, found {array.shape}")
        arrays.append(finite(readable(array, dtype, kind)))
        pictures.extend([None] * len(array))
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    origin = next((item for item in items if is_torch(item)), None)
    return Samples(readable(joined, dtype, kind), pictures, origin)


def _is_list_of_inputs(value: Sequence[Any]) -> bool:
    """A list of numbers, or of lists of them, is an array."""
    return not value or not isinstance(value[0], (int, float, list, tuple, np.number))


def returned(array: NDArray[Any], origin: Any) -> Any:
    """A result in the kind that was given: a tensor on the same device, or the array itself."""
    if origin is None:
        return array
    import torch

    return torch.from_numpy(array).to(origin.device)
