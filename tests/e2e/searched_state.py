"""Models for which the optimizer's state must lie elsewhere: the search shares it, unevenly, among paced devices, or puts it into
host memory beside an emulated GPU; the plan trains as one device with room would, in the memory that was planned."""

import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import BIN, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

MODEL = "model={type: gpt, layers: 6, heads: 2, width: 160, context: 16}"
# Else cutting the model would do.
WHOLE = ("--set", MODEL, "--set", "parallel.pipeline=1", "--set", "parallel.recompute=off")
PACED = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 2
    devices:
      - {kind: cpu, type: large, threads: 1, paced: {speed: 1, memory: %dB}}
      - {kind: cpu, type: small, threads: 1, paced: {speed: 1, memory: %dB}}
"""
GPU = """version: 1
nodes:
  - host: localhost
    slots: 1
    devices:
      - {kind: cuda, type: one, uuid: GPU-00000000-0000-0000-0000-000000000000, memory: %dB}
"""


PLENTY = 10**9
MB = 10**6


def limit_for(size):
    """Of memory, of which that much may be used."""
    return size / 0.95


def sandbox_with(fleet, **options):
    sandbox = Sandbox(steps=6, every=3, **options)
    sandbox.write("fleet.yaml", fleet)
    return sandbox


def run(sandbox, *arguments):
    """What it ends with, and its plan, whose bytes are what ranks count: of whole replicas with all state at most as many."""
    result = sandbox.run("run", "job.yaml", "--no-compare", "--json", *WHOLE, *arguments, timeout=300)
    expect_exit(result, 0)
    plan = json.loads((sandbox.run_directory() / "plan.json").read_text())
    for rank in plan["prediction"]["ranks"]:
        expect(rank["memory"] <= rank["memory_limit"], f"too large: {rank}")
        log = (sandbox.run_directory() / "attempts" / "1" / f"rank-{rank['rank']:04}.log").read_text()
        counted = int(re.search(r"counted memory: (\d+) bytes", log).group(1))
        elsewhere = plan["shard_optimizer"] or any(place["host_optimizer"] for place in plan["ranks"])
        least = rank["memory"] if elsewhere else 0.95 * rank["memory"]
        expect(least <= counted <= rank["memory"], f"bytes of rank {rank['rank']}: {counted}, planned {rank['memory']}")
    return json.loads(result.stdout), plan


def owned(plan, rank):
    sizes = [1] * len(plan["owners"])
    for i, owner in enumerate(plan["owners"]):
        for extent in owner["extent"]:
            sizes[i] *= extent
    return sum(size for size, owner in zip(sizes, plan["owners"]) if owner["rank"] == rank) / sum(sizes)


def check_sharded():
    """Two devices, neither of which holds the model with its state; the larger owns more."""
    reference, roomy = run(sandbox_with(PACED % (PLENTY, PLENTY), numerics="exact", grain=1), "--set", "parallel.shard_optimizer=off")
    needs = roomy["prediction"]["ranks"][0]["memory"]
    expect_equal(len(roomy["replicas"]), 2, "replicas where there is room")
    # Half of the state spares either 5.8 MB: 7.4, less what owners of weights send.
    limits = limit_for(needs - 2.6 * MB), limit_for(needs - 7 * MB)
    small = sandbox_with(PACED % limits, numerics="exact", grain=1)
    off = small.run("plan", "job.yaml", *WHOLE, "--set", "parallel.shard_optimizer=off")
    expect_equal(off.returncode, 65, f"exit code without ({off.stderr!r})")
    final, plan = run(small)
    expect(plan["shard_optimizer"], "not sharded")
    larger = [rank for rank, place in enumerate(plan["ranks"]) if place["type"] == "large"]
    expect(owned(plan, larger[0]) > 0.53, f"the larger owns {owned(plan, larger[0]):.0%}")
    expect_equal(final["weights_xxh3"], reference["weights_xxh3"], "weights")
    error = abs(final["predicted_step_seconds"] / final["actual_step_seconds"] - 1)
    expect(error < 0.05, f"prediction off by {error:.1%}")
    text = small.run("plan", "job.yaml", *WHOLE).stdout
    expect("optimizer state: sharded" in text, f"not said:\n{text}")
    print(f"ok: sharded, the larger device owns {owned(plan, larger[0]):.0%}, off by {error:.1%}")


def check_in_host_memory():
    """One emulated GPU that holds parameters and gradients only."""
    def gpu(memory):
        sandbox = sandbox_with(GPU % memory, grain=4)  # smaller micro-batches would do, too
        sandbox.environment["MOTLEY_MODULES"] = str(BIN.parent / "lib/on_host")
        sandbox.environment["MOTLEY_CUDA_ON_HOST"] = "sm_90,memory=2000000000,devices=1"
        return sandbox

    fp32 = ("--set", "train.precision=fp32", "--set", "train.global_batch=4")
    roomy = gpu(PLENTY).run("plan", "job.yaml", *WHOLE, *fp32, "--json", timeout=300)
    expect_exit(roomy, 0)
    needs = json.loads(roomy.stdout)["prediction"]["ranks"][0]["memory"]
    small = gpu(limit_for(needs - 5 * MB))  # less than half of the state
    off = small.run("plan", "job.yaml", *WHOLE, *fp32, "--set", "parallel.host_optimizer=off", timeout=300)
    expect_equal(off.returncode, 65, f"exit code without ({off.stderr!r})")
    final, plan = run(small, *fp32)
    expect(plan["ranks"][0]["host_optimizer"], "state is not in host memory")
    expect(plan["prediction"]["ranks"][0]["host_memory"] > 4 * 10**6, f"host memory: {plan['prediction']['ranks']}")
    expect(final["final_loss"] < final["first_loss"], f"nothing was learned: {final}")
    print("ok: state in host memory")


def main():
    check_sharded()
    check_in_host_memory()


if __name__ == "__main__":
    run_test(main)
