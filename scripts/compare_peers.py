"""Compares our program with Captum, Zennit and grad-cam, method by method, on the same weights and the same arrays.

    python scripts/compare_peers.py --shared ../shared --binary target/debug/monosplit [--networks resnet18,vgg16]
        [--only lrp] [--write]

Two pictures are explained at once, each for a class of its own; the worse of the two is shown. Every method is compared in double
precision, where no ReLU and no pool decides differently for lack of digits, and in single precision. Answers are kept in
the cache folder, so that a run that was stopped goes on where it was; `--again` asks anew. `--write` puts the tables into
docs/src/parity.md.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from peers import agreement, material
from comparison.methods import Job
from peers.rows import rows

warnings.filterwarnings("ignore")
DOCUMENT = material.ROOT / "docs/src/parity.md"
BEGIN, END = "<!-- tables of compare_peers.py -->", "<!-- end of the tables -->"


class Answers:
    """What was found so far, by network and question."""

    def __init__(self, path):
        self.path = path
        self.found = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, network, row, answer):
        self.found.setdefault(network, {})[key(row)] = answer
        self.path.write_text(json.dumps(self.found, indent=1))

    def of(self, network, row):
        return self.found.get(network, {}).get(key(row))


def key(row):
    return f"{row.title} / {row.peer_name}"


def job(given, row, precision):
    """The peer's side of a question."""
    kind = {"f32": torch.float32, "f64": torch.float64}[precision]
    baselines = torch.from_numpy(given.baselines).to(kind)
    options = {"last": given.places.get(row.place), "baselines": baselines, "stdev": given.deviation()}
    net = given.network.to(kind)
    return Job(net, torch.from_numpy(given.x).to(kind), torch.tensor(given.classes), options)


def compared(given, row, binary):
    answer = {"title": row.title, "peer": row.peer_name, "note": ""}
    peers = {}
    for precision in row.precisions:
        peer = job(given, row, precision)
        if precision == row.precisions[0]:
            answer["note"] = row.note(peer)
        ours = given.explained(binary, row, precision)
        theirs = row.peer(peer).detach().double().numpy()
        if row.draws:
            answer[precision] = agreement.chance(ours, theirs, row.draws, row.averaged)
            continue
        if theirs.shape[:1] + theirs.shape[2:] == ours.shape:
            theirs = theirs[:, 0]
        if row.signs:
            theirs = agreement.up_to_sign(ours, theirs)
        answer[precision] = agreement.measured(ours, theirs)
        peers[precision] = theirs
    if len(peers) == 2:
        answer["loss"] = agreement.measured(peers["f32"], peers["f64"])["distance"]
    return answer


def compare(name, options, answers):
    given = None
    for row in rows():
        if row.networks and name not in row.networks:
            continue
        known = answers.of(name, row)
        wanted = not options.only or any(word.lower() in key(row).lower() for word in options.only.split(","))
        if not wanted or (known and "error" not in known and not options.again):
            continue
        given = given or material.material(name, options.shared, options.cache)
        started = time.time()
        try:
            answer = compared(given, row, options.binary)
        except Exception as error:
            answer = {"title": row.title, "peer": row.peer_name, "note": "", "error": f"{type(error).__name__}: {error}"}
        answers.keep(name, row, answer)
        print(f"{name}: {key(row)}: {answer} {time.time() - started:.0f} s", flush=True)


def tables(answers):
    """A section for each network, and what stands out."""
    sections = []
    for name, title in material.NETWORKS.items():
        found = [a for row in rows() if (a := answers.of(name, row)) and "error" not in a]
        if found:
            sections.append(f"### {title}\n\n{agreement.table(found)}\n")
    return "\n".join(sections)


def write(text):
    before, rest = DOCUMENT.read_text().split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=material.ROOT / "../shared")
    parser.add_argument("--binary", type=Path, default=material.ROOT / "target/debug/monosplit")
    parser.add_argument("--cache", type=Path, default=material.ROOT / "target/comparison")
    parser.add_argument("--networks", default=",".join(material.NETWORKS))
    parser.add_argument("--only", help="parts of names of methods or peers, separated by commas")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    np.seterr(all="ignore")
    options.cache.mkdir(parents=True, exist_ok=True)
    answers = Answers(options.cache / "compare_peers.json")
    for name in options.networks.split(","):
        compare(name, options, answers)
    if options.write:
        write(tables(answers))
    bad = [(n, k) for n, all in answers.found.items() for k, a in all.items() if "error" in a or not agreement.verdict(a)]
    for name, question in bad:
        print(f"not in agreement: {name}: {question}: {answers.found[name][question]}")


main()
