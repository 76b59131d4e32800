"""Explanations and evaluations on many machines.

:class:`Explain` is a callable of batches, for Ray Data and everything else that maps batches; it never imports Ray.
:func:`evaluate` runs an experiment file on a Ray cluster; it needs ``pip install monosplit[ray]``.
"""

from .driver import EvaluationFailed, EvaluationReport, evaluate
from .explain import Explain

__all__ = ["EvaluationFailed", "EvaluationReport", "Explain", "evaluate"]
