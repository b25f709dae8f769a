"""What is measured is kept, used again only for what it fits, and said to be from the cache."""

import json
import pathlib
import re
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


def check_bench_link():
    sandbox = Sandbox()
    table = sandbox.run("bench", "link", "--size", "4MB")
    expect_exit(table, 0)
    rows = table.stdout.splitlines()
    expect(re.match(r"device +to device +to host +pageable to +pageable from +latency$", rows[0]), f"no table: {rows}")
    expect(re.search(r"( +\d+\.\d\d GB/s){4} +\S+ \S+$", rows[1]), f"no figures of the CPU: {rows[1]!r}")
    expect("measuring " in table.stderr and "(1 of " in table.stderr, f"no progress: {table.stderr!r}")
    result = sandbox.run("bench", "link", "--json", "--size", "4MB")
    expect_exit(result, 0)
    document = json.loads(result.stdout)
    expect_equal(document["bytes"], 4000000, "size")
    cpu = document["devices"][0]
    expect_equal((cpu["kind"], cpu["pcie"], cpu["verdict"], cpu["error"]), ("cpu", None, None, None), "the CPU")
    expect(all(value > 0 for value in cpu["host_link"].values()) and len(cpu["host_link"]) == 5, f"figures: {cpu}")
    for size in ("1KB", "many", "17GiB", "-3MB"):
        refused = sandbox.run("bench", "link", "--size=" + size)
        expect_equal(refused.returncode, 2, f"--size {size}: {refused.stderr!r}")
        expect_equal(len(refused.stderr.strip().splitlines()), 1, f"lines about --size {size}: {refused.stderr!r}")
        expect("--size" in refused.stderr, f"--size is not named: {refused.stderr!r}")
    unknown = sandbox.run("bench", "lnik")
    expect_equal(unknown.returncode, 2, "an unknown bench")
    expect("'lnik'" in unknown.stderr and "link" in unknown.stderr, f"not said: {unknown.stderr!r}")
    usage = sandbox.run("bench", "--help")
    expect_exit(usage, 0)
    expect("WHAT" in usage.stdout and "--size" in usage.stdout, f"help: {usage.stdout!r}")
    print("ok: bench link")


def check_bench_comm():
    sandbox = Sandbox()
    result = sandbox.run("bench", "comm", "--ranks", "3", "--sizes", "1KiB,1MiB", "--json")
    expect_exit(result, 0)
    rows = json.loads(result.stdout)["rows"]
    expect_equal([(row["level"], row["ranks"], row["bytes"], row["errors"]) for row in rows],
                 [("world", 3, 1024, 0), ("world", 3, 1 << 20, 0)], "rows")
    expect(all(row["seconds"] > 0 for row in rows), f"no time: {rows}")
    table = sandbox.run("bench", "comm", "--ranks", "2", "--sizes", "4KiB")
    expect_exit(table, 0)
    expect(re.search(r"^level +ranks +size.*#wrong\nworld +2 +4096 +1024 +float32", table.stdout), f"no table: {table.stdout!r}")
    expect("summing over 2 ranks" in table.stderr, f"no progress: {table.stderr!r}")
    for options, named in ((("--ranks", "1"), "2 to 1024"), (("--ranks", "2", "--sizes", "1B"), "not between"),
                           (("--ranks", "2", "--sizes", "64"), "--sizes: '64' has no unit"),
                           (("--ranks", "2", "--sizes", "many"), "--sizes: 'many'")):
        refused = sandbox.run("bench", "comm", *options)
        expect_equal(refused.returncode, 2, f"{options}: {refused.stderr!r}")
        expect(named in refused.stderr, f"{options}: {refused.stderr!r}")
    print("ok: bench comm")


def check_bench_link_of_a_gpu():
    """An emulated one with a driver that shows a dock, another that the driver knows nothing of."""
    libraries = BIN.parent / "lib"
    sandbox = Sandbox()
    gpu = {"name": "docked", "uuid": "GPU-" + "-".join(["0" * 8] + ["0" * 4] * 3 + ["0" * 12]),
           "numbers": {"width": 4, "most_width": 16, "generation": 3, "most_generation": 3}}
    machine = sandbox.write("machine.json", json.dumps({"gpus": [gpu]}))
    environment = {"MOTLEY_MODULES": str(libraries / "on_host"), "MOTLEY_CUDA_ON_HOST": "devices=2,memory=100000000",
                   "MOTLEY_NVML_STAND_IN": machine, "LD_LIBRARY_PATH": str(libraries / "stand_in")}
    result = sandbox.run("bench", "link", "--json", "--size", "4MB", environment=environment)
    expect_exit(result, 0)
    cpu, docked, unknown = json.loads(result.stdout)["devices"]
    expect_equal([device["kind"] for device in (cpu, docked, unknown)], ["cpu", "cuda", "cuda"], "devices")
    expect_equal(docked["pcie"]["width"], 4, "lanes")
    expect(abs(docked["pcie"]["bytes_per_second"] - 3.94e9) < 1e7, f"what the link carries: {docked['pcie']}")
    expect("x4 of x16: an external dock" in docked["verdict"], f"verdict: {docked['verdict']!r}")
    expect_equal((unknown["pcie"]["width"], unknown["verdict"]),
                 (None, "the driver does not tell what its PCIe link is"), "a GPU that the driver does not show")
    table = sandbox.run("bench", "link", "--size", "4MB", environment=environment)
    expect("x4 of x16: an external dock" in table.stdout, f"no verdict in the table: {table.stdout!r}")
    too_large = sandbox.run("bench", "link", "--json", "--size", "150MB", environment=environment)
    expect_exit(too_large, 0)
    cpu, docked, _ = json.loads(too_large.stdout)["devices"]
    expect(cpu["error"] is None and "143 MiB" in docked["error"], f"what does not fit: {docked}")
    print("ok: bench link of a GPU")


def main():
    check_range()
    check_installation()
    check_links()
    check_devices()
    check_bench_link()
    check_bench_comm()
    check_bench_link_of_a_gpu()


if __name__ == "__main__":
    run_test(main)
