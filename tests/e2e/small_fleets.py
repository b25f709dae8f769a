"""Plans of a few catalog cards: leaving more to the planner, giving it more, or what the job does not admit, makes none slower."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

# Of a step: what rounding takes.
SAME = 1.0001


def write_job(sandbox, model, train, parallel="{}"):
    layers, width, heads, context, vocab = model
    sandbox.write("job.yaml", f"""version: 1
name: few
fleet: fleet.yaml
model: {{type: gpt, layers: {layers}, heads: {heads}, width: {width}, context: {context}, vocab: {vocab}}}
data: {{text: [text.txt], tokenizer: bytes}}
train: {{steps: 10, optimizer: {{type: adamw, lr: 1.0e-4}}, {train}}}
parallel: {parallel}
""")


def write_fleet(sandbox, hosts, bandwidth="1GB/s"):
    """By host its cards, each a type and its GB."""
    nodes = [f"  - {{host: {host}, devices: [{', '.join(f'{{type: {card}, memory: {size}GB}}' for card, size in cards)}]}}"
             for host, cards in hosts.items()]
    names = list(hosts)
    links = [f"  - {{between: [{a}, {b}], bandwidth: {bandwidth}, latency: 1ms}}" for i, a in enumerate(names) for b in names[i + 1:]]
    sandbox.write("fleet.yaml", "\n".join(["version: 1", "nodes:", *nodes, *(["links:", *links] if links else [])]) + "\n")


def plan_of(sandbox, *settings):
    arguments = [word for setting in settings for word in ("--set", setting)]
    result = sandbox.run("simulate", "job.yaml", *arguments, "--json")
    expect_exit(result, 0)
    return json.loads(result.stdout)["plan"]


def step_of(sandbox, *settings):
    return plan_of(sandbox, *settings)["prediction"]["step_seconds"]


def expect_no_slower(sandbox, what, *settings):
    """Than with these settings, which leave less to choose from."""
    free, less = step_of(sandbox), step_of(sandbox, *settings)
    expect(free <= less * SAME, f"{what}: {free:.6g} s, with {' '.join(settings)} {less:.6g} s")
    print(f"ok: {what}")


def check_what_is_not_admitted(sandbox):
    """A host that the job does not admit, and one that is far."""
    write_job(sandbox, (16, 1536, 12, 256, 128000), "global_batch: 8, grain: 2", "{tensor: off}")
    write_fleet(sandbox, {"near": [("V100-32GB", 32)] * 2})
    alone = step_of(sandbox)
    write_fleet(sandbox, {"far": [("V100-32GB", 32)], "near": [("V100-32GB", 32)] * 2})
    expect(abs(step_of(sandbox, "pin.leave_out=[far/0]") / alone - 1) < 1e-6, "with a host that is left out")
    expect(step_of(sandbox) <= alone * SAME, "a far host makes the plan slower")
    write_fleet(sandbox, {"far": [("T4", 16)], "near": [("V100-32GB", 32)] * 2})
    expect(abs(step_of(sandbox, "resources.devices.types=[V100-32GB]") / alone - 1) < 1e-6, "with a type that is not admitted")
    print("ok: what a job does not admit, and what is far, slows nothing")


def check_cards_that_share_everything(sandbox):
    """Their pipeline computes sooner, but for what its ends exchange."""
    write_job(sandbox, (5, 2048, 16, 512, 50257), "global_batch: 3, grain: 1")
    write_fleet(sandbox, {"a": [("RTX4090", 24)] * 2})
    expect_no_slower(sandbox, "two cards that share the model", "parallel.tensor=2")
    write_job(sandbox, (5, 1024, 16, 256, 50257), "global_batch: 9, precision: fp32")
    expect_no_slower(sandbox, "of an odd batch", "parallel.tensor=2")
    write_job(sandbox, (2, 1024, 16, 128, 128000), "global_batch: 2")
    write_fleet(sandbox, {"a": [("RTX3090", size) for size in (24, 24, 9, 18)]})
    expect_no_slower(sandbox, "four cards of unlike memory", "parallel.tensor=4")


def check_what_is_tied_is_held_once(sandbox):
    """Two cards that share the model hold the matrix of both its ends between them, not twice: more memory changes little."""
    write_job(sandbox, (1, 2048, 16, 256, 50257), "global_batch: 6, precision: fp32")
    steps = []
    for size in (24, 2.21):
        write_fleet(sandbox, {"a": [("RTX4060", size)] * 2})
        steps.append(step_of(sandbox))
    expect(steps[1] <= steps[0] * 1.01, f"{steps[1]} s with as much as is needed, {steps[0]} s with more")
    print("ok: what is tied is held once")


def check_ends_share_state(sandbox):
    """Both ends of the only replica hold the embedding: each updates a part of it."""
    write_job(sandbox, (13, 768, 12, 512, 50257), "global_batch: 12", "{recompute: off}")
    write_fleet(sandbox, {"a": [("RTX4090", 24)] * 2})
    plan = plan_of(sandbox)
    expect_equal(len(plan["replicas"]), 1, "replicas")
    expect(plan["shard_optimizer"], "the state of what is tied lies at both ends")
    expect(plan["prediction"]["step_seconds"] < step_of(sandbox, "parallel.shard_optimizer=off"), "no quicker by it")
    print("ok: ends of a replica share state")


def check_long_pipelines(sandbox):
    """Eight cards do not hold the model, and nine do; sixteen hold another."""
    write_job(sandbox, (48, 1600, 25, 1024, 50257), "global_batch: 64")
    write_fleet(sandbox, {"a": [("RTX2060", 6)] * 4, "b": [("RTX2060", 6)] * 2, "c": [("RTX2060", 6)] * 3})
    plan = plan_of(sandbox)
    expect_equal(len(plan["ranks"]), 9, "cards of nine")
    write_job(sandbox, (30, 4096, 32, 1024, 50257), "global_batch: 64, precision: fp16")
    write_fleet(sandbox, {host: [("RTX3080", 10)] * 4 for host in "abcd"}, "3GB/s")
    plan = plan_of(sandbox)
    expect_equal((len(plan["replicas"]), len(plan["ranks"])), (1, 16), "replicas and cards")
    expect(not any(rank.get("host_optimizer") for rank in plan["ranks"]), "state in host memory")
    print("ok: pipelines as long as the model needs")


def check_little_memory(sandbox):
    """Cards that share the model with state in host memory; cards that compute again, too."""
    write_job(sandbox, (6, 768, 12, 256, 50257), "global_batch: 4, grain: 1")
    write_fleet(sandbox, {"a": [("A100-40GB", 1.03)], "b": [("A100-40GB", 1.08), ("A100-40GB", 0.41)]}, "100MB/s")
    expect_no_slower(sandbox, "with state in host memory", "parallel.tensor=2")
    write_job(sandbox, (12, 512, 8, 1024, 50257), "global_batch: 32, grain: 1, precision: fp32")
    write_fleet(sandbox, {"a": [("T4", 0.72), ("T4", 0.5), ("RTX3090", 0.53), ("RTX3090", 0.4)]})
    expect_no_slower(sandbox, "that computes again as well", "parallel.pipeline=3")


def check_a_large_card_that_is_slow(sandbox):
    """It holds the model; quicker ones that have to save memory for it, in two ways at once, do without it."""
    write_job(sandbox, (4, 768, 12, 512, 50257), "global_batch: 64, precision: fp32")
    write_fleet(sandbox, {"a": [("T4", 16)], "b": [("RTX3090", 0.896)]}, "100MB/s")
    expect_no_slower(sandbox, "a quick card with its state in host memory", "pin.leave_out=[a/0]")
    write_job(sandbox, (12, 384, 6, 1024, 5000), "global_batch: 16")
    write_fleet(sandbox, {"a": [("T4", 16)], "b": [("H100-80GB", 0.36)]}, "100MB/s")
    expect_no_slower(sandbox, "one that computes again as well", "pin.leave_out=[a/0]")


def check_one_replica_shares_state(sandbox):
    """Its ends do, where the job asks for it, though one device would be quicker."""
    write_job(sandbox, (12, 256, 4, 128, 1000), "global_batch: 24, precision: fp16", "{shard_optimizer: on}")
    write_fleet(sandbox, {"a": [("RTX5070", 12)], "b": [("RTX5070", 0.178)], "c": [("A4000", 0.249)]})
    expect_no_slower(sandbox, "ends of a replica that is asked to share", "parallel.pipeline=2")


def main():
    sandbox = Sandbox()
    check_what_is_not_admitted(sandbox)
    check_cards_that_share_everything(sandbox)
    check_what_is_tied_is_held_once(sandbox)
    check_ends_share_state(sandbox)
    check_long_pipelines(sandbox)
    check_little_memory(sandbox)
    check_a_large_card_that_is_slow(sandbox)
    check_one_replica_shares_state(sandbox)

    print("ok")


if __name__ == "__main__":
    run_test(main)
