"""Plans by hand: any valid one is priced and run, a wrong one refused where it is wrong."""

import json
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import WORKER, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def stage(first, last, ranks, **more):
    return {"first_layer": first, "last_layer": last, "ranks": ranks, **more}


def written(sandbox, plan, name="plan.json"):
    return sandbox.write(name, json.dumps(plan, indent=1))


def by_hand():
    """Two unlike replicas of a model with layers 0 to 3: two stages, and two ranks that share all."""
    return {
        "version": 1, "numerics": "fast", "global_batch": 16, "grain": 1,
        "ranks": [{"device": f"localhost/{i}"} for i in range(4)],
        "replicas": [
            {"stages": [stage(0, 1, [0], recompute=["none", "block"]), stage(2, 3, [1])],
             "micro_batch": 1, "grains": 12},
            {"stages": [stage(0, 3, [2, 3])], "micro_batch": 2, "grains": 4},
        ],
        "shard_optimizer": True,
    }


def final_object(result):
    expect_exit(result, 0)
    return json.loads(result.stdout)


def check_runs_as_predicted(sandbox):
    final = final_object(sandbox.run("run", "job.yaml", "--plan", written(sandbox, by_hand()), "--json"))
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    expect(final["final_loss"] < final["first_loss"] - 0.5, f"nothing was learned: {final}")
    run = sandbox.run_directory()
    plan = json.loads((run / "plan.json").read_text())
    for rank in plan["prediction"]["ranks"]:
        log = (run / "attempts" / "1" / f"rank-{rank['rank']:04}.log").read_text()
        counted = int(re.search(r"counted memory: (\d+) bytes", log).group(1))
        expect_equal(counted, rank["memory"], f"bytes of rank {rank['rank']}")
    report = sandbox.run("report", "job")
    expect_exit(report, 0)
    for device in range(4):
        expect(f"localhost/{device}" in report.stdout, f"no row for device {device}:\n{report.stdout}")
    return plan


def check_score(sandbox, plan):
    scored = sandbox.run("plan", "job.yaml", "--score", "plan.json", "-o", "whole.json", "--explain")
    expect_exit(scored, 0)
    rows = [line.split() for line in scored.stdout.splitlines()
            if line.startswith("localhost/") and "/" in line[10:]]
    expect_equal([row[2:5] for row in rows[-4:]],
                 [["0.0", "0-1", "100.0"], ["0.1", "2-3", "100.0"], ["1.0", "0-3", "50.0"], ["1.0", "0-3", "50.0"]],
                 f"places in\n{scored.stdout}")
    whole = json.loads((sandbox.home / "whole.json").read_text())
    expect_equal(whole["id"], plan["id"], "id of the plan that was written and of the one that ran")
    again = sandbox.run("plan", "job.yaml", "--score", "whole.json", "--json")
    expect_exit(again, 0)
    expect_equal(json.loads(again.stdout)["id"], plan["id"], "id of the completed plan, scored again")


def check_estimate(sandbox):
    rows = subprocess.run([WORKER, "estimate", "--plan", str(sandbox.home / "whole.json"), "--json"],
                          capture_output=True, text=True, check=True).stdout
    whole = json.loads((sandbox.home / "whole.json").read_text())
    expect_equal([row["total_bytes"] for row in json.loads(rows)],
                 [rank["memory"] for rank in whole["prediction"]["ranks"]], "bytes by rank")
    job = sandbox.write("job.json", json.dumps(whole["job"]))
    rows = json.loads(subprocess.run(
        [WORKER, "estimate", "--job", job, "--layers", "block,head", "--micro-batches", "1,4", "--shares", "1,0.5",
         "--recompute", "none,block", "--json"], capture_output=True, text=True, check=True).stdout)
    expect_equal(len(rows), 2 * 2 * 2 + 2 * 2, "rows of layers")

    def row(**what):
        return next(row for row in rows if all(row[key] == value for key, value in what.items()))
    kept = row(layer="block", micro_batch=4, share=1, recompute="none")
    again = row(layer="block", micro_batch=4, share=1, recompute="block")
    half = row(layer="block", micro_batch=4, share=0.5, recompute="none")
    expect(again["saved_bytes"] < kept["saved_bytes"], "recomputing saves nothing")
    refusal = subprocess.run([WORKER, "estimate", "--job", job, "--shares", "0.1"], capture_output=True, text=True)
    expect_equal(refusal.returncode, 65, f"exit code ({refusal.stderr.strip()!r})")
    expect("a share of 0.1 gets no attention head" in refusal.stderr, f"a share too small: {refusal.stderr!r}")
    expect(half["static_bytes"] < kept["static_bytes"], "half a block has as many parameters")
    for part in (one for one in rows if one["share"] < 1):  # bounds on plans that share stages rest on it
        whole = next(one for one in rows if one["share"] == 1 and all(
            one[key] == part[key] for key in ("layer", "micro_batch", "recompute")))
        for kind in ("static_bytes", "saved_bytes", "transient_bytes"):
            expect(part[kind] >= part["share"] * whole[kind], f"{kind} of {part} are less than its share of {whole}")


def without(plan, *path):
    """The plan without one of its members."""
    inner = plan
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return plan


def with_value(plan, value, *path):
    inner = plan
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return plan


def twice_owned(whole):
    whole["owners"].append(whole["owners"][0])
    return whole


def check_refusals(cache, whole):
    """Each with its place, before a run exists or anything is measured."""
    def hand(value, *path):
        return with_value(by_hand(), value, *path)

    cases = [
        ("lost layer", hand(3, "replicas", 0, "stages", 1, "first_layer"), "first_layer", "begins at layer 3 where 2"),
        ("empty stage", hand(1, "replicas", 0, "stages", 1, "last_layer"), "last_layer", "no layers"),
        ("no stages", hand([], "replicas", 0, "stages"), "stages", "the replica has no stages"),
        ("no replicas", hand([], "replicas"), "replicas", "there are none"),
        ("no owners", hand([], "owners"), "owners", "there are none"),
        ("precision", hand("fp64", "replicas", 0, "stages", 0, "precision"), "precision", "localhost/0 computes this job in fp32"),
        ("overlapping owners", twice_owned(json.loads(json.dumps(whole))), "owners", "two slices cover"),
        ("unknown rank", hand([9], "replicas", 0, "stages", 1, "ranks"), "ranks", "rank 9 does not exist"),
        ("shares", hand([0.5, 0.4], "replicas", 1, "stages", 0, "shares"), "shares", "do not sum to 1"),
        ("no head", hand([0.9, 0.1], "replicas", 1, "stages", 0, "shares"), "shares", "gets no attention head"),
        ("grains", hand(5, "replicas", 1, "grains"), "replicas", "17 grains; the global batch is 16"),
        ("unknown device", hand("elsewhere/0", "ranks", 1, "device"), "ranks", "elsewhere/0, which is not in"),
        ("missing", without(by_hand(), "replicas", 1, "micro_batch"), "replicas", "'micro_batch' is missing"),
        ("mistyped", hand("one", "grain"), "grain", "expected an integer"),
    ]
    for what, plan, member, reason in cases:
        sandbox = Sandbox(cache=sandbox_cache(cache))
        refused(sandbox, what, plan, member, reason)


def sandbox_cache(cache):
    return cache.parent / "no-cache"


def refused(sandbox, what, plan, member, reason, *arguments):
    text = json.dumps(plan, indent=1)
    sandbox.write("bad.json", text)
    result = sandbox.run("run", "job.yaml", "--plan", "bad.json", *arguments)
    expect_equal(result.returncode, 65, f"{what}: exit code ({result.stderr.strip()!r})")
    told = re.search(r"^motley: bad\.json:(\d+):(\d+): (.*)$", result.stderr, re.MULTILINE)
    expect(told, f"{what}: no place in {result.stderr!r}")
    expect(re.search(reason, told.group(3)), f"{what}: {told.group(3)!r} does not say {reason!r}")
    line = text.splitlines()[int(told.group(1)) - 1]
    expect(f"/{member}" in told.group(3) and (f'"{member}"' in line or line.strip()[0] in "{["),
           f"{what}: {told.group(3)!r} points to {line!r}")
    expect(not (sandbox.home / "state" / "motley" / "runs").exists(), f"{what}: a run was begun")
    expect(not pathlib.Path(sandbox.environment["XDG_CACHE_HOME"]).exists(), f"{what}: something was measured")


def check_demands(cache):
    """What resources.devices excludes is neither measured nor told as a gap of the profile."""
    cases = [
        ("type", "{types: [fast]}", "device",
         r"localhost/2 \(slow\), which the job excludes: resources\.devices\.types \(fast\)"),
        ("memory", "{memory: 900MB..}", "device", r"localhost/3 \(slow\), which .*: resources\.devices\.memory \(858 MiB\.\.\)"),
        ("too many", "{count: ..3}", "ranks", r"4 ranks; the job wants resources\.devices\.count \.\.3"),
        ("too few", "{count: 5..}", "ranks", r"4 ranks; the job wants resources\.devices\.count 5\.\."),
    ]
    for what, demand, member, reason in cases:
        sandbox = Sandbox(cache=sandbox_cache(cache))
        fleet = (sandbox.home / "fleet.yaml").read_text()
        last = fleet.rindex("memory: 1GB")
        sandbox.write("fleet.yaml", fleet[:last] + fleet[last:].replace("1GB", "800MB"))
        with open(sandbox.home / "job.yaml", "a") as job:
            job.write(f"resources: {{devices: {demand}}}\n")
        refused(sandbox, what, by_hand(), member, reason)


def check_memory_and_exact(cache):
    small = Sandbox(cache=sandbox_cache(cache))
    fleet = (small.home / "fleet.yaml").read_text()
    small.write("fleet.yaml", fleet.replace("memory: 1GB", "memory: 100KB", 1))
    refused(small, "memory", by_hand(), "ranks", r"localhost/0 needs \S+ [KM]iB for its part; its limit is 97\.7 KiB")
    exact = Sandbox(numerics="exact", grain=1, cache=sandbox_cache(cache))
    plan = with_value(with_value(by_hand(), "exact", "numerics"), 1, "replicas", 1, "micro_batch")
    refused(exact, "exact", plan, "ranks", "excludes tensor parallelism")


def check_shipped(cache, name, ranks):
    """A job and its plan as they are shipped, shortened: replicas that are cut differently add up to one training."""
    sandbox = Sandbox(cache=cache)
    result = sandbox.run("run", str(SOURCE / f"configs/jobs/{name}.yaml"), "--plan",
                         str(SOURCE / f"configs/plans/{name}.json"), "--set", "train.steps=8", "--no-compare", "--json",
                         timeout=300)
    final = final_object(result)
    expect_equal(len(final["ranks"]), ranks, f"{name}: ranks")
    expect(final["final_loss"] < final["first_loss"] - 0.2, f"{name}: nothing was learned: {final}")
    expect(0.90 <= final["efficiency"] <= 1, f"{name}: efficiency {final['efficiency']}")
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"{name}: prediction off by {error:.1%}")
    print(f"{name}: {final['efficiency']:.1%} of the summed speeds")


def check_equal_split(sandbox):
    """The baseline, in the same engine: as many samples for the slow devices as for the fast."""
    both = sandbox.run("plan", "job.yaml", "--equal-split", "--score", "equal.json")
    expect_equal((both.returncode, "are two plans" in both.stderr), (2, True), f"two plans: {both.stderr!r}")
    nowhere = sandbox.run("plan", "job.yaml", "--equal-split", "-o", "nowhere/equal.json")
    expect_equal((nowhere.returncode, nowhere.stderr),
                 (66, "motley: cannot write nowhere/equal.json: No such file or directory\n"), "a directory that is missing")
    expect_exit(sandbox.run("plan", "job.yaml", "--equal-split", "-o", "equal.json"), 0)
    equal = json.loads((sandbox.home / "equal.json").read_text())
    expect_equal([replica["grains"] * equal["grain"] for replica in equal["replicas"]], [4] * 4, "samples by replica")
    final = final_object(sandbox.run("run", "job.yaml", "--plan", "equal.json", "--fresh", "--json"))
    expect_equal(final["equal_split_form"], "plain data parallel, synchronous reduction at the end", "form")
    ours = final["equal_split_samples_per_second"]
    expect(abs(final["samples_per_second"] / ours - 1) < 0.01, f"equal split: {final['samples_per_second']}, {ours}")


def on_the_first_device():
    return {"version": 1, "numerics": "fast", "global_batch": 16, "grain": 1, "ranks": [{"device": "localhost/0"}],
            "replicas": [{"stages": [stage(0, 3, [0])], "micro_batch": 1, "grains": 16}]}


def check_failed_equal_split(cache):
    """A comparison that fails is said and remembered; training, here of another rank, needs it not."""
    sandbox = Sandbox(steps=20, cache=cache)
    words = ("run", "job.yaml", "--plan", written(sandbox, on_the_first_device()), "--json")
    result = sandbox.run(*words, environment={"MOTLEY_FAILPOINT": "kill_at_step_4:3"})
    final = final_object(result)
    expect_equal((final["state"], final["steps"]), ("finished", 20), "the run")
    why = final["equal_split_not_measured"]
    expect("3" in why and final["equal_split_samples_per_second"] is None, f"the equal split: {final}")
    expect_equal(result.stderr.count(f"equal split not measured: {why}\n"), 1, f"notes in {result.stderr}")
    report = sandbox.run("report", "job")
    expect(f"not measured: {why}" in report.stdout, f"not in the report:\n{report.stdout}")

    killed = sandbox.run(*words, "--fresh", "--set", "retry.max_restarts=0",
                         environment={"MOTLEY_FAILPOINT": "kill_at_step_1:0"})
    expect_exit(killed, 1)
    expect("equal split not measured: " in killed.stderr, f"the trial did not fail: {killed.stderr}")
    again = sandbox.run(*words)
    expect(final_object(again)["equal_split_not_measured"], "forgotten")
    expect("trying an equal split" not in again.stderr and "equal split not measured: " not in again.stderr,
           f"tried again: {again.stderr}")


def check_interrupted_equal_split(cache):
    sandbox = Sandbox(steps=20, cache=cache)
    process = sandbox.start("run", "job.yaml", "--plan", written(sandbox, on_the_first_device()),
                            environment={"MOTLEY_FAILPOINT": "hang_at_step_4:3"})
    directory = sandbox.run_directory()
    sandbox.wait_for(lambda: (directory / "equal_split" / "attempt.json").exists(), "the trial", process=process)
    process.send_signal(signal.SIGINT)
    expect_equal(process.wait(timeout=30), 130, f"exit code\n{sandbox.log()}")
    expect("interrupted before training began" in sandbox.log(), f"not said: {sandbox.log()}")
    expect(not (directory / "equal_split.json").exists(), "an interrupted trial was remembered")


def check_equal_pipelines(cache):
    """The baseline where no device holds the model: as many layers for each of a pipeline, as many samples for each."""
    sandbox = Sandbox(cache=cache)
    sandbox.write("job.yaml", (sandbox.home / "job.yaml").read_text().replace("width: 32", "width: 64"))
    fleet = (sandbox.home / "fleet.yaml").read_text()
    sandbox.write("fleet.yaml", fleet.replace("memory: 1GB", "memory: 3500KB"))
    searched = sandbox.run("plan", "job.yaml", "--json")
    expect_exit(searched, 0)
    result = sandbox.run("plan", "job.yaml", "--equal-split", "-o", "equal.json")
    expect_exit(result, 0)
    expect(result.stdout.startswith("equal split: pipeline of equal stages\n"), f"not named:\n{result.stdout}")
    equal = json.loads((sandbox.home / "equal.json").read_text())
    expect_equal(equal["search"]["space"], "equal split: pipeline of equal stages", "space")
    expect_equal([[stage["last_layer"] for stage in replica["stages"]] for replica in equal["replicas"]],
                 [[1, 3], [1, 3]], "last layers")
    expect_equal([replica["grains"] for replica in equal["replicas"]], [8, 8], "grains")
    # Three quarters of the samples for the two fast devices.
    better = with_value(with_value(equal, 12, "replicas", 0, "grains"), 4, "replicas", 1, "grains")
    for member in ("job", "fleet", "prediction", "search", "id"):
        del better[member]
    final = final_object(sandbox.run("run", "job.yaml", "--plan", written(sandbox, better, "better.json"), "--json"))
    expect_equal(final["equal_split_form"], "pipeline of equal stages", "form")
    ours = json.loads(searched.stdout)["prediction"]["step_seconds"]
    expect(ours <= final["predicted_step_seconds"] * 1.001, f"the search's {ours} s is slower than {final['predicted_step_seconds']} s")
    gain = final["samples_per_second"] / final["equal_split_samples_per_second"]
    expect(1.4 < gain < 2, f"{gain:.2f}x the equal split")
    report = sandbox.run("report", "job").stdout
    for told in (f"samples/s: this plan is {gain:.2f} times as fast\n", "  pipeline of equal stages\n"):
        expect(told in report, f"not told: {told!r}\n{report}")


def main():
    sandbox = Sandbox(steps=40, every=20)
    plan = check_runs_as_predicted(sandbox)
    check_score(sandbox, plan)
    check_estimate(sandbox)
    check_equal_split(sandbox)
    check_failed_equal_split(sandbox.home / "cache")
    check_interrupted_equal_split(sandbox.home / "cache")
    check_refusals(sandbox.home / "cache", json.loads((sandbox.home / "whole.json").read_text()))
    check_demands(sandbox.home / "cache")
    check_memory_and_exact(sandbox.home / "cache")
    check_shipped(sandbox.home / "cache", "unlike", ranks=3)
    check_shipped(sandbox.home / "cache", "hybrid", ranks=6)
    check_equal_pipelines(sandbox.home / "cache")
    print("ok")


if __name__ == "__main__":
    run_test(main)
