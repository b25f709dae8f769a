"""Sums over all ranks, ours and those of Open MPI and Gloo, on hosts joined by links of exact rate and delay (netns and
link_switch of tests/support; needs root) and within one host.

    tests/bench/run.sh comm [--peers] [--json] [--case TEXT]... [--rounds N]

--case takes the cases whose name begins so: "2x2", "2x2 64MiB". In each round every contender runs once, one after the other; a
figure is the median over the rounds of a run's own median. Without --peers only ours."""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(pathlib.Path(__file__).resolve().parent / "comm")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
import netns_hosts  # noqa: E402
from cases import GIGABIT, MIB, OPEN_MPI, all_cases  # noqa: E402
from linked_hosts import LinkedHosts  # noqa: E402
from sandbox import BIN, WORKER  # noqa: E402

PEERS_PROGRAM = BIN / "bench" / "comm_peers"
OURS = "ours"
# Reduces within hosts first. In its own segments of 64 KiB it is several times slower here.
HAN = ["--mca", "coll_han_priority", "100", "--mca", "coll_han_allreduce_segsize", str(1 * MIB)]
CONTENDERS = {  # options of mpirun, contender of comm_peers
    OPEN_MPI: ([], "mpi"),
    "open mpi han": (HAN, "mpi"),
    "gloo halving-doubling": ([], "gloo-halving-doubling"),
    "gloo ring": ([], "gloo-ring"),
}
# Sizes of one run of a contender, and how often it repeats each.
REPETITIONS = ((1 * MIB, 40), (16 * MIB, 7), (64 * MIB, 3))
RUN_SECONDS = 120  # longer is a contender that hangs


def mpi_environment():
    text = (ROOT / "tests/support/mpi_environment.sh").read_text()
    return {**os.environ, **dict(re.findall(r"^export (\w+)=(.*)$", text, re.MULTILINE))}


class Place:
    """Where the ranks of a layout run."""

    def __init__(self, layout, home, hosts=None):
        self.layout, self.home, self.hosts = layout, home, hosts
        self.interface = "eth0" if hosts else "lo"

    def run(self, program, options):
        """What rank 0 prints."""
        command = [shutil.which("mpirun.openmpi") or "mpirun", "--bind-to", "none", "-n", str(sum(self.layout.islands)), *options]
        if self.hosts:
            ranks = [f"{name}:{count}" for name, count in zip(self.hosts.names, self.layout.islands)]
            command += ["--host", ",".join(ranks), "--mca", "plm_rsh_agent", str(self.hosts.agent),
                        "--mca", "btl_tcp_if_include", self.interface]
            command = self.hosts.command_on(self.hosts.names[0], command + program)
        else:
            command += program
        return subprocess.run(command, cwd=self.home, env=mpi_environment(), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=RUN_SECONDS)


@contextlib.contextmanager
def place_of(layout):
    # Not beneath /tmp, which is private to each host.
    with tempfile.TemporaryDirectory(prefix="motley-comm-", dir="/var/tmp") as home:
        if len(layout.islands) == 1:
            yield Place(layout, home)
            return
        names = [f"island{i}" for i in range(len(layout.islands))]
        with LinkedHosts(names, home, private=[], shared=[str(BIN.parent)], rate=GIGABIT, delay=layout.delay) as hosts:
            for i, name in enumerate(names):
                hosts.slow(name, layout.rate(i))
            yield Place(layout, home, hosts)


def seconds_of_run(place, contender, sizes, repetitions):
    """{size: seconds} of one mpirun; empty, with a word why, if it failed."""
    unit = "B" if contender == OURS else ""
    arguments = ["--sizes", ",".join(f"{size}{unit}" for size in sizes), "--repetitions", str(repetitions)]
    options = []
    with tempfile.TemporaryDirectory(prefix="store-", dir=place.home) as store:
        if contender == OURS:
            program = [WORKER, "bench-comm", "--level", "world", *arguments, "--json"]
        else:
            options, name = CONTENDERS[contender]
            program = [str(PEERS_PROGRAM), "--contender", name, *arguments, "--interface", place.interface, "--store", store]
        try:
            done = place.run(program, options)
        except subprocess.TimeoutExpired:
            return complaint(contender, place, f"still running after {RUN_SECONDS} s")
    found = re.search(r'^\{.*"bench_comm".*\}$', done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        return complaint(contender, place, f"exit {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}")
    rows = [row for row in json.loads(found.group())["rows"] if row["level"] == "world"]
    wrong = [row["bytes"] for row in rows if row["errors"]]
    if wrong:
        return complaint(contender, place, f"wrong sums of {wrong} bytes")
    return {row["bytes"]: row["seconds"] for row in rows}


def complaint(contender, place, text):
    print(f"{contender}, {place.layout.name}: {text}", file=sys.stderr)
    return {}


def batches(sizes):
    """[(sizes, repetitions)]: one run each."""
    least = 0
    for most, repetitions in REPETITIONS:
        batch = [size for size in sizes if least < size <= most]
        if batch:
            yield batch, repetitions
        least = most


def measure(place, contenders, sizes, rounds):
    """{contender: {size: seconds}}, medians over the rounds."""
    seen = {contender: {size: [] for size in sizes} for contender in contenders}
    for round_, (batch, repetitions), contender in itertools.product(range(rounds), list(batches(sizes)), contenders):
        for size, seconds in seconds_of_run(place, contender, batch, repetitions).items():
            seen[contender][size].append(seconds)
    return {contender: {size: statistics.median(values) for size, values in sizes_.items() if values}
            for contender, sizes_ in seen.items()}


def row_of(case, measured):
    """As DESIGN.md §6 has it. Links that we hold back are `throttled`."""
    ours = measured.get(OURS, {}).get(case.size)
    peers = {name: times[case.size] for name, times in measured.items() if name != OURS and case.size in times}
    return {"bench": "comm", "case": case.name, "metric": "allreduce_seconds", "unit": "s", "better": "lower", "ours": ours,
            "limit": case.limit, "peers": peers, "kind": "throttled" if case.limit else "measured"}


def milliseconds(seconds):
    return "-" if seconds is None else f"{seconds * 1e3:.3f}" if seconds < 0.1 else f"{seconds * 1e3:.1f}"


def print_head(contenders):
    print(f"{'sums, ms':32} {'kind':>9} {'limit':>9}", *(f"{name:>{max(9, len(name))}}" for name in contenders), " goals", flush=True)


def print_row(case, row, contenders):
    cells = [milliseconds(row["ours"] if name == OURS else row["peers"].get(name)).rjust(max(9, len(name))) for name in contenders]
    verdicts = case.verdicts(row["ours"], row["peers"])
    goals = ", ".join(f"{value:.2f} ({goal}: {'kept' if kept else 'MISSED'})" for goal, value, kept in verdicts)
    print(f"{case.name:32} {row['kind']:>9} {milliseconds(row['limit']):>9}", *cells, "", goals, flush=True)


def chosen_cases(wanted):
    cases = [case for case in all_cases() if not wanted or any(case.name.startswith(text) for text in wanted)]
    if not cases:
        sys.exit(f"comm: no such case; there are: {', '.join(case.name for case in all_cases())}")
    reason = netns_hosts.possible() if any(case.limit for case in cases) else ""
    if reason:
        print(f"comm: without hosts of their own ({reason}), only within this one", file=sys.stderr)
    return [case for case in cases if not reason or not case.limit]


def main():
    parser = argparse.ArgumentParser(prog="run.sh comm", description="sums over all ranks")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", action="store_true", help="beside Open MPI and Gloo")
    parser.add_argument("--case", action="append", default=[], help="begin of a case's name; may be repeated")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    contenders = [OURS, *(CONTENDERS if arguments.peers else ())]
    chosen, rows = chosen_cases(arguments.case), []
    if not arguments.json:
        print_head(contenders)
    for layout, group in itertools.groupby(chosen, key=lambda case: case.layout):
        cases = list(group)
        with place_of(layout) as place:
            measured = measure(place, contenders, [case.size for case in cases], arguments.rounds)
        for case in cases:
            rows.append(row_of(case, measured))
            if not arguments.json:
                print_row(case, rows[-1], contenders)
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
