"""The peers' worker: it answers the same requests as ours (`worker/main.rs`), in Python.

`load KIND MODEL key=value…` makes the job `KIND` of `JOBS` ready; `go` does one repeat and answers its seconds; `save
FOLDER` writes the results of the last repeat; `peak` is the peak memory. Words are separated by tabs.
"""

import math
import pathlib
import sys
import time

import numpy as np

SHORT, COARSE = 0.050, 1.0


def forward_onnxruntime(model, options):
    import onnxruntime

    setting = onnxruntime.SessionOptions()
    setting.intra_op_num_threads = int(options["threads"])
    session = onnxruntime.InferenceSession(model, setting, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: np.load(options["input"])}
    return lambda: {"logits": session.run(None, feed)[0]}


def forward_openvino(model, options):
    import openvino

    x = np.load(options["input"])
    core = openvino.Core()
    network = core.read_model(model)
    network.reshape(list(x.shape))
    threads = int(options["threads"])
    setting = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(network, "CPU", setting)
    return lambda: {"logits": compiled([x])[0]}


def explain_onnxruntime(model, options):
    """A compiled file: scores and maps for the class with the highest score."""
    import onnxruntime

    setting = onnxruntime.SessionOptions()
    setting.intra_op_num_threads = int(options["threads"])
    session = onnxruntime.InferenceSession(model, setting, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: np.load(options["input"])}
    names = [o.name for o in session.get_outputs() if o.name == "logits" or o.name.startswith("saliency/")]
    return lambda: dict(zip(("logits" if n == "logits" else "map" for n in names), session.run(names, feed)))


def torch_job(model, options):
    import torch

    from .methods import Job

    torch.set_num_threads(int(options["threads"]))
    network = torch.load(options["network"], weights_only=False)
    x = torch.from_numpy(np.load(options["input"]))
    return Job(network, x, torch.full((len(x),), int(options.get("class", 0))), options)


def forward_torch(model, options):
    import torch

    job = torch_job(model, options)

    def run():
        with torch.inference_mode():
            return {"logits": job.network(job.x)}

    return run


def gradient_torch(model, options):
    """The plain gradient of the class score by the image, of the network as it is or as `torch.compile` makes it."""
    import torch

    job = torch_job(model, options)
    network = torch.compile(job.network) if options.get("compile") else job.network

    def run():
        x = job.x.clone().requires_grad_(True)
        logits = network(x)
        score = logits.gather(1, job.classes[:, None]).sum()
        return {"logits": logits.detach(), "map": torch.autograd.grad(score, x)[0]}

    return run


def split_float64(model, options):
    """The literal algorithm at all layers."""
    from .four_streams import FourStreams

    job = torch_job(model, options)
    streams, layers = FourStreams(job.network), set(options["layers"].split(","))
    return lambda: streams.explain(job.x, job.classes, layers)


def method(model, options):
    """A method of `METHODS` by its number there."""
    from .methods import METHODS

    run = METHODS[int(options["number"])].peer(torch_job(model, options))
    return lambda: {"map": run().detach()}


def metric(model, options):
    """A metric of `METRICS` by its number there."""
    from .metrics import job

    return job(torch_job(model, options), int(options["number"]))


JOBS = {
    "forward-onnxruntime": forward_onnxruntime,
    "forward-openvino": forward_openvino,
    "explain-onnxruntime": explain_onnxruntime,
    "forward-torch": forward_torch,
    "gradient-torch": gradient_torch,
    "split-float64": split_float64,
    "method": method,
    "metric": metric,
}


class Worker:
    def __init__(self):
        self.job, self.results = None, {}

    def answer(self, order, *words):
        return getattr(self, f"do_{order}")(*words)

    def do_load(self, kind, model, *options):
        options = dict(option.split("=", 1) for option in options)
        self.clock = time.process_time if options["clock"] == "processor" else time.perf_counter
        self.job = JOBS[kind](model, options)
        return "ready"

    def do_go(self):
        seconds = self.timed(1)
        if self.clock is time.process_time:
            runs = math.ceil(COARSE / max(seconds, 0.01))
            seconds = seconds if runs == 1 else self.timed(runs)
        elif seconds < SHORT:
            seconds = self.timed(1)
        return f"seconds {seconds:e}"

    def timed(self, runs):
        start = self.clock()
        for _ in range(runs):
            self.results = self.job()
        return (self.clock() - start) / runs

    def do_save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in self.results.items():
            np.save(folder / f"{name.replace('/', '_')}.npy", np.asarray(value))
        return "saved"

    def do_peak(self):
        status = pathlib.Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return f"peak {int(line.split()[1]) * 1024}"


def main():
    worker, answers = Worker(), sys.stdout
    # What a library prints is no answer.
    sys.stdout = sys.stderr
    for line in sys.stdin:
        try:
            answer = worker.answer(*line.rstrip("\n").split("\t"))
        except Exception as error:
            answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
