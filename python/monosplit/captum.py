"""Drop-in classes with the names and arguments of Captum's: change the import, keep the call.

>>> import monosplit as ms
>>> ms.captum.IntegratedGradients  # doctest: +ELLIPSIS
<class 'monosplit.captum.IntegratedGradients'>

What a class cannot do of its model is refused with ``NotImplementedError``. Attributions are those of the outputs as
the module returns them: probabilities, where it ends with a softmax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .model import Model
from .samples import is_torch, numpy_of
from .torch_export import from_torch, input_names, unwrapped

if TYPE_CHECKING:
    import torch

QUADRATURES = {
    "gausslegendre": "gauss-legendre",
    "riemann_left": "left",
    "riemann_right": "right",
    "riemann_middle": "middle",
    "riemann_trapezoid": "trapezoid",
}
"""The names of Captum's rules of integration, and ours."""


class Attribution:
    """What all drop-in classes share: a module, exported when it is first called."""

    def __init__(self, forward_func: torch.nn.Module) -> None:
        if not hasattr(forward_func, "named_modules"):
            raise NotImplementedError(
                "monosplit explains modules; a function that calls one is exported with torch.nn.Module around it"
            )
        self.forward_func = forward_func

    def _model(self, inputs: torch.Tensor, additional: Any = None) -> Model:
        return from_torch(self.forward_func, (inputs, *_further(additional)), output="probability")

    def _attribute(
        self, method: str, inputs: Any, target: Any, additional: Any = None, layer: Any = "", **options: Any
    ) -> Any:
        """The attributions of one tensor, or of a tuple of one; ``additional`` are further inputs, held as they are."""
        single = _single(inputs)
        model = self._model(single, additional)
        dtype = "float64" if single.dtype.itemsize == 8 else "float32"
        held = _held(self.forward_func, model, single, additional)
        explainer = model.explainer(method, layer=layer, dtype=dtype, inputs=held, **options)
        found = explainer(single, _target(target, model))
        return (found,) if isinstance(inputs, tuple) else found

    def _delta(self, attributions: Any, inputs: Any, baselines: Any, target: Any, additional: Any) -> Any:
        """How far the attributions are from adding up to the gain over the baseline, for each sample."""
        import torch

        single = _single(inputs)
        model = self._model(single, additional)
        held = _held(self.forward_func, model, single, additional)
        dtype = "float64" if single.dtype.itemsize == 8 else "float32"
        start = _baseline(baselines, single)
        start = 0.0 if start is None else start
        reference = np.broadcast_to(np.asarray(start, dtype=dtype), tuple(single.shape))
        rows = np.arange(len(single))
        wanted = np.asarray(_target(target, model))
        ends, starts = (
            model.run(np.ascontiguousarray(x), dtype=dtype, inputs=held)[rows, wanted] for x in (numpy_of(single), reference)
        )
        total = _single(attributions).flatten(1).sum(1)
        return total - torch.from_numpy(ends - starts).to(total)


def _single(inputs: Any) -> Any:
    """The only tensor; an error if there are several."""
    if isinstance(inputs, tuple):
        if len(inputs) != 1:
            raise NotImplementedError(
                "monosplit's drop-in classes explain one input; give the others as additional_forward_args, or explain several "
                "together: monosplit.from_torch(module, example).explain({'NAME': tensor, …}, of=[…])"
            )
        return inputs[0]
    return inputs


def _further(additional: Any) -> tuple[Any, ...]:
    """Captum's ``additional_forward_args``: nothing, a tensor, or a tuple of them."""
    if additional is None:
        return ()
    several = additional if isinstance(additional, tuple) else (additional,)
    for value in several:
        if not is_torch(value):
            raise NotImplementedError(f"monosplit's drop-in classes hold tensors fixed, found {type(value).__name__}")
    return several


def _of_sample(additional: Any, index: int, count: int) -> Any:
    """The further inputs of one sample."""
    return tuple(value[index : index + 1] if len(value) == count else value for value in _further(additional)) or None


def _held(module: Any, model: Model, inputs: Any, additional: Any) -> dict[str, Any] | None:
    """The further inputs by their names: those that the network reads, since no others are inputs of the model."""
    values = (inputs, *_further(additional))
    names = input_names(unwrapped(module), values)
    if len(names) > 1 and names[0] not in model.inputs:
        raise ValueError(f"the module does not read '{names[0]}', the tensor that is explained")
    return {name: value for name, value in list(zip(names, values))[1:] if name in model.inputs} or None


def _refuse(**arguments: Any) -> None:
    """An error for arguments that were given and have no counterpart."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"monosplit's drop-in classes have no {name}")


def _target(target: Any, model: Model) -> Any:
    if target is None:
        if model.classes == 1:
            return 0
        raise ValueError(f"target must be given: the module returns {model.classes} numbers for each sample")
    if isinstance(target, tuple) or (isinstance(target, list) and target and isinstance(target[0], tuple)):
        if isinstance(target, tuple) and len(target) == 1:
            return target[0]
        raise NotImplementedError("monosplit's drop-in classes explain outputs of the shape [samples, classes]")
    return target


def _baseline(baselines: Any, inputs: Any) -> Any:
    """The baseline as the option of a method: none, a number or an array."""
    if isinstance(baselines, tuple):
        baselines = baselines[0]
    if baselines is None or isinstance(baselines, (int, float)):
        return baselines
    array = numpy_of(baselines)
    if array.ndim == inputs.ndim and len(array) == 1 and len(inputs) > 1:
        array = array[0]
    return array


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


class Saliency(Attribution):
    """Gradients, by default their absolute values."""

    def attribute(self, inputs: Any, target: Any = None, abs: bool = True, additional_forward_args: Any = None) -> Any:
        """The attributions, shaped like the inputs."""
        found = self._attribute("gradient", inputs, target, additional_forward_args)
        if not abs:
            return found
        return (found[0].abs(),) if isinstance(found, tuple) else found.abs()


class InputXGradient(Attribution):
    """Gradients times inputs."""

    def attribute(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Any:
        """The attributions, shaped like the inputs."""
        return self._attribute("input-x-gradient", inputs, target, additional_forward_args)


class IntegratedGradients(Attribution):
    """Gradients along the straight way from a baseline, times the difference from it."""

    def __init__(self, forward_func: torch.nn.Module, multiply_by_inputs: bool = True) -> None:
        super().__init__(forward_func)
        if not multiply_by_inputs:
            raise NotImplementedError("monosplit multiplies by the difference of inputs and baseline")

    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        n_steps: int = 50,
        method: str = "gausslegendre",
        internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """The attributions, shaped like the inputs."""
        if method not in QUADRATURES:
            raise ValueError(f"method must be one of {', '.join(QUADRATURES)}, found {method!r}")
        options = _given(baseline=_baseline(baselines, _single(inputs)))
        found = self._attribute(
            f"integrated-gradients:steps={n_steps},quadrature={QUADRATURES[method]},batch={internal_batch_size or 16}",
            inputs,
            target,
            additional_forward_args,
            **options,
        )
        if method == "riemann_trapezoid":
            # Captum's weights for this rule add up to (n − 1)/n, ours to one.
            factor = (n_steps - 1) / n_steps
            found = (found[0] * factor,) if isinstance(found, tuple) else found * factor
        if not return_convergence_delta:
            return found
        return found, self._delta(found, inputs, baselines, target, additional_forward_args)


class DeepLift(Attribution):
    """Differences from a baseline, handed down by the rescale rule. Reused and in-place ReLUs are no obstacle."""

    def __init__(self, model: torch.nn.Module, multiply_by_inputs: bool = True, eps: float = 1e-10) -> None:
        super().__init__(model)
        if not multiply_by_inputs:
            raise NotImplementedError("monosplit multiplies by the difference of inputs and baseline")

    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        custom_attribution_func: Any = None,
    ) -> Any:
        """The attributions, shaped like the inputs."""
        _refuse(custom_attribution_func=custom_attribution_func)
        found = self._rescaled(inputs, _baseline(baselines, _single(inputs)), target, additional_forward_args)
        if not return_convergence_delta:
            return found
        return found, self._delta(found, inputs, baselines, target, additional_forward_args)

    def _rescaled(self, inputs: Any, baseline: Any, target: Any, additional: Any) -> Any:
        import torch

        # As Captum does; the default of monosplit hands changes to those they are owed to and adds up in any case.
        method, single = "deeplift:pool=winner", _single(inputs)
        if not isinstance(baseline, np.ndarray):
            return self._attribute(method, inputs, target, additional, **_given(baseline=baseline))
        each = np.broadcast_to(baseline, tuple(single.shape))
        if (each == each[:1]).all():
            return self._attribute(method, inputs, target, additional, baseline=each[:1])
        # The method has one baseline for all samples.
        wanted = target.tolist() if hasattr(target, "tolist") else target
        targets = wanted if isinstance(wanted, list) else [wanted] * len(single)
        parts = [
            self._attribute(
                method, single[i : i + 1], targets[i], _of_sample(additional, i, len(single)), baseline=each[i : i + 1]
            )
            for i in range(len(single))
        ]
        found = torch.cat(parts)
        return (found,) if isinstance(inputs, tuple) else found


class GuidedBackprop(Attribution):
    """Gradients that pass ReLUs only where they are positive."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def attribute(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Any:
        """The attributions, shaped like the inputs."""
        return self._attribute("guided-backprop", inputs, target, additional_forward_args)


class Deconvolution(Attribution):
    """Gradients that ReLUs rectify instead of gating."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)

    def attribute(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Any:
        """The attributions, shaped like the inputs."""
        return self._attribute("deconvolution", inputs, target, additional_forward_args)


class Occlusion(Attribution):
    """How the score falls when a window slides over the input."""

    def attribute(
        self,
        inputs: Any,
        sliding_window_shapes: Any,
        strides: Any = None,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        perturbations_per_eval: int = 1,
        show_progress: bool = False,
    ) -> Any:
        """The attributions, shaped like the inputs. The window must span all channels."""
        single = _single(inputs)
        window, stride = (_of_single(value) for value in (sliding_window_shapes, strides))
        channels = single.shape[1]
        if len(window) != 3 or single.ndim != 4 or window[0] != channels:
            raise NotImplementedError(f"monosplit occludes images: expected a window ({channels}, height, width)")
        if stride is None:
            stride = (channels, 1, 1)
        elif isinstance(stride, int):
            stride = (channels, stride, stride)
        size, step = (f"{height}x{width}" for _, height, width in (window, stride))
        options = _given(baseline=_baseline(baselines, single))
        batch = max(perturbations_per_eval, 16)
        method = f"occlusion:window={size},stride={step},batch={batch}"
        found = self._attribute(method, single, target, additional_forward_args, **options)
        # One number for all channels.
        found = found.expand_as(single).contiguous()
        return (found,) if isinstance(inputs, tuple) else found


def _of_single(value: Any) -> Any:
    """The entry for the only input, where one was given for each."""
    return value[0] if isinstance(value, tuple) and value and isinstance(value[0], tuple) else value


class LayerAttribution(Attribution):
    """A method that attributes to a layer of the module."""

    def __init__(self, forward_func: torch.nn.Module, layer: torch.nn.Module, device_ids: Any = None) -> None:
        super().__init__(forward_func)
        self.layer = layer

    def _named(self, model: Model, attribute_to_layer_input: bool) -> str:
        name = model._layer_name(self.layer)
        if name is None:
            raise ValueError("the layer is not a part of the module")
        return name if attribute_to_layer_input else f"{name}:out"


class LayerGradCam(LayerAttribution):
    """Activations of a layer, weighted by the means of their gradients."""

    def attribute(
        self,
        inputs: Any,
        target: Any = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
        relu_attributions: bool = False,
        attr_dim_summation: bool = True,
        grad_kwargs: Any = None,
    ) -> Any:
        """The attributions ``[N, 1, h, w]`` of the layer."""
        _refuse(grad_kwargs=grad_kwargs)
        if not attr_dim_summation:
            raise NotImplementedError("monosplit adds up the channels")
        single = _single(inputs)
        layer = self._named(self._model(single, additional_forward_args), attribute_to_layer_input)
        relu = "yes" if relu_attributions else "no"
        return self._attribute(f"gradcam:relu={relu}", single, target, additional_forward_args, layer=layer)


class LayerGradientXActivation(LayerAttribution):
    """Gradients at a layer times its activations."""

    def attribute(
        self,
        inputs: Any,
        target: Any = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
        grad_kwargs: Any = None,
    ) -> Any:
        """The attributions, shaped like the value of the layer."""
        _refuse(grad_kwargs=grad_kwargs)
        single = _single(inputs)
        layer = self._named(self._model(single, additional_forward_args), attribute_to_layer_input)
        return self._attribute("input-x-gradient", single, target, additional_forward_args, layer=layer)


class GuidedGradCam(LayerAttribution):
    """Guided backpropagation times Grad-CAM of a layer."""

    def attribute(
        self,
        inputs: Any,
        target: Any = None,
        additional_forward_args: Any = None,
        interpolate_mode: str = "nearest",
        attribute_to_layer_input: bool = False,
    ) -> Any:
        """The attributions, shaped like the inputs."""
        single = _single(inputs)
        layer = self._named(self._model(single, additional_forward_args), attribute_to_layer_input)
        found = self._attribute(f"guided-gradcam:upsampling={interpolate_mode}", single, target, additional_forward_args, layer=layer)
        return (found,) if isinstance(inputs, tuple) else found
