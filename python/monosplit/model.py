"""Networks: opened, run, explained, verified, compiled."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _monosplit
from .device import ready
from .evaluation import Evaluation, Method, evaluate
from .explainer import Explainer
from .explanation import Explanation
from .files import write_whole
from .named import NamedExplainer, chosen_inputs
from .page import Picture, ServedPage, serve
from .progress import Progress, reporting
from .samples import Input, Samples, array_of, dtype_name, is_torch, numpy_of, readable, returned, samples
from .target import Region, Similarity, Target, TargetSpec, is_head, written

if TYPE_CHECKING:
    import torch

MethodSpec = Union[str, tuple[str, Mapping[str, Any]]]
"""A method by name, or with its options: ``"lrp:gamma=0.1"``, ``("lrp", {"gamma": 0.1})``."""

CACHED_EXPLAINERS = 8
"""Explainers that :meth:`Model.explain` keeps, so that calling it in a loop compiles once."""


@dataclass(frozen=True)
class Layer:
    """A layer of a network."""

    name: str
    operator: str
    shape: tuple[int | None, ...]
    """The shape of what it returns; none is the batch axis."""
    parameters: int


@dataclass(frozen=True)
class Finding:
    """A statement about the split of a network, and whether it holds."""

    claim: str
    verdict: str
    found: str

    @property
    def fails(self) -> bool:
        """Whether the statement was checked and does not hold."""
        return self.verdict == "FAILS"


@dataclass(frozen=True)
class CompiledNetwork:
    """A network whose further outputs are maps: the bytes of an ONNX file that runs anywhere."""

    data: bytes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, whole or not at all."""
        write_whole(path, self.data)


def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    arch: str | None = None,
    input_shape: Sequence[int] | None = None,
    output: str | None = None,
    threads: int = 0,
    device: str = "cpu",
    preset: str | None = None,
) -> Model:
    """Opens a network.

    ``model`` is the path of an ONNX file, its bytes, or an ``onnx.ModelProto``; with ``arch`` the path of the weights of
    a torchvision architecture. ``input_shape`` is the shape of one sample where the file leaves it open, ``output`` the
    output that is explained (its name, or ``"probability"``), ``threads`` the number of threads (0 is one for each core).
    ``preset`` says how pictures are made ready, where the file does not name it and the guess is wrong: ``"imagenet"``,
    ``"imagenet-bgr"``, ``"unit"`` (values from 0 to 1) or ``"none"`` (bytes). Arrays are taken as they are.

    >>> import monosplit as ms
    >>> ms.load(ms.assets.network()).classes
    37
    """
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    options = {"input_shape": input_shape, "output": output, "threads": threads, "device": device, "preset": preset}
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Model({"data": bytes(model)}, options)
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(
            f"expected the path of an ONNX file, its bytes or an onnx.ModelProto, found {type(model).__name__}"
            + ("; use monosplit.from_torch(module, example=x)" if hasattr(model, "forward") else "")
        )
    return Model({"path": os.fspath(model), "arch": arch}, options)


class Model:
    """A network, ready to be run and explained. Made by :func:`load` and :func:`from_torch`; threads may share it."""

    def __init__(self, source: dict[str, Any], options: dict[str, Any]) -> None:
        self._source = source
        self._options = options
        self._networks: dict[str, _monosplit.Network] = {}
        self._explainers: dict[Any, Explainer] = {}
        self._lock = threading.Lock()
        self._module: Any = None
        """The module it was exported from: layers may be named by its parts."""
        self._folder: Any = None
        """The folder of a network whose weights are too large for memory twice."""
        self._facts: list[tuple[str, str, bool]] | None = None
        """What each input holds, where that was asked for."""
        self._recorded = False
        """Whether the exporter recorded one run of the module, with what was decided in it."""
        ready(options.get("device") or "cpu")
        self._network("float32")

    def __getstate__(self) -> dict[str, Any]:
        if self._folder is not None:
            raise TypeError(f"{self.name} has weights above 2 GiB in a temporary folder and cannot be pickled")
        return {"source": self._source, "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["source"], state["options"])  # type: ignore[misc]

    def _for_module(self, module: Any) -> Model:
        """The same network, whose layers are named by the parts of another module of the same weights."""
        if self._module is module:
            return self
        other = object.__new__(Model)
        other.__dict__.update(self.__dict__)
        other._module = module
        return other

    def __copy__(self) -> Model:
        return self

    def __deepcopy__(self, memo: object) -> Model:
        return self

    def _targeted(self, dtype: str, target: Target, inputs: Mapping[str, Any] | None = None) -> _monosplit.Network:
        """The network with values for further inputs, and the head of a target behind it."""
        network = self._network(dtype)
        if inputs:
            kinds = dict(network.inputs())
            given = [(name, readable(array_of(value), dtype, kinds.get(name, "float"))) for name, value in inputs.items()]
            network = network.with_inputs(given)
        if not is_head(target):
            return network
        files: list[str] = []
        try:
            text = written(target, files)
            key = f"{dtype} {text}"
            found = None if inputs else self._networks.get(key)
            if found is None:
                found = network.with_target(text)
                if not files and not inputs:
                    with self._lock:
                        self._networks[key] = found
            return found
        finally:
            for file in files:
                os.remove(file)

    def _samples_of(self, name: str, value: Any, dtype: str) -> Samples:
        """The value of an input by its name, as the network reads it."""
        key = f"{dtype} input {name}"
        view = self._networks.get(key)
        if view is None:
            view = self._network(dtype).reading(name)
            with self._lock:
                self._networks[key] = view
        try:
            return samples(value, view, dtype)
        except (ValueError, TypeError) as error:
            raise type(error)(f"input '{name}': {error}") from None

    def _text_input(self, inputs: Mapping[str, Any] | None) -> str | None:
        """The only input that is not held, if it holds token ids: these are explained at their embedding."""
        kinds = [(name, kind) for name, kind in self._network("float32").inputs() if name not in (inputs or {})]
        if len(kinds) != 1 or kinds[0][1] != "int":
            return None
        if self._facts is None:
            self._facts = self._network("float32").input_facts()
        return next((name for name, holds, _ in self._facts if holds == "tokens" and name == kinds[0][0]), None)

    def _network(self, dtype: str) -> _monosplit.Network:
        """The network opened for a precision: weights that folding changes are stored in it."""
        with self._lock:
            if dtype not in self._networks:
                if "data" in self._source:
                    found = _monosplit.Network.read(
                        self._source["data"], name=self.name, precision=dtype, **self._options
                    )
                else:
                    found = _monosplit.Network.open(
                        self._source["path"], arch=self._source.get("arch"), precision=dtype, **self._options
                    )
                self._networks[dtype] = found
            return self._networks[dtype]

    @property
    def name(self) -> str:
        """Where the network comes from."""
        return str(self._source.get("name") or self._source.get("path") or "the network")

    @property
    def classes(self) -> int | None:
        """The number of classes; none where the output holds no class scores."""
        return self._network("float32").classes

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, numbers where they have none."""
        network = self._network("float32")
        return [network.class_name(number) or str(number) for number in range(network.classes or 0)]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self._network("float32").sample_shape)

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs."""
        return self._network("float32").ends()[0]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return self._network("float32").ends()[1]

    @property
    def suggested_targets(self) -> dict[str, list[str]]:
        """Targets that suit each output, as :meth:`explain` takes them."""
        return self._network("float32").suggested_targets()

    @property
    def layers(self) -> list[Layer]:
        """All layers, in the order in which they are computed."""
        found = self._network("float32").layers()
        return [Layer(name, operator, tuple(shape), parameters) for name, operator, shape, parameters in found]

    def summary(self) -> str:
        """The network in a few lines, for people."""
        network = self._network("float32")
        facts = network.facts()
        inputs, outputs = network.ends()
        shape = "×".join(map(str, facts["sample_shape"] or [])) or "open"
        lines = [
            f"{self.name}",
            f"  inputs      {', '.join(inputs)} ({shape})",
            f"  outputs     {', '.join(outputs)}" + (f" ({facts['classes']} classes)" if facts["classes"] else ""),
            f"  layers      {facts['layers']}, {facts['parameters']:,} parameters, "
            f"{facts['multiply_adds'] / 1e9:.2f} G multiply-adds",
        ]
        for method in ("splitcam", "gradcam"):
            try:
                lines.append(f"  {method:<11} read at {network.default_layer(method) or 'the input'} by default")
            except ValueError:
                pass
        return "\n".join(lines + [f"  note        {remark}" for remark in facts["remarks"]])

    def __repr__(self) -> str:
        try:
            shape = "×".join(map(str, self.input_shape))
        except ValueError:
            shape = ", ".join(self.inputs)
        return f"<Model {self.name}: {shape} → {self.classes or 'no'} classes>"

    def run(
        self, x: Input, *, dtype: Any = "float32", batch: int = 16, inputs: Mapping[str, Any] | None = None
    ) -> Any:
        """The first output of the network. ``inputs`` are the values of further inputs, as for :meth:`explainer`.

        >>> import monosplit as ms
        >>> ms.load(ms.assets.network()).run(ms.assets.photograph()).shape
        (1, 37)
        """
        dtype = dtype_name(dtype)
        network = self._targeted(dtype, None, inputs)
        given = samples(x, network, dtype)
        return returned(network.run(given.array, batch), given.origin)

    def explainer(
        self,
        method: MethodSpec = "splitcam",
        *,
        target: Target = None,
        layer: str | torch.nn.Module | None = None,
        dtype: Any = "float32",
        batch: int = 16,
        pictures: bool = False,
        inputs: Mapping[str, Any] | None = None,
        of: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Explainer:
        """Compiles a method, to be called often.

        ``layer`` is a name as PyTorch writes it (what enters it, or what leaves it with ``:out`` behind the name), or the
        module itself where the network came from one; ``""`` is the input. Options of the method are keywords
        (:func:`methods` lists them), with ``_`` for ``-``. ``target`` is a target other than a class (:mod:`target`); classes
        are given with each call. ``inputs`` are the values of further inputs by their names, one sample for all or one for
        each: they are held fixed, and the input that is left is explained. ``of`` names one or several inputs that are explained
        together: the explainer is then called with the values of all by their names, ``ig({"image": x, "age": y})``, and
        returns a dictionary. Token ids are explained at their embedding, ``[N, tokens, width]``. ``batch`` samples are computed
        at a time. ``pictures`` says that values are those of pictures made ready for the network, so that rules know their
        bounds.

        >>> import monosplit as ms
        >>> model = ms.load(ms.assets.network())
        >>> ig = model.explainer("integrated-gradients", steps=20)
        >>> ig(ms.assets.photograph(), target=5).shape
        (1, 3, 128, 128)
        """
        name, given = _method(method)
        dtype = dtype_name(dtype)
        if batch < 1:
            raise ValueError(f"batch must be at least 1, found {batch}")
        own = self._text_input(inputs) if of is None else None
        if of is not None or own is not None:
            return self._named_explainer(method, target, layer, dtype, batch, inputs or {}, of, own, options)
        texts, files = _texts({**given, **options})
        network = self._targeted(dtype, target, inputs)
        named = self._layer_name(layer)
        try:
            compiled = network.explainer(
                name, texts, layer=named, pictures=pictures, batch=batch
            )
        finally:
            for file in files:
                os.remove(file)
        arguments = {
            "method": method, "target": target, "layer": named, "dtype": dtype, "batch": batch, "pictures": pictures,
            "inputs": inputs, **options,
        }
        return Explainer(self, network, compiled, dtype, arguments)

    def _named_explainer(
        self,
        method: MethodSpec,
        target: Target,
        layer: Any,
        dtype: str,
        batch: int,
        inputs: Mapping[str, Any],
        of: str | Sequence[str] | None,
        own: str | None,
        options: Mapping[str, Any],
    ) -> NamedExplainer:
        """The explainer of inputs by name, or of ``own``, the only one that is not held."""
        if layer:
            raise ValueError(
                "inputs are explained by their names at themselves; a layer is explained for one input of real numbers: "
                "model.explain(x, layer=…, inputs={…})"
            )
        name, given = _method(method)
        network = self._targeted(dtype, target)
        chosen = [own] if own is not None else chosen_inputs(network, of, [])
        texts, files = _texts({**given, **options})
        try:
            compiled = network.inputs_explainer(name, texts, chosen, batch=batch)
        finally:
            for file in files:
                os.remove(file)
        arguments = {
            "method": method, "target": target, "dtype": dtype, "batch": batch, "inputs": dict(inputs), "of": of, **options,
        }
        return NamedExplainer(self, network, compiled, dtype, arguments, own, inputs)

    def serve(self, *pictures: Picture, port: int = 0, height: int = 900) -> ServedPage:
        """Serves the explorer, a page on which this network is explained: α on a slider, all layers, methods beside each other.

        In a notebook the result shows itself in a frame of ``height`` pixels; elsewhere open its ``address`` in a browser.
        ``pictures`` are paths, folders or bytes of files. The server listens on this machine alone, and ends with
        :meth:`ServedPage.stop`, with its ``with`` block, or with this process.

        >>> import monosplit as ms
        >>> with ms.load(ms.assets.network()).serve(ms.assets.photograph()) as page:
        ...     page.address.startswith("http://127.0.0.1:")
        True
        """
        return self._served(pictures, port, height, {})

    def _served(self, pictures: Sequence[Picture], port: int, height: int, chosen: Mapping[str, str]) -> ServedPage:
        preset = self._options.get("preset")
        chosen = {**chosen, "preset": preset} if preset else chosen
        return serve(self._source, self._options, self.name, pictures, port, height, chosen)

    def explain(
        self,
        x: Input | Mapping[str, Any],
        method: MethodSpec = "splitcam",
        *,
        target: Target = None,
        layer: str | torch.nn.Module | None = None,
        dtype: Any = "float32",
        batch: int = 16,
        inputs: Mapping[str, Any] | None = None,
        of: str | Sequence[str] | None = None,
        progress: Progress = False,
        **options: Any,
    ) -> Explanation:
        """Explains samples: a batch, a sample, a picture, the path of one, or a list of these; or such values of all inputs by
        their names, ``model.explain({"image": x, "age": y})``. Of these ``of`` names the ones that are explained, by default
        those that hold real numbers or token ids, and attributions and maps are dictionaries.

        ``target`` is a class number or name, or a list with one for each sample, or one of :mod:`target`; by default it is
        the class with the highest score. Everything else is as for :meth:`explainer`.

        >>> import monosplit as ms
        >>> e = ms.load(ms.assets.network()).explain(ms.assets.photograph(), "gradcam", target="Bengal")
        >>> e.class_names
        ['Bengal']
        """
        pictures = not isinstance(x, (np.ndarray, Mapping)) and not is_torch(x)
        dtype = dtype_name(dtype)
        if isinstance(x, Mapping):
            if not x:
                raise ValueError("there is nothing to explain: no input was given")
            of = tuple(chosen_inputs(self._network(dtype), of, list(x)))
        elif of is not None:
            raise TypeError(f"of= names some of several inputs: give all by their names, found {type(x).__name__}")
        head = target if is_head(target) else None
        key = (method, self._layer_name(layer), dtype, batch, pictures, of, tuple(sorted(options.items())), repr(head))
        cacheable = (
            isinstance(method, str)
            and not inputs
            and not isinstance(head, (Region, Similarity))
            and all(isinstance(value, (str, int, float)) for value in options.values())
        )
        explainer = self._explainers.get(key) if cacheable else None
        if explainer is None:
            explainer = self.explainer(
                method, target=head, layer=layer, dtype=dtype, batch=batch, pictures=pictures, inputs=inputs, of=of, **options
            )
            if cacheable:
                with self._lock:
                    while len(self._explainers) >= CACHED_EXPLAINERS:
                        self._explainers.pop(next(iter(self._explainers)))
                    self._explainers[key] = explainer
        given: Any = x
        return explainer.explain(given, None if head is not None else target, progress=progress)

    def verify(
        self, x: Input | None = None, *, target: Target = None, pairs: int = 10, progress: Progress = False
    ) -> list[Finding]:
        """Checks the theorems of the split on a sample: ``f = g − h`` with monotone convex ``g`` and ``h``, exactly.

        >>> import monosplit as ms
        >>> any(finding.fails for finding in ms.load(ms.assets.network()).verify(pairs=2))
        False
        """
        network = self._targeted("float32", target)
        sample = None if x is None else samples(x, network, "float32").array
        with reporting(progress, "verify") as report:
            return [Finding(**found) for found in network.verify(sample, pairs, report)]

    def evaluate(
        self,
        methods: Mapping[str, Method] | Sequence[MethodSpec],
        data: Input,
        metrics: Sequence[str],
        *,
        target: Target = None,
        masks: Any = None,
        seed: int = 0,
        progress: Progress = False,
    ) -> Evaluation:
        """Measures methods, ours by name and your own as functions, on samples.

        ``target`` is as for :meth:`explain`: classes, or one of :mod:`target`, whose score is then what metrics look at.
        A function is called with images ``[N, C, H, W]`` and a class (0 for a target that is none) and returns maps ``[N, H, W]``. ``masks`` are those of
        the objects, for metrics of localisation. :func:`metrics` lists the metrics.

        >>> import monosplit as ms
        >>> model = ms.load(ms.assets.network())
        >>> own = lambda images, number: abs(images).sum(axis=1)
        >>> found = model.evaluate({"SplitCAM": "splitcam", "mine": own}, ms.assets.photograph(), ["sparseness"])
        >>> sorted(found.means())
        ['SplitCAM', 'mine']
        """
        return evaluate(self, methods, data, metrics, target=target, masks=masks, seed=seed, progress=progress)

    def compile(
        self,
        methods: MethodSpec | Sequence[MethodSpec],
        *,
        layer: str | torch.nn.Module | None = None,
        target: int | str | TargetSpec | None = None,
        double: bool | None = None,
        half: bool = False,
        **options: Any,
    ) -> CompiledNetwork:
        """The network with maps as further outputs, as an ONNX file that runs anywhere.

        ``target`` is a class number or name, ``"top"`` for the class with the highest score, or one of :mod:`target`; by
        default the class is an optional input of the file. Options given as keywords hold for all methods.

        >>> import monosplit as ms
        >>> compiled = ms.load(ms.assets.network()).compile(["splitcam", "gradcam"])
        >>> len(compiled.data) > 1_000_000
        True
        """
        network = self._targeted("float32", target)
        several = [methods] if isinstance(methods, str) or _is_pair(methods) else list(methods)
        named = self._layer_name(layer)
        requests: list[tuple[str, list[tuple[str, str]], str | None]] = []
        for method in several:
            name, given = _method(method)
            requests.append((name, _texts({**given, **options})[0], named))
        top = target == "top"
        number = network.find_class(target) if isinstance(target, str) and not top and not is_head(target) else target
        chosen = number if isinstance(number, int) else None
        return CompiledNetwork(network.compile(requests, class_=chosen, top=top, double=double, half=half))

    def _layer_name(self, layer: Any) -> str | None:
        if layer is None or isinstance(layer, str):
            return layer
        if self._module is not None:
            for name, part in self._module.named_modules():
                if part is layer:
                    return str(name)
        raise ValueError(
            f"expected the name of a layer, or a module of the network it was made from, found {type(layer).__name__}"
        )


def _is_pair(method: Any) -> bool:
    return isinstance(method, tuple) and len(method) == 2 and isinstance(method[1], Mapping)


def _method(method: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(method, str):
        return method, {}
    if _is_pair(method):
        return method[0], dict(method[1])
    raise TypeError(f"expected the name of a method, or a pair of name and options, found {method!r}")


def _texts(options: Mapping[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Options as the catalogue reads them, and the files that hold those which are arrays."""
    texts: list[tuple[str, str]] = []
    files: list[str] = []
    for key, value in options.items():
        if is_torch(value):
            value = numpy_of(value)
        if isinstance(value, np.ndarray) and value.ndim > 0:
            with tempfile.NamedTemporaryFile(suffix=".npy", delete=False) as file:
                np.save(file, np.ascontiguousarray(value))
            files.append(file.name)
            text = file.name
        elif isinstance(value, bool):
            text = "yes" if value else "no"
        elif isinstance(value, (list, tuple)):
            text = "/".join(str(each) for each in value)
        else:
            text = str(value)
        texts.append((key.replace("_", "-"), text))
    return texts, files
