"""Competitors are processes of one tree that run one repeat each in turn, so that other load on the machine affects all of
them equally. Results are ratios."""

import pathlib
import resource
import statistics
import subprocess
import time

# Threads of the competitor before may still be spinning.
PAUSE = 0.02


class Failed(Exception):
    """A competitor reported an error."""


class Competitor:
    """A worker process and its job."""

    def __init__(self, command, load):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.ready = self.ask("load", *load) == "ready"
        except BaseException:
            self.__exit__()
            raise

    def ask(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise Failed(f"{words[:3]}: {answer or 'the process ended'}")
        return answer

    def go(self):
        time.sleep(PAUSE)
        return float(self.ask("go").split()[1])

    def save(self, folder):
        self.ask("save", folder)

    def peak(self):
        """The peak memory after one repeat."""
        self.go()
        return int(self.ask("peak").split()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


def processor_time():
    """Processor time of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_time(command, folder, clock):
    """Seconds of a whole command from start to end, and what it printed."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    time.sleep(PAUSE)
    start = clock()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = clock() - start
    if done.returncode:
        raise Failed(f"{command[:2]}: {done.stderr.strip()[-300:]}")
    return seconds, done.stdout


def take_turns(repeats, least_seconds, *goes):
    """The times of each competitor. The order alternates between rounds; short work gets more rounds."""
    times = [[] for _ in goes]
    begun = time.perf_counter()
    rounds = 0
    while rounds < repeats or (time.perf_counter() - begun < least_seconds and rounds < 5 * repeats):
        order = list(enumerate(goes))
        for i, go in order if rounds % 2 == 0 else reversed(order):
            times[i].append(go())
        rounds += 1
    return times


def ratios(ours, theirs):
    """The ratio of the minima and the ratio of the medians."""
    return min(ours) / min(theirs), statistics.median(ours) / statistics.median(theirs)
