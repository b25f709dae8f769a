"""A user's mistakes: one clear line, the documented exit code, nothing half-written."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal  # noqa: E402


def edited(old, new, file="job.yaml"):
    def edit(sandbox):
        text = (sandbox.home / file).read_text()
        assert old in text, f"{old!r} not in {file}"
        sandbox.write(file, text.replace(old, new))
    return edit


def nothing(_):
    pass


RUN = ("run", "job.yaml")

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
    ("impossible memory", edited("memory: 1GB", "memory: 64KB", "fleet.yaml"), RUN, 65,
     r"localhost/\d.*(KiB|MiB)"),
    ("dead host", edited("host: localhost", "host: no-such-host.invalid", "fleet.yaml"), RUN, 69,
     r"no-such-host\.invalid"),
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


def main():
    cache = Sandbox().home / "cache"
    for case in CASES:
        check(cache, *case)
    check_directories_that_cannot_be(cache)
    check_foreign_profile(cache)
    check_changed_job_and_lock(cache)


if __name__ == "__main__":
    main()
