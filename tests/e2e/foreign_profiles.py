"""Plans from a profile that brings its model: what `motley plan --profile` prints, writes, prices and refuses."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

JOB = "version: 1\nname: foreign\ntrain: {global_batch: 32}\n"
FLEET = "version: 1\nnodes:\n" + "".join(
    f"  - host: {host}\n    devices: [" + ", ".join(f"{{type: {kind}}}" for kind in kinds) + "]\n"
    for host, kinds in (("a1", ["fast"] * 2), ("a2", ["fast"] * 2), ("b1", ["slow"] * 2 + ["fast"]), ("b2", ["slow"] * 2)))
LAYERS = 4


def times(batch, tensor, seconds):
    return {"micro_batch": batch, "tensor": tensor, "forward_seconds": [seconds * batch / tensor / 3] * LAYERS,
            "backward_seconds": [seconds * batch / tensor * 2 / 3] * LAYERS, "update_seconds": [0.001 / tensor] * LAYERS, "_seen_by": "someone"}


def profile():
    """`slow` takes twice the time and holds two layers."""
    layer = {"parameters": {"1": 1e6, "2": 5e5}, "activation_bytes_per_sample": 1e6, "output_bytes_per_sample": 1e5}
    devices = {kind: {"memory_bytes": memory, "profiles": [times(batch, tensor, seconds) for batch in (1, 2) for tensor in (1, 2)]}
               for kind, memory, seconds in (("fast", 10**9, 0.010), ("slow", 6 * 10**7, 0.020))}
    links = [{"from": "fast", "to": to, "from_devices": m, "to_devices": n, "latency_seconds": 1e-5, "bytes_per_second": 1e9}
             for to in ("fast", "slow") for m in (1, 2) for n in (1, 2)]
    links += [{"from": "slow", "to": "slow", "from_devices": m, "to_devices": n, "seconds_by_bytes": [[1e4, 2e-5], [1e6, 1e-3]]}
              for m in (1, 2) for n in (1, 2)]
    return {"version": 1, "name": "four layers", "model": {"optimizer_bytes_per_parameter": 16, "layers": [layer] * LAYERS}, "devices": devices,
            "links": links, "source": "this test"}


def replicas_of(document):
    """[(how many, the stages of each)] of a plan."""
    unlike = [(one["replicas"], one["stages"]) for one in document.get("unlike", [])]
    return [(document["replicas"] - sum(count for count, _ in unlike), document["stages"]), *unlike]


def check_reasons(write, plan, refused):
    """What is left out and why, what it costs, and which part of what was given is wrong."""
    priced = profile()
    for kind, price in (("fast", 3), ("slow", 1)):
        priced["devices"][kind]["price_per_hour"] = price
    write("profile.json", priced)
    document = json.loads(plan("--json", "--set", "train.steps=1000").stdout)
    used = sum({"fast": 3, "slow": 1}[stage["type"]] * stage["tensor"] * count for count, its in replicas_of(document) for stage in its)
    expect(abs(document["prediction"]["cost_per_hour"] - used) < 1e-9, f"cost of an hour: {document['prediction']}")
    bill = document["bill"]
    expect_equal(bill["steps"], 1000, "steps of the bill")
    expect(abs(bill["cost"] - used * 1000 * document["prediction"]["step_seconds"] / 3600) < 1e-9, f"bill {bill}")
    told = plan("--set", "train.steps=1000", "--set", "model={preset: gpt2-124m}").stdout
    expect(" an hour, simulated" in told and "1000 steps: " in told, told)
    expect("the job's own model is left aside" in told, told)
    alone = plan("--json", "--set", "resources.devices.types=[fast]")
    expect_exit(alone, 0)
    expect({"type": "slow", "devices": 4, "why": "not admitted by resources.devices.types (fast)"} in json.loads(alone.stdout)["left_out_why"],
           alone.stdout)
    left = json.loads(plan("--json", "--set", "pin.leave_out=[b1/0]").stdout)["left_out_why"]
    expect({"type": "slow", "devices": 1, "why": "pin.leave_out"} in left, left)

    unmeasured = profile()
    unmeasured["devices"]["slow"]["profiles"] = []
    write("profile.json", unmeasured)
    document = json.loads(plan("--json").stdout)
    expect({"type": "slow", "devices": 4, "why": "the profile has no times of it"} in document["left_out_why"], document["left_out_why"])
    expect("left out: 4 of slow (the profile has no times of it)" in plan().stdout, plan().stdout)
    expect("prediction" in document and "cost_per_hour" not in document["prediction"], "a price that nobody gave")
    for key in ("parallel.compress=int8", "train.precision=bf16", "train.loss_scale=8", "parallel.sync={across: 2}"):
        refused(65, "is not kept to with a foreign profile", "--set", key)

    write("profile.json", {("link" if key == "links" else key): value for key, value in profile().items()})
    refused(65, "profile.json:1:1: /: unknown key 'link' (did you mean 'links'?)")
    write("profile.json", {("modle" if key == "model" else key): value for key, value in profile().items()})
    refused(65, "profile.json: neither a profile by `motley profile --json`")
    refused(65, "did 'modle' mean 'model'?")
    write("profile.json", "[]")
    refused(65, "profile.json: a profile is a JSON object")
    write("profile.json", profile())


def main():
    sandbox = Sandbox()

    def write(name, content):
        sandbox.write(name, content if isinstance(content, str) else json.dumps(content, indent=1))

    def plan(*arguments):
        return sandbox.run("plan", "job.yaml", "--fleet", "fleet.yaml", "--profile", "profile.json", *arguments)

    write("job.yaml", JOB)
    write("fleet.yaml", FLEET)
    write("profile.json", profile())

    found = plan("--json", "-o", "plan.json")
    expect_exit(found, 0)
    document = json.loads(found.stdout)
    stages = document["stages"]
    expect_equal([stages[0]["first_layer"], stages[-1]["last_layer"]], [0, LAYERS - 1], "layers")
    expect(abs(document["search"]["gap"]) < 1e-9, f"gap {document['search']['gap']}")
    used = sum(count * stage["tensor"] for count, its in replicas_of(document) for stage in its)
    expect_equal(used + sum(document["left_out"].values()), 9, "devices of the fleet")
    # No more than all devices at work all the time: a fast one does 1/40 ms, a slow one 1/80 ms.
    expect(document["prediction"]["samples_per_second"] <= 5 / 0.040 + 4 / 0.080 + 1e-6, "more than all devices can")
    expect(document["prediction"]["samples_per_second"] >= 5 / 0.040 * 0.6, "hardly more than half of the fast ones")
    again = plan("--json")
    expect_equal(json.loads(again.stdout)["stages"], stages, "the same plan again")

    scored = plan("--score", "plan.json", "--json")
    expect_exit(scored, 0)
    expect_equal(json.loads(scored.stdout)["prediction"], document["prediction"], "the price of what was found")
    expect_equal(json.loads(scored.stdout)["unlike"], document["unlike"], "replicas that were scored")
    write("many.json", {**document, "unlike": [{**document["unlike"][0], "replicas": document["replicas"]}]})
    many = plan("--score", "many.json")
    expect_exit(many, 65)
    expect("must leave some of the" in many.stderr, many.stderr)
    one = {"version": 1, "micro_batch": 1, "replicas": 1, "stages": [{"first_layer": 0, "last_layer": 3, "type": "fast", "tensor": 1}]}
    write("one.json", one)
    alone = json.loads(plan("--score", "one.json", "--json").stdout)["prediction"]
    expect(abs(alone["step_seconds"] - (32 * 0.040 + 0.004)) < 1e-9, f"one fast device takes {alone}")
    expect(abs(alone["simulated_step_seconds"] - alone["step_seconds"]) < 1e-6, "and the same by simulation")
    text = plan()
    expect_exit(text, 0)
    expect("samples/s" in text.stdout and "no plan of its kind" in text.stdout, text.stdout)

    def refused(code, said, *arguments):
        result = plan(*arguments)
        expect_exit(result, code)
        expect(said in result.stderr and result.stderr.count("\n") == 1, f"{said!r} is not in {result.stderr!r}")

    refused(2, "--explain", "--explain")
    write("bad.json", {**one, "stages": [{"first_layer": 0, "last_layer": 2, "type": "fast", "tensor": 1}]})
    refused(65, "bad.json:5:12: /stages: must hold all 4 layers", "--score", "bad.json")
    write("bad.json", {**one, "stages": [{"first_layer": 0, "last_layer": 3, "type": "slow", "tensor": 1}]})
    refused(65, "memory", "--score", "bad.json")
    write("bad.json", {**one, "stages": [{**one["stages"][0], "tensor": 8}]})
    refused(65, "/stages/0: fast cannot be at tensor 8: at micro-batch 1 it can be at 1, 2 (measured, each a part of the next)", "--score", "bad.json")
    write("bad.json", {**one, "replica": 2})
    refused(65, "bad.json:1:1: /: unknown key 'replica' (did you mean 'replicas'?)", "--score", "bad.json")
    write("bad.json", {**one, "stages": [{**one["stages"][0], "type": "fasst"}]})
    refused(65, "/stages/0/type: the fleet has no device of it (did you mean 'fast'?)", "--score", "bad.json")
    write("bad.json", {**one, "global_batch": 7})
    refused(65, "bad.json:13:18: /global_batch: the job's steps have", "--score", "bad.json")
    write("bad.json", {**one, "replicas": 6})
    refused(65, "needs more fast than the 5 there are", "--score", "bad.json")
    write("bad.json", {**one, "replicas": 2**30})
    refused(65, "needs more fast than the 5 there are", "--score", "bad.json")
    write("fleet.yaml", FLEET.replace("host: b2\n    devices: [{type: slow}, {type: slow}]", "host: b2\n    devices: [{type: fast}]"))
    write("bad.json", {**one, "replicas": 3, "stages": [{**one["stages"][0], "tensor": 2}]})
    refused(65, "needs more fast than the 2 groups of 2 on hosts", "--score", "bad.json")
    write("fleet.yaml", FLEET)
    refused(65, "'exact' cannot be planned by a foreign profile", "--set", "train.numerics=exact")
    for key, value in (("parallel.data", 2), ("parallel.tensor", "off"), ("parallel.shard_optimizer", "on")):
        refused(65, f"'{key}' is not kept to with a foreign profile", "--set", f"{key}={value}")
    ordinary = sandbox.run("plan", "job.yaml", "--fleet", "fleet.yaml", "--profile", "nowhere.json")
    expect_equal((ordinary.returncode, "nowhere.json" in ordinary.stderr), (66, True), f"a missing profile: {ordinary.stderr!r}")
    write("fleet.yaml", FLEET.replace("{type: fast}, {type: fast}", "{type: fast, memory: 30MB}, {type: fast, memory: 30MB}"))
    limited = plan("--score", "one.json")
    expect_equal(limited.returncode, 0, f"the one that has all its memory: {limited.stderr!r}")
    write("bad.json", {**one, "stages": [{**one["stages"][0], "memory": 30 * 10**6}]})
    refused(65, "does not fit the memory of its devices", "--score", "bad.json")
    write("fleet.yaml", FLEET.replace("type: slow", "type: slaw"))
    refused(65, "fleet.yaml:8:15: profile.json has no device of type 'slaw' (did you mean 'slow'?)")
    write("fleet.yaml", FLEET)
    cut_off = profile()
    cut_off["links"] = []
    write("profile.json", cut_off)
    alone = json.loads(plan("--json").stdout)
    expect_equal((alone["replicas"], len(alone["stages"])), (1, 1), "without links")
    broken = profile()
    broken["devices"]["fast"]["profiles"][1]["forward_seconds"] = [0.01]
    write("profile.json", broken)
    refused(65, "/devices/fast/profiles/1/forward_seconds: must have one number for each of 4 layers, and has 1")
    tight = profile()
    for device in tight["devices"].values():
        device["memory_bytes"] = 10**6
    write("profile.json", tight)
    refused(65, "no device holds layer 0: it needs at least ")
    check_reasons(write, plan, refused)
    print("ok")


if __name__ == "__main__":
    run_test(main)
