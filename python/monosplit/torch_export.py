"""Modules of PyTorch as networks: exported in memory, once for the same weights, numbers and code."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import logging
import os
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _monosplit
from .device import of_tensors
from .model import Model
from .samples import numpy_of

if TYPE_CHECKING:
    import torch

CACHED_MODELS = 4
"""Exported modules that are kept."""
LARGEST_IN_MEMORY = 2**31 - 2**20
"""Files of ONNX are smaller than 2 GiB; weights beyond go into files of their own."""
TOLERANCE = 1e-3
"""The share of the largest score by which the exported network may differ from the module without a warning."""
DECISIONS = ("data-dependent", "DataDependent", "Dynamic control flow", "symbolically traced variables cannot be used")
"""What PyTorch's newer exporter says of a module that decides by its data what it computes."""

_models: OrderedDict[str, Model] = OrderedDict()
_exporting = threading.RLock()


class ExportWarning(UserWarning):
    """The exported network does not compute what the module computes."""


def from_torch(
    module: torch.nn.Module,
    example: torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    *,
    output: str | None = None,
    threads: int = 0,
    device: str | None = None,
    preset: str | None = None,
) -> Model:
    """The network that a module is, for samples like those of ``example``: a batch, or one for each input, in the order of
    the arguments of ``forward`` or by their names.

    Inputs are called like the arguments of ``forward`` where there are several; outputs like the keys of a dictionary where
    the module returns one, otherwise ``output``, or ``output_0``, ``output_1``, … of a tuple. ``output`` chooses the one that
    is explained, the first by default. ``device`` is where it computes, ``"cpu"`` or ``"cuda"``: by default on the GPU that the
    module lies on, where the package is built for it, and otherwise on the processor. ``preset`` says how
    pictures are made ready, as in :func:`load`; tensors are taken as they are. The module is exported in memory, once for the same weights, numbers and code. What
    the exported network returns is compared with what the module returns, and a warning says so if they differ.
    """
    import torch

    module = unwrapped(module)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, found {type(module).__name__}")
    inputs = _positional(module, example)
    if not inputs or not all(isinstance(value, torch.Tensor) for value in inputs):
        raise TypeError("example must be a tensor like those the module is called with, or one for each of its inputs")
    if any(value.ndim == 0 for value in inputs):
        raise ValueError("example must be a batch: samples along the first axis, for example torch.randn(1, 3, 224, 224)")
    training = next((name or type(part).__name__ for name, part in module.named_modules() if part.training), None)
    if training is not None:
        raise ValueError(f"the module is in training mode (at '{training}'); call .eval() on it first")
    device = of_tensors([*module.parameters(), *module.buffers(), *inputs]) if device is None else device
    key = _fingerprint(module, inputs, (output, threads, device, preset))
    # Exporting changes what belongs to the whole process, its loggers and outputs.
    with _exporting:
        if key in _models:
            _models.move_to_end(key)
            return _models[key]._for_module(module)
        plain, inputs = _on_processor(module, inputs)
        options = {"input_shape": None, "output": output, "threads": threads, "device": device, "preset": preset}
        model = _exported(plain, inputs, options)
        model._module = module
        _compare(model, plain, inputs)
        _models[key] = model
        while len(_models) > CACHED_MODELS:
            _models.popitem(last=False)
        return model


def _positional(module: Any, example: Any) -> tuple[Any, ...]:
    """The example as the arguments of ``forward``, in their order."""
    if not isinstance(example, Mapping):
        return tuple(example) if isinstance(example, (tuple, list)) else (example,)
    names = list(inspect.signature(module.forward).parameters)
    if set(names[: len(example)]) != set(example):
        raise ValueError(
            f"example must name the first arguments of forward ({', '.join(names)}) without a gap, found "
            f"{', '.join(map(str, example))}"
        )
    return tuple(example[name] for name in names[: len(example)])


def unwrapped(module: Any) -> Any:
    """The module inside ``torch.compile`` and ``DataParallel``."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and type(module).__name__ in ("DataParallel", "DistributedDataParallel"):
            inner = module.module
        if inner is None:
            return module
        module = inner


def _fingerprint(module: Any, inputs: Sequence[Any], options: object) -> str:
    import torch

    digest = hashlib.sha256()
    digest.update(repr((torch.__version__, type(module), str(module), options)).encode())
    digest.update(repr([(tuple(value.shape[1:]), value.dtype) for value in inputs]).encode())
    for name, part in module.named_modules():
        digest.update(repr((name, type(part), part._forward_hooks.keys(), part._forward_pre_hooks.keys())).encode())
        plain = {key: value for key, value in vars(part).items() if isinstance(value, (bool, int, float, str, tuple))}
        digest.update(repr(plain).encode())
        for key, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                digest.update(repr((key, tuple(value.shape), value.dtype, _monosplit.fingerprint(_bytes(value)))).encode())
        # A class that is defined again, in a cell of a notebook, may compute something else with the same weights.
        for kind in type(part).__mro__:
            if not kind.__module__.startswith("torch."):
                for value in vars(kind).values():
                    _add_code(digest, getattr(value, "__code__", None))
    # Buffers that are not stored with the module are part of what it computes, too.
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        digest.update(repr((name, tuple(value.shape), value.dtype, _monosplit.fingerprint(_bytes(value)))).encode())
    return digest.hexdigest()


def _bytes(value: Any) -> Any:
    """The bytes of a tensor, not copied where it lies on the processor."""
    import torch

    return value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()


def _add_code(digest: Any, code: Any) -> None:
    """What a function does, and the functions within it."""
    if code is None:
        return
    digest.update(code.co_code + repr(code.co_names).encode())
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            _add_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _on_processor(module: Any, inputs: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The module on the processor, in float32 where it was in half precision: itself where it is so already, else a copy."""
    import copy

    import torch

    wide = (torch.float32, torch.float64)
    values = [*module.parameters(), *module.buffers()]
    is_half = any(value.is_floating_point() and value.dtype not in wide for value in values)
    is_elsewhere = any(value.device.type != "cpu" for value in values)
    plain = copy.deepcopy(module).cpu() if is_half or is_elsewhere else module
    plain = plain.float() if is_half else plain
    dtype = next((value.dtype for value in plain.parameters() if value.is_floating_point()), torch.float32)
    moved = (value.detach().cpu() for value in inputs)
    return plain, tuple(value.to(dtype) if value.is_floating_point() else value for value in moved)


def _exported(module: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> Model:
    import torch

    size = sum(value.numel() * value.element_size() for value in [*module.parameters(), *module.buffers()])
    # A batch of one would be taken for a constant by the exporter.
    doubled = tuple(torch.cat([value[:1], value[:1]]) for value in inputs)
    names = _names(module, inputs)
    failures: list[Exception] = []
    unread: list[Exception] = []
    for newer, dynamic in ((True, True), (False, True), (True, False), (False, False)):
        example = doubled if dynamic else inputs
        export = _through_folder if size > LARGEST_IN_MEMORY else _in_memory
        try:
            with _quiet(compiled=not newer), torch.no_grad():
                source, folder = export(module, example, newer, _arguments(names, newer, dynamic))
        except Exception as failure:
            if _is_decision(failure):
                raise _decides(module, _first_line(failure)) from None
            failures.append(failure)
            continue
        try:
            model = Model(source, options)
        except ValueError as failure:
            unread.append(failure)
            continue
        model._folder = folder
        # The older exporter records one run, whatever was decided in it.
        model._recorded = not newer
        return model
    if unread:
        raise unread[0] from None
    others = "" if names[1] is not None else " (it returns more than tensors of names that differ)"
    raise ValueError(
        f"PyTorch could not export {type(module).__name__}{others}: {_first_line(failures[0])}; export it yourself with "
        "torch.onnx.export and open the file with monosplit.load"
    ) from None


def _is_decision(failure: BaseException | None) -> bool:
    """Whether the newer exporter found a decision that hangs on the data."""
    while failure is not None:
        if any(words in str(failure) or words in type(failure).__name__ for words in DECISIONS):
            return True
        failure = failure.__cause__ or failure.__context__
    return False


def _decides(module: Any, why: str) -> ValueError:
    return ValueError(
        f"{type(module).__name__} decides by its data what it computes, and an exported network cannot ({why}); export a "
        "module of the branch that is meant"
    )


def input_names(module: Any, inputs: tuple[Any, ...]) -> list[str]:
    """The names of inputs: those of the arguments of ``forward`` where there are several."""
    try:
        arguments = list(inspect.signature(module.forward).parameters.values())
    except ValueError:
        # Traced modules have none.
        arguments = []
    named = len(arguments) >= len(inputs) and all(each.kind is not each.VAR_POSITIONAL for each in arguments[: len(inputs)])
    read = [each.name for each in arguments[: len(inputs)]] if named else [f"input_{i}" for i in range(len(inputs))]
    return read if len(inputs) > 1 else ["input"]


def _names(module: Any, inputs: tuple[Any, ...]) -> tuple[list[str], list[str] | None]:
    """The names of inputs and outputs; none where outputs are not all tensors."""
    import torch
    from torch.utils import _pytree

    read = input_names(module, inputs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outputs = module(*inputs)
        except Exception as failure:
            shapes = ", ".join(str(tuple(value.shape)) for value in inputs)
            raise ValueError(
                f"{type(module).__name__} cannot be called with the example {shapes}: {_first_line(failure)}"
            ) from failure
    found: Any = _pytree.tree_flatten_with_path(outputs)[0]
    if not all(isinstance(value, torch.Tensor) for _, value in found):
        return read, None
    words = [".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path) for path, _ in found]
    made = [word if word and not word[0].isdigit() else f"output_{word}".rstrip("_") for word in words]
    # Two values of one name, or a name of an input, would be two things.
    return read, None if len({*made, *read}) < len(made) + len(read) else made


def _arguments(names: tuple[list[str], list[str] | None], newer: bool, dynamic: bool) -> dict[str, Any]:
    import torch

    read, made = names
    arguments: dict[str, Any] = {"dynamo": newer, "input_names": read}
    if made is not None:
        arguments["output_names"] = made
    if newer:
        arguments["verbose"] = False
    if dynamic and newer:
        arguments["dynamic_shapes"] = tuple({0: torch.export.Dim.DYNAMIC} for _ in read)
    elif dynamic:
        arguments["dynamic_axes"] = {name: {0: "batch"} for name in read}
    return arguments


def _in_memory(
    module: Any, inputs: tuple[Any, ...], newer: bool, arguments: dict[str, Any]
) -> tuple[dict[str, Any], Any]:
    import torch

    name = type(module).__name__
    if newer:
        program = torch.onnx.export(module, inputs, **arguments)
        if program is None:
            raise ValueError("the exporter returned nothing")
        return {"data": bytes(program.model_proto.SerializeToString()), "name": name}, None
    buffer: Any = io.BytesIO()
    torch.onnx.export(module, inputs, buffer, **arguments)
    return {"data": bytes(buffer.getvalue()), "name": name}, None


def _through_folder(
    module: Any, inputs: tuple[Any, ...], newer: bool, arguments: dict[str, Any]
) -> tuple[dict[str, Any], Any]:
    """Weights beyond what one file holds lie in files beside it, which stay as long as the network does."""
    import torch

    folder = tempfile.TemporaryDirectory(prefix="monosplit-")
    path = os.path.join(folder.name, "network.onnx")
    if newer:
        arguments["external_data"] = True
    torch.onnx.export(module, inputs, path, **arguments)
    return {"path": path, "name": type(module).__name__}, folder


@contextlib.contextmanager
def _quiet(compiled: bool) -> Iterator[None]:
    """The exporters write pages, by prints, warnings and loggers; one line is said if they fail. The compiled part of the
    older exporter writes to the standard output of the process, past Python."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            _closed_output() if compiled else contextlib.nullcontext(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _closed_output() -> Iterator[None]:
    """Standard output of the process goes nowhere."""
    import ctypes

    def flush() -> None:
        # What C and C++ have printed so far may still lie in their buffer.
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)

    try:
        kept = os.dup(1)
    except OSError:
        # The process has no standard output.
        yield
        return
    flush()
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        flush()
        os.dup2(kept, 1)
        os.close(kept)


def _first_line(failure: BaseException) -> str:
    """The sentence of a failure that says why, without the pages around it."""
    cause: BaseException = failure
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    line = lines[0] if lines else type(cause).__name__
    return line if len(line) <= 300 else line[:297] + "…"


def _compare(model: Model, module: Any, inputs: tuple[Any, ...]) -> None:
    """Says so where the exported network does not return what the module returns, on the example and on other inputs."""
    if model._options["output"] not in (None, "probability"):
        return
    # Networks are opened up to their logits: probabilities are compared as the module returns them.
    whole = model if model._options["output"] else Model(model._source, {**model._options, "output": "probability"})
    said = _difference(whole, module, inputs)
    if said is not None:
        text = f"the exported network does not return what {type(module).__name__} returns: {said}"
        warnings.warn(text, ExportWarning, stacklevel=3)
        return
    for other in _others(inputs, model._recorded):
        if (said := _difference(whole, module, other)) is not None:
            raise _decides(module, f"at other inputs than the example {said}")


def _others(inputs: tuple[Any, ...], recorded: bool) -> Iterator[tuple[Any, ...]]:
    """Inputs unlike the example: their negatives, and many more where the exporter recorded one run."""
    import torch

    if not any(x.is_floating_point() for x in inputs):
        return
    generator = torch.Generator().manual_seed(0)

    def each(change: Callable[[Any], Any]) -> tuple[Any, ...]:
        # Whole numbers are indices and stay as they are.
        return tuple(change(x) if x.is_floating_point() else x for x in inputs)

    def noise(x: Any) -> Any:
        return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x)

    yield each(torch.neg)
    if not recorded:
        return
    for constant in (0.0, 1.0, -1.0):
        yield each(lambda x: torch.full_like(x, constant))
    for factor in (0.01, 0.1, 1.0, 10.0, 100.0):
        yield each(lambda x: factor * x)
        yield each(lambda x: factor * noise(x))
        yield each(lambda x: factor * noise(x).abs())
        yield each(lambda x: -factor * noise(x).abs())


def _difference(model: Model, module: Any, inputs: tuple[Any, ...]) -> str | None:
    """How far a network is from its module at some inputs; none if it agrees, or where there is nothing to compare."""
    import torch

    # An input that the network does not read is none of its inputs.
    values = dict(zip(input_names(module, inputs), inputs))
    if not set(model.inputs) <= set(values):
        return None
    first, *others = model.inputs
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected: Any = module(*inputs)
    while isinstance(expected, (tuple, list, dict)) and expected:
        expected = next(iter(expected.values())) if isinstance(expected, dict) else expected[0]
    if not isinstance(expected, torch.Tensor):
        return None
    wanted = numpy_of(expected)
    try:
        found = model.run(numpy_of(values[first]), inputs={name: values[name] for name in others})
    except ValueError:
        return None
    if found.shape == (*wanted.shape, 1):
        # One number a sample is read as the score of one class.
        found = found[..., 0]
    if not np.isfinite(wanted).all():
        return None
    if found.shape != wanted.shape:
        return f"shapes {found.shape} and {wanted.shape}"
    largest = float(np.max(np.abs(wanted), initial=0.0))
    difference = float(np.max(np.abs(found - wanted), initial=0.0))
    if not difference > TOLERANCE * max(largest, 1e-6):
        return None
    return f"they differ by {difference:.2g} where the largest number is {largest:.2g}"
