"""Whatever is stopped or killed, the same command goes on with bitwise the losses of a run never interrupted, and
nothing stays behind."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, fail, kill, run_test  # noqa: E402

STEPS, EVERY, WHEN = 600, 50, 120
GONE_WITHIN = 2.0


def one(processes, word, without=None):
    """The pid of the first process whose command line has `word`."""
    for pid, line in sorted(processes.items()):
        if word in line and (without is None or without not in line):
            return pid
    fail(f"no process '{word}' among {processes}")


def expect_gone(sandbox, pids, what):
    deadline = time.monotonic() + GONE_WITHIN
    while left := {p: line for p, line in sandbox.processes().items() if p in pids}:
        expect(time.monotonic() < deadline, f"{what}: still there after {GONE_WITHIN} s: {left}")
        time.sleep(0.02)


def finish(sandbox, reference, what, over=False):
    """Runs to the end, unless it is over, and compares every step."""
    result = sandbox.run("run", "job.yaml", "--json")
    expect_exit(result, 0)
    expect(over or re.search(r"^continuing from step \d+ \(attempt \d+\)$", result.stderr, re.MULTILINE),
           f"{what}: not said that it continues: {result.stderr!r}")
    losses = sandbox.losses()
    expect_equal(len(losses), STEPS, f"{what}: steps in metrics.jsonl")
    different = [step for step, bits in losses.items() if bits != reference[step]]
    expect(not different, f"{what}: loss differs from step {different[:1]} on")
    expect_gone(sandbox, set(sandbox.processes()), what)
    print(f"ok: {what}")


def begin(cache):
    sandbox = Sandbox(steps=STEPS, every=EVERY, cache=cache)
    process = sandbox.start("run", "job.yaml")
    sandbox.wait_for(lambda: sandbox.last_step() >= WHEN, f"step {WHEN}", process=process)
    return sandbox, process


def graceful(cache, reference, sent, what):
    sandbox, process = begin(cache)
    os.kill(process.pid, sent)
    expect_equal(process.wait(timeout=30), 75, f"{what}: exit code")
    expect_gone(sandbox, set(sandbox.processes()), what)
    expect(sandbox.last_step() < STEPS, f"{what}: it was not stopped")
    finish(sandbox, reference, what)


def killed_part(cache, reference, word, without, what):
    """A part dies: motley ends that attempt, nothing of it stays, and goes on by itself."""
    sandbox, process = begin(cache)
    before = sandbox.processes()
    kill(one(before, word, without))
    expect_gone(sandbox, set(before) - {process.pid}, what)
    expect_equal(process.wait(timeout=60), 0, f"{what}: exit code\n{sandbox.log()[-2000:]}")
    expect("continuing from step " in sandbox.log(), f"{what}: not said that it continues")
    finish(sandbox, reference, what, over=True)


def killed_motley(cache, reference):
    sandbox, process = begin(cache)
    everything = set(sandbox.processes())
    kill(process.pid)
    process.wait()
    expect_gone(sandbox, everything, "motley killed")
    report = sandbox.run("report", "job", "--json")
    expect_exit(report, 0)
    summary = json.loads(report.stdout)
    expect_equal((summary["state"], summary["steps"]), ("interrupted", sandbox.last_step()), "report after a kill")
    told = sandbox.run("report", "job")
    expect_exit(told, 0)
    expect("to continue: motley resume job/1" in told.stderr, f"not said how to continue: {told.stderr!r}")
    finish(sandbox, reference, "motley killed")


def ended_before_anything_was_saved(cache):
    sandbox = Sandbox(steps=STEPS, every=STEPS, cache=cache)
    process = sandbox.start("run", "job.yaml", "--no-compare", environment={"MOTLEY_FAILPOINT": "hang_at_step_4"})
    sandbox.wait_for(lambda: sandbox.last_step() == 3, "step 3", process=process)
    time.sleep(1)  # between two steps the first Ctrl-C could still be obeyed
    os.kill(process.pid, signal.SIGINT)
    sandbox.wait_for(lambda: "Ctrl-C: end now" in sandbox.log(), "the word of the first Ctrl-C", process=process)
    os.kill(process.pid, signal.SIGINT)
    expect_equal(process.wait(timeout=30), 130, "Ctrl-C twice: exit code")
    expect("ended by a signal, nothing saved yet; to begin anew: motley run job.yaml" in sandbox.log(),
           f"not said that nothing is saved: {sandbox.log()[-500:]!r}")
    print("ok: ended before anything was saved")


def damaged_checkpoint(cache):
    """It is said which step was skipped and why; what is damaged is kept under another name and shown in the report."""
    sandbox = Sandbox(steps=40, every=10, cache=cache)
    expect_exit(sandbox.run("run", "job.yaml", "--no-compare", "--json"), 0)
    checkpoints = sandbox.run_directory() / "checkpoints"
    shard = checkpoints / "step-00000040.e1" / "s0001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    result = sandbox.run("run", "job.yaml", "--set", "train.steps=50", "--json")
    expect_exit(result, 0)
    told = re.search(r"^checkpoint of step 40 is damaged \((s0001\.safetensors: block .*)\): set aside as (.*)\n"
                     r"continuing from step 30 \(attempt 2\)$", result.stderr, re.MULTILINE)
    expect(told, f"not said what was skipped and why: {result.stderr!r}")
    why, name = told.groups()
    expect_equal(name, ".suspect-step-00000040.e1", "new name")
    expect((checkpoints / name / "manifest.json").exists() and not shard.exists(), "it is not where it is said to be")
    damage = [{"step": 40, "directory": name, "why": why}]
    expect_equal(json.loads(result.stdout)["set_aside"], damage, "set aside, at the end")
    expect_equal(json.loads(sandbox.run("report", "job", "--json").stdout)["set_aside"], damage, "in the report")
    expect(why in sandbox.run("report", "job").stdout, "the report for people says nothing of it")
    expect_equal(list(sandbox.losses()), list(range(1, 51)), "steps in metrics.jsonl")
    print("ok: a damaged checkpoint")


def diverged(cache):
    """A loss that is no number is nobody's fault: no device is left out, an older checkpoint is tried, once."""
    sandbox = Sandbox(steps=40, every=5, cache=cache)
    result = sandbox.run("run", "job.yaml", "--no-compare", environment={"MOTLEY_FAILPOINT": "nan_at_step_15"})
    expect_equal(result.returncode, 1, f"exit code of a job that diverges ({result.stderr!r})")
    expect("left out" not in result.stderr, f"a device was blamed: {result.stderr!r}")
    expect_equal(result.stderr.count("going back to the checkpoint of step 5\n"), 1, "times it went back")
    expect("motley: loss or gradient not finite at step 15" in result.stderr, f"cause not named: {result.stderr!r}")
    print("ok: diverged")


def stopped_while_hanging(cache):
    """Who asks for the end gets it, also when the ranks fail over it: no attempt follows."""
    sandbox = Sandbox(steps=400, every=10, cache=cache)
    process = sandbox.start("run", "job.yaml", "--no-compare", environment={"MOTLEY_FAILPOINT": "hang_at_step_30:2"})
    sandbox.wait_for(lambda: sandbox.last_step() >= 29, "step 29", process=process)
    os.kill(process.pid, signal.SIGTERM)
    expect_equal(process.wait(timeout=60), 1, f"exit code of a stop that failed\n{sandbox.log()[-2000:]}")
    expect("(attempt 2)" not in sandbox.log(), "training went on although it was asked to stop")
    expect("it was asked to stop and is not tried again" in sandbox.log(), f"not said: {sandbox.log()[-500:]!r}")
    expect_gone(sandbox, set(sandbox.processes()), "stopped while hanging")
    print("ok: stopped while hanging")


def full_disk(cache):
    """No room for checkpoints: that is said at the first, training goes on to its end, and nothing is trained twice."""
    if os.geteuid() != 0:
        expect("root" not in os.environ.get("MOTLEY_REQUIRE", "").split(","), "root is required")
        print("skipped without root: a full disk")
        return
    sandbox = Sandbox(steps=40, every=10, cache=cache)
    (sandbox.home / "small").mkdir()
    sandbox.write("job.yaml", (sandbox.home / "job.yaml").read_text().replace("keep: 3", "keep: 3, dir: small"))
    mounted = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1000k none small && exec "$@"', "sh"]
    run = subprocess.run([*mounted, *sandbox.command("run", "job.yaml", "--no-compare", "--json")], cwd=sandbox.home,
                         env=sandbox.environment, capture_output=True, text=True, timeout=120)
    expect_equal(run.returncode, 1, f"exit code ({run.stderr!r})")
    expect_equal(run.stderr.count("warning: checkpoint of step 10 not saved, training goes on"), 1, "warnings")
    expect("last checkpoint not saved" in run.stderr, f"cause not named: {run.stderr!r}")
    expect("attempt 2" not in run.stderr and "left out" not in run.stderr, f"tried again: {run.stderr!r}")
    expect_equal(sandbox.last_step(), 40, "steps trained")
    print("ok: full disk")


def halves():
    """A plan by hand: a pipeline of two devices out of four."""
    stages = [{"first_layer": 0, "last_layer": 1, "ranks": [0]}, {"first_layer": 2, "last_layer": 3, "ranks": [1]}]
    return {"version": 1, "numerics": "fast", "global_batch": 16, "grain": 1,
            "ranks": [{"device": "localhost/0"}, {"device": "localhost/1"}],
            "replicas": [{"stages": stages, "micro_batch": 1, "grains": 16}], "shard_optimizer": False}


def given_plan_lost(cache):
    """A device of a plan by hand fails twice: said that another plan replaces it, or that there is none."""
    sandbox = Sandbox(steps=10, every=5, cache=cache)
    sandbox.write("plan.json", json.dumps(halves()))

    def killed():
        return sandbox.run("run", "job.yaml", "--plan", "plan.json", "--no-compare", "--set", "retry.max_restarts=2",
                           environment={"MOTLEY_FAILPOINT": "kill_at_step_1:1"})
    replaced = killed()
    expect("device localhost/1 failed twice running and is left out; the given plan needs it and no longer applies" in
           replaced.stderr, f"not said: {replaced.stderr!r}")
    scored = sandbox.run("plan", "job.yaml", "--score", "plan.json", "--json")
    expect_exit(scored, 0)
    most = max(rank["memory"] for rank in json.loads(scored.stdout)["prediction"]["ranks"])
    fleet = (sandbox.home / "fleet.yaml").read_text().splitlines()[:-2]  # those of the plan alone
    sandbox.write("fleet.yaml", "\n".join(fleet).replace("memory: 1GB", f"memory: {most // 1000 + 1}KB"))
    given_up = killed()
    expect_equal(given_up.returncode, 1, f"exit code without another plan ({given_up.stderr!r})")
    expect("write a plan without device localhost/1 and run again" in given_up.stderr, f"no way out: {given_up.stderr!r}")
    print("ok: a device of a given plan lost")


def cut_plan_mended(cache):
    """A device of a pipeline fails twice: one that was left out comes in its place, all else stays as it was."""
    sandbox = Sandbox(steps=10, every=5, cache=cache)
    device = "      - {kind: cpu, type: card, threads: 1, paced: {speed: 1, memory: 1GB}}\n"
    sandbox.write("fleet.yaml", "version: 1\npace: {clock: virtual, flops: 1.0e9}\nnodes:\n  - host: localhost\n    slots: 10\n"
                                "    devices:\n" + 10 * device)
    sandbox.run("run", "job.yaml", "--no-compare", "--set", "parallel.data=4", "--set", "parallel.pipeline=2",
                "--set", "resources.devices.count=8", "--set", "retry.max_restarts=2",
                environment={"MOTLEY_FAILPOINT": "kill_at_step_7:1"})
    plans = [json.loads((sandbox.run_directory() / "attempts" / number / "plan.json").read_text()) for number in "13"]
    before, after = [[rank["device"] for rank in plan["ranks"]] for plan in plans]
    expect_equal(plans[1]["search"]["space"].partition(",")[0], "the previous plan", "where the plan comes from")
    expect_equal(sorted(set(before) - set(after)), [before[1]], "devices that are gone")
    expect_equal(len(after), 8, "devices")
    expect_equal([len(replica["stages"]) for replica in plans[1]["replicas"]], 4 * [2], "stages")
    expect_equal(sandbox.last_step(), 6, "steps trained, the last of them under the mended plan")
    print("ok: a device of a pipeline lost")


def main():
    undisturbed = Sandbox(steps=STEPS, every=EVERY)
    cache = undisturbed.home / "cache"
    expect_exit(undisturbed.run("run", "job.yaml", "--json"), 0)
    reference = undisturbed.losses()
    expect_equal(len(reference), STEPS, "steps of the undisturbed run")
    graceful(cache, reference, signal.SIGINT, "Ctrl-C")
    graceful(cache, reference, signal.SIGTERM, "SIGTERM")
    killed_part(cache, reference, "motley-worker train", "mpirun", "a rank killed")
    killed_part(cache, reference, "mpirun", None, "mpirun killed")
    killed_part(cache, reference, "motley runner", None, "the runner killed")
    killed_motley(cache, reference)
    ended_before_anything_was_saved(cache)
    damaged_checkpoint(cache)
    diverged(cache)
    stopped_while_hanging(cache)
    full_disk(cache)
    given_plan_lost(cache)
    cut_plan_mended(cache)


if __name__ == "__main__":
    run_test(main)
