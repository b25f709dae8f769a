"""Whether mixing is worth it, on paced fleets with the virtual clock, and what would change a plan."""

import itertools
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

HEAD = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 8
    devices:
"""
FAST = "{kind: cpu, type: fast, threads: 1, price: 2, paced: {speed: 1, memory: 1GB}}"
SLOW = "{kind: cpu, type: slow, threads: 1, price: 0.5, paced: {speed: 0.3333, memory: 1GB}}"
OLD = "{kind: cpu, type: gtx1070, threads: 1, price: 0.2, paced: {speed: 0.02, memory: 1GB}}"
TINY = "{kind: cpu, type: tiny, threads: 1, paced: {speed: 1, memory: 150KB}}"
# Each micro-batch takes as long as two samples more, and memory ends soon.
NARROW = "{kind: cpu, type: narrow, threads: 1, paced: {speed: 1, memory: 2500KB, half_batch: 2}}"


def fleet(*devices):
    return HEAD + "".join(f"      - {device}\n" for device in devices)


def judged(sandbox, *arguments):
    result = sandbox.run("worth", "job.yaml", "--json", *arguments)
    expect_exit(result, 0)
    return json.loads(result.stdout)


def types_of(mix):
    return tuple(share["type"] for share in mix["types"])


def check_leave_out():
    sandbox = Sandbox()
    sandbox.write("fleet.yaml", fleet(FAST, FAST, SLOW, OLD))
    answer = judged(sandbox)
    expect_equal((answer["version"], answer["kind"], answer["every_set"]), (1, "paced", True), "head")
    expect_equal((answer["advice"], answer["use"], answer["leave_out"]),
                 ("leave_out", ["fast", "slow"], ["gtx1070"]), "advice")
    expect(re.fullmatch(r"leave the gtx1070 out: \S+( % faster|x as fast) without; mix fast and slow: "
                        r"1\.\d\dx the best single type \(fast\)", answer["verdict"]), f"verdict: {answer['verdict']!r}")
    sets = {types_of(mix) for mix in answer["mixes"]}
    names = ["fast", "slow", "gtx1070"]
    expect_equal(sets, {subset for size in (1, 2, 3) for subset in itertools.combinations(names, size)}, "sets planned")
    steps = [mix["step_seconds"] for mix in answer["mixes"]]
    expect_equal(steps, sorted(steps), "order of steps")
    best = answer["mixes"][0]
    expect_equal(set(best), {"types", "step_seconds", "samples_per_second", "solo_sum_samples_per_second", "efficiency",
                             "uncertainty", "cost_per_hour", "cost_per_million_samples", "better_without", "why_not"},
                 "members")
    expect_equal(best["cost_per_hour"], 4.5, "price of two fast ones and a slow one")
    expect(abs(best["cost_per_million_samples"] - 4.5 / best["samples_per_second"] / 3600 * 1e6) < 1e-9, "cost of samples")
    everything = next(mix for mix in answer["mixes"] if len(mix["types"]) == 3)
    expect_equal(everything["better_without"], ["gtx1070"], "of all together")

    text = sandbox.run("worth", "job.yaml")
    expect_exit(text, 0)
    lines = text.stdout.splitlines()
    expect_equal(lines[0], "Mixes (from paced profiles)", "title")
    expect_equal(lines[-1], "verdict: " + answer["verdict"], "the last line")
    expect_equal(len(lines), 2 + 7 + 1, "lines")
    return sandbox, answer


def check_brute_force(sandbox, answer):
    """Every set of devices, planned by `motley plan` with none idle: none is quicker than what worth found."""
    profile = sandbox.run("profile", "job.yaml", "--json")
    expect_exit(profile, 0)
    sandbox.write("profile.json", profile.stdout)
    expect_equal(judged(sandbox, "--profile", "profile.json"), answer, "with the profile from a file")
    whole = json.loads(sandbox.run("plan", "job.yaml", "--json").stdout)
    expect_equal(whole["prediction"]["step_seconds"], answer["mixes"][0]["step_seconds"], "the quickest plan of all")
    for types in ("fast", "slow", "gtx1070", "fast,slow", "fast,gtx1070", "slow,gtx1070", "fast,slow,gtx1070"):
        for count in range(1, 5):
            result = sandbox.run("plan", "job.yaml", "--profile", "profile.json", "--json",
                                 "--set", f"resources={{devices: {{types: [{types}], count: {count}}}}}")
            if result.returncode == 69:  # so many there are not
                continue
            expect_exit(result, 0)
            step = json.loads(result.stdout)["prediction"]["step_seconds"]
            expect(step >= answer["mixes"][0]["step_seconds"] * (1 - 1e-9),
                   f"{count} of {types} take {step} s, the best of worth {answer['mixes'][0]['step_seconds']} s")


def check_mix_all():
    sandbox = Sandbox()
    answer = judged(sandbox)
    expect_equal((answer["advice"], answer["leave_out"]), ("mix_all", []), "advice on two fast and two slow")
    expect(answer["verdict"].startswith("mix all: 1."), f"verdict: {answer['verdict']!r}")
    expect_equal(answer["mixes"][0]["cost_per_hour"], None, "cost where nobody told a price")
    expect("an hour" not in sandbox.run("worth", "job.yaml").stdout, "costs where nobody told a price")


def check_one_type():
    sandbox = Sandbox()
    sandbox.write("fleet.yaml", fleet(FAST, TINY))
    answer = judged(sandbox)
    expect_equal((answer["advice"], answer["use"]), ("one_type", ["fast"]), "advice where one holds the model")
    expect(answer["verdict"].startswith("mixing brings nothing: use the fast alone; tiny: memory: needs "),
           f"verdict: {answer['verdict']!r}")
    alone = next(mix for mix in answer["mixes"] if types_of(mix) == ("tiny",))
    expect_equal(alone["step_seconds"], None, "step of one that cannot hold the model")
    expect("no device can hold the model" in alone["why_not"], f"why not: {alone['why_not']!r}")


def check_exit_codes():
    sandbox = Sandbox()
    expect_equal(sandbox.run("worth").returncode, 2, "without a job")
    expect_equal(sandbox.run("worth", "job.yaml", "--flet", "x").returncode, 2, "an unknown option")
    expect_equal(sandbox.run("worth", "nowhere.yaml").returncode, 66, "a missing job")
    expect_equal(sandbox.run("worth", "job.yaml", "--fleet", "nowhere.yaml").returncode, 66, "a missing fleet")
    expect_equal(sandbox.run("worth", "job.yaml", "--profile", "nowhere.json").returncode, 66, "a missing profile")
    bad = sandbox.run("worth", "job.yaml", "--set", "train.global_batch=none")
    expect_equal(bad.returncode, 65, f"a bad job: {bad.stderr!r}")
    none = sandbox.run("worth", "job.yaml", "--set", "resources={devices: {types: [H100]}}")
    expect_equal(none.returncode, 69, f"no such device: {none.stderr!r}")
    sandbox.write("tiny.yaml", fleet(TINY, TINY.replace("tiny", "small")))
    unfit = sandbox.run("worth", "job.yaml", "--fleet", "tiny.yaml")
    expect_equal((unfit.returncode, unfit.stdout), (65, ""), f"no plan fits: {unfit.stderr!r}")
    expect("no device can hold the model" in unfit.stderr, f"why: {unfit.stderr!r}")


def check_counterfactuals():
    sandbox = Sandbox()
    sandbox.write("fleet.yaml", fleet(NARROW, SLOW))
    plain = json.loads(sandbox.run("plan", "job.yaml", "--json").stdout)
    result = sandbox.run("plan", "job.yaml", "--json", "--explain")
    expect_exit(result, 0)
    plan = json.loads(result.stdout)
    expect("counterfactuals" not in plain["search"], "they cost searches: only for those who ask")
    expect_equal(plan["id"], plain["id"], "id of the plan")
    told = {entry["what"]: entry["step_seconds"] for entry in plan["search"]["counterfactuals"]}
    step = plan["prediction"]["step_seconds"]
    memory = [what for what in told if re.fullmatch(r"with \S+ MB on localhost/0", what)]
    expect_equal(len(memory), 1, f"more memory on the narrow one, in {told}")
    expect(told[memory[0]] < step, f"more memory is no quicker: {told} instead of {step}")
    expect(told["leaving out the narrow"] > step, f"without the quick one: {told}")
    expect(not any("localhost/1" in what for what in told), f"the slow one has memory enough: {told}")
    sandbox.write("explained.json", result.stdout)
    expect_exit(sandbox.run("plan", "job.yaml", "--score", "explained.json"), 0)
    text = sandbox.run("plan", "job.yaml", "--explain").stdout
    expect(re.search(r"\nwhat would change it:\n(  .*\n)*  \S.*\d+ % (faster|slower) \(.* to .*/step\)\n", text), f"text:\n{text}")


def check_objective():
    """Two fast ones at 2 an hour are dearer a sample than a slow one at 0.5, and three times as quick each."""
    sandbox = Sandbox()
    sandbox.write("fleet.yaml", fleet(FAST, FAST, SLOW))
    mixes = {types_of(mix): mix for mix in judged(sandbox)["mixes"]}
    cost = {types: mix["cost_per_hour"] * mix["step_seconds"] for types, mix in mixes.items()}
    cheapest = min(cost, key=cost.get)
    expect_equal(cheapest, ("slow",), f"the cheapest of {cost}")

    def planned(*arguments):
        result = sandbox.run("plan", "job.yaml", "--json", *arguments)
        expect_exit(result, 0)
        plan = json.loads(result.stdout)
        return [rank["type"] for rank in plan["ranks"]], plan
    types, plan = planned("--objective", "cost")
    expect_equal(types, ["slow"], "devices of the cheapest plan")
    expect_equal({left["device"] for left in plan["left_out"]}, {"localhost/0", "localhost/1"}, "left out")
    deadline = 40 * mixes[("fast",)]["step_seconds"] * 1.01  # the job has 40 steps; both mixes with fast ones make it
    types, _ = planned("--objective", "cost", "--deadline", f"{deadline}s")
    wanted = min((("fast",), ("fast", "slow")), key=cost.get)
    expect_equal(tuple(dict.fromkeys(types)), wanted, "types of the cheapest plan in time")
    expect_equal(planned("--objective", "throughput")[1]["id"], planned()[1]["id"], "the quickest, asked for or not")
    text = sandbox.run("plan", "job.yaml", "--objective", "cost").stdout
    expect(re.search(r"^40 steps: \S+ s, cost [0-9.e-]+; quickest: ", text, re.MULTILINE), f"no bill:\n{text}")

    for arguments, code, why in (
            (("--objective", "speed"), 2, "throughput or cost"),
            (("--objective", "cost", "--equal-split"), 2, "of a search"),
            (("--deadline", "soon"), 2, "--deadline"),
            (("--deadline", "1ms"), 65, "longer than the deadline of 1 ms"),
            (("--objective", "cost", "--deadline", "1ms"), 65, "longer than the deadline of 1 ms")):
        result = sandbox.run("plan", "job.yaml", *arguments)
        expect_equal(result.returncode, code, f"{arguments}: {result.stderr!r}")
        expect(why in result.stderr, f"{arguments}: {result.stderr!r} does not say {why!r}")
    sandbox.write("fleet.yaml", fleet(FAST, SLOW.replace("price: 0.5, ", "")))
    unpriced = sandbox.run("plan", "job.yaml", "--objective", "cost")
    expect_equal(unpriced.returncode, 65, "without a price")
    expect(re.search(r"fleet\.yaml:\d+:\d+: localhost/1 \(slow\) has no price", unpriced.stderr), f"why: {unpriced.stderr!r}")


def main():
    sandbox, answer = check_leave_out()
    check_brute_force(sandbox, answer)
    check_mix_all()
    check_one_type()
    check_exit_codes()
    check_counterfactuals()
    check_objective()
    print("ok")


if __name__ == "__main__":
    run_test(main)
