"""Writes the weights files the tests of crates/graph read, and what PyTorch and NumPy say they hold.

    python scripts/make_weight_fixtures.py

Needs torch, numpy and safetensors. Every state file holds the same tensors; expected/NAME.npy is the tensor
NAME, in the widest type of its kind (reals that are not float64 as float32, integers as int64).
"""

import os
import pathlib
import zipfile
from collections import OrderedDict

import numpy as np
import safetensors.torch
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent / "crates/graph/tests/fixtures/weights"


def state():
    """Tensors of every type, with every layout a storage can be looked at."""
    torch.manual_seed(0)
    pool = torch.randn(24)
    tensors = OrderedDict()
    tensors["parameter"] = torch.nn.Parameter(torch.randn(3, 2))
    tensors["frozen"] = torch.nn.Parameter(torch.randn(2), requires_grad=False)
    tensors["transposed"] = torch.randn(2, 3, 4).permute(2, 0, 1)
    tensors["strided"] = torch.randn(5, 6)[1::2, ::3]
    tensors["expanded"] = torch.randn(1, 3).expand(4, 3)
    tensors["channels_last"] = torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last)
    tensors["shared.front"] = pool[:12].view(3, 4)
    tensors["shared.back"] = pool[10:]
    tensors["shared.tied"] = pool[:12].view(3, 4)
    tensors["half"] = torch.tensor([0.0, -0.0, 1.0, 65504.0, 6e-8, 0.1, float("inf")]).half()
    tensors["bfloat16"] = torch.tensor([0.0, -2.5, 3e38, 1e-40, 0.1]).bfloat16()
    tensors["double"] = torch.tensor([[np.pi], [-1e300]], dtype=torch.float64)
    for name in ["int8", "int16", "int32", "int64"]:
        kind = getattr(torch, name)
        limits = torch.iinfo(kind)
        tensors[name] = torch.tensor([limits.min, -1, 0, limits.max], dtype=kind)
    tensors["uint8"] = torch.tensor([0, 255], dtype=torch.uint8)
    tensors["uint16"] = torch.tensor([0, 65535], dtype=torch.uint16)
    tensors["bool"] = torch.tensor([True, False, True])
    tensors["scalar"] = torch.tensor(7)
    tensors["empty"] = torch.zeros(0, 3)
    return tensors


def widest(tensor):
    tensor = tensor.detach()
    if tensor.dtype == torch.bool or tensor.dtype == torch.float64:
        return tensor.numpy()
    if tensor.dtype.is_floating_point:
        return tensor.float().numpy()
    return tensor.numpy().astype(np.int64)


def save_states(tensors):
    legacy = {"_use_new_zipfile_serialization": False}
    torch.save(tensors, ROOT / "state.pth")
    torch.save(tensors, ROOT / "state-legacy.pth", **legacy)
    torch.save(dict(tensors), ROOT / "state-protocol4.pth", pickle_protocol=4)
    checkpoint = {
        "epoch": 3,
        "arch": "tiny",
        "best": np.float64(0.5),
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "lr": 0.1, "betas": (0.9, 0.999)},
        "state_dict": OrderedDict(("module." + name, tensor) for name, tensor in tensors.items()),
    }
    torch.save(checkpoint, ROOT / "checkpoint.pth")
    torch.save({"model": tensors, "big": 1 << 80}, ROOT / "checkpoint-legacy.pth", **legacy)
    safetensors.torch.save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, ROOT / "state.safetensors"
    )
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    torch.save(model, ROOT / "whole-model.pth")
    torch.save(torch.nn.DataParallel(model).state_dict(), ROOT / "data-parallel.pth")


def save_rewritten():
    """What torch.save writes on a big-endian machine, every number the other way round; and a zipped archive."""
    path = ROOT / "big-endian.pth"
    numbers = torch.tensor([[1.5, -2.0, 1e-3]])
    torch.save({"numbers": numbers}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            if name.endswith("/byteorder"):
                content = b"big"
            if name.endswith("/data/0"):
                content = np.frombuffer(content, "<f4").astype(">f4").tobytes()
            archive.writestr(zipfile.ZipInfo(name), content)
    assert torch.equal(torch.load(path)["numbers"], numbers)
    with zipfile.ZipFile(ROOT / "compressed.pth", "w") as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


class Call:
    """An object whose pickle calls a function, as any pickle can."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def save_hostile():
    torch.save({"a": Call(os.system, "echo executed")}, ROOT / "hostile-system.pth")
    torch.save(
        {"a": torch.zeros(1), "b": Call(eval, "1")}, ROOT / "hostile-eval.pth", _use_new_zipfile_serialization=False
    )
    endless = {}
    endless["state_dict"] = endless
    torch.save(endless, ROOT / "hostile-cycle.pth")
    torch.save({"a": torch.zeros(1).expand(1 << 20, 1 << 20)}, ROOT / "hostile-expansion.pth")
    one = torch.zeros(1)
    torch.save({f"view{n}": one.expand((1 << 16) - n) for n in range(80)}, ROOT / "hostile-views.pth")


def save_arrays():
    numbers = np.arange(6).reshape(2, 3)
    for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "b1"]:
        for name, order in [("little", "<"), ("big", ">")]:
            np.save(ROOT / f"npy/{kind}-{name}.npy", numbers.astype(order + kind))
        np.save(ROOT / f"npy/{kind}-fortran.npy", np.asfortranarray(numbers.astype(kind)))


def save_archives():
    """The arrays of npy/ again, in one file, and one that is longer than a header can be."""
    arrays = {path.stem: np.load(path) for path in sorted((ROOT / "npy").glob("*.npy"))}
    arrays["größe"] = (np.arange(60000) % 251).astype(np.float32).reshape(3, 100, 200)
    np.savez(ROOT / "npz/stored.npz", **{name: array for name, array in arrays.items() if array.size < 100})
    np.savez_compressed(ROOT / "npz/compressed.npz", **arrays)
    np.savez_compressed(ROOT / "npz/one.npz", np.float16([[0.1, -2.5]]))


def main():
    (ROOT / "expected").mkdir(parents=True, exist_ok=True)
    (ROOT / "npy").mkdir(exist_ok=True)
    (ROOT / "npz").mkdir(exist_ok=True)
    tensors = state()
    for name, tensor in tensors.items():
        np.save(ROOT / f"expected/{name}.npy", widest(tensor))
    save_states(tensors)
    save_rewritten()
    save_hostile()
    save_arrays()
    save_archives()


if __name__ == "__main__":
    main()
