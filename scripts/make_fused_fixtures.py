"""Golden values of SplitCAM by share and of fused SplitCAM, computed in double precision by `study_fusion.py`, which shares no code
with monosplit, on the small networks of `crates/explain/tests/fixtures/vectors`.

    python scripts/make_fused_fixtures.py --out crates/explain/tests/fixtures/fused

One file per network, `NAME.npz`: `cam/POOLING/SHARE/LAYER` is a SplitCAM at the input of a layer, `fused/POOLING/CHOICE` a fused
map at the image, with CHOICE one of those below.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from study_fusion import Net

NETWORKS = ("tinyresnet", "tinyvgg")
CHOICES = {
    "share=0.5": {},
    "share=2": {"share": 2.0},
    "alpha=0.4": {"alpha": 0.4},
    "share=0.5,exponent=0.5": {"exponent": 0.5},
    "share=0.5,epsilon=1,mean=arithmetic": {"epsilon": 1.0, "mean": "arithmetic"},
    "share=0.5,mean=harmonic": {"mean": "harmonic"},
}


def at_layers(net, x, classes, layers, share, alpha, pool):
    """`(d, E, a)` of each layer with `‖E‖ = share·‖d‖`."""
    chosen = dict(alpha=alpha) if alpha is not None else dict(share=1.0)
    found = {}
    for layer, (d, e, _, a) in net.split(x, classes, layers, pool=pool, **chosen).items():
        if alpha is None:
            norm = lambda t: t.flatten(1).norm(dim=1).view(-1, *[1] * (t.dim() - 1))
            e = torch.where(norm(e) > 0, share * norm(d) / norm(e).clamp_min(1e-300) * e, e)
        found[layer] = (d, e, a)
    return found


def stages(net, x, layers):
    """The last of the layers for each spatial size it reads."""
    values = net.forward(x, keep=True)
    last = {}
    for name, _, inputs, _, _ in net.nodes:
        if name in layers:
            last.pop(values[inputs[0]].shape[2:], None)
            last[values[inputs[0]].shape[2:]] = name
    return list(last.values())


def fused(net, x, classes, layers, pool, share=0.5, alpha=None, epsilon=0.01, exponent=1.0, mean="product"):
    maps = []
    for d, e, a in [at_layers(net, x, classes, layers, share, alpha, pool)[layer] for layer in layers]:
        p = ((d - e) / 2 * a).sum(1).clamp_min(0)
        p = p / p.flatten(1).mean(1).clamp_min(1e-38).view(-1, 1, 1)
        p = F.interpolate(p[:, None], size=x.shape[2:], mode="bilinear", align_corners=False)[:, 0]
        maps.append((p * p + epsilon) ** (exponent / 2))
    maps = torch.stack(maps)
    return {"product": lambda: maps.prod(0), "arithmetic": lambda: maps.mean(0), "harmonic": lambda: 1 / (1 / maps).mean(0)}[mean]()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in NETWORKS:
        folder = out.parent / "vectors" / name
        net = Net(str(folder / "model.onnx"), "cpu", torch.float64)
        x = torch.tensor(np.load(folder / "x.npy")).double()[:2]
        classes = net.forward(x).argmax(1)
        layers = [n[0] for n in net.nodes if n[1] == "Conv" and net.w[n[2][1]].shape[-1] > 1]
        chain = stages(net, x, layers)
        arrays = {"classes": classes.numpy()}
        for pool in ("convex", "wta"):
            for layer in (layers[0], layers[len(layers) // 2]):
                for share in (0.0, 0.5, 2.0):
                    d, e, a = at_layers(net, x, classes, [layer], share, None, pool)[layer]
                    arrays[f"cam/{pool}/{share:g}/{layer}"] = ((d - e) / 2 * a).sum(1).numpy()
            for choice, options in CHOICES.items():
                arrays[f"fused/{pool}/{choice}"] = fused(net, x, classes, chain, pool, **options).numpy()
        np.savez_compressed(out / f"{name}.npz", **arrays)
        print(name, chain, {k: v.shape for k, v in arrays.items()})


main()
