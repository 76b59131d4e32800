"""The virtual environment of the peers, our release build, and what the machine is called. Standard library only:
this runs before the environment is there."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import venv
from importlib import metadata

BENCHES = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCHES.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PACKAGES = ["torch", "onnxruntime", "openvino", "captum", "grad-cam", "zennit", "quantus"]
# Names in /proc/cpuinfo of the instruction sets that decide how fast convolutions are.
INSTRUCTIONS = {
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
    "asimd": "NEON",
    "sve": "SVE",
}


def enter(folder):
    """Makes the environment if it is not there, and goes on inside it."""
    python = pathlib.Path(folder) / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == pathlib.Path(folder).resolve():
        return
    if not python.exists():
        print(f"making {folder}", file=sys.stderr)
        try:
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "-q", "-r", BENCHES / "requirements.txt"], check=True)
        except BaseException:
            # Half an environment would be taken for a whole one the next time.
            shutil.rmtree(folder, ignore_errors=True)
            raise
    os.execv(python, [str(python), *sys.argv])


def build():
    command = ["cargo", "build", "--release", "--quiet", "-p", "monosplit", "-p", "monosplit-bench"]
    subprocess.run(command, cwd=ROOT, check=True)


def our_worker():
    return [str(TARGET / "release" / "bench-worker")]


def our_program():
    return str(TARGET / "release" / "monosplit")


def peer_worker():
    return [sys.executable, "-m", "comparison.peer"]


def machine(threads):
    """The processor, and the versions of everything compared."""
    model, flags = platform.processor() or platform.machine(), set()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else []:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    sets = ", ".join(name for flag, name in INSTRUCTIONS.items() if flag in flags)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES)
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.split()[1:2]
    busy = os.getloadavg()[0] - threads
    others = f" (**busy with other work: load {busy:.0f} more than ours**)" if busy >= 0.5 else ""
    return (
        f"{model}, {os.cpu_count()} cores ({sets}), {platform.system()}{others}; {threads} threads; "
        f"monosplit built with rustc {' '.join(rustc)}; Python {platform.python_version()}, {versions}."
    )
