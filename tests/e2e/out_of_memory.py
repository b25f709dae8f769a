"""A device that runs out of memory gets smaller micro-batches and the run goes on; when none is left it says so."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

# On each of which larger micro-batches pay.
DEVICE = "      - {kind: cpu, type: %s, threads: 1, paced: {speed: %g, memory: 1GB, half_batch: 4}}\n"
FLEET = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 4
    devices:
"""
# An out-of-memory is no restart.
RUN = ("run", "job.yaml", "--no-compare", "--json", "--set", "retry.max_restarts=0")


def sandbox_with(devices, cache):
    sandbox = Sandbox(steps=20, every=5, cache=cache)
    sandbox.write("fleet.yaml", FLEET + "".join(DEVICE % device for device in devices))
    return sandbox


def plan_of(sandbox):
    return json.loads((sandbox.run_directory() / "plan.json").read_text())


def micro_batch_of(plan, device):
    rank = [place["device"] for place in plan["ranks"]].index(device)
    return next(replica["micro_batch"] for replica in plan["replicas"] if rank in replica["stages"][0]["ranks"])


def told(result):
    return re.findall(r"^(localhost/\d) \(\w+\) ran out of memory at micro-batch (\d+): going on with (\d+)$",
                      result.stderr, re.MULTILINE)


def check_at_the_start(cache):
    devices = [("fast", 1), ("fast", 1), ("slow", 0.3333)]
    whole = sandbox_with(devices, cache)
    reference = whole.run(*RUN)
    expect_exit(reference, 0)
    wanted = json.loads(reference.stdout.splitlines()[-1])
    expect_equal(wanted["out_of_memory"], [], "a run with memory enough")
    expect(micro_batch_of(plan_of(whole), plan_of(whole)["ranks"][1]["device"]) > 2, "nothing to halve")

    sandbox = sandbox_with(devices, cache)
    result = sandbox.run(*RUN, environment={"MOTLEY_FAILPOINT": "oom_above_micro_batch_2:1"})
    expect_exit(result, 0)
    summary = json.loads(result.stdout.splitlines()[-1])
    lines = told(result)
    expect(lines, f"not said: {result.stderr!r}")
    device = lines[0][0]
    expect(int(lines[-1][2]) <= 2, f"went on with too much: {lines}")
    expect(all(int(then) <= int(before) // 2 for _, before, then in lines), f"not halved: {lines}")
    expect_equal([(each["device"], str(each["micro_batch"]), str(each["then"])) for each in summary["out_of_memory"]],
                 lines, "in the report")
    expect_equal((summary["restarts"], summary["steps"]), (0, 20), "restarts and steps")
    expect(micro_batch_of(plan_of(sandbox), device) <= 2, "the plan kept")
    expect(abs(summary["final_loss"] - wanted["final_loss"]) < 1e-3, "another result")
    for row in sandbox.metrics():
        expect(row["step"] in range(1, 21), "steps")
    report = sandbox.run("report", "job")
    expect("ran out of memory at micro-batch" in report.stdout, f"not in the report: {report.stdout!r}")
    again = sandbox.run("run", "job.yaml", "--no-compare", "--json", "--set", "train.steps=25",
                        environment={"MOTLEY_FAILPOINT": "oom_above_micro_batch_2:1"})
    expect_exit(again, 0)
    expect_equal(told(again), [], "the plan that fits is kept when the run goes on")
    print(f"ok: out of memory at the start: {lines}")


def check_until_nothing_is_left(cache):
    sandbox = sandbox_with([("only", 1)], cache)
    result = sandbox.run(*RUN, environment={"MOTLEY_FAILPOINT": "oom_at_step_8:0"})
    expect_exit(result, 1)
    lines = told(result)
    expect_equal(lines[-1][2], "1", f"halved down to 1: {lines}")
    expect_equal([before for _, before, _ in lines[1:]], [then for _, _, then in lines[:-1]], "one after the other")
    end = [line for line in result.stderr.splitlines() if line.startswith("motley: ")]
    expect_equal(len(end), 1, f"lines of error in {result.stderr!r}")
    expect(re.search(r"out of memory.*; localhost/0 cannot hold micro-batch 1: no smaller one is left", end[0]), end[0])
    expect("continuing from step 5 (attempt 2)" in result.stderr, f"steps were lost: {result.stderr!r}")
    expect_equal(sandbox.last_step(), 7, "steps before it")
    print(f"ok: out of memory until nothing is left: {end[0]}")


def check_exact_does_not_cut_its_grain(cache):
    sandbox = sandbox_with([("only", 1)], cache)
    sandbox.write_job(steps=20, every=5, numerics="exact", grain=4)
    result = sandbox.run(*RUN, environment={"MOTLEY_FAILPOINT": "oom_above_micro_batch_2"})
    expect_exit(result, 1)
    expect("numerics: exact computes whole grains of 4" in result.stderr, f"not said why: {result.stderr!r}")
    print("ok: exact does not cut its grain")


def check_a_plan_by_hand(cache):
    """Only the micro-batch of the replica changes."""
    sandbox = sandbox_with([("fast", 1), ("slow", 0.3333)], cache)
    expect_exit(sandbox.run("plan", "job.yaml", "-o", "plan.json"), 0)
    given = json.loads((sandbox.home / "plan.json").read_text())
    result = sandbox.run(*RUN, "--plan", "plan.json", environment={"MOTLEY_FAILPOINT": "oom_above_micro_batch_2:0"})
    expect_exit(result, 0)
    expect(told(result), f"not said: {result.stderr!r}")
    used = plan_of(sandbox)
    first = next(i for i, replica in enumerate(given["replicas"]) if 0 in replica["stages"][0]["ranks"])
    expect(used["replicas"][first]["micro_batch"] <= 2, "the micro-batch used")
    for replicas in (given["replicas"], used["replicas"]):
        replicas[first]["micro_batch"] = None
    expect_equal(used["replicas"], given["replicas"], "the rest of the plan")
    print("ok: out of memory under a plan by hand")


def main():
    cache = Sandbox().home / "cache"
    check_at_the_start(cache)
    check_until_nothing_is_left(cache)
    check_exact_does_not_cut_its_grain(cache)
    check_a_plan_by_hand(cache)


if __name__ == "__main__":
    run_test(main)
