"""Steps of fleets that nobody has here: what `motley simulate` prints, writes and refuses."""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]

CARDS = """version: 1
nodes:
  - host: a1
    devices:
      - {type: A100-40GB}
      - {type: A100-40GB}
      - {type: RTX3090}
  - host: r1
    devices: [{type: NVIDIA GeForce RTX 3090, memory: 20GB}]
links: [{between: [a1, r1], bandwidth: 12.5GB/s, latency: 20us}]
"""

JOB_OF_SUMS = """version: 1
name: sums
fleet: fleet.yaml
model: {type: gpt, layers: 12, heads: 12, width: 768, context: 128}
data: {text: [text.txt]}
train: {global_batch: 16, steps: 10, optimizer: {type: adamw, lr: 1.0e-3}}
"""

BY_HAND = {
    "version": 1, "numerics": "fast", "global_batch": 16, "grain": 1,
    "ranks": [{"device": f"localhost/{i}"} for i in range(4)],
    "replicas": [
        {"stages": [{"first_layer": 0, "last_layer": 1, "ranks": [0]}, {"first_layer": 2, "last_layer": 3, "ranks": [1]}],
         "micro_batch": 1, "grains": 12},
        {"stages": [{"first_layer": 0, "last_layer": 3, "ranks": [2, 3]}], "micro_batch": 2, "grains": 4},
    ],
}


def simulated(sandbox, *arguments):
    result = sandbox.run("simulate", "job.yaml", *arguments, "--json")
    expect_exit(result, 0)
    return json.loads(result.stdout)


def check_trace(path, ranks, step_seconds):
    """Of each rank names, a step, and events that follow each other from its begin to its end."""
    events = json.loads(path.read_text())
    for rank in range(ranks):
        own = [event for event in events if event["pid"] == rank and event["ph"] == "X"]
        step, *inner = own
        expect_equal(step["name"], "step 1", "the first event")
        expect(abs(step["dur"] / 1e6 - step_seconds) < 1e-8, f"a step of {step['dur']} us")
        now = 0
        for event in inner:
            expect(abs(event["ts"] - now) < 1e-3, f"{event} does not begin at {now}")
            now = event["ts"] + event["dur"]
        expect(abs(now - step["dur"]) < 1e-3, f"events of rank {rank} end at {now} of {step['dur']}")
        expect({event["cat"] for event in inner} <= {"compute", "wait", "communication"}, "categories")
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    expect_equal(len(names), ranks, "ranks with a name")
    return names


def check_picture(path, devices, evidence):
    root = xml.etree.ElementTree.parse(path).getroot()
    text = " ".join(root.itertext())
    for device in devices:
        expect(device in text, f"no row for {device} in {text}")
    for word in ("forward", "backward", "update", "reduction", "waiting", f"({evidence})"):
        expect(word in text, f"no {word!r} in the picture")


def check_cards():
    """GPUs of the catalog, with links from the fleet and assumed."""
    sandbox = Sandbox()
    sandbox.write("cards.yaml", CARDS)
    words = ("--fleet", "cards.yaml", "--set", "train.precision=auto")
    step = simulated(sandbox, *words, "-o", "trace.json", "--svg", "step.svg")
    expect_equal((step["evidence"], step["source"]), ("simulated", "catalog"), "kind and source")
    expect(step["samples_per_second"] > 0, "no speed")
    names = check_trace(sandbox.home / "trace.json", len(step["ranks"]), step["step_seconds"])
    expect(all(name.endswith(", simulated") for name in names), f"names {names}")
    check_picture(sandbox.home / "step.svg", [rank["device"] for rank in step["ranks"]], "simulated")
    expect_equal([link["between"] for link in step["assumed_links"]], [["a1", "a1"]], "assumed links")
    for rank in step["ranks"]:
        total = rank["busy_seconds"] + rank["wait_seconds"] + rank["communicate_seconds"]
        expect(abs(total - step["step_seconds"]) < 1e-8, f"rank {rank} does not add up")
        expect(0 < rank["memory"] < rank["memory_limit"], f"memory of {rank}")
    text = sandbox.run("simulate", "job.yaml", *words).stdout
    for word in ("One step (simulated)", "configs/devices.yaml", "nothing of it was measured", "link within a1", "assumed"):
        expect(word in text, f"no {word!r} in\n{text}")
    expect("counterfactuals" not in step["plan"]["search"], "what was not asked for")
    changes = simulated(sandbox, *words, "--explain")["plan"]["search"]["counterfactuals"]
    expect(all({"what", "step_seconds"} == set(change) for change in changes), f"counterfactuals {changes}")
    text = sandbox.run("simulate", "job.yaml", *words, "--explain").stdout
    expect(changes[0]["what"] in text if changes else "no other memory" in text, f"{changes} are not told in\n{text}")
    expect(not (sandbox.home / "state" / "motley" / "runs").exists(), "a run was begun")


def check_links_of_unlike():
    """An unlike card on a host makes no plan slower, though links within are assumed to be as slow as its own."""
    sandbox = Sandbox()
    sandbox.write("fleet.yaml", "version: 1\nnodes:\n  - host: n1\n    devices: [{type: A100-40GB}, {type: A100-40GB}, {type: T4}]\n")
    sandbox.write("job.yaml", JOB_OF_SUMS)
    with_it = simulated(sandbox)["plan"]
    without = simulated(sandbox, "--set", "pin.leave_out=[n1/2]")["plan"]
    step, other = (plan["prediction"]["step_seconds"] for plan in (with_it, without))
    expect(step <= other * (1 + 1e-9), f"{step} s a step, without the unlike card {other}")
    expect_equal([left["device"] for left in with_it["left_out"]], ["n1/2"], "left out")
    expect(with_it["search"]["lower_bound_step_seconds"] <= other, f"bound: {with_it['search']}")
    check_unlike_card_of_a_type_used_elsewhere(sandbox)


def check_unlike_card_of_a_type_used_elsewhere(sandbox):
    """It is left out of the host on which it is unlike, its type is not."""
    sandbox.write("fleet.yaml", "version: 1\nnodes:\n  - {host: n1, devices: [{type: A100-40GB}, {type: A100-40GB}, {type: T4}]}\n"
                  "  - {host: n2, devices: [{type: T4}, {type: T4}]}\nlinks: [{between: [n1, n2], bandwidth: 100GB/s, latency: 5us}]\n")
    with_it = simulated(sandbox)["plan"]
    without = simulated(sandbox, "--set", "pin.leave_out=[n1/2]")["plan"]
    step, other = (plan["prediction"]["step_seconds"] for plan in (with_it, without))
    expect(step <= other * (1 + 1e-9), f"{step} s a step, without the unlike card {other}")
    expect(with_it["search"]["lower_bound_step_seconds"] <= other, f"bound: {with_it['search']}")
    sandbox.write("plan.json", json.dumps(with_it))
    given = simulated(sandbox, "--plan", "plan.json")["plan"]["prediction"]["step_seconds"]
    expect(abs(given - step) < 1e-9, f"the same plan, given, takes {given} s")


def check_links_of_who_stays():
    """Without a type that is told to be missed, the fleet is planned as if it had never had it."""
    sandbox = Sandbox()
    sandbox.write("job.yaml", JOB_OF_SUMS)
    model = ("--set", "model={layers: 3, heads: 3, width: 768, context: 2048}", "--set", "train.global_batch=8")
    for name, card in (("fleet.yaml", ", {type: RTX3090}"), ("without.yaml", "")):
        sandbox.write(name, f"version: 1\nnodes: [{{host: n1, devices: [{{type: T4}}, {{type: T4}}, {{type: T4}}{card}]}}]\n")
    told = simulated(sandbox, *model, "--explain")["plan"]["search"]["counterfactuals"]
    steps = [change["step_seconds"] for change in told if change["what"] == "leaving out the RTX3090"]
    without = simulated(sandbox, *model, "--fleet", "without.yaml")["plan"]
    expect_equal(steps, [without["prediction"]["step_seconds"]], f"of {told}")


def check_figures_matter():
    """A catalog of one's own; twice as fast a card takes half as long, once its work is what counts."""
    sandbox = Sandbox()
    sandbox.write("card.yaml", "version: 1\nnodes: [{host: a1, devices: [{type: card, price: 2}]}]\n")
    built_in = (SOURCE / "configs" / "devices.yaml").read_text()
    begin = built_in[:built_in.index("devices:\n")].replace("operation_overhead: 4us", "operation_overhead: 0us")

    def seconds(scale):
        figures = f"memory: 16GB, bandwidth: {900 * scale}GB/s, tflops: {{fp32: {20 * scale}}}, link: {{bandwidth: 1GB/s}}"
        sandbox.write("catalog.yaml", begin + f"devices: [{{type: card, {figures}}}]\n")
        return simulated(sandbox, "--fleet", "card.yaml", "--catalog", "catalog.yaml")["step_seconds"]
    expect(abs(seconds(1) / seconds(2) - 2) < 1e-6, "twice the figures do not halve the step")


def check_paced(cache):
    """Paces of a fleet tell exactly what measuring it will find on a virtual clock, also of a plan that is cut."""
    sandbox = Sandbox(cache=cache)
    plan = sandbox.write("plan.json", json.dumps(BY_HAND))
    before = {words: simulated(sandbox, *words) for words in ((), ("--plan", plan))}
    for step in before.values():
        expect_equal((step["source"], step["evidence"]), ("catalog", "simulated"), "before anything was measured")
    expect_exit(sandbox.run("profile", "job.yaml"), 0)
    for words, simulation in before.items():
        measured = simulated(sandbox, *words, "-o", "trace.json", "--svg", "step.svg")
        expect_equal((measured["source"], measured["evidence"]), ("cache", "paced"), "once it was measured")
        error = abs(simulation["step_seconds"] / measured["step_seconds"] - 1)
        expect(error < 1e-6, f"{words}: simulated {simulation['step_seconds']}, measured {measured['step_seconds']}")
        if words:  # of plans that take as long the search may find another
            expect_equal([rank["memory"] for rank in simulation["ranks"]], [rank["memory"] for rank in measured["ranks"]],
                         "memory by rank")
        check_trace(sandbox.home / "trace.json", 4, measured["step_seconds"])
        check_picture(sandbox.home / "step.svg", [f"localhost/{i}" for i in range(4)], "paced")
    scored = sandbox.run("plan", "job.yaml", "--score", plan, "--json")
    expect_exit(scored, 0)
    predicted = json.loads(scored.stdout)
    expect(abs(predicted["prediction"]["step_seconds"] - measured["step_seconds"]) < 1e-8, "another step than the plan's")
    expect_equal(measured["plan"]["id"], predicted["id"], "the plan")
    profile = sandbox.write("profile.json", sandbox.run("profile", "job.yaml", "--json").stdout)
    expect_equal(simulated(sandbox, "--profile", profile)["source"], "profile", "source")


def check_runs(cache):
    """The plan that comes with a simulation is one to run."""
    sandbox = Sandbox(steps=12, cache=cache)
    step = simulated(sandbox)
    plan = sandbox.write("plan.json", json.dumps(step["plan"]))
    result = sandbox.run("run", "job.yaml", "--plan", plan, "--no-compare", "--json")
    expect_exit(result, 0)
    actual = json.loads(result.stdout)["actual_step_seconds"]
    expect(abs(step["step_seconds"] / actual - 1) < 0.02, f"simulated {step['step_seconds']}, actual {actual}")


def check_refusals():
    sandbox = Sandbox()
    built_in = (SOURCE / "configs" / "devices.yaml").read_text()
    sandbox.write("cards.yaml", CARDS)
    sandbox.write("unknown.yaml", CARDS.replace("{type: RTX3090}", "{type: RTX3O90}"))
    sandbox.write("unclear.yaml", CARDS.replace("{type: RTX3090}", "{type: A100}"))
    sandbox.write("cpu.yaml", "version: 1\nnodes: [{host: a1, devices: [{kind: cpu, type: xeon}]}]\n")
    sandbox.write("misspelt.yaml", built_in.replace("memory: 11GB", "memori: 11GB"))
    sandbox.write("negative.yaml", built_in.replace("bandwidth: 616GB/s", "bandwidth: -616GB/s"))
    sandbox.write("small.yaml", "version: 1\nnodes: [{host: a1, devices: [{type: T4, memory: 10KB}]}]\n")
    sandbox.write("plan.json", "{}")
    cards = ("--fleet", "cards.yaml")
    cases = [
        (("--fleet", "unknown.yaml"), 65, r"unknown\.yaml:7:9: device a1/2: .* no figures of 'RTX3O90' \(did you mean 'RTX3090'\?\)"),
        (("--fleet", "unclear.yaml"), 65, r"unclear\.yaml:7:9: device a1/2: a 'A100' may be A100-40GB, A100-80GB or"),
        (("--fleet", "cpu.yaml"), 65, r"device a1/0 \(xeon\): no figures tell how fast a CPU is; `motley profile` measures it"),
        (("--fleet", "small.yaml"), 65, r"memory"),
        ((*cards, "--set", "train.precision=fp8"), 65, r"the job asks for fp8, of which the catalog has no rate for a A100-40GB"),
        ((*cards, "--catalog", "misspelt.yaml"), 65, r"misspelt\.yaml:\d+:5: unknown key 'memori' \(did you mean 'memory'\?\)"),
        ((*cards, "--catalog", "negative.yaml"), 65, r"negative\.yaml:\d+:16: .*bandwidth"),
        ((*cards, "--catalog", "nowhere.yaml"), 66, r"nowhere\.yaml"),
        (("--fleet", "nowhere.yaml"), 66, r"nowhere\.yaml"),
        ((*cards, "--plan", "nowhere.json"), 66, r"nowhere\.json"),
        ((*cards, "--plan", "plan.json"), 65, r"plan\.json:1:1: "),
        ((*cards, "--profile", "plan.json"), 65, r"plan\.json"),
        ((*cards, "--svg", "no/such/step.svg"), 66, r"no/such"),
        (("--catalog", "misspelt.yaml", "--profile", "plan.json"), 2, r"exclude each other"),
        (("--svgs", "x"), 2, r"--svg"),
    ]
    for arguments, code, line in cases:
        result = sandbox.run("simulate", "job.yaml", *arguments)
        expect_equal(result.returncode, code, f"exit code of {arguments} ({result.stderr.strip()!r})")
        expect(re.search(line, result.stderr), f"{arguments}: {result.stderr!r} does not say {line!r}")
        expect_equal(result.stdout, "", f"stdout of {arguments}")
    expect_equal(sandbox.run("simulate").returncode, 2, "exit code without a job")
    expect_equal(sandbox.run("simulate", "nowhere.yaml").returncode, 66, "exit code of a job that is not there")


def check_traces():
    """Jobs over time: two cards, one job that needs both and two that need one."""
    sandbox = Sandbox()
    sandbox.write("fleet.yaml", "version: 1\nnodes:\n  - host: a1\n    devices: [{type: A100-40GB}, {type: A100-40GB}]\n")
    jobs = [{"name": name, "arrival_seconds": i, "work": work, "devices": devices, "speeds": {"A100": {str(devices): rate}}}
            for i, (name, work, devices, rate) in enumerate([("both", 100, 2, 10), ("long", 60, 1, 2), ("short", 20, 1, 2)])]
    sandbox.write("jobs.jsonl", "".join(json.dumps(job) + "\n" for job in jobs))
    result = sandbox.run("simulate", "--trace", "jobs.jsonl", "--fleet", "fleet.yaml", "--policy", "fifo", "--json", "--convert", "again.jsonl")
    expect_exit(result, 0)
    told = json.loads(result.stdout)["policies"][0]
    expect_equal((told["policy"], told["makespan_seconds"]), ("fifo", 40), "policy and makespan")
    expect(abs(told["mean_completion_seconds"] - (10 + 39 + 18) / 3) < 1e-9, f"mean completion {told}")
    table = sandbox.run("simulate", "--trace", "again.jsonl", "--fleet", "fleet.yaml")
    expect_exit(table, 0)
    for policy in ("fifo", "backfill", "fair_share", "shortest_remaining", "makespan"):
        expect(policy in table.stdout, f"{table.stdout!r} lacks {policy}")
    for arguments, code, line in [(("--fleet", "fleet.yaml", "--policy", "lifo"), 2, "fifo, backfill"), ((), 2, "--fleet"),
                                  (("--fleet", "fleet.yaml", "--speeds", "x.json"), 2, "--speeds")]:
        refused = sandbox.run("simulate", "--trace", "jobs.jsonl", *arguments)
        expect_equal(refused.returncode, code, f"exit code of {arguments}")
        expect(line in refused.stderr, f"{refused.stderr!r} does not say {line!r}")


def main():
    check_cards()
    check_traces()
    check_links_of_unlike()
    check_links_of_who_stays()
    check_figures_matter()
    cache = Sandbox().home / "cache"
    check_paced(cache)
    check_runs(cache)
    check_refusals()
    print("ok")


if __name__ == "__main__":
    run_test(main)
