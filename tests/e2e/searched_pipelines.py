"""Models that no device holds: the search cuts them, the cut runs as predicted, computes what one device would, and another is
found when a device is lost."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def final_object(result):
    expect_exit(result, 0)
    return json.loads(result.stdout)


def with_memory(sandbox, size):
    """Every device of the fleet has so much."""
    fleet = (sandbox.home / "fleet.yaml").read_text()
    sandbox.write("fleet.yaml", re.sub(r"memory: \w+", f"memory: {size}", fleet))


def largest_rank(sandbox, *arguments):
    """Bytes of the rank of the chosen plan that needs most."""
    plan = json.loads(sandbox.run("plan", "job.yaml", "--json", *arguments).stdout)
    return max(rank["memory"] for rank in plan["prediction"]["ranks"])


def exact_job(cache=None):
    return Sandbox(steps=12, every=4, numerics="exact", grain=1, cache=cache)


def is_cut(plan):
    return any(len(replica["stages"]) > 1 for replica in plan["replicas"])


def check_same_as_one_device(whole):
    """The weights are those of a fleet with room for everything."""
    reference = final_object(whole.run("run", "job.yaml", "--no-compare", "--json"))
    small = exact_job()
    needs = largest_rank(whole, "--set", "parallel.shard_optimizer=off")
    with_memory(small, f"{int(needs * 0.8 / 1000)}KB")
    final = final_object(small.run("run", "job.yaml", "--json"))
    plan = json.loads((small.run_directory() / "plan.json").read_text())
    expect(is_cut(plan), f"not cut: {plan['replicas']}")
    expect_equal(final["weights_xxh3"], reference["weights_xxh3"], "weights")
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    expect(plan["search"]["lower_bound_step_seconds"] <= final["predicted_step_seconds"], f"bound: {plan['search']}")
    for rank in plan["prediction"]["ranks"]:
        expect(rank["memory"] <= rank["memory_limit"], f"too large: {rank}")
        log = (small.run_directory() / "attempts" / "1" / f"rank-{rank['rank']:04}.log").read_text()
        expect_equal(int(re.search(r"counted memory: (\d+) bytes", log).group(1)), rank["memory"], f"bytes of rank {rank['rank']}")
    explained = small.run("plan", "job.yaml", "--explain")
    expect("searched pipelines:" in explained.stdout, f"not explained:\n{explained.stdout}")
    print(f"ok: cut in {[len(replica['stages']) for replica in plan['replicas']]} stages, off by {error:.1%}")
    return small


def check_device_lost(small):
    """Device 0 fails whenever it is used: the others take its layers."""
    lost = exact_job(cache=pathlib.Path(small.environment["XDG_CACHE_HOME"]))
    lost.write("fleet.yaml", (small.home / "fleet.yaml").read_text())
    result = lost.run("run", "job.yaml", "--no-compare", "--json", "--set", "retry.max_restarts=3",
                      environment={"MOTLEY_FAILPOINT": "kill_at_step_6:0"})
    before = json.loads((lost.run_directory() / "attempts" / "1" / "plan.json").read_text())
    expect(is_cut(before), "not cut")
    expect("failed twice running and is left out" in result.stderr, f"not left out: {result.stderr!r}")
    expect(result.returncode in (0, 1), f"exit {result.returncode}")
    attempts = sorted((lost.run_directory() / "attempts").iterdir(), key=lambda path: int(path.name))
    after = json.loads((attempts[-1] / "plan.json").read_text())
    devices = {rank["device"] for rank in after["ranks"]}
    expect(before["ranks"][0]["device"] not in devices, f"still used: {devices}")
    print("ok: another cut after a device was lost")


def check_no_fit():
    none = exact_job()
    with_memory(none, "100KB")
    result = none.run("run", "job.yaml")
    expect_equal(result.returncode, 65, f"exit code ({result.stderr!r})")
    expect(re.search(r"no device can hold the model.*no pipeline over any of the 4 devices holds", result.stderr),
           f"not said: {result.stderr!r}")
    print("ok: nothing fits")


def check_recomputing():
    """Where nothing fits otherwise blocks are computed again, with the same weights; off means off."""
    deep = ("--set", "model={type: gpt, layers: 6, heads: 2, width: 32, context: 128}", "--set", "train.eval={every: 0}")
    whole = exact_job()
    whole.write("text.txt", (whole.home / "text.txt").read_text() * 3)
    reference = final_object(whole.run("run", "job.yaml", "--no-compare", "--json", *deep))
    small = exact_job()
    small.write("text.txt", (whole.home / "text.txt").read_text())
    with_memory(small, "1800KB")
    off = small.run("plan", "job.yaml", *deep, "--set", "parallel.recompute=off")
    expect_equal(off.returncode, 65, f"exit code without ({off.stderr!r})")
    final = final_object(small.run("run", "job.yaml", "--no-compare", "--json", *deep))
    plan = json.loads((small.run_directory() / "plan.json").read_text())
    again = [word for replica in plan["replicas"] for stage in replica["stages"] for word in stage["recompute"] if word != "none"]
    expect(0 < len(again) < 6, f"{len(again)} of 6 blocks are computed again")
    expect_equal(final["weights_xxh3"], reference["weights_xxh3"], "weights")
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    print(f"ok: {len(again)} of 6 blocks computed again, off by {error:.1%}")


def check_hybrid(cache):
    """Four cards that hold the model and two that do not: the shape that is shipped as a plan by hand is found."""
    sandbox = Sandbox(cache=cache)
    job = str(SOURCE / "configs/jobs/hybrid.yaml")
    by_hand = sandbox.run("plan", job, "--score", str(SOURCE / "configs/plans/hybrid.json"), "--json")
    expect_exit(by_hand, 0)
    searched = sandbox.run("plan", job, "--json")
    expect_exit(searched, 0)
    hand, plan = (json.loads(one.stdout)["prediction"]["step_seconds"] for one in (by_hand, searched))
    expect(plan <= hand * 1.001, f"the plan by hand is quicker: {hand} against {plan}")
    final = final_object(sandbox.run("run", job, "--set", "train.steps=8", "--no-compare", "--json", timeout=300))
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    expect(final["efficiency"] > 0.93, f"efficiency {final['efficiency']}")
    print(f"ok: hybrid, {hand / plan:.3f}x the plan by hand, {final['efficiency']:.1%} of the summed speeds, off by {error:.1%}")


SHARED_FLEET = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 2
    devices:
      - {kind: cpu, type: fast, threads: 1, paced: {speed: 1, memory: 36MB}}
      - {kind: cpu, type: slow, threads: 1, paced: {speed: 0.4, memory: 12MB}}
"""
WIDE_VOCABULARY = "model={type: gpt, layers: 1, heads: 4, width: 64, context: 16, vocab: 20000}"


def check_unlike_memory():
    """Three devices, one of them four times as quick: with more memory, whosever it is, the plan is no slower. One with too little for
    anything to be measured is left out, though the others only hold the model together."""
    unlike = Sandbox()
    unlike.write("job.yaml", """version: 1
name: unlike
fleet: fleet.yaml
model: {type: gpt, layers: 12, heads: 4, width: 64, context: 32}
data: {text: [text.txt]}
train: {global_batch: 64, grain: 1, steps: 20, optimizer: {type: adamw, lr: 1.0e-3}}
""")

    def step_on(quick, *others, pipeline=True):
        lines = [f"      - {{kind: cpu, type: quick, threads: 1, paced: {{speed: 1, memory: {quick}, overhead: 200us}}}}\n"]
        lines += [f"      - {{kind: cpu, type: slow, threads: 1, paced: {{speed: 0.25, memory: {memory}, overhead: 200us}}}}\n" for memory in others]
        unlike.write("fleet.yaml", "version: 1\npace: {clock: virtual, flops: 2.0e9}\nnodes:\n  - host: localhost\n    slots: 3\n    devices:\n"
                     + "".join(lines))
        planned = unlike.run("plan", "job.yaml", "--json", *(("--set", "parallel.pipeline=2") if pipeline else ()))
        expect_exit(planned, 0)
        plan = json.loads(planned.stdout)
        return plan["prediction"]["step_seconds"], [left["device"] for left in plan["left_out"]]

    alike, more = step_on("64MB", "11MB", "11MB"), step_on("64MB", "16MB", "11MB")
    expect(more[0] <= alike[0] * (1 + 1e-9), f"more memory is slower: {more} instead of {alike}")
    expect_equal((alike[1], more[1]), ([], []), "left out")
    expect_equal(step_on("64KB", "11MB", "11MB", pipeline=False)[1], ["localhost/0"], "left out, having nothing measured")
    print(f"ok: {alike[0]:.2f} s a step, {more[0]:.2f} s with more memory")


def check_shared():
    """No device holds the largest layer: two share it, unevenly, and compute what one with room would; without shares nothing fits."""
    sandbox = Sandbox(steps=6, every=6)
    wide = ("--set", WIDE_VOCABULARY, "--set", "train.eval={every: 0}")
    reference = final_object(sandbox.run("run", "job.yaml", "--no-compare", "--json", "--fresh", *wide, "--set", "parallel.tensor=off"))
    small = Sandbox(steps=6, every=6)
    small.write("fleet.yaml", SHARED_FLEET)
    off = small.run("plan", "job.yaml", *wide, "--set", "parallel.tensor=off")
    expect_equal(off.returncode, 65, f"exit code without shares ({off.stderr!r})")
    final = final_object(small.run("run", "job.yaml", "--no-compare", "--json", *wide))
    plan = json.loads((small.run_directory() / "plan.json").read_text())
    stages = [stage for replica in plan["replicas"] for stage in replica["stages"]]
    shared = [stage["shares"] for stage in stages if len(stage["ranks"]) > 1]
    expect(shared, f"nothing is shared: {stages}")
    expect("of a host" in plan["search"]["space"], f"space: {plan['search']['space']}")
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    expect(abs(final["final_loss"] / reference["final_loss"] - 1) < 1e-4, f"losses: {final['final_loss']} and {reference['final_loss']}")
    for rank in plan["prediction"]["ranks"]:
        expect(rank["memory"] <= rank["memory_limit"], f"too large: {rank}")
    exact = small.run("plan", "job.yaml", *wide, "--set", "parallel.tensor=2", "--set", "train.numerics=exact", "--set", "train.grain=1")
    expect_equal(exact.returncode, 65, f"exit code of exact ({exact.stderr!r})")
    expect("contradict exact numerics" in exact.stderr, f"not said: {exact.stderr!r}")
    print(f"ok: stages shared {shared}, off by {error:.1%}")


def main():
    whole = exact_job()
    small = check_same_as_one_device(whole)
    check_device_lost(small)
    check_no_fit()
    check_recomputing()
    check_shared()
    check_unlike_memory()
    check_hybrid(pathlib.Path(whole.environment["XDG_CACHE_HOME"]))


if __name__ == "__main__":
    run_test(main)
