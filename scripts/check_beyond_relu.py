"""Holds what is said of gated and attention networks against PyTorch and ONNX Runtime, and writes the table of it.

    python scripts/check_beyond_relu.py [--program target/release/monosplit] [--networks vit_b_16 swin_t] [--results FILE]
                                        [--write]

Randomly initialised networks are exported and every Split method and the gradient family are asked of them:

- gradient, gradient times input, saliency, integrated gradients, guided backpropagation and deconvolution are compared with
  PyTorch and Captum in double precision, as relative L2 distance of the maps; the program is asked in single and in double
  precision, and PyTorch's own single precision stands beside it;
- SmoothGrad draws other noise than PyTorch would: the distance of the two means is compared with their standard errors;
- SplitGrad and SplitCAM at alpha = 1/2 are half the gradient and half of gradient times input, and compared with those;
- all of them, with their streams and parts, must give finite maps that are not one colour;
- what is one graph is compiled, accepted by the checker, run by ONNX Runtime on another image, and compared with what the
  program says of that image, in single precision, and in double where that is not close enough.

What is measured is kept in --results, and only what is missing there is measured by the next run. `--write` puts the tables into
docs/src/beyond-relu.md. The exit code is 1 if a limit is passed.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time
import warnings

import numpy as np
import onnx
import onnxruntime
import timm
import torch
import torchvision
from captum.attr import Deconvolution, GuidedBackprop, IntegratedGradients
from check_compiled import LOOPS, NoGraph, agreement, command

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/src/beyond-relu.md"
BEGIN, END = "<!-- tables of check_beyond_relu.py -->", "<!-- end of the tables -->"
TITLES = {
    "vit_b_16": "ViT-B/16",
    "swin_t": "Swin-T",
    "seresnet50": "SE-ResNet50",
    "efficientnet_b0": "EfficientNet-B0",
    "mobilenet_v3_large": "MobileNetV3",
}
CLASSES = 20
STEPS, DRAWS, DEVIATION = 8, 8, 0.2
TOLERANCE = 1e-3
SPLIT = [
    *(["splitcam", f"stream={s}", f"part={p}"] for s in "gh" for p in ("combined", "plus", "minus")),
    *(["splitgrad", f"stream={s}", f"part={p}"] for s in "gh" for p in ("combined", "plus", "minus")),
    *(["splitlrp", f"map={m}"] for m in ("comb", "pos", "neg")),
    *(["splitstream", f"part={p}"] for p in ("combined", "plus", "minus")),
]
COMPILED = [
    *(["splitcam", f"stream={s}"] for s in "gh"),
    *(["splitgrad", f"stream={s}"] for s in "gh"),
    ["splitlrp"],
    ["splitstream"],
    ["gradient"],
    ["input-x-gradient"],
    ["saliency"],
    ["guided-backprop"],
    ["deconvolution"],
    ["attn-lrp"],
]


def network(name):
    """Random weights, batch statistics of noise, and a head that is not zero."""
    torch.manual_seed(3)
    if name == "seresnet50":
        net = timm.create_model(name, num_classes=CLASSES)
    else:
        net = torchvision.models.get_model(name, num_classes=CLASSES)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
            # A block whose last scale is zero does nothing.
            torch.nn.init.uniform_(module.weight, 0.7, 1.3)
            torch.nn.init.uniform_(module.bias, -0.3, 0.3)
        elif isinstance(module, torch.nn.Linear) and module.out_features == CLASSES:
            torch.nn.init.normal_(module.weight, std=module.in_features**-0.5)
    net.train()
    with torch.no_grad():
        for seed in range(3):
            net(torch.from_numpy(noise(4, seed)))
    return net.eval()


def noise(samples, seed):
    """Smooth noise: what a picture looks like from far."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal([samples, 3, 14, 14]).repeat(16, axis=2).repeat(16, axis=3)
    return (x + 0.3 * rng.standard_normal(x.shape)).astype(np.float32)


def export(net, path):
    """As it is: an exporter that folds batch norms rounds the weights it makes, and another network comes out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, torch.zeros(1, 3, 224, 224), str(path), opset_version=17, dynamo=False,
                          training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                          input_names=["x"], dynamic_axes={"x": {0: "n"}})


def gradient(net, x, target):
    x = x.clone().requires_grad_()
    net(x)[:, target].sum().backward()
    return x.grad


def references(net, image, target, precision):
    """The maps of PyTorch and Captum, `[1, H, W]`, by the name of our method."""
    net, x = net.to(precision), torch.from_numpy(image).to(precision)
    slope = gradient(net, x, target)
    found = {
        "gradient": slope.mean(1),
        "saliency": slope.abs().amax(1),
        "input-x-gradient": (slope * x).sum(1),
        "integrated-gradients": IntegratedGradients(net).attribute(x, 0, target, n_steps=STEPS, internal_batch_size=1).sum(1),
    }
    if precision == torch.float64:
        drawn = [gradient(net, x + DEVIATION * torch.randn_like(x), target).mean(1).numpy() for _ in range(DRAWS)]
        found["noisy"] = np.stack(drawn)
    if any(isinstance(module, torch.nn.ReLU) for module in net.modules()):
        for name, peer in (("guided-backprop", GuidedBackprop), ("deconvolution", Deconvolution)):
            found[name] = peer(net).attribute(x, target).detach().sum(1)
    return {name: np.asarray(map.detach() if torch.is_tensor(map) else map, np.float64) for name, map in found.items()}


class Program:
    """The program asked about one network."""

    def __init__(self, program, file, folder):
        self.program, self.file, self.folder = program, file, folder

    def map(self, x, target, words, precision="f32", layer=None):
        method, *options = words
        np.save(self.folder / "x.npy", x)
        options = [w for option in options for w in ("--set", option)]
        options += ["--layer", layer] if layer else []
        code, out, err = command(
            self.program, "explain", self.file, self.folder / "x.npy", "--raw", self.folder / "map.npy", "--out",
            self.folder / "pictures", "--json", "--class", target, "--method", method, "--precision", precision, *options,
        )
        assert code == 0, err
        exponent = json.loads(out)["inputs"][0]["maps"][0]["exponent"]
        return np.load(self.folder / "map.npy").astype(np.float64) * 2.0**exponent

    def compiled(self, words, precision):
        method, *options = words
        path = self.folder / "explained.onnx"
        options = [w for option in options for w in ("--set", option)]
        options += ["--precision", precision]
        code, _, err = command(self.program, "compile", self.file, "--method", method, "-o", path, *options)
        if code:
            raise NoGraph if LOOPS in err else RuntimeError(err.strip())
        onnx.checker.check_model(str(path), full_check=True)
        return path


def session(path):
    """Without ONNX Runtime's own rewriting of the graph, which takes minutes for the gradient of a transformer."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def distance(found, wanted):
    return float(agreement(found.reshape(1, -1), wanted.reshape(1, -1))[0])


def compared(program, net, image, target):
    """Distances from PyTorch in double precision: PyTorch's single precision, our single precision, our double."""
    exact = references(net, image, target, torch.float64)
    single = references(net, image, target, torch.float32)
    answers = {}
    noisy = exact.pop("noisy")
    for name, wanted in exact.items():
        words = [name, f"steps={STEPS}", "batch=1"] if name == "integrated-gradients" else [name]
        ours = [distance(program.map(image, target, words, p, "x"), wanted) for p in ("f32", "f64")]
        answers[name] = [distance(single[name], wanted), *ours]
        print(" ", name, answers[name], flush=True)
    halves = (("splitgrad", "gradient"), ("splitcam", "input-x-gradient"))
    for name, reference in halves:
        ours = [2 * program.map(image, target, [name, "alpha=0.5"], p, "x") for p in ("f32", "f64")]
        answers[f"{name} alpha=1/2"] = [answers[reference][0], *(distance(o, exact[reference]) for o in ours)]
        print(" ", name, answers[f"{name} alpha=1/2"], flush=True)
    answers["smoothgrad"] = smoothgrad(program, image, target, noisy)
    print("  smoothgrad", answers["smoothgrad"], flush=True)
    return answers


def smoothgrad(program, image, target, drawn):
    """The distance of two means over what their standard errors let expect, which is 1 give or take."""
    words = ["smoothgrad", f"samples={DRAWS}", f"stdev={DEVIATION}", "batch=1"]
    ours = program.map(image, target, words, "f64")
    variance = drawn.var(0, ddof=1) / DRAWS
    expected = np.sqrt(2 * variance.sum())
    return float(np.linalg.norm(ours.ravel() - drawn.mean(0).ravel()) / expected)


def finite(program, image, target):
    """How many variants gave a map at the layer chosen for them, and which did not."""
    bad = []
    for words in SPLIT:
        map = program.map(image, target, words)
        if not (np.isfinite(map).all() and map.std() > 0):
            bad.append(" ".join(words))
    return len(SPLIT) - len(bad), bad


def deployed(program, image):
    """Distances of the map in the file from the program's, for another image, in single precision; where the two are farther
    apart than the limit also in double, in which ONNX Runtime takes minutes."""
    answers = {}
    for words in COMPILED:
        row = []
        for precision in ("f32", "f64"):
            if row and row[0] <= TOLERANCE:
                break
            file = session(program.compiled(words, precision))
            outputs = dict(zip([o.name for o in file.get_outputs()], file.run(None, {file.get_inputs()[0].name: image})))
            name = next(o for o in outputs if o.startswith("saliency/"))
            exponent = outputs.get(name + "/exponent")
            map = outputs[name].astype(np.float64) * 2.0 ** (0 if exponent is None else exponent.ravel()[0])
            row.append(distance(map, program.map(image, int(outputs["explained_class"][0]), words, precision)))
        answers[" ".join(words)] = row
        print("  compiled", words, row, flush=True)
    return answers


def measured(arguments, name):
    begun = time.time()
    net = network(name)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = folder / f"{name}.onnx"
        export(net, file)
        image, other = noise(1, 100), noise(1, 101)
        program = Program(arguments.program, file, folder)
        with torch.no_grad():
            target = int(net(torch.from_numpy(image)).argmax())
        good, bad = finite(program, image, target)
        print(f"  {good} maps, {bad}", flush=True)
        result = {"compiled": deployed(program, other), "maps": good, "bad": bad}
        result["compared"] = compared(program, net, image, target)
    print(f"  {time.time() - begun:.0f} s", flush=True)
    return result


def failures(name, result):
    found = [f"{name}: {what} gives no map" for what in result["bad"]]
    for method, answer in result["compared"].items():
        if method == "smoothgrad":
            found += [f"{name}: smoothgrad is off by {answer:.2f} standard errors"] if not 0.5 < answer < 1.6 else []
        elif not answer[2] <= TOLERANCE:
            found.append(f"{name}: {method} is {answer[2]:.1e} from PyTorch")
    for method, distances in result["compiled"].items():
        if not distances[-1] <= TOLERANCE:
            found.append(f"{name}: {method} compiled is {distances} from the program")
    return found


def tables(results):
    names = [name for name in TITLES if name in results]
    head = "| | " + " | ".join(TITLES[name] for name in names) + " |\n|---|" + "---:|" * len(names)
    rows = lambda key: list(dict.fromkeys(method for name in names for method in results[name][key]))

    def cell(name, key, method):
        answer = results[name][key].get(method)
        if answer is None:
            return "–"
        return f"{answer:.2f}" if method == "smoothgrad" else " / ".join(f"{v:.0e}" for v in answer)

    lines = ["Relative L2 distance from PyTorch in double precision: PyTorch in single precision / the program in single / in double precision.",
             "For SmoothGrad the distance over its standard error (1 is expected).", "", head]
    for method in rows("compared"):
        lines.append(f"| {method.replace('alpha=1/2', 'at α = ½, twice')} | " + " | ".join(cell(n, "compared", method) for n in names) + " |")
    lines += ["", "Relative L2 distance of the compiled file, run by ONNX Runtime on another image, from the program, in single precision"
              " (and in double, where it is more than 1e-3).", "", head]
    for method in rows("compiled"):
        lines.append(f"| {method} | " + " | ".join(cell(n, "compiled", method) for n in names) + " |")
    lines += ["", "Maps of the Split methods, over streams and parts, at the layer chosen, that are finite and not one colour: "
              + ", ".join(f"{TITLES[n]} {results[n]['maps']} of {len(SPLIT)}" for n in names) + "."]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "target/release/monosplit")
    parser.add_argument("--networks", nargs="*", default=list(TITLES))
    parser.add_argument("--results", type=pathlib.Path, help="keep what is measured in this file")
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = arguments.results and arguments.results.exists()
    results = json.loads(arguments.results.read_text()) if known else {}
    for name in arguments.networks:
        if name not in results:
            print(name, flush=True)
            results[name] = measured(arguments, name)
            if arguments.results:
                arguments.results.write_text(json.dumps(results, indent=1))
    print(tables(results))
    if arguments.write:
        text = DOCUMENT.read_text()
        before, rest = text.split(BEGIN)
        DOCUMENT.write_text(before + BEGIN + "\n\n" + tables(results) + "\n\n" + END + rest.split(END)[1])
    failed = [line for name in results for line in failures(name, results[name])]
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
