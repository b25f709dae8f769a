"""What is predicted of a step and of each rank's memory beside what `motley run` then takes: on paced fleets from a fixed seed, on two
hosts with slow links between them (as root), and on devices that are held back (quota of CPU time, as root; pinning), of which only
measured curves are known.

    tests/bench/run.sh planner accuracy [--json] [--case N]... [--rounds N]

--case takes a case by its number in the table or by the begin of its name. A case that is held back is measured and run anew in every
round, these cases in turn; its error is that of the median over the rounds. The limits: 5 % in the median, 10 % at worst; memory never
under and at most 5 % over."""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(pathlib.Path(__file__).resolve().parent / "accuracy")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
import held_back  # noqa: E402
from comm_bench import mpi_environment  # noqa: E402
from fleets import all_cases  # noqa: E402
from linked_hosts import LinkedHosts  # noqa: E402
import netns_hosts  # noqa: E402
from sandbox import BIN, WORKER, Sandbox, run_test, sample_text  # noqa: E402

MEDIAN, WORST, MEMORY_OVER = 0.05, 0.10, 0.05
ROUNDS = 3
RUN_SECONDS = 900
KINDS = ("paced", "linked", "throttled", "beside")


class Outcome:
    """Of one run."""

    def __init__(self, sandbox, final):
        run = pathlib.Path(final["run_dir"])
        plan = json.loads((run / "plan.json").read_text())
        self.predicted, self.actual = final["predicted_step_seconds"], final["actual_step_seconds"]
        self.form = form_of(plan)
        self.memory = [(rank["memory"], counted_by(run, rank["rank"])) for rank in plan["prediction"]["ranks"]]

    @property
    def ratio(self):
        return self.predicted / self.actual

    def memory_over(self):
        """The share by which the prediction is above what was counted: of the ranks the least and the most."""
        over = [predicted / counted - 1 for predicted, counted in self.memory]
        return min(over), max(over)


def counted_by(run, rank):
    """The peak of what the rank's own account says."""
    log = (run / "attempts" / "1" / f"rank-{rank:04}.log").read_text()
    return max(int(number) for number in re.findall(r"counted memory[^:]*: (\d+) bytes", log))


def form_of(plan):
    """Its kinds of replica: "3x whole", "whole + 2 stages over 3" (ranks)."""
    shapes = []
    for replica in plan["replicas"]:
        stages, ranks = len(replica["stages"]), sum(len(stage["ranks"]) for stage in replica["stages"])
        shapes.append(f"{stages} stages" if stages > 1 else "whole")
        if ranks > stages:
            shapes[-1] += f" over {ranks}"
    counts = [(shape, shapes.count(shape)) for shape in dict.fromkeys(shapes)]
    return " + ".join(shape if count == 1 else f"{count}x {shape}" for shape, count in counts)


def run_on_hosts(case, sandbox, words, environment):
    """From the first of them."""
    home = sandbox.home
    with LinkedHosts(case.host_names(), home, private=[], shared=[str(BIN.parent)], rate=case.rate) as hosts:
        command = [*sandbox.command(*words), "--rsh-agent", str(hosts.agent)]
        return subprocess.run(hosts.command_on(case.host_names()[0], command), cwd=home, env=environment, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=RUN_SECONDS)


def move_to_shared_place(sandbox):
    """Of hosts each has a /tmp of its own."""
    home = pathlib.Path("/var/tmp") / sandbox.home.name
    shutil.move(sandbox.home, home)
    sandbox.home = home
    sandbox.environment.update(XDG_STATE_HOME=str(home / "state"), XDG_CACHE_HOME=str(home / "cache"))


def run_case(case):
    sandbox = Sandbox(name=case.name)
    if case.hosts > 1:
        move_to_shared_place(sandbox)
    sandbox.write("text.txt", sample_text())
    sandbox.write("fleet.yaml", case.fleet_text())
    sandbox.write("job.yaml", case.job_text())
    words = ["run", "job.yaml", "--json", "--no-compare"]
    if case.plan:
        words += ["--plan", sandbox.write("plan.json", case.plan)]
    holding = held_back.worker_of(case, sandbox.home, WORKER) if case.is_held_back() else contextlib.nullcontext(WORKER)
    with holding as worker:
        environment = {**mpi_environment(), **sandbox.environment, "MOTLEY_WORKER": worker}
        if case.hosts > 1:
            done = run_on_hosts(case, sandbox, words, environment)
        else:
            done = sandbox.run(*words, timeout=RUN_SECONDS, environment=environment)
    if done.returncode != 0:
        sys.exit(f"planner accuracy: {case.name}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return Outcome(sandbox, json.loads(done.stdout))


class Result:
    """A case and its runs."""

    def __init__(self, number, case):
        self.number, self.case, self.outcomes = number, case, []

    @property
    def error(self):
        """Signed: above 0 where more was predicted than taken."""
        return statistics.median(outcome.ratio for outcome in self.outcomes) - 1

    def memory_over(self):
        spans = [outcome.memory_over() for outcome in self.outcomes]
        return min(span[0] for span in spans), max(span[1] for span in spans)

    def rows(self):
        case = f"accuracy/{self.case.name}"
        least, most = self.memory_over()
        return [row_of(case, "step_error", abs(self.error), WORST, self.case.kind),
                row_of(case, "memory_over", most, MEMORY_OVER, self.case.kind),
                row_of(case, "memory_under", max(0.0, -least), 0, self.case.kind)]

    def print(self):
        middle = sorted(self.outcomes, key=lambda outcome: outcome.ratio)[len(self.outcomes) // 2]
        ratios = [f"{outcome.ratio - 1:+.1%}" for outcome in self.outcomes] if len(self.outcomes) > 1 else []
        predicted, counted = max(middle.memory)
        kind = self.case.kind + (f", {self.case.clock}" if self.case.kind == "paced" else "")
        print(f"{self.number:>3} {self.case.name:32} {kind:14} {len(self.case.devices):>7} {middle.form:28} {middle.predicted * 1e3:>9.1f}"
              f" {middle.actual * 1e3:>9.1f} {self.error:>+7.2%} {predicted / 1e6:>8.2f} {counted / 1e6:>8.2f} {self.memory_over()[1]:>+6.1%}",
              *ratios, flush=True)


def row_of(case, metric, value, limit, kind):
    """As DESIGN.md §6 has it."""
    return {"bench": "planner", "case": case, "metric": metric, "unit": "", "better": "lower", "ours": value, "limit": limit,
            "peers": {}, "kind": kind}


def summary_rows(results):
    rows = []
    for kind in KINDS:
        errors = [abs(result.error) for result in results if result.case.kind == kind]
        if errors:
            rows += [row_of(f"accuracy {kind}", "median_step_error", statistics.median(errors), MEDIAN, kind),
                     row_of(f"accuracy {kind}", "worst_step_error", max(errors), WORST, kind)]
    return rows


def chosen_cases(wanted):
    """[(number, case)]; what cannot be held back here is left out, with a word."""
    cases = list(enumerate(all_cases(), 1))
    names = {case.name for _, case in cases}

    def is_wanted(number, case):
        return not wanted or any(text in (str(number), case.name) or (text not in names and case.name.startswith(text))
                                 for text in wanted)
    cases = [(number, case) for number, case in cases if is_wanted(number, case)]
    if not cases:
        sys.exit("planner accuracy: no such case; there are: " + ", ".join(case.name for case in all_cases()))
    reason = held_back.why_not() if any(case.needs_quota() for _, case in cases) else ""
    if reason:
        print(f"planner accuracy: {reason}; the cases that need one are left out", file=sys.stderr)
    no_hosts = netns_hosts.possible() if any(case.hosts > 1 for _, case in cases) else ""
    if no_hosts:
        print(f"planner accuracy: {no_hosts}; the cases of several hosts are left out", file=sys.stderr)
    return [(number, case) for number, case in cases
            if not (reason and case.needs_quota()) and not (no_hosts and case.hosts > 1)]


def print_head():
    print(f"{'':>3} {'case':32} {'kind':14} {'devices':>7} {'plan':28} {'predicted':>9} {'actual ms':>9} {'error':>7} {'MB':>8} {'counted':>8}"
          f" {'over':>6} errors by round", flush=True)


def print_summary(results, rows):
    for row in rows:
        cases = sum(result.case.kind == row["kind"] for result in results)
        verdict = "kept" if row["ours"] <= row["limit"] else "MISSED"
        print(f"{row['case']}, {cases} cases: {row['metric'].replace('_', ' ')} {row['ours']:.2%} (limit {row['limit']:.0%}: {verdict})")
    spans = [result.memory_over() for result in results]
    least, most = min(span[0] for span in spans), max(span[1] for span in spans)
    verdict = "kept" if least >= 0 and most <= MEMORY_OVER else "MISSED"
    print(f"memory: predicted over counted by {least:.2%} to {most:.2%} (never under, at most {MEMORY_OVER:.0%} over: {verdict})")


def main():
    parser = argparse.ArgumentParser(prog="run.sh planner accuracy", description="predictions against runs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", default=[], help="number, or begin of a name; may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each case that is held back")
    arguments = parser.parse_args()
    results = [Result(number, case) for number, case in chosen_cases(arguments.case)]
    if not arguments.json:
        print_head()
    for round_ in range(arguments.rounds):
        for result in results:
            throttled = result.case.is_held_back()
            if round_ > 0 and not throttled:
                continue
            result.outcomes.append(run_case(result.case))
            if throttled:
                print(f"round {round_ + 1}, {result.case.name}: {result.outcomes[-1].ratio - 1:+.1%}", file=sys.stderr, flush=True)
            if not arguments.json and (not throttled or round_ + 1 == arguments.rounds):
                result.print()
    summary = summary_rows(results)
    if arguments.json:
        print(json.dumps([row for result in results for row in result.rows()] + summary, indent=1))
    else:
        print_summary(results, summary)


if __name__ == "__main__":
    run_test(main)
