"""What mixing brings: paced fleets from a fixed seed (2 to 8 devices, 1x to 8x apart, on the logical clock), run by `motley run` with all
devices and with the best other set of them that `motley worth` knows.

    tests/bench/run.sh planner mixed [--json] [--case N]...

`efficiency` is the samples a second of the run over the sum of those of its devices alone; the limit counts where every device holds the
model (`roomy`). `over_best_subset` is the run's speed over that of the best other set of devices, measured as well."""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(pathlib.Path(__file__).resolve().parent / "accuracy")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
from comm_bench import mpi_environment  # noqa: E402
from fleets import Case, Device, Model, shuffled, speeds  # noqa: E402
from sandbox import Sandbox, run_test, sample_text  # noqa: E402

SEED = 20261124
EFFICIENCY, OVER_SUBSET = 0.95, 1.0
CLOCK_ERROR = 0.001  # of two runs that take the same, in whole nanoseconds a section
SAMPLES = 192
RUN_SECONDS = 1800  # of six unlike devices with little memory `motley worth` plans 63 sets


def mixed_case(source, number):
    count = 2 + number % 7
    model = Model(source.choice([4, 6]), 32, 16)
    tight = number % 4 == 3
    whole = 26 * model.parameters()  # bytes, about, with what summing and saving take
    devices = []
    for place, speed in enumerate(shuffled(source, speeds(source, count))):
        memory = int(whole * source.uniform(0.6, 0.8)) if tight and place > 0 else 1 << 30
        devices.append(Device(speed, source.choice([0, 100, 300, 1000]), source.choice([0, 0.25, 0.5]), memory))
    return Case(f"{'tight' if tight else 'roomy'}-{number:02}", tuple(devices), model, SAMPLES, steps=8)


def cases():
    source = random.Random(SEED)
    return [mixed_case(source, number) for number in range(14)]


class Mix:
    """A fleet with all of its devices, and with the best other set of them."""

    def __init__(self, case):
        self.case, self.sandbox = case, Sandbox(name=case.name)
        self.sandbox.write("text.txt", sample_text())
        self.sandbox.write("fleet.yaml", case.fleet_text())
        self.all = self.run("all", "")
        self.subset = self.best_other_set()
        self.part = self.run("part", f"resources: {{devices: {{types: [{', '.join(self.subset)}]}}}}\n")

    def motley(self, *words):
        done = self.sandbox.run(*words, timeout=RUN_SECONDS, environment={**mpi_environment(), **self.sandbox.environment})
        if done.returncode != 0:
            sys.exit(f"planner mixed: {self.case.name}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def run(self, name, more):
        self.sandbox.write(f"{name}.yaml", self.case.job_text().replace(f"name: {self.case.name}", f"name: {name}") + more)
        return self.motley("run", f"{name}.yaml", "--json", "--no-compare")

    def best_other_set(self):
        mixes = self.motley("worth", "all.yaml", "--json")["mixes"]
        others = [mix for mix in mixes if mix["why_not"] is None and len(mix["types"]) < len(self.case.devices)]
        return [entry["type"] for entry in others[0]["types"]] if others else [f"d{i}" for i in range(len(self.case.devices))]

    @property
    def over_subset(self):
        return self.all["samples_per_second"] / self.part["samples_per_second"]

    def rows(self):
        limit = EFFICIENCY if self.case.name.startswith("roomy") else None
        return [row_of(self.case.name, "efficiency", self.all["efficiency"], limit),
                row_of(self.case.name, "over_best_subset", self.over_subset, OVER_SUBSET)]

    def print(self):
        allowed = self.all["integer_bound_efficiency"]
        print(f"{self.case.name:10} {len(self.case.devices):>7} {self.all['samples_per_second']:>9.1f} {self.all['efficiency']:>10.1%}"
              f" {'-' if allowed is None else f'{allowed:.1%}':>13} {self.part['samples_per_second']:>11.1f} {self.over_subset:>6.2f}x"
              f"  {' '.join(self.subset)}", flush=True)


def row_of(case, metric, value, limit):
    """As DESIGN.md §6 has it."""
    return {"bench": "planner", "case": f"mixed/{case}", "metric": metric, "unit": "", "better": "higher", "ours": value, "limit": limit,
            "peers": {}, "kind": "paced"}


def print_summary(mixes):
    roomy = [mix.all["efficiency"] for mix in mixes if mix.case.name.startswith("roomy")]
    if roomy:
        print(f"of the sum of solo speeds, {len(roomy)} fleets whose devices hold the model: median {statistics.median(roomy):.1%}, least"
              f" {min(roomy):.1%} (limit {EFFICIENCY:.0%}: {'kept' if min(roomy) >= EFFICIENCY else 'MISSED'})")
    least = min(mix.over_subset for mix in mixes)
    kept = least >= OVER_SUBSET - CLOCK_ERROR
    print(f"over the best other set of devices: least {least:.3f}x (limit {OVER_SUBSET:.0f}: {'kept' if kept else 'MISSED'})")


def main():
    parser = argparse.ArgumentParser(prog="run.sh planner mixed", description="mixed fleets beside their parts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", default=[], help="number from 0; may be repeated")
    arguments = parser.parse_args()
    chosen = [case for number, case in enumerate(cases()) if not arguments.case or str(number) in arguments.case]
    if not arguments.json:
        print(f"{'fleet':10} {'devices':>7} {'samples/s':>9} {'of solo':>10} {'grains allow':>13} {'best subset':>11} {'':>7}  of")
    mixes = []
    for case in chosen:
        mixes.append(Mix(case))
        if not arguments.json:
            mixes[-1].print()
    if arguments.json:
        print(json.dumps([row for mix in mixes for row in mix.rows()], indent=1))
    elif mixes:
        print_summary(mixes)


if __name__ == "__main__":
    run_test(main)
