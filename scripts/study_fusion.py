"""What fused split maps are worth, on validation pictures: every map of every layer once, then every way to combine them.

It shares no code with monosplit: a small interpreter of ONNX in PyTorch carries the split's `(d, E, σ)` itself. Made for a GPU
(six minutes for VGG16 on 48 pictures); `docs/src/beyond.md` quotes what it printed.

    python scripts/study_fusion.py MODEL.onnx PICTURES LABEL_COLUMN OUT.json [COUNT [NOISY_COPIES]]

PICTURES is a folder with images/, masks/ and labels.csv. Pixel flipping is in steps of one percent, selectivity has patches of 32
pixels, and max sensitivity few copies: numbers to choose by. The protocol is that of `monosplit evaluate`.
"""
import csv
import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from PIL import Image

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Net:
    def __init__(self, path, device, dtype=torch.float32):
        m = onnx.load(path)
        g = m.graph
        self.w = {i.name: torch.tensor(numpy_helper.to_array(i)).to(device) for i in g.initializer}
        self.w = {k: v.to(dtype) if v.is_floating_point() else v for k, v in self.w.items()}
        self.nodes = []
        for n in g.node:
            at = {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}
            self.nodes.append((n.name or n.output[0], n.op_type, list(n.input), n.output[0], at))
        self.x = [i.name for i in g.input if i.name not in self.w][0]
        self.y = g.output[0].name

    def op(self, kind, at, ins, mag=False):
        w = [self.w[i] if isinstance(i, str) else i for i in ins]
        x = w[0]
        if kind == "Conv":
            weight = w[1].abs() if mag else w[1]
            b = None if mag or len(w) < 3 else w[2]
            p = at.get("pads", [0, 0, 0, 0])
            x = F.pad(x, (p[1], p[3], p[0], p[2])) if any(p) else x
            return F.conv2d(x, weight, b, at.get("strides", [1, 1]), 0, at.get("dilations", [1, 1]), at.get("group", 1))
        if kind == "Gemm":
            weight = w[1].abs() if mag else w[1]
            weight = weight if at.get("transB", 0) else weight.T
            return F.linear(x, weight, None if mag else w[2])
        if kind == "BatchNormalization":
            scale = w[1] / (w[4] + at.get("epsilon", 1e-5)).sqrt()
            shift = 0 if mag else (w[2] - w[3] * scale).view(1, -1, 1, 1)
            return x * (scale.abs() if mag else scale).view(1, -1, 1, 1) + shift
        if kind == "Relu":
            return F.relu(x)
        if kind == "MaxPool":
            p = at.get("pads", [0, 0, 0, 0])
            x = F.pad(x, (p[1], p[3], p[0], p[2]), value=-1e30) if any(p) else x
            return F.max_pool2d(x, at["kernel_shape"], at.get("strides"), 0, ceil_mode=bool(at.get("ceil_mode", 0)))
        if kind == "AveragePool":
            return F.avg_pool2d(x, at["kernel_shape"], at.get("strides"))
        if kind == "GlobalAveragePool":
            return x.mean((2, 3), keepdim=True)
        if kind == "Add":
            return x + w[1]
        if kind == "Concat":
            return torch.cat(w, at["axis"])
        if kind in ("Flatten", "Reshape"):
            return x.flatten(1)
        raise ValueError(kind)

    def forward(self, x, keep=False):
        v = {self.x: x}
        for _, kind, ins, out, at in self.nodes:
            v[out] = self.op(kind, at, [v.get(i, i) for i in ins])
        return v if keep else v[self.y]

    @torch.no_grad()
    def split(self, x, cls, layers, alpha=None, share=None, pool="convex", rule="fill"):
        """Maps of SplitCAM g at the inputs of `layers`: dict layer -> (d, E, sigma, a)."""
        v = self.forward(x, keep=True)
        one = F.one_hot(cls, v[self.y].shape[1]).to(x)
        f = 1 - 2 * alpha if alpha is not None else 1.0
        msg = {self.y: [one, torch.zeros_like(one), one * f]}
        found = {}
        want = {}
        for name, kind, ins, out, at in self.nodes:
            if name in layers:
                want.setdefault(ins[0], []).append(name)

        def norm(t):
            return t.flatten(1).norm(dim=1).clamp_min(1e-30).view(-1, *[1] * (t.dim() - 1))

        def hidden(d, kept, lost):
            if share is None:
                return kept + lost, 1.0
            target = share * norm(d)
            if rule == "fill":
                c = (target**2 - norm(kept) ** 2).clamp_min(0).sqrt() / norm(lost)
                return kept + c * lost, 1.0
            c = target / norm(lost)
            e = kept + c * lost
            return e * (target / norm(e)), 1.0

        for name, kind, ins, out, at in reversed(self.nodes):
            if out not in msg:
                continue
            d, e, s = msg.pop(out)
            for name in want.get(out, []):
                found[name] = (d, e, s, v[out])
            act = [i for i in ins if i in v]
            for k, i in enumerate(act):
                a = v[i]
                if kind == "Relu":
                    on = a >= 0
                    dd = d * on
                    ee, _ = hidden(dd, e * on, s * ~on)
                    r = [dd, ee, s * f]
                elif kind == "MaxPool":
                    def vjp(fn, t):
                        with torch.enable_grad():
                            z = a.detach().clone().requires_grad_()
                            return torch.autograd.grad(fn(z), z, t)[0]
                    sel = lambda t: vjp(lambda z: self.op(kind, at, [z]), t)
                    if pool == "wta":
                        r = [sel(d), sel(e), sel(s) * f]
                    else:
                        p = at.get("pads", [0, 0, 0, 0])
                        tot = vjp(lambda z: F.avg_pool2d(F.pad(z, (p[1], p[3], p[0], p[2])), at["kernel_shape"], at.get("strides"), divisor_override=1), s)
                        dd = sel(d)
                        ee, _ = hidden(dd, sel(e), tot - sel(s))
                        r = [dd, ee, tot * f]
                elif kind in ("Add",):
                    r = [d, e, s * f]
                elif kind == "Concat":
                    sizes = [v[j].shape[at["axis"]] for j in act]
                    r = [t.split(sizes, at["axis"])[k] for t in (d, e, s)]
                else:
                    def lin(t, mag):
                        with torch.enable_grad():
                            z = torch.zeros_like(a).requires_grad_()
                            y = self.op(kind, at, [z if j == i else j for j in ins], mag)
                            return torch.autograd.grad(y, z, t)[0]
                    # A batch norm is a part of its convolution.
                    counted = kind not in ("Flatten", "Reshape", "BatchNormalization")
                    r = [lin(d, False), lin(e, False), lin(s, True) * (f if counted else 1.0)]
                if share is not None and kind not in ("Relu", "Flatten", "Reshape", "Concat"):
                    r[2] = r[2] / norm(r[2])
                if i in msg:
                    msg[i] = [p + q for p, q in zip(msg[i], r)]
                else:
                    msg[i] = r
        for name in want.get(self.x, []):
            found[name] = (*msg[self.x], x)
        return found

    @torch.no_grad()
    def guided(self, x, cls):
        v = self.forward(x, keep=True)
        msg = {self.y: F.one_hot(cls, v[self.y].shape[1]).to(x)}
        for name, kind, ins, out, at in reversed(self.nodes):
            if out not in msg:
                continue
            d = msg.pop(out)
            act = [i for i in ins if i in v]
            for k, i in enumerate(act):
                if kind == "Relu":
                    r = d.clamp_min(0) * (v[i] >= 0)
                else:
                    with torch.enable_grad():
                        z = v[i].detach().clone().requires_grad_()
                        y = self.op(kind, at, [z if j == i else v.get(j, j) for j in ins])
                        r = torch.autograd.grad(y, z, d)[0]
                msg[i] = msg[i] + r if i in msg else r
        return msg[self.x]


def up(m):
    return m if m.shape[-1] == 224 else F.interpolate(m[:, None], size=(224, 224), mode="bilinear", align_corners=False)[:, 0]


def main():
    path, data, column, out = sys.argv[1:5]
    count = int(sys.argv[5]) if len(sys.argv) > 5 else 48
    samples = int(sys.argv[6]) if len(sys.argv) > 6 else 6
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = False
    net = Net(path, dev)
    rows = list(csv.DictReader(open(Path(data) / "labels.csv")))[:: max(1, 48 // count)][:count]
    load = lambda f: torch.tensor(np.asarray(Image.open(f).convert("RGB")).transpose(2, 0, 1).copy()).float() / 255
    x = torch.stack([(load(Path(data) / "images" / r["file"]) - MEAN) / STD for r in rows]).to(dev)
    mask = torch.stack([torch.tensor(np.asarray(Image.open(Path(data) / "masks" / (Path(r["file"]).stem + ".png"))) > 127) for r in rows]).to(dev)
    with torch.no_grad():
        logits = net.forward(x)
    cls = logits.argmax(1)
    truth = torch.tensor([int(r[column]) for r in rows]).to(dev)
    print("accuracy", (cls == truth).float().mean().item(), flush=True)
    convs = [n for n in net.nodes if n[1] == "Conv" and net.w[n[2][1]].shape[-1] > 1]
    layers = [n[0] for n in convs]
    v = net.forward(x[:1], keep=True)
    size_in = {n[0]: v[n[2][0]].shape[-1] for n in convs}
    size_out = {n[0]: v[n[3]].shape[-1] for n in convs}
    last_out, last_in, first_in = {}, {}, {}
    for l in layers:
        last_out[size_out[l]] = l
        last_in[size_in[l]] = l
        first_in.setdefault(size_in[l], l)
    print("last by output size", last_out, "by input size", last_in, flush=True)
    gen = torch.Generator().manual_seed(0)
    noisy = [x + ((torch.rand(x.shape, generator=gen) * 2 - 1) * 0.2).to(dev) for _ in range(samples)]
    rnd = Net(path, dev)
    for n in [n for n in rnd.nodes if n[1] in ("Conv", "Gemm")][-3:]:
        w = rnd.w[n[2][1]]
        rnd.w[n[2][1]] = (torch.randn(w.shape, generator=gen).to(dev)) * w.std()
        if len(n[2]) > 2:
            rnd.w[n[2][2]] = torch.zeros_like(rnd.w[n[2][2]])
    configs = {
        "a.5": dict(alpha=0.5), "a.45": dict(alpha=0.45), "a.4": dict(alpha=0.4), "a.4w": dict(alpha=0.4, pool="wta"), "a.35": dict(alpha=0.35),
        "s.25": dict(share=0.25), "s.5": dict(share=0.5), "s1": dict(share=1.0), "s2": dict(share=2.0),
        "r.5": dict(share=0.5, rule="renorm"), "r1": dict(share=1.0, rule="renorm"),
    }
    quick = dev == "cpu"
    if quick:
        configs = {k: configs[k] for k in ("a.5", "a.4", "s1")}
    chunk = 16

    def members(model, images):
        """config -> layer -> map at the layer's own size; also plain plus parts and ratio of hidden to ordinary."""
        res = {}
        for name, c in configs.items():
            per = {}
            for b in range(0, len(images), chunk):
                f = model.split(images[b : b + chunk], cls[b : b + chunk], layers, **c)
                for l, (d, e, s, a) in f.items():
                    per.setdefault(l, []).append((((d - e) * a).sum(1) / 2, (e.flatten(1).norm(dim=1) / d.flatten(1).norm(dim=1).clamp_min(1e-30))))
            res[name] = {l: (torch.cat([p[0] for p in ps]), torch.cat([p[1] for p in ps])) for l, ps in per.items()}
        return res

    def baselines(model, images):
        res = {}
        gb, gc, lc, ig, sal = [], [], [], [], []
        top = layers[-1]
        for b in range(0, len(images), chunk):
            xb, cb = images[b : b + chunk], cls[b : b + chunk]
            g = model.guided(xb, cb)
            vv = model.forward(xb, keep=True)
            # the last feature map: input of the global pooling
            pool_in = [n for n in model.nodes if n[1] in ("GlobalAveragePool", "AveragePool", "MaxPool")][-1][2][0]
            v0 = vv[pool_in].detach().clone().requires_grad_()
            with torch.enable_grad():
                vals = dict(vv); vals[pool_in] = v0
                started = False
                for _, kind, ins, o, at in model.nodes:
                    if o == pool_in:
                        started = True; continue
                    if started:
                        vals[o] = model.op(kind, at, [vals.get(i, i) for i in ins])
                gr = torch.autograd.grad(vals[model.y].gather(1, cb[:, None]).sum(), v0)[0]
            cam = (gr.mean((2, 3), keepdim=True) * v0.detach()).sum(1).clamp_min(0)
            lay = (gr.clamp_min(0) * v0.detach()).sum(1).clamp_min(0)
            gb.append(g.sum(1).abs()); gc.append(cam); lc.append(lay)
            up_cam = F.interpolate(cam[:, None], size=(224, 224), mode="nearest")[:, 0]
            sal.append((g * up_cam[:, None]).sum(1).abs())
            tot = 0
            for t in range(1, 21):
                z = (xb * (t - 0.5) / 20).requires_grad_()
                with torch.enable_grad():
                    tot = tot + torch.autograd.grad(model.forward(z).gather(1, cb[:, None]).sum(), z)[0]
            ig.append((tot / 20 * xb).sum(1).abs())
        return {"|GBP|": torch.cat(gb), "GradCAM": torch.cat(gc), "LayerCAM": torch.cat(lc), "|Guided GradCAM|": torch.cat(sal), "|IG|": torch.cat(ig)}

    t0 = time.time()
    base, base_m = baselines(net, x), members(net, x)
    var = [(baselines(net, n), members(net, n)) for n in noisy]
    ran = (baselines(rnd, x), members(rnd, x))
    print("members", time.time() - t0, flush=True)

    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    mean_val = x.mean((2, 3), keepdim=True)

    @torch.no_grad()
    def curves(rank, cuts, black):
        """rank [N,HW]: position in the removal order; outputs of the class with the first `c` removed."""
        n = len(x)
        lo, pr = [], []
        allx = []
        for c in cuts:
            m = (rank < c).view(n, 1, 224, 224)
            allx.append(torch.where(m, black, x))
            if len(allx) * n >= (64 if quick else 960) or c == cuts[-1]:
                y = net.forward(torch.cat(allx))
                cc = cls.repeat(len(allx))
                lo.append(y.gather(1, cc[:, None])[:, 0].view(-1, n)); pr.append(y.softmax(1).gather(1, cc[:, None])[:, 0].view(-1, n))
                allx = []
        return torch.cat(lo), torch.cat(pr)

    black = ((0 - MEAN) / STD).to(dev).expand_as(x)

    def measure(m, ms, mr):
        m = up(m); n = len(m)
        flat = m.flatten(1)
        r = {}
        r["loc"] = ((m * mask).flatten(1).sum(1) / (flat.sum(1) + 1e-9 * flat.abs().amax(1).clamp_min(1e-30)))
        r["point"] = mask.flatten(1).gather(1, flat.argmax(1, keepdim=True))[:, 0].float()
        order = flat.argsort(dim=1, descending=True, stable=True)
        rank = torch.empty_like(order).scatter_(1, order, torch.arange(flat.shape[1], device=dev).expand_as(order))
        cuts = [round(50176 * k / 40 * 0.4) for k in range(1, 21)]  # to 20 percent in steps of 1 percent
        lo, pr = curves(rank, cuts, mean_val.expand_as(x))
        base_l = logits.gather(1, cls[:, None])[:, 0]
        drop = base_l - lo
        z = torch.zeros_like(base_l)[None]
        d = torch.cat([z, drop])
        r["pf5"] = (d[:5] + d[1:6]).sum(0) / 2 * 0.01
        r["pf20"] = (d[:-1] + d[1:]).sum(0) / 2 * 0.01
        pm = F.avg_pool2d(m[:, None], 32)[:, 0].flatten(1)
        po = pm.argsort(dim=1, descending=True, stable=True)
        prk = torch.empty_like(po).scatter_(1, po, torch.arange(49, device=dev).expand_as(po))
        full = F.interpolate(prk.view(n, 1, 7, 7).float(), scale_factor=32, mode="nearest").flatten(1)
        _, pr = curves(full, list(range(1, 50)), black)
        r["sel"] = (pr[:-1] + pr[1:]).sum(0) / 2
        size = flat.abs().norm(dim=1).clamp_min(1e-30)
        r["sens"] = torch.stack([(up(q).flatten(1).abs() - flat.abs()).norm(dim=1) / size for q in ms]).amax(0)
        ra = lambda t: t.argsort(1).argsort(1).float()
        a, b = ra(flat), ra(up(mr).flatten(1))
        a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
        r["rand"] = (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
        return {k: round(t.nanmean().item(), 4) for k, t in r.items()}

    results = []

    def report(title, fn):
        t = time.time()
        m, ms, mr = fn(base, base_m), [fn(*q) for q in var], fn(*ran)
        r = measure(m, ms, mr)
        results.append(dict(title=title, **r))
        print(f"{title:60s}", " ".join(f"{k} {v:.3f}" for k, v in r.items()), f"{time.time()-t:.1f}s", flush=True)
        json.dump(results, open(out, "w"), indent=0)

    for k in base:
        report(k, lambda b, m, k=k: b[k])
    report("uniform", lambda b, m: torch.rand(b["GradCAM"].shape, device=dev))

    part = {"pos": lambda t: t.clamp_min(0), "abs": lambda t: t.abs(), "neg": lambda t: (-t).clamp_min(0)}
    for c in configs:
        ratio = {l: round(base_m[c][l][1].mean().item(), 3) for l in layers}
        print("ratio", c, ratio, flush=True)
    for c in ("a.5", "a.4", "s1") if not quick else ("a.4",):
        for l in layers:
            report(f"single {c} {l} pos", lambda b, m: m[c][l][0].clamp_min(0))

    def normed(t, eps, sign="pos", pre=0):
        p = part[sign](t)
        if pre:
            p = F.avg_pool2d(p[:, None], pre * 2 + 1, 1, pre, count_include_pad=False)[:, 0]
        p = p / p.flatten(1).mean(1).clamp_min(1e-30).view(-1, 1, 1)
        return up((p * p + eps).sqrt())

    def fused(c, ls, eps=0.01, how="prod", sign="pos", topsign=None, power=1.0, weights=None, pre=0):
        def fn(b, m):
            logs = 0
            ps = []
            for k, l in enumerate(ls):
                s = topsign if topsign and k == len(ls) - 1 else sign
                ps.append(normed(m[c][l][0], eps, s, pre if k < len(ls) - 1 else 0))
            w = weights or [1.0] * len(ps)
            if how == "prod":
                return torch.exp(power * sum(wi * p.log() for wi, p in zip(w, ps)))
            if how == "mean":
                return sum(ps) / len(ps)
            if how == "harm":
                return 1 / sum(1 / p for p in ps)
            if how == "logsum":
                return sum((1 + p).log() for p in ps)
        return fn

    stages = {"out": list(last_out.values()), "in": list(last_in.values()), "first": list(first_in.values())}
    stages["out-1"] = stages["out"][1:]
    stages["out-2"] = stages["out"][2:]
    stages["in-1"] = stages["in"][1:]
    stages["odd"] = stages["out"][0::2]
    print(stages)
    if quick:
        report("quick", fused("a.4", stages["out"]))
        return
    for c in configs:
        for s in ("out", "in", "out-1"):
            report(f"fused {c} {s} eps.01 prod", fused(c, stages[s]))
    for c in ("a.4", "a.5", "s1"):
        for s in stages:
            report(f"fused {c} {s} abs/pos prod", fused(c, stages[s], sign="abs", topsign="pos"))
        for eps in (0.0001, 0.1, 1.0):
            report(f"fused {c} out eps{eps} prod", fused(c, stages["out"], eps=eps))
        for power in (0.5, 0.2):
            report(f"fused {c} out prod^{power}", fused(c, stages["out"], power=power))
        for how in ("mean", "harm", "logsum"):
            report(f"fused {c} out {how}", fused(c, stages["out"], how=how))
        for pre in (1, 2, 4):
            report(f"fused {c} out box{pre} prod", fused(c, stages["out"], pre=pre))
            report(f"fused {c} out-1 box{pre} prod", fused(c, stages["out-1"], pre=pre))
            report(f"fused {c} out abs/pos box{pre} prod", fused(c, stages["out"], sign="abs", topsign="pos", pre=pre))
        for s in ("out-2", "odd", "first", "in-1"):
            report(f"fused {c} {s} prod", fused(c, stages[s]))
        n = len(stages["out"])
        report(f"fused {c} out weights rising", fused(c, stages["out"], weights=[2 * (k + 1) / (n + 1) for k in range(n)]))
        report(f"fused {c} out weights falling", fused(c, stages["out"], weights=[2 * (n - k) / (n + 1) for k in range(n)]))


if __name__ == "__main__":
    main()
