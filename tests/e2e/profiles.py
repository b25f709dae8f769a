"""What is measured is kept, used again only for what it fits, and said to be from the cache."""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import BIN, WORKER, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402


def largest(profile):
    return [device["curves"][0]["points"][-1]["micro_batch"] for device in profile["devices"]]


def profiled(sandbox, *arguments):
    result = sandbox.run("profile", "job.yaml", "--json", *arguments)
    expect_exit(result, 0)
    return json.loads(result.stdout), "from the cache, measured 2" in result.stderr


def check_range():
    sandbox = Sandbox()
    small, cached = profiled(sandbox, "--set", "train.global_batch=2")
    expect_equal((largest(small), cached), ([2] * 4, False), "measured for a batch of 2")
    large, cached = profiled(sandbox)
    expect_equal((largest(large), cached), ([16] * 4, False), "measured again for a batch of 16")
    small, cached = profiled(sandbox, "--set", "train.global_batch=2")
    expect_equal((largest(small), cached), ([16] * 4, True), "the longer curve serves the smaller batch")
    _, cached = profiled(sandbox, "--refresh")
    expect(not cached, "--refresh measures")
    print("ok: the range of micro-batches")


def check_installation():
    """Another build of a module measures again."""
    sandbox = Sandbox()
    worker = sandbox.home / "installed" / "bin" / "motley-worker"
    module = sandbox.home / "installed" / "lib" / "motley_mpi.so"
    worker.parent.mkdir(parents=True)
    module.parent.mkdir()
    shutil.copy(WORKER, worker)
    for original in (BIN.parent / "lib").glob("*.so"):
        shutil.copy(original, module.parent)
    _, cached = profiled(sandbox)
    expect(not cached, "nothing was in the cache")
    sandbox.environment["MOTLEY_WORKER"] = str(worker)
    _, cached = profiled(sandbox)
    expect(cached, "the same program elsewhere measures the same")
    with open(module, "ab") as file:
        file.write(b"another build")
    _, cached = profiled(sandbox)
    expect(not cached, "another MPI module may communicate differently")
    print("ok: the installation")


def check_links():
    sandbox = Sandbox()
    profile, _ = profiled(sandbox)
    expect_equal([link["between"] for link in profile["links"]], [["localhost", "localhost"]], "links on one host")
    expect("gpt" in profile["job"], f"the profile does not say of which job it is: {profile['job']}")
    fleet = (sandbox.home / "fleet.yaml").read_text()
    sandbox.write("fleet.yaml", fleet + "links: [{between: [localhost, localhost], bandwidth: 1GB/s}]\n")
    for command in ("profile", "plan"):
        told = sandbox.run(command, "job.yaml").stderr
        line = "links decides nothing yet: plans use latency and bandwidth as measured here, and paced devices communicate"
        expect_equal(told.count(line), 1, f"{command} of a fleet with links: {told!r}")
    print("ok: links")


def check_devices():
    sandbox = Sandbox()
    table = sandbox.run("devices")
    expect_exit(table, 0)
    expect(table.stdout.startswith("kind ") and "\ncpu " in table.stdout, f"no table: {table.stdout!r}")
    listed = json.loads(sandbox.run("devices", "--json").stdout)
    expect_equal(listed["devices"][0]["kind"], "cpu", "the first device")
    expect({"uuid", "bus_id", "memory"} <= listed["devices"][0].keys(), f"incomplete: {listed}")
    expect(listed["fleet"]["devices"], f"no fleet: {listed}")
    print("ok: devices")


def main():
    check_range()
    check_installation()
    check_links()
    check_devices()


if __name__ == "__main__":
    run_test(main)
