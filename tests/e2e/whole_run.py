"""One command from a job to a report; run again, extended, sampled, resumed on other devices."""

import json
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import WORKER, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

FINAL_KEYS = {
    "run_dir", "state", "steps", "first_loss", "final_loss", "eval_loss", "samples_per_second",
    "solo_sum_samples_per_second", "efficiency", "integer_bound_efficiency",
    "equal_split_form", "equal_split_not_measured", "equal_split_samples_per_second", "predicted_step_seconds",
    "actual_step_seconds", "restarts", "weights_xxh3",
}


def final_object(result):
    expect_exit(result, 0)
    return json.loads(result.stdout)


def check_trace(sandbox):
    missing = sandbox.run("export", "trace", "job")
    expect_exit(missing, 66)
    final_object(sandbox.run("run", "job.yaml", "--set", "train.steps=64", "--trace", "--json"))
    expect_exit(sandbox.run("export", "trace", "job", "-o", "trace.json"), 0)
    events = json.loads((sandbox.home / "trace.json").read_text())
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    expect_equal([name.split(" on ")[0] for name in names], [f"rank {rank}" for rank in range(4)], "processes")
    for rank in range(4):
        steps = [event["name"] for event in events if event["pid"] == rank and event.get("cat") == "step"]
        expect_equal(steps, [f"step {step}" for step in range(61, 65)], f"steps traced by rank {rank}")


def check_first_run(sandbox):
    final = final_object(sandbox.run("run", "job.yaml", "--json"))
    expect(FINAL_KEYS <= set(final), f"missing in the final object: {FINAL_KEYS - set(final)}")
    expect_equal(final["steps"], 40, "steps")
    expect_equal(final["restarts"], 0, "restarts")
    expect(final["final_loss"] < final["first_loss"] - 0.5, f"nothing was learned: {final}")
    # The virtual clock is exact: what was predicted is what happened.
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.01, f"prediction off by {error:.1%}")
    # 3 : 3 : 1 : 1 divides 16 samples exactly; what is lost is the update, which every device makes for itself.
    expect(final["efficiency"] > 0.9, f"efficiency {final['efficiency']}")
    expect(final["integer_bound_efficiency"] >= final["efficiency"] - 1e-6, "better than a perfect deal")
    gain = final["samples_per_second"] / final["equal_split_samples_per_second"]
    expect(gain > 1.7, f"only {gain:.2f}x the equal split")
    run = sandbox.run_directory()
    for name in ("job.json", "fleet.json", "profile.json", "metrics.jsonl", "report.json", "loss.svg"):
        expect((run / name).stat().st_size > 0, f"{name} is missing or empty")
    return final


def check_again(sandbox, first):
    again = final_object(sandbox.run("run", "job.yaml", "--json"))
    expect_equal(again["weights_xxh3"], first["weights_xxh3"], "weights of a finished run run again")
    sandbox.write_job(steps=60)
    longer = final_object(sandbox.run("run", "job.yaml", "--json"))
    expect_equal(longer["steps"], 60, "steps after extending")
    expect_equal(sorted(sandbox.losses()), list(range(1, 61)), "steps in metrics.jsonl")


def check_other_commands(sandbox):
    sample = sandbox.run("sample", "job", "--bytes", "50")
    expect_exit(sample, 0)
    expect(len(sample.stdout) >= 50, "fewer bytes than asked for")
    report = sandbox.run("report", "job", "--json")
    expect_exit(report, 0)
    expect(json.loads(report.stdout)["steps"] == 60, "report of another run")
    plain = sandbox.run("plan", "job.yaml", "--json", "--set", "parallel.shard_optimizer=off")
    expect_exit(plain, 0)
    search = json.loads(plain.stdout)["search"]  # of whole devices, which are not cut for less than 2 %
    expect("data parallel" in search["space"] and "pipelines" in search["space"], f"space {search['space']}")
    expect(search["gap"] <= 0.0205, f"gap of an exact search: {search['gap']}")
    shared = json.loads(sandbox.run("plan", "job.yaml", "--json").stdout)["search"]  # owners' shares are rounded to rows
    expect(shared["step_seconds"] < json.loads(plain.stdout)["search"]["step_seconds"], "sharing updates takes longer")
    expect(shared["gap"] <= 0.0205, f"gap of an exact search whose state is shared: {shared['gap']}")
    profile = sandbox.run("profile", "job.yaml", "--json")
    expect_exit(profile, 0)
    expect_equal(len(json.loads(profile.stdout)["devices"]), 4, "devices profiled")


def two_devices(sandbox):
    """A fleet of one fast and one slow device, beside the sandbox's own."""
    lines = (sandbox.home / "fleet.yaml").read_text().replace("slots: 4", "slots: 2").splitlines()
    devices = [line for line in lines if "{kind:" in line]
    kept = [line for line in lines if "{kind:" not in line] + [devices[0], devices[2]]
    return sandbox.write("two.yaml", "\n".join(kept) + "\n")


def check_exact_on_other_devices(cache):
    """Exact: the bits depend neither on the devices nor on a stop and a new plan in between."""
    def sandbox():
        return Sandbox(steps=400, every=100, numerics="exact", grain=2, cache=cache)

    reference = final_object(sandbox().run("run", "job.yaml", "--json"))["weights_xxh3"]
    two = sandbox()
    final = final_object(two.run("run", "job.yaml", "--fleet", two_devices(two), "--json"))
    expect_equal(final["weights_xxh3"], reference, "exact weights on two devices")

    moved = sandbox()
    process = moved.start("run", "job.yaml")
    moved.wait_for(lambda: moved.last_step() >= 120, "step 120", process=process)
    process.send_signal(signal.SIGTERM)
    expect_equal(process.wait(timeout=30), 75, "exit code of a stopped run")
    final = final_object(moved.run("resume", "job", "--fleet", two_devices(moved), "--json"))
    expect_equal(final["weights_xxh3"], reference, "exact weights after moving to two devices")


def one_device(sandbox):
    """A fleet of the first device alone."""
    lines = (sandbox.home / "fleet.yaml").read_text().replace("slots: 4", "slots: 1").splitlines()
    devices = [line for line in lines if "{kind:" in line]
    return sandbox.write("one.yaml", "\n".join([line for line in lines if line not in devices] + devices[:1]) + "\n")


def check_report_of_a_run_by_hand(cache):
    sandbox = Sandbox(steps=20, cache=cache)
    expect_exit(sandbox.run("plan", "job.yaml", "--fleet", one_device(sandbox), "-o", "plan.json"), 0)
    expect_exit(sandbox.run("export", "job", "job.yaml", "-o", "job.json"), 0)

    def train(job, run_dir="byhand"):
        return subprocess.run([WORKER, "train", "--job", job, "--plan", "plan.json", "--run-dir", run_dir],
                              cwd=sandbox.home, capture_output=True, text=True, timeout=120)

    yaml = train("job.yaml")
    expect_equal(yaml.returncode, 65, "exit code of a job in YAML")
    expect("motley export job job.yaml -o job.json" in yaml.stderr, f"no hint: {yaml.stderr!r}")
    trained = train("job.json")
    expect_exit(trained, 0)
    for section, key, value, reason in (("model", "width", 64, "the plan is for another model"),
                                        ("train", "global_batch", 8, "the plan is for 16 samples a step, the job has train.global_batch 8"),
                                        ("train", "seed", 1, "train.seed has changed")):
        document = json.loads((sandbox.home / "job.json").read_text())
        document[section][key] = value
        sandbox.write("edited.json", json.dumps(document))
        refused = train("edited.json", "byhand" if key == "seed" else f"another-{key}")
        expect_equal(refused.returncode, 65, f"exit code with another {key}")
        expect(reason in refused.stderr, f"reason not given: {refused.stderr!r}")
    report = sandbox.run("report", "byhand", "--json")
    expect_exit(report, 0)
    summary = json.loads(report.stdout)
    expect_equal((summary["state"], summary["steps"], summary["kind"]), ("finished", 20, "paced"), "report by hand")
    expect_equal(summary["equal_split_samples_per_second"], None, "what was never tried")
    expect(summary["weights_xxh3"] in trained.stderr, f"weights {summary['weights_xxh3']}, not {trained.stderr!r}")
    expect_equal([(rank["device"], rank["samples"]) for rank in summary["ranks"]], [("localhost/0", 20 * 16)], "ranks")
    told = sandbox.run("report", "byhand")
    expect_exit(told, 0)
    expect("\nlocalhost/0 " in told.stdout, f"no row for its device: {told.stdout}")


def check_rehearsal_not_trustworthy():
    """Devices so fast that the real work always takes longer: nothing may be concluded from the run."""
    sandbox = Sandbox(steps=10)
    fleet = (sandbox.home / "fleet.yaml").read_text()
    sandbox.write("fleet.yaml", fleet.replace("clock: virtual, flops: 1.0e9", "clock: sleep, flops: 1.0e16"))
    for again in range(2):
        result = sandbox.run("run", "job.yaml", "--json")
        expect_equal(result.returncode, 1, f"exit code ({result.stderr[-2000:]!r})")
        expect("motley: rehearsal not trustworthy: in " in result.stderr, f"not said: {result.stderr[-2000:]!r}")
        final = json.loads(result.stdout)
        expect_equal((final["state"], final["efficiency"]), ("failed", None), f"state, efficiency ({again})")


def check_blocks(sandbox):
    """For people: blocks with one blank line between two, none before the first or after the last."""
    for command in (("run", "job.yaml"), ("report", "job")):
        result = sandbox.run(*command)
        expect_exit(result, 0)
        expect(not result.stdout.startswith("\n"), f"{command} begins with a blank line")
        expect(not result.stdout.endswith("\n\n"), f"{command} ends with a blank line")
        expect("\nsample:\n" in result.stdout or command[0] == "report", "no sample")
        outside = result.stdout.split("sample:\n")[0]
        expect("\n\n\n" not in outside, f"{command} has a stray blank line: {outside!r}")


def check_sample_as_json(sandbox):
    result = sandbox.run("sample", "job", "--bytes", "50", "--json")
    expect_exit(result, 0)
    document = json.loads(result.stdout)
    expect_equal((document["run"], len(document["text"])), ("job/1", 50), "run and bytes sampled")


def main():
    sandbox = Sandbox(steps=40, every=10)
    first = check_first_run(sandbox)
    check_again(sandbox, first)
    check_other_commands(sandbox)
    check_blocks(sandbox)
    check_sample_as_json(sandbox)
    check_trace(sandbox)
    check_exact_on_other_devices(sandbox.home / "cache")
    check_report_of_a_run_by_hand(sandbox.home / "cache")
    check_rehearsal_not_trustworthy()
    print("ok")


if __name__ == "__main__":
    run_test(main)
