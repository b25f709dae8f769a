"""A whole run on GPUs: the CUDA module compiled for the CPU stands for them (tests/support/cuda_on_host)."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import BIN, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

FLEET = """version: 1
nodes:
  - host: localhost
    slots: 2
    devices:
      - {kind: cuda, type: one, uuid: GPU-00000000-0000-0000-0000-000000000000}
      - {kind: cuda, type: two, uuid: GPU-00000000-0000-0000-0000-000000000001}
"""


JOB = """version: 1
name: job
fleet: fleet.yaml
model: {type: gpt, layers: 1, heads: 1, width: 8, context: 8}
data: {text: [text.txt]}
train: {global_batch: 4, steps: 6, optimizer: {type: adamw, lr: 3.0e-2}, eval: {every: 200, samples: 2}}
checkpoint: {every: 3}
"""


def gpus(capability="sm_90", cache=None):
    """cache: of another sandbox whose measurements serve for this one, too."""
    sandbox = Sandbox(cache=cache)
    sandbox.write("job.yaml", JOB)
    sandbox.environment["MOTLEY_MODULES"] = str(BIN.parent / "lib/on_host")
    sandbox.environment["MOTLEY_CUDA_ON_HOST"] = capability + ",memory=2000000000,devices=2"
    sandbox.write("fleet.yaml", FLEET)
    return sandbox


def final_object(result):
    expect_exit(result, 0)
    return json.loads(result.stdout)


def precisions(sandbox):
    plan = json.loads((sandbox.run_directory() / "plan.json").read_text())
    return [stage["precision"] for replica in plan["replicas"] for stage in replica["stages"]]


def check_learns_in_the_fastest_precision(capability, reduced):
    """The cache with what was measured."""
    sandbox = gpus(capability)
    final = final_object(sandbox.run("run", "job.yaml", "--json"))
    expect_equal(final["steps"], 6, "steps")
    expect(final["final_loss"] < final["first_loss"], f"nothing was learned: {final}")
    profile = json.loads((sandbox.run_directory() / "profile.json").read_text())
    measured = {device["device"]: device["precision"] for device in profile["devices"]}
    expect(set(measured.values()) <= {"fp32", reduced}, f"measured in {measured}")
    # The faster may be faster alone.
    plan = json.loads((sandbox.run_directory() / "plan.json").read_text())
    expect_equal(precisions(sandbox), [measured[rank["device"]] for rank in plan["ranks"]], "precisions of the plan")
    return sandbox.home / "cache"


def check_attention_through_cudnn():
    """A library in its place computes what our own kernels compute, in recorded steps as well."""
    own = gpus()
    cudnn = gpus(cache=own.home / "cache")
    cudnn.environment["MOTLEY_CUDNN"] = str(BIN.parent / "lib/stand_in/cudnn_stand_in.so")
    runs = [sandbox.run("run", "job.yaml", "--set", "train.precision=bf16", "--json") for sandbox in (own, cudnn)]
    losses = [final_object(run)["final_loss"] for run in runs]
    for sandbox, expected in (own, False), (cudnn, True):
        logs = [log.read_text() for log in sandbox.run_directory().glob("attempts/*/rank-*.log")]
        expect_equal(any("attention through cuDNN" in log for log in logs), expected, "whether cuDNN was asked")
    expect(abs(losses[0] - losses[1]) < 0.01 * losses[0], f"final losses {losses}")


def check_goes_on_elsewhere(cache):
    """What two GPUs began, a CPU ends."""
    sandbox = gpus(cache=cache)
    final_object(sandbox.run("run", "job.yaml", "--json"))
    sandbox.write("cpu.yaml", "version: 1\nnodes: [{host: localhost, devices: [{kind: cpu, type: c, threads: 1}]}]\n")
    final = final_object(sandbox.run("run", "job.yaml", "--fleet", "cpu.yaml", "--set", "train.steps=8", "--json"))
    expect_equal(final["steps"], 8, "steps")
    expect_equal(precisions(sandbox), ["fp32"], "precisions of the plan")


def check_a_precision_the_card_lacks():
    sandbox = gpus("sm_75")
    refused = sandbox.run("run", "job.yaml", "--set", "train.precision=bf16")
    expect_exit(refused, 69)
    expect("has no bf16" in refused.stderr, refused.stderr)


def check_gpus_that_are_not_told_apart():
    sandbox = gpus()
    sandbox.write("fleet.yaml", FLEET.replace(", uuid: GPU-00000000-0000-0000-0000-00000000000", ", price: "))
    refused = sandbox.run("run", "job.yaml")
    expect_exit(refused, 65)
    expect("fleet.yaml:7:16: without a uuid localhost/1 is the first GPU" in refused.stderr, refused.stderr)


def check_fp8_where_it_is_asked_for():
    asked = ("--set", "train.precision=fp8", "--set", "model.width=16", "--set", "model.context=16")
    sandbox = gpus("sm_89")
    final = final_object(sandbox.run("run", "job.yaml", "--json", *asked))
    expect(final["final_loss"] < final["first_loss"], f"nothing was learned: {final}")
    expect_equal(set(precisions(sandbox)), {"fp8"}, "precisions of the plan")
    refused = gpus("sm_86").run("run", "job.yaml", *asked)
    expect_exit(refused, 69)
    expect("has no fp8, which comes with sm_89; train in bf16 on it" in refused.stderr, refused.stderr)


def main():
    measured = check_learns_in_the_fastest_precision("sm_90", "bf16")
    check_learns_in_the_fastest_precision("sm_75", "fp16")
    check_attention_through_cudnn()
    check_goes_on_elsewhere(measured)
    check_a_precision_the_card_lacks()
    check_gpus_that_are_not_told_apart()
    check_fp8_where_it_is_asked_for()
    print("ok")


if __name__ == "__main__":
    run_test(main)
