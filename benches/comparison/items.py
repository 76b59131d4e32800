"""The work that is timed, item by item, and the target ratios."""

import contextlib
import dataclasses
import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import environment, guard, turns
from .methods import METHODS
from .metrics import IMAGES, METRICS


@dataclass
class Row:
    """One line of the table: a ratio of ours to theirs, fastest to fastest and median to median."""

    work: str
    against: str
    target: float | None = None
    ratios: tuple | None = None
    agreement: object = ""
    note: str = ""

    def cells(self):
        target = "" if self.target is None else f"≤ {self.target:.2f}"
        # A wrong result has no ratio.
        if self.ratios is None or self.wrong:
            return [self.work, self.against, self.note, "", target, str(self.agreement)]
        least, median = (f"{r:.2f}" if r >= 0.095 else f"{r:.3f}" for r in self.ratios)
        met = "" if self.target is None else " ✓" if self.ratios[0] <= self.target else " ✗"
        return [self.work, self.against, least, median, target + met, str(self.agreement)]

    @property
    def wrong(self):
        return isinstance(self.agreement, guard.Agreement) and not self.agreement.holds


@dataclass
class Comparison:
    models: object
    scratch: Path
    threads: int
    repeats: int
    least_seconds: float
    processor_time: bool

    def load(self, kind, case, batch=1, **options):
        common = {"input": self.models.batch(batch), "threads": self.threads, "network": case.module}
        common |= {"class": case.top, "last": case.last, "clock": "processor" if self.processor_time else "wall"}
        words = [f"{key}={value}" for key, value in (common | options).items()]
        return [kind, str(case.onnx), *words]

    def ours(self, *load, **options):
        return turns.Competitor(environment.our_worker(), self.load(*load, **options))

    def peer(self, *load, **options):
        return turns.Competitor(environment.peer_worker(), self.load(*load, **options))

    def results(self, *competitors):
        """One repeat of each, their results in folders; it also warms them up."""
        for number, competitor in enumerate(competitors):
            folder = self.scratch / f"results-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            competitor.go()
            competitor.save(folder)
            yield folder

    def agreement(self, ours, theirs):
        return guard.compare(*self.results(ours, theirs))

    def value_agreement(self, ours, theirs, tolerance):
        return guard.compare_values(*self.results(ours, theirs), tolerance)

    def times(self, *competitors):
        goes = [c.go if isinstance(c, turns.Competitor) else c for c in competitors]
        return turns.take_turns(self.repeats, self.least_seconds, *goes)


# What runs a network forward, and whether the target is one against it.
FORWARD = {
    "ONNX Runtime": ("forward-onnxruntime", True),
    "OpenVINO": ("forward-openvino", True),
    "PyTorch": ("forward-torch", False),
}


def forward(comparison, name, batch, target):
    case, work = comparison.models.case(name), f"forward {name}, batch {batch}"
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(comparison.ours("forward", case, batch))
        peers = [stack.enter_context(comparison.peer(kind, case, batch)) for kind, _ in FORWARD.values()]
        agreements = [comparison.agreement(ours, peer) for peer in peers]
        own, *theirs = comparison.times(ours, *peers)
    for (peer, (_, counts)), times, agreement in zip(FORWARD.items(), theirs, agreements):
        yield Row(work, peer, target if counts else None, turns.ratios(own, times), agreement)


def scaling(comparison, name, batch, target):
    """Ours on two threads against ours on one."""
    case = comparison.models.case(name)
    with comparison.ours("forward", case, batch, threads=2) as two, comparison.ours("forward", case, batch, threads=1) as one:
        agreement = comparison.agreement(two, one)
        a, b = comparison.times(two, one)
    yield Row(f"forward {name}, batch {batch}, on two threads", "the same on one", target, turns.ratios(a, b), agreement)


def gradient(comparison, name, target, compiled=None):
    """Against PyTorch, and against `torch.compile` if there is a target for it."""
    case, work = comparison.models.case(name), f"input gradient {name}"
    peers = {"PyTorch autograd": ({}, target)}
    if compiled is not None:
        peers["torch.compile"] = ({"compile": "yes"}, compiled)
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(comparison.ours("method", case, name="gradient", layers=case.first))
        competitors = [stack.enter_context(comparison.peer("gradient-torch", case, **o)) for o, _ in peers.values()]
        agreements = [comparison.agreement(ours, peer) for peer in competitors]
        own, *theirs = comparison.times(ours, *competitors)
    for (peer, (_, limit)), times, agreement in zip(peers.items(), theirs, agreements):
        yield Row(work, peer, limit, turns.ratios(own, times), agreement)


def split(comparison, name, target):
    """SplitCAM and SplitGrad at all layers in one run."""
    case, work = comparison.models.case(name), f"SplitCAM + SplitGrad, all layers of {name}"
    options = {"name": "splitcam,splitgrad", "layers": ",".join(case.layers)}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(comparison.ours("method", case, **options))
        remembering = stack.enter_context(comparison.ours("method", case, remembering="yes", **options))
        plain = stack.enter_context(comparison.peer("gradient-torch", case))
        literal = stack.enter_context(comparison.peer("split-float64", case, **options))
        agreements = [comparison.agreement(c, literal) for c in (ours, remembering)]
        plain.go()
        a, b, c, d = comparison.times(ours, remembering, plain, literal)
    yield Row(work, "PyTorch's plain input gradient", target, turns.ratios(a, c))
    yield Row(f"{work}, σ remembered", "PyTorch's plain input gradient", 1.0, turns.ratios(b, c))
    yield Row(work, "float64 PyTorch, literal", 0.05, turns.ratios(a, d), agreements[0])
    yield Row(f"{work}, σ remembered", "float64 PyTorch, literal", None, turns.ratios(b, d), agreements[1])


def memory(comparison, name, target):
    case = comparison.models.case(name)
    jobs = {
        f"memory of SplitCAM at one layer of {name}": {"name": "splitcam", "layers": case.last},
        f"memory of SplitCAM + SplitGrad, all layers of {name}": {
            "name": "splitcam,splitgrad",
            "layers": ",".join(case.layers),
        },
    }
    yield from peaks(comparison, case, jobs, target)


def gradient_memory(comparison, name, target):
    case = comparison.models.case(name)
    jobs = {f"memory of the input gradient of {name}": {"name": "gradient", "layers": case.first}}
    yield from peaks(comparison, case, jobs, target)


def peaks(comparison, case, jobs, target):
    """The most memory a fresh process holds, with everything it loads."""

    def peak(start, *load, **options):
        with start(*load, **options) as competitor:
            return competitor.peak()

    theirs = [peak(comparison.peer, "gradient-torch", case) for _ in range(3)]
    for work, options in jobs.items():
        ours = [peak(comparison.ours, "method", case, **options) for _ in range(3)]
        yield Row(work, "PyTorch's plain input gradient", target, turns.ratios(ours, theirs))


def cold(comparison, target):
    """The whole command in a new process, files in the system's cache for both."""
    model, weights = comparison.models.exported("resnet18")
    picture, folder = comparison.models.picture(), comparison.scratch / "cold"
    ours = [environment.our_program(), "explain", str(model), str(picture), "--threads", str(comparison.threads), "--json"]
    script = environment.BENCHES / "comparison/cold_saliency.py"
    theirs = [sys.executable, str(script), str(weights), str(picture), "saliency.png", str(comparison.threads)]
    clock = turns.processor_time if comparison.processor_time else time.perf_counter
    found = json.loads(turns.command_time(ours, folder, clock)[1])
    same = contains(found, "class", int(turns.command_time(theirs, folder, clock)[1]))
    a, b = comparison.times(*(lambda c=c: turns.command_time(c, folder, clock)[0] for c in (ours, theirs)))
    agreement = "same class" if same else guard.Agreement(missing="the class")
    yield Row("whole command, `explain` resnet18 on one JPEG", "Python + Captum Saliency", target, turns.ratios(a, b), agreement)


def compiled(comparison, name, target):
    """SplitCAM compiled into the network's file, against the network alone, both in ONNX Runtime."""
    case, path = comparison.models.case(name), comparison.scratch / f"{name}-explained.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["compile", str(case.onnx), "--method", "splitcam", "-o", str(path)]
    turns.command_time([environment.our_program(), *words], comparison.scratch, time.perf_counter)
    explained = dataclasses.replace(case, onnx=path)
    with comparison.ours("method", case, name="splitcam", layers=compiled_layer(path)) as native:
        with comparison.peer("explain-onnxruntime", explained) as file, comparison.peer("forward-onnxruntime", case) as plain:
            agreement = comparison.agreement(native, file)
            plain.go()
            a, b = comparison.times(file, plain)
    yield Row(f"SplitCAM compiled, {name} in ONNX Runtime", "its plain forward there", target, turns.ratios(a, b), agreement)


def compiled_layer(path):
    """The layer of the only map of a compiled file."""
    import onnx

    outputs = [o.name for o in onnx.load(path).graph.output]
    return next(name for name in outputs if name.startswith("saliency/")).split("/", 2)[2]


def contains(value, key, wanted):
    """Whether a JSON value has `key: wanted` anywhere."""
    if isinstance(value, dict):
        return value.get(key) == wanted or any(contains(v, key, wanted) for v in value.values())
    return isinstance(value, list) and any(contains(v, key, wanted) for v in value)


def method(comparison, number):
    """An entry of `METHODS` against its peer."""
    entry = METHODS[number]
    case = comparison.models.case(entry.network)
    image = np.load(comparison.models.batch(1))
    words = {"first": case.first, "last": case.last, "low": image.min(), "high": image.max()}
    options = {key: value.format(**words) for key, value in entry.ours.items()}
    row = Row(f"{entry.title} {entry.network}", entry.peer_name, entry.target, note="not built")
    with comparison.ours("method", case, **options) as ours:
        if ours.ready:
            with comparison.peer("method", case, number=number) as peer:
                agreement = comparison.agreement(ours, peer)
                row.agreement = "drawn at random" if entry.sampled else agreement
                row.ratios = turns.ratios(*comparison.times(ours, peer))
    yield row


def metric(comparison, number):
    """An entry of `METRICS` against Quantus."""
    entry = METRICS[number]
    case = comparison.models.case(entry.network)
    where = {"layers": case.first} if entry.method == "splitgrad" else {}
    # Quantus adds up the channels of the gradient, we average them: no metric here minds.
    with comparison.ours("metric", case, IMAGES, metric=entry.ours, name=entry.method, **where) as ours:
        with comparison.peer("metric", case, IMAGES, number=number) as peer:
            agreement = comparison.value_agreement(ours, peer, entry.tolerance)
            times = comparison.times(ours, peer)
    yield Row(f"{entry.title}, {entry.network}", "Quantus + PyTorch", entry.target, turns.ratios(*times), agreement)


# Networks with attention, layer norms, gates and depthwise convolutions.
MODERN = (
    "vit_b_16",
    "swin_t",
    "convnext_tiny",
    "efficientnet_b0",
    "densenet121",
    "regnet_y_1_6gf",
    "mobilenet_v3_large",
)


def items():
    """Every item by name: a function of a comparison that yields rows."""
    every = {}

    def add(name, function, *arguments):
        every[name] = lambda comparison: function(comparison, *arguments)

    for network, target in (("vgg16", 0.7), ("resnet18", 1.0), ("resnet50", 0.95)):
        for batch in (1, 8):
            add(f"forward-{network}-{batch}", forward, network, batch, target)
    for network in ("squeezenet1_1", "mobilenet_v2", *MODERN):
        for batch in (1, 8):
            add(f"forward-{network}-{batch}", forward, network, batch, 0.95)
    for batch in (1, 8):
        add(f"scaling-vgg16-{batch}", scaling, "vgg16", batch, 1 / 1.8)
    for network, plain, whole in (("vgg16", 0.55, 1.3), ("resnet18", 0.75, 1.6)):
        add(f"gradient-{network}", gradient, network, plain)
        add(f"split-{network}", split, network, whole)
    for network in ("resnet50", *MODERN):
        add(f"gradient-{network}", gradient, network, 0.6, 1.0)
    add("memory-vgg16", memory, "vgg16", 0.8)
    for network in ("vit_b_16", "convnext_tiny"):
        add(f"memory-{network}", gradient_memory, network, 0.8)
    add("cold-resnet18", cold, 0.2)
    for network in ("vgg16", "resnet18"):
        add(f"compiled-{network}", compiled, network, 6.0)
    for number, entry in enumerate(METHODS):
        title = f"{entry.title.split(',')[0]}-{entry.peer_name}".lower().replace(" ", "")
        add(f"method-{title}", method, number)
    for number, entry in enumerate(METRICS):
        add(f"metric-{entry.title.lower().replace(' ', '')}-{entry.network}", metric, number)
    return every
