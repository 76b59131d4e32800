"""Explanations of inputs by name: several at once, and token ids at their embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _monosplit
from .explainer import Explainer
from .explanation import Explanation
from .progress import Progress, reporting
from .samples import Samples, returned, samples
from .target import Target, classes

if TYPE_CHECKING:
    from .model import Model


class NamedExplainer(Explainer):
    """A method for some of the inputs of a network, compiled. Made by :meth:`Model.explainer`; threads may share it.

    It is called with the values of the inputs by their names, and returns the attributions of those that are explained by
    theirs. Where one input was asked for by itself, it is called with that and returns an array.
    """

    _compiled: Any

    def __init__(
        self,
        model: Model,
        network: _monosplit.Network,
        compiled: _monosplit.CompiledInputs,
        dtype: str,
        arguments: dict[str, Any],
        own: str | None,
        held: Mapping[str, Any],
    ) -> None:
        super().__init__(model, network, compiled, dtype, arguments)  # type: ignore[arg-type]
        self._own = own
        self._held = dict(held)
        self._explained: list[tuple[str, bool]] = compiled.explained()

    @property
    def layer(self) -> str | None:
        """None: what is explained are inputs."""
        return None

    @property
    def of(self) -> list[str]:
        """The inputs that are explained."""
        return [name for name, _ in self._explained]

    def __repr__(self) -> str:
        return f"<Explainer {self._compiled.method} of {', '.join(self.of)}>"

    def __call__(self, x: Any, target: Target = None, *, progress: Progress = False) -> Any:
        """The attributions alone, of each explained input by its name."""
        given = self._given(x)
        found = self._found(given, target, progress)
        return self._alone(self._attributions(found, given))

    def explain(self, x: Any, target: Target = None, *, progress: Progress = False) -> Explanation:
        """Explains samples: see :meth:`Model.explain`."""
        given = self._given(x)
        found = self._found(given, target, progress)
        return self._explanation(
            found,
            self._alone(self._attributions(found, given)),
            self._alone({name: found.take_maps(index) for index, name in enumerate(self.of)}),
            self._alone({name: given[name] for name in self.of}),
        )

    def _given(self, x: Any) -> dict[str, Samples]:
        """The values of all inputs, as the network reads them."""
        if self._own is not None:
            values = {**self._held, self._own: x}
        elif isinstance(x, Mapping):
            values = {**self._held, **x}
        else:
            raise TypeError(
                f"the inputs {', '.join(self.of)} are explained by their names: give {{{self.of[0]!r}: …}}, found {type(x).__name__}"
            )
        return {name: self._model._samples_of(name, value, self._dtype) for name, value in values.items()}

    def _found(self, given: Mapping[str, Samples], target: Target, progress: Progress) -> _monosplit.Result:
        count = max(len(value.array) for value in given.values())
        wanted = classes(target, self._network, count)
        values = [(name, value.array) for name, value in given.items()]
        with reporting(progress, self._compiled.title) as report:
            found: _monosplit.Result = self._compiled.explain(values, wanted, report)
        return found

    def _attributions(self, found: _monosplit.Result, given: Mapping[str, Samples]) -> dict[str, Any]:
        each = {}
        for index, (name, is_text) in enumerate(self._explained):
            values = found.take_attributions(index)
            # The embedding of each token, as the module that embeds them returns it.
            each[name] = returned(np.swapaxes(values, 1, 2) if is_text else values, given[name].origin)
        return each

    def _alone(self, each: dict[str, Any]) -> Any:
        return each if self._own is None else each[self._own]


def chosen_inputs(network: _monosplit.Network, of: str | Sequence[str] | None, given: Sequence[str]) -> list[str]:
    """The inputs that are explained: those named, or those of real numbers and of token ids."""
    if isinstance(of, str):
        return [of]
    if of is not None:
        return list(of)
    held = [name for name in network.default_inputs() if name in given or not given]
    return held or network.default_inputs()
