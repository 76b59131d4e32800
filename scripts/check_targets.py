"""Holds maps of targets against autograd and Captum, and compiled files against ONNX Runtime; writes the table of it.

    python scripts/check_targets.py [--program target/release/monosplit] [--write]

Three randomly initialised networks are exported: torchvision's LR-ASPP segmentation network, the raw head of an SSD-like
detector (torchvision's SSDLiteHead on two scales), and a network of a picture and a table. Of each, six targets are explained
by four methods:

- gradient, input times gradient, Grad-CAM and LayerCAM by autograd, and integrated gradients by Captum, all in
  double precision, with the choices of a target (the best cell, the predicted region, the second best class) made by PyTorch
  from the unperturbed sample;
- `monosplit explain --precision f64` must agree to 1e-5 of the largest number of a map;
- `monosplit compile`, run by ONNX Runtime, must agree to 1e-4 in single and to 1e-7 in double precision, also with another mask,
  class, cell or reference for each sample than the file was compiled with.

`--write` puts the table into docs/src/targets.md. The exit code is 1 if a limit is passed.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import warnings
from functools import partial

import numpy as np
import onnxruntime
import torch
import torchvision
from captum.attr import IntegratedGradients
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models.detection.ssdlite import SSDLiteHead

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENT = ROOT / "docs/src/targets.md"
BEGIN, END = "<!-- table of check_targets.py -->", "<!-- end of the table -->"
SIZE, STEPS = 64, 16
EXPLAINED, SINGLE, DOUBLE = 1e-5, 1e-4, 1e-7


class Segmentation(nn.Module):
    title, layer = "LR-ASPP MobileNetV3 (segmentation)", "net.classifier.cbr.2"

    def __init__(self):
        super().__init__()
        models = torchvision.models.segmentation
        self.net = models.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)

    def forward(self, x):
        return {"out": self.net(x)["out"]}


class Detector(nn.Module):
    title, layer = "SSD-like head (detection)", "trunk.5"

    def __init__(self):
        super().__init__()
        block = lambda i, o: [nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()]
        self.trunk = nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 32))
        self.deeper = nn.Sequential(*block(32, 48))
        self.head = SSDLiteHead([32, 48], [3, 3], 4, nn.BatchNorm2d)

    def forward(self, x):
        near = self.trunk(x)
        found = self.head([near, self.deeper(near)])
        return {"boxes": found["bbox_regression"], "logits": found["cls_logits"]}


class TwoInputs(nn.Module):
    title, layer = "picture and table (two inputs)", "trunk.4"

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, 1, 1), nn.ReLU()
        )
        self.table = nn.Sequential(nn.Linear(5, 16), nn.ReLU())
        self.join = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 8))
        self.scores = nn.Linear(8, 6)

    def forward(self, x, table):
        joined = torch.cat([self.trunk(x).mean((2, 3)), self.table(table)], 1)
        embedding = self.join(joined)
        return {"scores": self.scores(torch.relu(embedding)), "embedding": embedding}


def one(values, index):
    return values.gather(1, index[:, None])[:, 0]


def masked(outputs, mask, c):
    return (outputs["out"][:, c] * mask).sum((1, 2))


def predicted(outputs, first):
    """The class with the largest sum over the region in which it is found in the sample as it is."""
    regions = nn.functional.one_hot(first["out"].argmax(1), 5).movedim(-1, 1).to(outputs["out"])
    sums = lambda of: (of["out"] * regions).sum((2, 3))
    return one(sums(outputs), sums(first).argmax(1))


def best(name, c, axis, outputs, first):
    cells = lambda of: of[name].select(axis, c).flatten(1)
    return one(cells(outputs), cells(first).argmax(1))


def contrast(outputs, first):
    top = first["scores"].topk(2, 1).indices
    return one(outputs["scores"], top[:, 0]) - one(outputs["scores"], top[:, 1])


def cosine(name, reference, outputs, _):
    return torch.cosine_similarity(outputs[name].flatten(1), reference.flatten()[None], eps=1e-12)


def targets(title, folder, generator):
    """The texts of six targets, and what each computes from the outputs and those of the unperturbed sample."""
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).float().double()
    if title == Segmentation.title:
        mask = torch.zeros(SIZE, SIZE, dtype=torch.float64)
        mask[12:40, 8:50] = 1
        np.save(folder / "mask.npy", mask.float().numpy())
        reference = draw(5, SIZE, SIZE)
        np.save(folder / "reference.npy", reference.float().numpy())
        return {
            f"region:{folder}/mask.npy,class=2": lambda o, f: masked(o, mask, 2),
            "region:auto": predicted,
            "cell:out[1,10,-3]": lambda o, f: o["out"][:, 1, 10, -3],
            "cell:out[best=3]": partial(best, "out", 3, 1),
            "mean:out": lambda o, f: o["out"].mean((1, 2, 3)),
            f"similarity:{folder}/reference.npy": partial(cosine, "out", reference),
        }
    if title == Detector.title:
        head = Head().double()
        boxes, logits = torch.zeros(2, 240, 4).double(), torch.zeros(2, 240, 4).double()
        export(head.float(), (boxes.float(), logits.float()), folder / "head.onnx", ["boxes", "logits"], ["score"])
        head.double()
        return {
            "cell:boxes[7,0]": lambda o, f: o["boxes"][:, 7, 0],
            "cell:logits[best=2]": partial(best, "logits", 2, 2),
            "cell:logits[3:9,1]": lambda o, f: o["logits"][:, 3:9, 1].sum(1),
            "sum:boxes": lambda o, f: o["boxes"].sum((1, 2)),
            "norm:boxes": lambda o, f: o["boxes"].flatten(1).norm(dim=1),
            f"head:{folder}/head.onnx": lambda o, f: head(o["boxes"], o["logits"]),
        }
    reference = draw(8)
    np.save(folder / "embedding.npy", reference.float().numpy())
    return {
        "class:2": lambda o, f: o["scores"][:, 2],
        "contrast:1,3": lambda o, f: o["scores"][:, 1] - o["scores"][:, 3],
        "contrast:top,top2": contrast,
        "mean:scores": lambda o, f: o["scores"].mean(1),
        "norm:embedding": lambda o, f: o["embedding"].norm(dim=1),
        f"similarity:{folder}/embedding.npy,output=embedding": partial(cosine, "embedding", reference),
    }


class Head(nn.Module):
    """How much of class 1 is found, weighted by the widths of the boxes."""

    def forward(self, boxes, logits):
        return (torch.sigmoid(logits[:, :, 1]) * boxes[:, :, 2].abs()).sum(1)


def export(net, inputs, path, names, outputs):
    axes = {name: {0: "N"} for name in [*names, *outputs]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(), inputs, str(path), dynamo=False, opset_version=17, input_names=names, output_names=outputs,
            dynamic_axes=axes,
        )


class Named(nn.Module):
    """The outputs in order, as the exporter wants them."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, *inputs):
        return tuple(self.net(*inputs).values())


def fold(net):
    """Merges batch norms in single precision, as the exporter does: both sides then have the same weights."""
    for sequence in [module for module in net.modules() if isinstance(module, nn.Sequential)]:
        for index in range(len(sequence) - 1):
            layer, norm = sequence[index], sequence[index + 1]
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                sequence[index], sequence[index + 1] = fuse_conv_bn_eval(layer, norm), nn.Identity()


def made(kind):
    torch.manual_seed(sum(map(ord, kind.title)))
    net = kind().eval()
    generator = torch.Generator().manual_seed(7)
    for module in list(net.modules()):
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator) * 0.2)
            module.running_var.copy_(torch.rand(module.running_var.shape, generator=generator) + 0.5)
    fold(net)
    draw = lambda *shape: torch.randn(*shape, generator=generator)
    inputs = [draw(2, 3, SIZE, SIZE)] + ([draw(2, 5)] if kind is TwoInputs else [])
    return net, inputs, generator


def expected(net, inputs, score):
    """The maps of all methods in double precision, by name."""
    inputs = [value.double() for value in inputs]
    seen = {}
    layer = dict(net.named_modules())[net.layer]
    hook = layer.register_forward_hook(lambda _, __, out: seen.update(value=out))
    x = inputs[0].clone().requires_grad_()
    with torch.no_grad():
        first = net(*inputs)
    value = score(net(x, *inputs[1:]), first)
    activation = seen["value"]
    gradient, at_layer = torch.autograd.grad(value.sum(), [x, activation])
    hook.remove()
    weights = at_layer.mean((2, 3), keepdim=True)
    # Captum's copies are of all samples, one step after the other.
    copied = lambda value, copies: value.repeat(copies, *[1] * (value.dim() - 1))
    forward = lambda x, *rest: score(net(x, *rest), {k: copied(v, len(x) // 2) for k, v in first.items()})
    integrated = IntegratedGradients(forward).attribute(
        inputs[0], additional_forward_args=tuple(inputs[1:]), n_steps=STEPS, method="gausslegendre"
    )
    maps = {
        "gradient": gradient.mean(1),
        "input-x-gradient": (gradient * x).sum(1),
        "gradcam": torch.relu((weights * activation).sum(1)),
        "layercam": torch.relu((torch.relu(at_layer) * activation).sum(1)),
        "integrated-gradients": integrated.sum(1),
    }
    return value.detach().numpy(), {name: map.detach().numpy() for name, map in maps.items()}


def distance(found, wanted):
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-300))


def asked(program, *words):
    done = subprocess.run([program, *words, "--quiet"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")


def at(method, layer):
    return ["--layer", f"{layer}:out"] if method in ("gradcam", "layercam") else []


def explained(program, path, inputs, target, layer, wanted, folder):
    """The largest distance of each method's map, as `explain` computes it."""
    found = {}
    others = [f"table={folder}/input1.npy"] if len(inputs) > 1 else []
    for method in wanted:
        setting = f"{method}:steps={STEPS}" if method == "integrated-gradients" else method
        words = ["explain", str(path), f"{folder}/input0.npy", "--target", target, "--method", setting, "--precision", "f64"]
        words += [word for other in others for word in ("--input", other)]
        words += ["--raw", f"{folder}/map.npy", "-o", f"{folder}/drawn", *at(method, layer)]
        asked(program, *words)
        found[method] = distance(np.load(folder / "map.npy"), wanted[method])
    return found


def compiled(program, path, inputs, target, layer, wanted, score, folder, precision):
    """The largest distance of each method's map, as ONNX Runtime computes the compiled file."""
    found = {}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    for methods in (["gradient", "input-x-gradient", "integrated-gradients"], ["gradcam", "layercam"]):
        out = folder / "compiled.onnx"
        setting = ",".join(f"{method}:steps={STEPS}" if method == "integrated-gradients" else method for method in methods)
        words = ["compile", str(path), "--target", target, "--methods", setting, "--precision", precision]
        asked(program, *words, "-o", str(out), *at(methods[0], layer))
        session = onnxruntime.InferenceSession(str(out), settings, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        given = dict(zip(names, [value.numpy() for value in inputs]))
        outputs = [one.name for one in session.get_outputs()]
        values = dict(zip(outputs, session.run(None, given)))
        for method in methods:
            map = next(value for name, value in values.items() if name.startswith(f"saliency/{method}/"))
            found[method] = distance(map, wanted[method])
        classes = values["explained_class"]
        scores = values[outputs[0]][np.arange(len(classes)), classes]
        found["score"] = max(found.get("score", 0), distance(scores, score))
    return found


def each(values):
    """The score of one sample after the other, of functions of the outputs of all."""
    return lambda outputs, _: torch.stack([value(outputs)[sample] for sample, value in enumerate(values)])


def given_at_run_time(title, folder, generator):
    """Targets as they are compiled, what is given in their place for each of two samples, and the scores of that."""
    if title == Segmentation.title:
        masks = (torch.rand(2, 1, SIZE, SIZE, generator=generator) > 0.5).double()
        other = torch.randn(2, 5 * SIZE * SIZE, generator=generator).float().double()
        return {
            f"region:{folder}/mask.npy,class=2": (
                {"target_mask": masks.float().numpy(), "class": np.array([1, 4])},
                each([lambda o: masked(o, masks[0, 0], 1), lambda o: masked(o, masks[1, 0], 4)]),
            ),
            "cell:out[1,10,-3]": (
                {"target_cell": np.array([[0, 5, 60], [-1, -7, 0]])},
                each([lambda o: o["out"][:, 0, 5, 60], lambda o: o["out"][:, -1, -7, 0]]),
            ),
            f"similarity:{folder}/reference.npy": (
                {"target_reference": other.float().numpy()},
                lambda o, f: torch.cosine_similarity(o["out"].flatten(1), other, eps=1e-12),
            ),
        }
    if title == Detector.title:
        cell = lambda c: lambda o, f: best("logits", c, 2, o, f)
        return {
            "cell:logits[best=2]": (
                {"target_cell": np.array([[0], [3]])},
                lambda o, f: torch.stack([cell(0)(o, f)[0], cell(3)(o, f)[1]]),
            ),
            "cell:boxes[7,0]": (
                # There is no box 999: the last is taken.
                {"target_cell": np.array([[11, 3], [999, 1]])},
                each([lambda o: o["boxes"][:, 11, 3], lambda o: o["boxes"][:, -1, 1]]),
            ),
        }
    score = lambda a, b: lambda o: o["scores"][:, a] - o["scores"][:, b]
    return {
        "contrast:1,3": (
            {"class": np.array([0, 5]), "target_against": np.array([[2], [4]])}, each([score(0, 2), score(5, 4)])
        ),
    }


def check_run_time(program, kind, net, path, inputs, folder, generator, precision):
    """The largest distance of maps whose target was given when the compiled file was run."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    out, largest = folder / "compiled.onnx", 0.0
    for target, (given, score) in given_at_run_time(kind.title, folder, generator).items():
        value, wanted = expected(net, inputs, repeated(score, len(inputs[0])))
        methods = f"gradient,integrated-gradients:steps={STEPS}"
        asked(program, "compile", str(path), "--target", target, "--methods", methods, "--precision", precision, "-o", str(out))
        session = onnxruntime.InferenceSession(str(out), settings, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        feeds = dict(zip(names, [value.numpy() for value in inputs])) | given
        values = dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds)))
        for method in ("gradient", "integrated-gradients"):
            map = next(value for name, value in values.items() if name.startswith(f"saliency/{method}/"))
            largest = max(largest, distance(map, wanted[method]))
        if "target_in_range" in values:
            exists = [all(-9 < index < 240 for index in row) for row in given.get("target_cell", given.get("target_against"))]
            assert values["target_in_range"].tolist() == exists, (target, values["target_in_range"])
    return largest


def repeated(score, samples):
    """The same score of copies of all samples, one copy of all after the other."""

    def of(outputs, first):
        copies = len(next(iter(outputs.values()))) // samples
        part = lambda of, copy: {name: value.unflatten(0, (copies, samples))[copy] for name, value in of.items()}
        return torch.cat([score(part(outputs, copy), part(first, copy)) for copy in range(copies)])

    return of


def checked(program, kind, folder):
    net, inputs, generator = made(kind)
    path = folder / "network.onnx"
    names = ["x", "table"][: len(inputs)]
    export(Named(net), tuple(inputs), path, names, list(net(*inputs)))
    net.double()
    for index, value in enumerate(inputs):
        np.save(folder / f"input{index}.npy", value.numpy())
    rows = []
    for target, score in targets(kind.title, folder, generator).items():
        value, wanted = expected(net, inputs, score)
        layer = f"net.{net.layer}"
        by_explain = explained(program, path, inputs, target, layer, wanted, folder)
        single, double = (
            compiled(program, path, inputs, target, layer, wanted, value, folder, precision)
            for precision in ("f32", "f64")
        )
        shown = target.replace(f"{folder}/", "")
        rows.append((kind.title, shown, by_explain, single, double))
        worst = [max(part.values()) for part in (by_explain, single, double)]
        print(f"{kind.title:36} {shown:44} {worst[0]:.1e} {worst[1]:.1e} {worst[2]:.1e}", flush=True)
    for precision, limit in [("f32", SINGLE), ("f64", DOUBLE)]:
        far = check_run_time(program, kind, net, path, inputs, folder, generator, precision)
        print(f"{kind.title:36} targets given at run time, {precision} {far:.1e}", flush=True)
        if far > limit:
            sys.exit(f"above {limit}")
    return rows


def table(rows):
    worst = lambda part, *methods: f"{max(part[method] for method in methods):.0e}"
    lines = [
        "| network | target | gradient, × input | CAMs | integrated gradients | compiled, f32 | compiled, f64 |",
        "|---|---|---|---|---|---|---|",
    ]
    for title, target, found, single, double in rows:
        lines.append(
            f"| {title} | `{target}` | {worst(found, 'gradient', 'input-x-gradient')} | {worst(found, 'gradcam', 'layercam')} "
            f"| {worst(found, 'integrated-gradients')} | {worst(single, *single)} | {worst(double, *double)} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target/release/monosplit"))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = []
    for kind in (Segmentation, Detector, TwoInputs):
        with tempfile.TemporaryDirectory() as folder:
            rows += checked(options.program, kind, pathlib.Path(folder))
    if options.write:
        text = DOCUMENT.read_text()
        before, rest = text.split(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}")
    limits = [(EXPLAINED, 2), (SINGLE, 3), (DOUBLE, 4)]
    passed = all(max(row[part].values()) <= limit for row in rows for limit, part in limits)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
