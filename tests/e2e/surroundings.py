"""What is around a command is not as it was, or not as it should be: other data, another motley, a full disk, a plan that is
not whole."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import MOTLEY, WORKER, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402


def check_two_at_a_time():
    """Two that measure jobs of one name: the second waits, and takes what the first has measured."""
    sandbox = Sandbox()
    both = [subprocess.Popen(sandbox.command("profile", "job.yaml", "--json"), cwd=sandbox.home, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=sandbox.environment) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    for process, (_, err) in zip(both, said):
        expect_equal(process.returncode, 0, f"exit code ({err!r})")
    expect_equal(said[0][0], said[1][0], "the two profiles")
    expect_equal(sum("from the cache" in err for _, err in said), 1, f"profiles from the cache in {said}")
    print("ok: two at a time")
    return sandbox


def check_output_that_cannot_be_written(sandbox):
    expect_exit(sandbox.run("plan", "job.yaml", "-o", "plan.json"), 0)
    for command in (("plan", "job.yaml", "--json"), ("export", "job", "job.yaml"), ("export", "hostfile", "plan.json"),
                    ("profiles", "--json"), ("--version",), ("devices",)):
        with open("/dev/full", "w") as full:
            result = subprocess.run([MOTLEY, *command], cwd=sandbox.home, stdout=full, stderr=subprocess.PIPE, text=True,
                                    env=sandbox.environment, timeout=120)
        what = " ".join(command)
        expect_equal(result.returncode, 1, f"{what}: exit code ({result.stderr!r})")
        told = [line for line in result.stderr.splitlines() if line.startswith(("motley: ", "motley-worker: "))]
        expect_equal(len(told), 1, f"{what}: lines in {result.stderr!r}")
        expect("cannot write to stdout" in told[0], f"{what}: {told[0]!r}")
    print("ok: output that cannot be written")


def check_output_into_stdout(sandbox):
    """A link to the stdout that a shell has opened is written where the shell's other output goes."""
    (sandbox.home / "link").symlink_to("/proc/self/fd/1")
    with open(sandbox.home / "out.txt", "w") as out:
        out.write("before\n")
        out.flush()
        subprocess.run(sandbox.command("export", "job", "job.yaml", "-o", "link"), cwd=sandbox.home, stdout=out,
                       env=sandbox.environment, check=True, timeout=120)
        out.write("after\n")
    text = (sandbox.home / "out.txt").read_text()
    expect(text.startswith("before\n{") and text.endswith("}\nafter\n"), f"not in its place: {text!r}")
    print("ok: output into stdout")


def check_plan_not_whole(sandbox):
    plan = json.loads((sandbox.home / "plan.json").read_text())
    for rank in plan["ranks"]:
        del rank["host"]
    for key in ("fleet", "job"):
        del plan[key]
    sandbox.write("hand.json", json.dumps(plan))
    (sandbox.home / "byhand").mkdir()
    expect_exit(sandbox.run("export", "job", "job.yaml", "-o", "byhand/job.json"), 0)
    hostfile = sandbox.run("export", "hostfile", "hand.json")
    train = subprocess.run([WORKER, "train", "--job", "byhand/job.json", "--plan", "hand.json", "--run-dir", "run"],
                           cwd=sandbox.home, capture_output=True, text=True, env=sandbox.environment, timeout=60)
    for what, result in (("hostfile", hostfile), ("train", train)):
        expect_equal(result.returncode, 65, f"{what}: exit code ({result.stderr!r})")
        expect_equal(result.stdout, "", f"{what}: printed")
        expect("hand.json" in result.stderr and "this plan is not whole; `motley plan JOB --score hand.json -o WHOLE`" in
               result.stderr, f"{what}: {result.stderr!r}")
    print("ok: a plan that is not whole")


def check_changed_since(sandbox):
    """A finished run says that its data have changed; on request another takes its place."""
    run = ("run", "job.yaml", "--set", "train.steps=10", "--no-compare", "--json")
    first = sandbox.run(*run, "--fresh-if-changed")
    expect_exit(first, 0)
    again = sandbox.run(*run, "--fresh-if-changed")
    expect_exit(again, 0)
    expect_equal(json.loads(again.stdout), json.loads(first.stdout), "the report of the same run")
    expect("changed since" not in again.stderr, f"nothing has changed: {again.stderr!r}")
    (sandbox.home / "other").mkdir()
    text = (sandbox.home / "text.txt").read_text()
    sandbox.write("text.txt", "X" + text[1:])
    finished = sandbox.run(*run)
    expect_exit(finished, 0)
    expect("is finished" in finished.stderr and "the data have changed since: " in finished.stderr,
           f"the change is not told: {finished.stderr!r}")
    fresh = sandbox.run(*run, "--fresh-if-changed")
    expect_exit(fresh, 0)
    expect_equal(fresh.stderr.count("have changed since the newest run: starting another"), 1, "lines that say so")
    expect(json.loads(fresh.stdout)["run_dir"].endswith("/job/2"), f"not another run: {fresh.stdout}")
    job = (sandbox.home / "job.yaml").read_text()
    for name in ("text.txt", "fleet.yaml"):
        sandbox.write(f"other/{name}", (sandbox.home / name).read_text())
    sandbox.write("other/job.yaml", job)
    clone = ("run", "other/job.yaml", *run[2:])
    expect_equal(sandbox.run(*clone).returncode, 65, "the same job elsewhere")
    fresh = sandbox.run(*clone, "--fresh-if-changed")
    expect_exit(fresh, 0)
    expect(json.loads(fresh.stdout)["run_dir"].endswith("/job/3"), f"not another run: {fresh.stdout}")
    print("ok: changed since")


def main():
    sandbox = check_two_at_a_time()
    check_output_that_cannot_be_written(sandbox)
    check_output_into_stdout(sandbox)
    check_plan_not_whole(sandbox)
    check_changed_since(sandbox)


if __name__ == "__main__":
    run_test(main)
