"""A user's mistakes: one clear line, the documented exit code, nothing half-written."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402


def edited(old, new, file="job.yaml"):
    def edit(sandbox):
        text = (sandbox.home / file).read_text()
        assert old in text, f"{old!r} not in {file}"
        sandbox.write(file, text.replace(old, new))
    return edit


def every_device(old, new):
    def edit(sandbox):
        text = (sandbox.home / "fleet.yaml").read_text()
        assert old in text, f"{old!r} not in fleet.yaml"
        sandbox.write("fleet.yaml", text.replace(old, new))
    return edit


def plan_of_another_job(sandbox):
    result = sandbox.run("plan", "job.yaml", "--set", "train.global_batch=8", "-o", "plan.json")
    expect_equal(result.returncode, 0, result.stderr)


def nothing(_):
    pass


RUN = ("run", "job.yaml")
GPU_FLEET = """version: 1
nodes:
  - host: localhost
    devices: [{kind: cuda, type: none, uuid: GPU-00000000-0000-0000-0000-000000000000}]
"""

# what, how the files change, arguments, exit code, the line on stderr (regular expression)
CASES = [
    ("unknown key", edited("global_batch", "globl_batch"), RUN, 65,
     r"job\.yaml:\d+:3: unknown key 'globl_batch' \(did you mean 'global_batch'\?\)"),
    ("wrong type", edited("global_batch: 16", "global_batch: many"), RUN, 65, r"job\.yaml:\d+:\d+: .*global_batch"),
    ("duplicate key", edited("version: 1\n", "version: 1\nversion: 1\n"), RUN, 65, r"job\.yaml:2:1: .*version"),
    ("anchor", edited("{type: adamw", "&a {type: adamw"), RUN, 65, r"job\.yaml:\d+:\d+: .*anchor"),
    ("exact without a grain", edited("numerics: fast", "numerics: exact"), RUN, 65, r"job\.yaml:\d+:\d+: .*grain"),
    ("missing job", nothing, ("run", "no.yaml"), 66, r"no\.yaml"),
    ("missing fleet", nothing, (*RUN, "--fleet", "no-fleet.yaml"), 66, r"no-fleet\.yaml"),
    ("missing data", edited("text.txt", "nothing-*.txt"), RUN, 66, r"nothing-\*\.txt"),
    ("bad override", nothing, (*RUN, "--set", "train.stepz=3"), 65, r"--set train\.stepz: .*did you mean"),
    ("no such device", edited("checkpoint:", "resources: {devices: {types: [A100]}}\ncheckpoint:"), RUN, 69, r"A100"),
    ("impossible memory", every_device("memory: 1GB", "memory: 64KB"), RUN, 65,
     r"fleet\.yaml:\d+:\d+: .*localhost/\d.*(KiB|MiB).*\(memory: 64KB\)"),
    ("two precisions", edited("{kind: cpu, type: slow", "{kind: reference, type: slow", "fleet.yaml"), RUN, 65,
     r"localhost/0 \(kind cpu\) computes in fp32, localhost/2 \(kind reference\) computes in fp64: .*types"),
    ("no such GPU", lambda sandbox: sandbox.write("fleet.yaml", GPU_FLEET), RUN, 69, r"CUDA|GPU"),
    ("too little text", lambda sandbox: sandbox.write("text.txt", "to be or not"), RUN, 65,
     r"job\.yaml:\d+:\d+: data\.text holds 12 B"),
    ("too little held out", edited("samples: 8", "samples: 8000"), RUN, 65, r"job\.yaml:\d+:\d+: 'samples': 8000"),
    ("nothing to sample", nothing, ("sample", "job", "--bytes", "0"), 2, r"--bytes"),
    ("no run in a directory", nothing, ("report", "."), 66, r"no job\.json"),
    ("plan of another job", plan_of_another_job, (*RUN, "--plan", "plan.json"), 65,
     r"plan\.json:\d+:\d+: .*the plan is for 8 samples a step, the job has train\.global_batch 16"),
    ("dead host", edited("host: localhost", "host: no-such-host.invalid", "fleet.yaml"), RUN, 69,
     r"no-such-host\.invalid"),
    ("dead host of a plan", edited("host: localhost", "host: no-such-host.invalid", "fleet.yaml"), ("plan", "job.yaml"), 69,
     r"no-such-host\.invalid.*; `motley simulate` plans without measuring"),
    ("size without a unit", every_device("memory: 1GB", "memory: 64"), ("plan", "job.yaml"), 65,
     r"fleet\.yaml:\d+:\d+: 'memory': '64' has no unit \(write a size like 20GB"),
    ("too many replicas", nothing, ("worth", "job.yaml", "--set", "parallel={data: 9}"), 65,
     r"'data': at least 9 devices are needed for 9 replicas; .*fleet\.yaml has \d for the job"),
    ("unknown command", nothing, ("trian",), 2, r"unknown command 'trian'"),
    ("unknown option", nothing, (*RUN, "--fleeet", "x"), 2, r"unknown option '--fleeet' \(did you mean '--fleet'\?\)"),
    ("missing word", nothing, ("run",), 2, r"JOB"),
    ("no such run", nothing, ("report", "never-ran"), 66, r"never-ran"),
    ("plan that is none", lambda sandbox: sandbox.write("plan.json", "{}"), (*RUN, "--plan", "plan.json"), 65,
     r"plan\.json|plan"),
]


def check(cache, what, edit, arguments, code, line):
    sandbox = Sandbox(cache=cache)
    edit(sandbox)
    result = sandbox.run(*arguments)
    told = [text for text in result.stderr.splitlines() if text.startswith("motley: ")]
    expect_equal(result.returncode, code, f"{what}: exit code ({result.stderr.strip()!r})")
    expect_equal(len(told), 1, f"{what}: lines of error in {result.stderr!r}")
    expect(re.search(line, told[0]), f"{what}: {told[0]!r} does not match {line!r}")
    checkpoints = list(sandbox.run_directory().glob("checkpoints/step-*"))
    expect(not checkpoints, f"{what}: wrote {checkpoints}")
    expect(not sandbox.processes(), f"{what}: left {sandbox.processes()}")
    print(f"ok: {what}: {told[0]}")


def check_directories_that_cannot_be(cache):
    """State and cache in a file, and where nobody may write: named with the variable, nothing measured."""
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        sandbox = Sandbox(cache=cache)
        for place in (sandbox.write("file", "not a directory"), "/proc/nowhere"):
            for command in ("run", "profile", "plan"):
                fresh = Sandbox()  # nothing in its cache: it has to measure, and would write both
                result = fresh.run(command, "job.yaml", environment={variable: place})
                what = f"{command} with {variable}={place}"
                told = result.stderr.strip().splitlines()
                expect_equal(result.returncode, 77, f"{what}: exit code ({result.stderr.strip()!r})")
                expect_equal(len(told), 1, f"{what}: lines in {result.stderr!r}")
                expect(variable in told[0] and place in told[0], f"{what}: {told[0]!r}")
    print("ok: directories that cannot be: " + told[0])


def check_help():
    """Options that may be repeated are told as such, exit codes are told at all."""
    sandbox = Sandbox()
    plan = sandbox.run("plan", "--help").stdout
    expect(re.search(r"--set KEY=VALUE +override a value of the job \(may be repeated\)", plan), plan)
    overview = sandbox.run("--help").stdout
    for code in (0, 1, 2, 65, 66, 69, 70, 75, 77, 78, 128):
        expect(re.search(rf"\b{code}\b", overview), f"exit code {code} in {overview}")
    print("ok: help")


def check_foreign_profile(cache):
    """A profile of another job or other devices plans nothing."""
    sandbox = Sandbox(cache=cache)
    sandbox.write("profile.json", sandbox.run("profile", "job.yaml", "--json").stdout)
    plan = ("plan", "job.yaml", "--profile", "profile.json")
    expect_equal(sandbox.run(*plan).returncode, 0, "planning with its own profile")

    def expect_refused(what, line, *options):
        result = sandbox.run(*plan, *options)
        expect_equal(result.returncode, 65, f"{what} ({result.stderr!r})")
        expect(re.search(r"motley: profile\.json: .*" + line, result.stderr), f"{what}: {result.stderr!r}")

    expect_refused("another model", r"model\.width is 32 in the profile, 64 in the job", "--set", "model.width=64")
    expect_refused("other numerics", r"numerics", "--set", "train.numerics=exact", "--set", "train.grain=2")
    fleet = (sandbox.home / "fleet.yaml").read_text()
    sandbox.write("other.yaml", fleet.replace("type: slow", "type: snail"))
    expect_refused("other devices", r"localhost/2: type is slow in the profile, snail here", "--fleet", "other.yaml")
    larger = sandbox.run(*plan, "--set", "train.global_batch=32")
    expect_equal(larger.returncode, 0, "a larger batch")
    expect("ends at micro-batch 16" in larger.stderr, f"silent about its end: {larger.stderr!r}")
    sandbox.write("profile.json", '{"version": 1, "model": {"layers": []}, "devices": {}, "links": []}')
    worth = sandbox.run("worth", "job.yaml", "--profile", "profile.json")
    expect("profile.json: a foreign profile, which brings its model: `motley plan --profile` alone" in worth.stderr, worth.stderr)
    print("ok: foreign profiles")


def check_changed_job_and_lock(cache):
    sandbox = Sandbox(steps=20000, every=1000, cache=cache)
    process = sandbox.start("run", "job.yaml")
    sandbox.wait_for(lambda: sandbox.last_step() >= 3, "step 3", process=process)
    second = sandbox.run("run", "job.yaml")
    expect_equal(second.returncode, 77, f"a second run of a locked one ({second.stderr.strip()!r})")
    expect(str(process.pid) in second.stderr, f"the holder is not named: {second.stderr!r}")
    process.terminate()
    expect_equal(process.wait(timeout=30), 75, "stopped")
    changed = sandbox.run("run", "job.yaml", "--set", "train.global_batch=8")
    expect_equal(changed.returncode, 65, "another global batch")
    expect("train.global_batch" in changed.stderr, f"the key is not named: {changed.stderr!r}")
    print("ok: lock and changed job")


def check_changed_data(cache):
    sandbox = Sandbox(steps=20, cache=cache)
    expect_exit(sandbox.run("run", "job.yaml", "--json"), 0)
    attempts = sorted((sandbox.run_directory() / "attempts").iterdir())
    text = (sandbox.home / "text.txt").read_text()
    sandbox.write("text.txt", "X" + text[1:])
    changed = sandbox.run("run", "job.yaml", "--set", "train.steps=30")
    expect_equal(changed.returncode, 65, f"other data ({changed.stderr.strip()!r})")
    expect(re.search(r"job\.yaml:5:15: data\.text has changed since run job/1.*text\.txt", changed.stderr),
           f"place, key and file are not named: {changed.stderr!r}")
    expect_equal(sorted((sandbox.run_directory() / "attempts").iterdir()), attempts, "attempts: ranks were launched")
    sandbox.write("text.txt", text)
    expect_exit(sandbox.run("run", "job.yaml", "--set", "train.steps=30", "--json"), 0)
    print("ok: changed data")


def check_run_by_hand(cache):
    sandbox = Sandbox(cache=cache)
    (sandbox.home / "hand").mkdir()
    sandbox.write("other.yaml", (sandbox.home / "fleet.yaml").read_text())
    exported = sandbox.run("export", "job", "job.yaml", "--set", "train.steps=7", "--fleet", "other.yaml",
                           "-o", "hand/job.json")
    expect_exit(exported, 0)
    text = (sandbox.home / "hand/job.json").read_text()
    expect_equal(json.loads(text)["train"]["steps"], 7, "steps as overridden")
    expect("other.yaml" in text and "fleet.yaml" not in text, f"the fleet is not the one given: {text}")
    result = sandbox.run("resume", "./hand")
    expect_equal(result.returncode, 66, f"a run by hand ({result.stderr.strip()!r})")
    expect("was started by hand: continue with the same mpirun line, or give --fleet" in result.stderr,
           f"not said what to do: {result.stderr!r}")
    print("ok: a run by hand")


def check_directory_without_training(cache):
    """What a failed start leaves behind is taken by the corrected job."""
    sandbox = Sandbox(steps=20, cache=cache)
    failed = sandbox.run("run", "job.yaml", "--set", "retry.max_restarts=0", "--no-compare",
                         environment={"MOTLEY_FAILPOINT": "kill_at_step_1"})
    expect_equal(failed.returncode, 1, f"a run whose ranks die ({failed.stderr.strip()!r})")
    expect_exit(sandbox.run("run", "job.yaml", "--set", "train.seed=8", "--json"), 0)
    expect(not sandbox.run_directory(2).exists(), "a second run was made")
    print("ok: directory without training")


def check_edited_job_json(cache):
    sandbox = Sandbox(steps=20, cache=cache)
    expect_exit(sandbox.run("run", "job.yaml", "--json"), 0)
    path = sandbox.run_directory() / "job.json"
    document = json.loads(path.read_text())
    document["train"]["seed"] += 1
    document["train"]["steps"] = 30
    path.write_text(json.dumps(document))
    result = sandbox.run("resume", "job")
    expect_equal(result.returncode, 65, f"an edited job.json ({result.stderr.strip()!r})")
    expect("train.seed" in result.stderr, f"the key is not named: {result.stderr!r}")
    print("ok: edited job.json")


def check_plan_is_the_same_wherever_the_job_lies(cache):
    sandbox = Sandbox(cache=cache)
    text = (sandbox.home / "job.yaml").read_text()
    text = text.replace("text.txt", str(sandbox.home / "text.txt"))
    (sandbox.home / "elsewhere").mkdir()
    plans = []
    for place in ("job.yaml", "elsewhere/other.yaml"):
        sandbox.write(place, text.replace("fleet: fleet.yaml", f"fleet: {sandbox.home}/fleet.yaml"))
        expect_exit(sandbox.run("plan", place, "-o", "plan.json"), 0)
        document = (sandbox.home / "plan.json").read_text()
        expect("other.yaml" not in document, "the plan says where the job lies")
        plans.append(document)
    expect_equal(plans[0], plans[1], "the plan of the same job elsewhere")
    print("ok: plan of a job elsewhere")


def main():
    cache = Sandbox().home / "cache"
    for case in CASES:
        check(cache, *case)
    check_directories_that_cannot_be(cache)
    check_help()
    check_foreign_profile(cache)
    check_changed_job_and_lock(cache)
    check_changed_data(cache)
    check_run_by_hand(cache)
    check_directory_without_training(cache)
    check_edited_job_json(cache)
    check_plan_is_the_same_wherever_the_job_lies(cache)


if __name__ == "__main__":
    run_test(main)
