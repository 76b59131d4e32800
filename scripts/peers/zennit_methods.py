"""Zennit's composites, on a network whose sums are `zennit.layer.Sum` and whose remaining batch norms pass relevance on."""

import copy

import torch
from comparison import network
from torch import nn
from zennit import composites, rules
from zennit.attribution import Gradient
from zennit.layer import Sum
from zennit.types import Activation, AvgPool, BatchNorm, Convolution

# The exporter has merged every batch norm that follows a convolution.
NORMS = [(BatchNorm, rules.Pass())]
BASE = [(Activation, rules.Pass()), (Sum, rules.Norm()), (AvgPool, rules.Norm()), *NORMS]


class Summed(nn.Module):
    """A sum as Zennit wants it."""

    def __init__(self):
        super().__init__()
        self.sum = Sum()

    def forward(self, a, b):
        return self.sum(torch.stack([a, b], dim=-1))


def summed(net):
    made = copy.copy(net)
    made._modules = dict(net._modules)
    made.functions = nn.ModuleList(Summed() if isinstance(f, network.Add) else f for f in net.functions)
    return made


def everywhere(rule):
    return composites.LayerMapComposite(BASE + [(Convolution, rule), (nn.Linear, rule)])


def composite(make):
    """One is handed down, as in Zennit's own examples."""

    def run(job):
        net = summed(job.network)
        with torch.no_grad():
            seed = nn.functional.one_hot(job.classes, net(job.x[:1]).shape[1]).to(job.x.dtype)
        with Gradient(net, make(job)) as attributor:
            return attributor(job.x, seed)[1]

    return run


def epsilon_gamma_box(job):
    return composites.EpsilonGammaBox(low=job.x.min().item(), high=job.x.max().item(), layer_map=NORMS)


COMPOSITES = {
    "epsilon-gamma-box": epsilon_gamma_box,
    "epsilon-plus": lambda job: composites.EpsilonPlus(layer_map=NORMS),
    "epsilon-plus-flat": lambda job: composites.EpsilonPlusFlat(layer_map=NORMS),
    "epsilon-alpha2-beta1": lambda job: composites.EpsilonAlpha2Beta1(layer_map=NORMS),
    "epsilon-alpha2-beta1-flat": lambda job: composites.EpsilonAlpha2Beta1Flat(layer_map=NORMS),
}
