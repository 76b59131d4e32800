#!/usr/bin/env python3
"""Kills workers, the writer, the driver and node agents of an evaluation on a local Ray cluster, and compares what is left.

    python3 scripts/check_cluster.py [--kills 20] [--images 24] [--seed 0] [--minutes 40]

Run it with a Python that has the package with its extra `ray`, and psutil. A small experiment is run in one process, and then on
two nodes on this machine while processes are killed with SIGKILL at random moments, in turns: a worker, the driver, the agent of
the node of the workers, the writer, the agent of the head node. Whatever ended is started again. At the end all rows must have
the bits of the undisturbed run, none more and none less, and the tables of the report must be the same files.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))
import small_experiment  # noqa: E402

HOST = """
import json, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
agent = lambda node: node.all_processes["raylet"][0].process.pid
print(json.dumps({"address": cluster.address, "head": agent(cluster.head_node), "node": agent(node)}), flush=True)
for line in sys.stdin:
    node = cluster.add_node(num_cpus=2)
    print(json.dumps({"node": agent(node)}), flush=True)
cluster.shutdown()
"""

VICTIMS = ["worker", "driver", "node", "writer", "head"]
"""Who is killed, in turns."""

TIMEOUT = 90
"""Seconds for a driver to notice that its cluster is gone; then it is ended."""


# Ray's workers yield to whatever else this machine does; rows would hardly come on a machine in use.
os.environ.setdefault("RAY_worker_niceness", "0")


class Host:
    """A cluster of two nodes on this machine, whose processes are children of one process of ours."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self.facts = {}
        for _ in range(5):
            self.process = subprocess.Popen([sys.executable, "-c", HOST], **pipes)
            if self.hear():
                return
            # On a busy machine Ray gives up before its own processes have started.
            self.end()
        sys.exit("no cluster could be started")

    def hear(self):
        """Takes what the process of the cluster says; whether it lives."""
        line = self.process.stdout.readline()
        self.facts.update(json.loads(line or "{}"))
        return bool(line)

    def add_node(self):
        """Starts another agent in place of the one that was killed. A busy machine may be too slow for Ray."""
        self.process.stdin.write("node\n")
        self.process.stdin.flush()
        return self.hear()

    def actors(self, name):
        """The processes of actors of a class."""
        found = []
        for agent in (self.facts["head"], self.facts["node"]):
            try:
                children = psutil.Process(agent).children()
            except psutil.Error:
                continue
            for child in children:
                try:
                    if child.cmdline() and child.cmdline()[0].startswith(f"ray::{name}"):
                        found.append(child.pid)
                except psutil.Error:
                    continue
        return found

    def end(self):
        children = psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
        for child in children:
            try:
                child.kill()
            except psutil.Error:
                pass


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def drive(experiment, store, address, log):
    command = [sys.executable, "-m", "monosplit.ray", "evaluate", str(experiment), "--store", str(store)]
    return subprocess.Popen([*command, "--address", address, "--workers", "2"], stdout=log, stderr=log)


def check(store, alone, expected, folder):
    """Ends the script where a complete store is not that of the undisturbed run."""
    found = small_experiment.rows(store)
    missing, more = set(expected) - set(found), set(found) - set(expected)
    doubled = len(found) - len(set(found))
    tables = small_experiment.report(store, folder / "torn") == small_experiment.report(alone, folder / "whole")
    print(f"complete: {len(found)} rows; missing {len(missing)}, other {len(more)}, doubled {doubled}; "
          f"tables {'equal' if tables else 'DIFFERENT'}", flush=True)
    if missing or more or doubled or not tables:
        sys.exit(f"the run that was killed differs, for example {next(iter(missing | more), 'in a table')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=40)
    arguments = parser.parse_args()
    chance, began = random.Random(arguments.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        experiment = small_experiment.make(folder / "experiment", arguments.images)
        alone, store = folder / "alone.sqlite", folder / "torn-0.sqlite"
        small_experiment.alone(experiment, alone)
        expected = small_experiment.rows(alone)
        print(f"undisturbed: {len(expected)} rows after {time.monotonic() - began:.0f} s", flush=True)
        killed, completed, host, driver = Counter(), 0, None, None
        log = open(folder / "log", "w")
        try:
            while True:
                if time.monotonic() - began > 60 * arguments.minutes:
                    sys.exit(f"not done after {arguments.minutes} minutes: {dict(killed)}\n{(folder / 'log').read_text()[-2000:]}")
                if driver is not None and driver.poll() == 0:
                    completed += 1
                    check(store, alone, expected, folder / f"report-{completed}")
                    driver = None
                    if killed.total() >= arguments.kills:
                        break
                    store = folder / f"torn-{completed}.sqlite"
                if host is not None and not alive(host.facts["head"]):
                    # What is left of a driver without its cluster gets a while to end by itself.
                    if driver is not None:
                        try:
                            driver.wait(timeout=TIMEOUT)
                        except subprocess.TimeoutExpired:
                            print("the driver did not end by itself", flush=True)
                            driver.kill()
                            driver.wait()
                        driver = None
                    host.end()
                    host = None
                if host is None:
                    host = Host()
                elif not alive(host.facts["node"]) and not host.add_node():
                    print("no node could be added; all is started again", flush=True)
                    if driver is not None:
                        driver.kill()
                        driver.wait()
                        driver = None
                    host.end()
                    host = Host()
                if driver is None or driver.poll() not in (None, 0):
                    driver = drive(experiment, store, host.facts["address"], log)
                if killed.total() >= arguments.kills:
                    time.sleep(0.5)
                    continue
                victim = VICTIMS[killed.total() % len(VICTIMS)]
                # A few rows later than now, or none, as long as the driver lives.
                wanted = small_experiment.count(store) + chance.randrange(len(expected) // 8)
                until = time.monotonic() + 120
                while small_experiment.count(store) < wanted and driver.poll() is None and time.monotonic() < until:
                    time.sleep(0.05)
                time.sleep(0.3 * chance.random())
                pids = {
                    "worker": lambda: host.actors("Worker"),
                    "writer": lambda: host.actors("Writer"),
                    "driver": lambda: [driver.pid] if driver.poll() is None else [],
                    "node": lambda: [host.facts["node"]],
                    "head": lambda: [host.facts["head"]],
                }[victim]()
                if driver.poll() is not None or not pids:
                    time.sleep(0.2)
                    continue
                psutil.Process(chance.choice(pids)).send_signal(signal.SIGKILL)
                killed[victim] += 1
                print(f"{killed.total():2}: killed a {victim} after {small_experiment.count(store)} rows", flush=True)
                time.sleep(0.2)
        finally:
            log.close()
            if driver is not None and driver.poll() is None:
                driver.kill()
                driver.wait()
            if host is not None:
                host.end()
        print(f"{killed.total()} kills ({', '.join(f'{count} {name}' for name, count in killed.items())}), "
              f"{completed} complete runs, each as the undisturbed one, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
