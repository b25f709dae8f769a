"""What is left of the time that gradients and sharded weights take between hosts when they go out while others are still computed
or used: a training on two hosts joined by a link of exact rate (netns and link_switch of tests/support; needs root), its steps by
twos with communication beside computing and after it.

    tests/bench/run.sh overlap [--json] [--case plain|sharded]... [--pairs N]

The link is made as fast as lets the sums take RATIO of a backward pass. Of each two the second is looked at, as weights belong to
the step after. Of a pair of these, one of each kind: `exposed` is the time by which the step with communication beside is longer
than the computing of the other, as a share of what the communication of the other took, so also what computing is slowed down;
`tail` counts only what computing waits for. Figures are medians over the pairs."""

import argparse
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
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "bench"), str(ROOT / "tests" / "bench" / "comm")]
from comm_bench import mpi_environment  # noqa: E402
import netns_hosts  # noqa: E402
from linked_hosts import GIGABIT, LinkedHosts  # noqa: E402
from sandbox import BIN, MOTLEY, WORKER, sample_text  # noqa: E402

CASES = {"plain": False, "sharded": True}  # whether optimizer state is sharded
GOAL = 0.15
RATIO = 0.7  # of sums to a backward pass
# Much computing for each byte: what moves the bytes here takes time from the same cores.
LAYERS, WIDTH, CONTEXT, SAMPLES = 8, 256, 128, 32  # samples of each rank
HOSTS = ["a", "b"]
WARM_UP = 2  # steps
RUN_SECONDS = 600

JOB = f"""version: 1
name: overlap
model: {{type: gpt, layers: {LAYERS}, heads: 4, width: {WIDTH}, context: {CONTEXT}}}
data: {{text: [text.txt]}}
train:
  global_batch: {SAMPLES * len(HOSTS)}
  grain: {SAMPLES}
  steps: %d
  optimizer: {{type: adamw, lr: 1.0e-4, clip: 1.0}}
  eval: {{every: 1000000, samples: {SAMPLES}}}
checkpoint: {{every: 1000000}}
"""


def plan(sharded):
    """One replica on each host, by hand, with its fleet."""
    device = {"kind": "cpu", "type": "core", "uuid": "", "threads": 1, "memory": None, "price_per_hour": 0.0, "paced": None}
    stage = {"first_layer": 0, "last_layer": LAYERS + 1}
    return {
        "version": 1, "numerics": "fast", "global_batch": SAMPLES * len(HOSTS), "grain": SAMPLES, "shard_optimizer": sharded,
        "ranks": [{"device": f"{host}/0", "host": host, "type": "core"} for host in HOSTS],
        "replicas": [{"stages": [{**stage, "ranks": [rank]}], "micro_batch": SAMPLES, "grains": 1} for rank in range(len(HOSTS))],
        "fleet": {"version": 1, "source": "", "clock": "sleep", "pace_flops": 1e9, "links": [],
                  "devices": [{"id": f"{host}/0", "host": host, **device} for host in HOSTS]}}


def parameters():
    """As core/model.h lists them."""
    block = 12 * WIDTH * WIDTH + 13 * WIDTH
    return LAYERS * block + (256 + CONTEXT + 2) * WIDTH


class Bed:
    """Runs trainings on the hosts, each in a directory of its own."""

    def __init__(self, home, hosts):
        self.home, self.hosts, self.runs = pathlib.Path(home), hosts, 0
        (self.home / "text.txt").write_text(sample_text(200_000))

    def train(self, sharded, steps, afterwards):
        """{step: [its times on each rank]}; the sums of the steps in `afterwards` are taken when all is computed."""
        self.runs += 1
        run = self.home / f"run-{self.runs}"
        run.mkdir()
        (run / "text.txt").symlink_to(self.home / "text.txt")
        (run / "job.yaml").write_text(JOB % steps)
        job = subprocess.run([MOTLEY, "export", "job", "job.yaml"], cwd=run, check=True, capture_output=True, text=True).stdout
        (run / "job.json").write_text(job)
        (run / "plan.json").write_text(json.dumps(plan(sharded)))
        failpoints = ",".join(f"sum_afterwards_at_step_{step}" for step in afterwards)
        # Each rank has a core; what moves its gradients shares that, as on a machine that is put to use.
        pinned = ["sh", "-c", f'exec taskset -c $((OMPI_COMM_WORLD_RANK % {os.cpu_count()})) "$@"', "rank"]
        command = [shutil.which("mpirun.openmpi") or "mpirun", "--bind-to", "none", "-n", str(len(HOSTS)),
                   "--host", ",".join(f"{host}:1" for host in HOSTS), "--mca", "plm_rsh_agent", str(self.hosts.agent),
                   "--mca", "btl_tcp_if_include", "eth0", "-x", f"MOTLEY_FAILPOINT={failpoints}", *pinned,
                   WORKER, "train", "--job", str(run / "job.json"), "--plan", str(run / "plan.json"), "--run-dir", str(run / "run"),
                   "--trace"]
        done = subprocess.run(self.hosts.command_on(HOSTS[0], command), env=mpi_environment(), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=RUN_SECONDS)
        if done.returncode != 0:
            sys.exit(f"overlap: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
        traces = [times_of(run / f"run/attempts/1/trace-rank-{rank:04}.json") for rank in range(len(HOSTS))]
        return {step: [trace[step] for trace in traces] for step in traces[0]}


def times_of(path):
    """{step: {"step" | "backward" | "reduce" | "tail": seconds}} of a rank."""
    steps = {}
    for event in json.loads(path.read_text()):
        if event["ph"] != "X":
            continue
        times = steps.setdefault(event["args"]["step"], {"step": 0, "backward": 0, "reduce": 0, "distribute": 0, "tail": 0})
        what, seconds = re.sub(r" \d+$", "", event["name"]), event["dur"] / 1e6
        if what in times:
            times[what] += seconds
        if what in ("agreement", "reduce", "wait for reduce", "distribute", "wait for distribute"):
            times["tail"] += seconds
    return steps


def calibrated_rate(bed, sharded):
    """Bytes per second at which the sums take RATIO of a backward pass; of sharded state a rank gets the half that it owns."""
    times = bed.train(sharded, WARM_UP + 3, range(1, WARM_UP + 4))
    backward = statistics.median(max(rank["backward"] for rank in times[step]) for step in times if step > WARM_UP)
    return parameters() * 4 / (len(HOSTS) if sharded else 1) / (RATIO * backward)


def measure(bed, sharded, pairs):
    """Medians over the pairs: exposed, tail (as shares of the communication), the rest in seconds."""
    for host in HOSTS:
        bed.hosts.slow(host, GIGABIT)
    rate = calibrated_rate(bed, sharded)
    for host in HOSTS:
        bed.hosts.slow(host, rate)
    steps = WARM_UP + 4 * pairs
    firsts = range(WARM_UP + 1, steps, 4)
    times = bed.train(sharded, steps, [step for first in firsts for step in (first, first + 1)])
    rows = []
    for first in firsts:
        after, beside = first + 1, first + 3

        def of(step, what, choose=max):
            return choose(rank[what] for rank in times[step])
        sums = of(after, "reduce", min)
        communication = sums + of(after, "distribute", min)
        computing = of(after, "step") - communication
        rows.append({"exposed": (of(beside, "step") - computing) / communication,
                     "tail": (of(beside, "tail") - (of(after, "tail") - communication)) / communication,
                     "sums": sums, "communication": communication, "backward": of(after, "backward")})
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def row_of(case, metric, value):
    """As DESIGN.md §6 has it."""
    return {"bench": "overlap", "case": case, "metric": metric, "unit": "", "better": "lower", "ours": value, "limit": GOAL,
            "peers": {}, "kind": "throttled"}


def main():
    parser = argparse.ArgumentParser(prog="run.sh overlap", description="communication beside computing")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", choices=list(CASES), default=[])
    parser.add_argument("--pairs", type=int, default=8, help="of steps")
    arguments = parser.parse_args()
    if reason := netns_hosts.possible():
        sys.exit(f"overlap: needs hosts of their own: {reason}")
    rows = []
    # Not beneath /tmp, which is private to each host.
    with tempfile.TemporaryDirectory(prefix="motley-overlap-", dir="/var/tmp") as home, \
            LinkedHosts(HOSTS, home, private=[], shared=[str(BIN.parent)]) as hosts:
        bed = Bed(home, hosts)
        for case in arguments.case or CASES:
            found = measure(bed, CASES[case], arguments.pairs)
            rows += [row_of(case, f"{metric}_share", found[metric]) for metric in ("exposed", "tail")]
            if not arguments.json:
                print(f"{case:8} sums {found['sums'] * 1e3:6.0f} ms, {found['sums'] / found['backward']:.2f} of a backward pass,"
                      f" all {found['communication'] * 1e3:6.0f} ms; exposed {found['exposed']:6.1%}, waited for {found['tail']:6.1%} (goal {GOAL:.0%})", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
