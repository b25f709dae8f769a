"""Inside a real Slurm of unlike nodes: a fleet of what it has, and a batch script that trains on a mix, saves a checkpoint
before its time is over, and goes on when it is its turn again."""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import slurm_cluster  # noqa: E402
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

NODES = {"big": {"features": "a100", "gres": {"a100-40gb": 2}},
         "small1": {"features": "rtx3090,old", "gres": {"rtx3090": 1}},
         "small2": {"features": "rtx3090", "gres": {"rtx3090": 1}}}
ENDLESS = 1_000_000  # steps


def motley(cluster, sandbox, *arguments, code=0):
    result = sandbox.run(*arguments, environment=cluster.environment)
    expect_exit(result, code)
    return result


def fleet(cluster, sandbox):
    """From sinfo: unlike nodes, memory by the catalog; of it one can plan."""
    motley(cluster, sandbox, "fleet", "init", "--slurm", "mixed", "-o", "slurm.yaml")
    written = json.loads(motley(cluster, sandbox, "fleet", "init", "--slurm", "mixed", "--json").stdout)
    devices = [(device["host"], device["type"], device["memory"]) for device in written["devices"]]
    expect_equal(sorted({(host, kind) for host, kind, _ in devices}),
                 [("big", "a100-40gb"), ("small1", "rtx3090"), ("small2", "rtx3090")], "devices")
    expect_equal(len(devices), 4, "devices")
    expect(all(memory and memory > 16e9 for _, kind, memory in devices if kind == "rtx3090"), f"memory by the catalog: {devices}")
    simulated = motley(cluster, sandbox, "simulate", "job.yaml", "--fleet", "slurm.yaml")
    expect("big/1" in simulated.stdout, f"no plan of it: {simulated.stdout}")
    nowhere = motley(cluster, sandbox, "fleet", "init", "--slurm", "nowhere", code=69)
    expect("nowhere" in nowhere.stderr, nowhere.stderr)
    print("ok: fleet init --slurm")


def script(cluster, sandbox, *arguments):
    """The batch script, with every rank on this machine's loopback, as only a test wants it."""
    motley(cluster, sandbox, "export", "slurm", "job.yaml", "-o", "job.sbatch", *arguments)
    subprocess.run(["shellcheck", "job.sbatch"], cwd=sandbox.home, check=True, timeout=60)
    return sandbox.home / "job.sbatch"


def submit(cluster, sandbox, path):
    said = subprocess.run(["sbatch", "--parsable", path], cwd=sandbox.home, env=environment(cluster, sandbox), text=True,
                          capture_output=True, timeout=60)
    expect_equal(said.returncode, 0, f"sbatch\n{said.stderr}")
    return said.stdout.strip()


def environment(cluster, sandbox):
    """What a job sees: one's own, without OMPI's ideas of this machine's network."""
    lo = {f"OMPI_MCA_{name}_if_include": "lo" for name in ("btl_tcp", "oob_tcp")}
    return {**sandbox.environment, **cluster.environment, **lo, "XDG_STATE_HOME": sandbox.environment["XDG_STATE_HOME"],
            "XDG_CACHE_HOME": sandbox.environment["XDG_CACHE_HOME"]}


def state(cluster, job):
    fields = dict(word.split("=", 1) for word in cluster.command("scontrol", "show", "job", job, "-o").split() if "=" in word)
    return fields.get("JobState"), int(fields.get("Restarts", 0)), fields.get("NodeList")


def log(sandbox, job):
    path = sandbox.home / f"{sandbox.name}-{job}.log"
    return path.read_text() if path.exists() else ""


def trains_on_a_mix(cluster, sandbox):
    """One node of one kind and one of another, as asked for."""
    job = submit(cluster, sandbox, script(cluster, sandbox, "--nodes", "a100:1,old:1"))
    cluster.wait_for(lambda: state(cluster, job)[0] in ("COMPLETED", "FAILED"), lambda: f"the end of the job\n{log(sandbox, job)}", 240)
    expect_equal(state(cluster, job)[0], "COMPLETED", f"the job\n{log(sandbox, job)}")
    written = (sandbox.home / f"fleet-{job}.yaml").read_text()
    expect("host: big" in written and "host: small1" in written, f"the fleet it was given:\n{written}")
    expect("after 40 steps" in log(sandbox, job), log(sandbox, job))
    print("ok: a mix of nodes")


def sees_all_gpus(cluster, sandbox):
    """What ranks are started through gives each node's ranks all of its GPUs, and only them."""
    text = script(cluster, sandbox, "--nodes", "a100:1,rtx3090:2").read_text()
    directives = "".join(line + "\n" for line in text.splitlines() if line.startswith("#SBATCH"))
    look = "".join(f"bash job.sbatch on-node {node} 'echo seen $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'\n" for node in NODES)
    job = submit(cluster, sandbox, sandbox.write("look.sbatch", f"#!/bin/bash\n{directives}{look}"))
    cluster.wait_for(lambda: state(cluster, job)[0] == "COMPLETED", lambda: f"a look at each node\n{log(sandbox, job)}", 240)
    seen = sorted(line for line in log(sandbox, job).splitlines() if line.startswith("seen"))
    expect_equal(seen, ["seen big 0,1", "seen small1 0", "seen small2 0"], "GPUs of each node")
    print("ok: all GPUs of each node")


def runs_a_program(cluster, sandbox):
    """A job that is a program, rank by rank on the nodes that were asked for."""
    sandbox.name = "program"
    sandbox.write("job.yaml", "version: 1\nname: program\nrun: [sh, -c, 'echo rank $RANK of $WORLD_SIZE']\n")
    job = submit(cluster, sandbox, script(cluster, sandbox, "--nodes", "2"))
    cluster.wait_for(lambda: state(cluster, job)[0] in ("COMPLETED", "FAILED"), lambda: f"the end of the job\n{log(sandbox, job)}", 240)
    expect(state(cluster, job)[0] == "COMPLETED" and "rank 0 of" in log(sandbox, job), f"{state(cluster, job)}\n{log(sandbox, job)}")
    print("ok: a program")


def goes_on(cluster, sandbox):
    """Warned before its time is over it saves, is queued again, and continues; the losses are those of one run."""
    job = submit(cluster, sandbox, script(cluster, sandbox, "--nodes", "3"))
    cluster.wait_for(lambda: sandbox.last_step() >= 30, lambda: f"step 30\n{log(sandbox, job)}", 240)
    cluster.command("scancel", "--signal=USR1", "--batch", job)
    cluster.wait_for(lambda: state(cluster, job)[1] == 1, lambda: f"the job in the queue again\n{log(sandbox, job)}", 240)
    before = sandbox.last_step()
    cluster.wait_for(lambda: sandbox.last_step() >= before + 30, lambda: f"more steps\n{log(sandbox, job)}", 240)
    cluster.command("scancel", job)
    cluster.wait_for(lambda: state(cluster, job)[0] == "CANCELLED", lambda: f"its end\n{log(sandbox, job)}", 240)
    expect_equal(sorted(sandbox.losses()), list(range(1, sandbox.last_step() + 1)), "steps")
    expect(f"continuing from step {before}" in log(sandbox, job), f"it did not go on from there:\n{log(sandbox, job)}")
    print("ok: saved, queued again, continued")


def main():
    why_not = slurm_cluster.possible()
    if why_not:
        os.execvp("bash", ["bash", "tests/support/missing_capability.sh", *why_not])
    sandbox = Sandbox(steps=ENDLESS, every=20)
    os.chmod(sandbox.home, 0o755)
    with slurm_cluster.Cluster(sandbox.home / "slurm", NODES) as cluster:
        fleet(cluster, sandbox)
        sees_all_gpus(cluster, sandbox)
        goes_on(cluster, sandbox)
        sandbox.name = "mixed"
        sandbox.write_job(steps=40, every=20)
        trains_on_a_mix(cluster, sandbox)
        runs_a_program(cluster, sandbox)


run_test(main)
