"""Jobs that pin parts of their plan: the plan keeps them, says what they cost, and runs as predicted."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

PIN = """pin:
  replicas:
    - stages:
        - {layers: [0, 1], devices: [localhost/2]}
        - {layers: [2, 3], devices: [localhost/0], recompute: block}
      micro_batch: 2
  leave_out: [localhost/3]
"""


def planned(sandbox, *arguments):
    result = sandbox.run("plan", "job.yaml", "--json", *arguments)
    expect_exit(result, 0)
    return json.loads(result.stdout)


def devices_of(plan, replica):
    return [[plan["ranks"][rank]["device"] for rank in stage["ranks"]] for stage in replica["stages"]]


def check_kept(sandbox):
    free = planned(sandbox)
    job = (sandbox.home / "job.yaml").read_text()
    sandbox.write("job.yaml", job + PIN)
    plan = planned(sandbox)
    cut = [replica for replica in plan["replicas"] if len(replica["stages"]) == 2]
    expect_equal([devices_of(plan, replica) for replica in cut], [[["localhost/2"], ["localhost/0"]]], "the pinned replica")
    expect_equal(cut[0]["micro_batch"], 2, "its micro-batch")
    expect_equal(cut[0]["stages"][1]["recompute"], ["block", "none"], "what it computes again")
    expect_equal(plan["left_out"], [{"device": "localhost/3", "why": "pin.leave_out"}], "who is left out")
    others = [devices_of(plan, replica) for replica in plan["replicas"] if replica not in cut]
    expect_equal(others, [[["localhost/1"]]], "what the rest does")
    without = [row for row in plan["search"]["rejected"] if row["what"] == "the plan without pin.replicas"]
    expect_equal(len(without), 1, "rows of the plan without pins")
    expect(free["search"]["step_seconds"] <= without[0]["step_seconds"] < plan["search"]["step_seconds"], f"{without} {free['search']}")
    expect(plan["search"]["lower_bound_step_seconds"] <= plan["search"]["step_seconds"], f"bound: {plan['search']}")
    expect_equal(planned(sandbox)["id"], plan["id"], "the same plan again")
    result = sandbox.run("run", "job.yaml", "--json", "--no-compare")
    expect_exit(result, 0)
    final = json.loads(result.stdout)
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    ran = json.loads((sandbox.run_directory() / "plan.json").read_text())
    expect_equal(ran["replicas"], plan["replicas"], "replicas that ran")
    sandbox.write("job.yaml", job)
    print(f"ok: a pinned replica is kept, off by {error:.1%}")


def check_counts(sandbox):
    two = planned(sandbox, "--set", "parallel.data=2")
    expect_equal(len(two["replicas"]), 2, "replicas")
    cut = planned(sandbox, "--set", "parallel.data=2", "--set", "parallel.pipeline=2")
    expect_equal([len(replica["stages"]) for replica in cut["replicas"]], [2, 2], "stages")
    whole = planned(sandbox, "--set", "parallel.pipeline=1")
    expect(all(len(replica["stages"]) == 1 for replica in whole["replicas"]), "not whole")
    none = sandbox.run("plan", "job.yaml", "--set", "parallel.data=3", "--set", "parallel.pipeline=2")
    expect_exit(none, 65)
    expect("'data': at least 6 devices are needed for 3 replicas of 2 stages; " in none.stderr, none.stderr)
    expect("fleet.yaml has 4 for the job (lower it, or leave it auto)\n" in none.stderr, none.stderr)
    few = sandbox.run("simulate", "job.yaml", "--set", "parallel.tensor=2", "--set", "resources={devices: {count: 1}}")
    expect_exit(few, 65)
    expect("'tensor': at least 2 devices are needed for stages of 2 devices each; resources.devices.count allows 1" in few.stderr, few.stderr)
    print("ok: as many replicas and stages as the job wants")


def check_refused(sandbox):
    job = (sandbox.home / "job.yaml").read_text()

    def refused(code, pin, said):
        sandbox.write("job.yaml", job + pin)
        result = sandbox.run("plan", "job.yaml")
        expect_exit(result, code)
        expect(said in result.stderr, f"{said!r} is not in {result.stderr!r}")

    line = job.count("\n") + 1
    refused(65, PIN.replace("[2, 3]", "[2, 4]"), f"job.yaml:{line + 3}:9: the stages have layers 0 to 4, the model has 0 to 3")
    refused(69, PIN.replace("localhost/3", "localhost/9"), f"job.yaml:{line + 6}:15: no device 'localhost/9' in")
    refused(65, PIN.replace("micro_batch: 2", "micro_batch: 2000"), f"job.yaml:{line + 5}:20: 'micro_batch': 2000 samples are more than a step")
    refused(65, PIN.replace("localhost/3", "localhost/0"), f"job.yaml:{line + 6}:15: localhost/0 is pinned twice")
    sandbox.write("job.yaml", job)
    print("ok: pins that make no plan are refused where they are wrong")


def main():
    sandbox = Sandbox(steps=12, every=12)
    check_kept(sandbox)
    check_counts(sandbox)
    check_refused(sandbox)


if __name__ == "__main__":
    run_test(main)
