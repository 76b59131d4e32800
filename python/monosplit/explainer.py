"""Compiled explanations: a method at a layer, set up once and called often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _monosplit
from .explanation import Explanation
from .progress import Progress, reporting
from .samples import Input, Samples, returned, samples
from .target import Target, classes

if TYPE_CHECKING:
    from .model import Model


class Explainer:
    """A method at a layer of a network, compiled. Made by :meth:`Model.explainer`; threads may share it."""

    def __init__(
        self,
        model: Model,
        network: _monosplit.Network,
        compiled: _monosplit.CompiledExplainer,
        dtype: str,
        arguments: dict[str, Any],
    ) -> None:
        self._model = model
        self._network = network
        self._compiled = compiled
        self._dtype = dtype
        self._arguments = arguments
        """What :meth:`Model.explainer` made it from: a copy in another process is made from the same."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._model, self._arguments)

    def __copy__(self) -> Explainer:
        return self

    def __deepcopy__(self, memo: object) -> Explainer:
        return self

    @property
    def layer(self) -> str | None:
        """The layer that is attributed to; none is the input."""
        return self._compiled.layer

    @property
    def options(self) -> dict[str, str]:
        """All options of the method, given or default."""
        return self._compiled.options

    def __repr__(self) -> str:
        where = f" at {self.layer}" if self.layer else ""
        return f"<Explainer {self._compiled.method}{where}>"

    def __call__(self, x: Input, target: Target = None, *, progress: Progress = False) -> Any:
        """The attributions alone, shaped like what is explained."""
        given = self._samples(x)
        found = self._run(given, target, progress)
        return returned(found.take_attributions(), given.origin)

    def explain(self, x: Input, target: Target = None, *, progress: Progress = False) -> Explanation:
        """Explains samples: see :meth:`Model.explain`."""
        given = self._samples(x)
        found = self._run(given, target, progress)
        return self._explanation(found, returned(found.take_attributions(), given.origin), found.take_maps(), given)

    def _explanation(self, found: Any, attributions: Any, maps: Any, explained: Any) -> Explanation:
        """What was found, beside the attributions and maps of what was explained."""
        facts = {"options": self.options, "origin": self._model.name, **found.diagnostics()}
        return Explanation(
            attributions=attributions,
            maps=maps,
            scores=found.scores(),
            classes=found.classes(),
            class_names=found.class_names(),
            probabilities=found.probabilities(),
            method=self._compiled.method,
            title=self._compiled.title,
            layer=self.layer,
            alpha=self._compiled.alpha,
            target=self._network.target,
            exponents=found.exponents(),
            facts=facts,
            samples=explained,
            _model=self._model,
        )

    def _samples(self, x: Input) -> Samples:
        return samples(x, self._network, self._dtype)

    def _run(self, given: Samples, target: Target, progress: Progress) -> _monosplit.Result:
        wanted = classes(target, self._network, len(given.array))
        with reporting(progress, self._compiled.title) as report:
            return self._compiled.explain(given.array, wanted, report)


def _again(model: Model, arguments: dict[str, Any]) -> Explainer:
    """The explainer that another process had."""
    return model.explainer(**arguments)
