"""What `motley fit` advises against counting everything with `motley-worker estimate`."""

import itertools
import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import WORKER, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LAYERS = 5  # of the model below, embedding and head counted
WAYS = (("recompute",), ("host_optimizer",), ("recompute", "host_optimizer"))
MODEL = "type: gpt\nlayers: 3\nheads: 2\nwidth: 64\ncontext: 64\nvocab: 512\n"
HEADROOM = 0.05

# Some hold it, some nearly, some only parts of it.
CARDS = {"tiny": (1200, "fp32: 1"), "small": (2300, "fp32: 1, fp16: 2"), "middle": (3300, "fp32: 1, bf16: 2"),
         "large": (5000, "fp32: 2"), "huge": (9000, "fp32: 2, bf16: 4")}


def catalog(cards):
    built_in = (SOURCE / "configs" / "devices.yaml").read_text()
    text = built_in[:built_in.index("devices:\n")] + "devices:\n"
    for name, (kilobytes, tflops) in cards.items():
        text += (f"  - {{type: {name}, memory: {kilobytes}KB, bandwidth: 100GB/s, tflops: {{{tflops}}}, "
                 "link: {bandwidth: 1GB/s}}\n")
    return text


def fits(sandbox, word, *arguments, code=0):
    result = sandbox.run("fit", word, "--json", *arguments)
    expect_exit(result, code)
    return json.loads(result.stdout)


class Counter:
    """Bytes by the worker of pipelines of GPUs, from a plan document of our own."""

    def __init__(self, sandbox, grain):
        sandbox.write("cards.yaml", "version: 1\nnodes: [{host: a1, devices: [{type: T4, memory: 16GB}]}]\n")
        model = "model={layers: 3, heads: 2, width: 64, context: 64, vocab: 512}"
        result = sandbox.run("simulate", "job.yaml", "--fleet", "cards.yaml", "--set", model, "--json")
        expect_exit(result, 0)
        self.job = json.loads(result.stdout)["plan"]["job"]
        self.fleet = json.loads(result.stdout)["plan"]["fleet"]
        self.grain = grain
        self.known = {}

    def count(self, cut, ways=()):
        """`cut`: (first, last, precision) of each stage; `ways`: of WAYS, what all stages do for want of memory."""
        if (cut, ways) not in self.known:
            card = self.fleet["devices"][0]
            devices = [{**card, "id": f"a1/{i}", "uuid": f"GPU-{i}"} for i in range(len(cut))]
            stages = [{"first_layer": first, "last_layer": last, "ranks": [i], "precision": precision}
                      for i, (first, last, precision) in enumerate(cut)]
            if "recompute" in ways:
                for stage in stages:
                    stage["recompute"] = ["block" if 0 < layer < LAYERS - 1 else "none"
                                          for layer in range(stage["first_layer"], stage["last_layer"] + 1)]
            batch = self.job["train"]["global_batch"]
            plan = {"version": 1, "numerics": "fast", "global_batch": batch, "grain": self.grain,
                    "ranks": [{"device": device["id"], "host_optimizer": "host_optimizer" in ways} for device in devices],
                    "replicas": [{"stages": stages, "micro_batch": self.grain, "grains": batch // self.grain}],
                    "job": self.job, "fleet": {**self.fleet, "devices": devices}}
            done = subprocess.run([WORKER, "estimate", "--plan", "-", "--json"], input=json.dumps(plan), text=True,
                                  capture_output=True, check=False)
            expect_equal(done.returncode, 0, f"estimate: {done.stderr}")
            self.known[cut, ways] = [row["total_bytes"] for row in json.loads(done.stdout)]
        return self.known[cut, ways]

    def sharded(self, replicas, precision):
        """Of whole replicas that share the optimizer's state the most that one needs."""
        card = self.fleet["devices"][0]
        devices = [{**card, "id": f"a1/{i}", "uuid": f"GPU-{i}"} for i in range(replicas)]
        batch = self.job["train"]["global_batch"]
        grains = [batch // self.grain // replicas + (i < batch // self.grain % replicas) for i in range(replicas)]
        plan = {"version": 1, "numerics": "fast", "global_batch": batch, "grain": self.grain, "shard_optimizer": True,
                "ranks": [{"device": device["id"]} for device in devices],
                "replicas": [{"stages": [{"first_layer": 0, "last_layer": LAYERS - 1, "ranks": [i], "precision": precision}],
                              "micro_batch": self.grain, "grains": grains[i]} for i in range(replicas)],
                "job": self.job, "fleet": {**self.fleet, "devices": devices}}
        done = subprocess.run([WORKER, "estimate", "--plan", "-", "--json"], input=json.dumps(plan), text=True,
                              capture_output=True, check=False)
        expect_equal(done.returncode, 0, f"estimate: {done.stderr}")
        return max(row["total_bytes"] for row in json.loads(done.stdout))


def precisions(card):
    return re.findall(r"(\w+):", CARDS[card][1])


def usable(card):
    return int(CARDS[card][0] * 1000 * (1 - HEADROOM))


def cuts(stages):
    for ends in itertools.combinations(range(1, LAYERS), stages - 1):
        yield list(zip((0, *ends), (*[end - 1 for end in ends], LAYERS - 1)))


def holds(counter, cards, ways=()):
    """Whether these, in this order, hold the model."""
    for cut in cuts(len(cards)):
        for chosen in itertools.product(*[precisions(card) for card in cards]):
            needs = counter.count(tuple((*layers, precision) for layers, precision in zip(cut, chosen)), ways)
            if all(need <= usable(card) for need, card in zip(needs, cards)):
                return True
    return False


def least_mix(counter, types, ways=()):
    """(devices, bytes) of the least mix of so many types, from 2 to 3 devices that do not hold it alone, or else of any."""
    for among in ([card for card in CARDS if not holds(counter, (card,), ways)], list(CARDS)):
        for count in (2, 3):
            found = [sum(CARDS[card][0] for card in cards) for cards in itertools.product(among, repeat=count)
                     if len(set(cards)) == types and holds(counter, cards, ways)]
            if found:
                return count, min(found) * 1000
    return None


def least_sharded(counter):
    for count in (2, 3):
        found = [CARDS[card][0] for card in CARDS if not holds(counter, (card,))
                 and any(counter.sharded(count, precision) <= usable(card) for precision in precisions(card))]
        if found:
            return count, count * min(found) * 1000
    return None


def least_device(counter, ways):
    return min([CARDS[card][0] * 1000 for card in CARDS if not holds(counter, (card,)) and holds(counter, (card,), ways)], default=None)


def check_ways(counter, answer):
    """Devices and mixes that do with less by computing again or by state in host memory: what is told of which ways."""
    seen = set()
    small = {ways: least_device(counter, ways) for ways in WAYS}
    told = answer["smallest_device_with"]
    for ways in WAYS[:2]:
        expect_equal(told[ways[0]] and told[ways[0]]["memory"], small[ways], f"the least with {ways}")
    either = min([least for ways, least in small.items() if least and len(ways) == 1], default=None)
    both = small[WAYS[2]] if either is None or (small[WAYS[2]] or either) < either else None
    expect_equal(told["both"] and told["both"]["memory"], both, "the least with both")
    seen |= {how for how in told if told[how]}
    for types, name in ((1, "one_type"), (2, "two_types")):
        plain, mix = least_mix(counter, types), answer["smallest_mix_with"][name]
        found = [(least, len(ways), ways) for ways in WAYS if (least := least_mix(counter, types, ways)) and (not plain or least < plain)]
        expect_equal((mix["devices"], mix["memory"]) if mix else None, min(found)[0] if found else None, f"least mix of {types}")
        if not mix:
            continue
        ways = tuple(way for way in WAYS[2] if mix[way])
        expect_equal(len(ways), min(found)[1], "of the fewest ways")
        cut = tuple((stage["first_layer"], stage["last_layer"], stage["precision"]) for stage in mix["stages"])
        expect_equal([stage["needs"] for stage in mix["stages"]], counter.count(cut, ways), "bytes of the stages")
        seen.add(name)
    return seen


def check_against_counts():
    """The smallest device holds it and every smaller one does not; so of mixes."""
    sandbox = Sandbox()
    sandbox.write("tiny.yaml", MODEL)
    sandbox.write("catalog.yaml", catalog(CARDS))
    seen, sharded, saving = set(), set(), set()
    for grain in (1, 2, 4):
        words = ("--catalog", "catalog.yaml", "--set", f"train.grain={grain}", "--set", "train.global_batch=16",
                 "--set", "resources.devices.count=1..3")
        answer = fits(sandbox, "tiny.yaml", *words)
        expect_equal((answer["kind"], answer["micro_batch"]), ("simulated", grain), "kind and micro-batch")
        counter = Counter(sandbox, grain)
        held = [card for card in CARDS if holds(counter, (card,))]
        expect_equal([device["type"] for device in answer["devices"] if device["holds"]], held, "devices that hold it")
        expect_equal(answer["smallest_device"]["type"], min(held, key=lambda card: CARDS[card][0]), "the smallest")
        for types, name in ((1, "one_type"), (2, "two_types")):
            mix, least = answer["smallest_mix"][name], least_mix(counter, types)
            expect_equal((mix["devices"], mix["memory"]) if mix else None, least, f"grain {grain}: least mix of {types}")
            seen.add(mix and mix["devices"])
            needs = counter.count(tuple((stage["first_layer"], stage["last_layer"], stage["precision"])
                                        for stage in mix["stages"]))
            expect_equal([stage["needs"] for stage in mix["stages"]], needs, "bytes of the stages")
        shards, least = answer["smallest_mix"]["sharded_state"], least_sharded(counter)
        expect_equal((shards["devices"], shards["memory"]) if shards else None, least, f"grain {grain}: least that share the state")
        sharded.add(shards and shards["devices"])
        saving |= check_ways(counter, answer)
        for need in answer["needs"]:
            whole = counter.count(((0, LAYERS - 1, need["precision"]),))[0]
            expect_equal(need["total_bytes"], whole, f"bytes in {need['precision']}")
            parts = sum(need[f"{part}_bytes"] for part in ("parameter", "gradient", "optimizer", "activation"))
            expect(0.99 * whole < parts <= whole, f"{parts} of {whole} bytes are said what for")
    expect({"recompute", "host_optimizer", "one_type", "two_types"} <= saving, f"no smaller device or mix was the answer: {saving}")
    expect(2 in seen and sharded - {None}, f"no mix of two devices was the answer, or none that shares state: {seen}, {sharded}")


def check_planner_agrees():
    """What is said to train it, `motley simulate` plans for; a little less memory it refuses."""
    sandbox = Sandbox()
    sandbox.write("catalog.yaml", catalog(CARDS))
    words = ("--catalog", "catalog.yaml", "--set", "model={layers: 3, heads: 2, width: 64, context: 64, vocab: 512}",
             "--set", "train.precision=fp32")
    answer = fits(sandbox, "job.yaml", *words)
    needs = answer["needs"][0]["total_bytes"]
    may_recompute, words = words, (*words, "--set", "parallel={recompute: off, host_optimizer: off}")  # with which less does
    expect_equal(fits(sandbox, "job.yaml", *words)["needs"], answer["needs"], "needs where nothing may be computed again")
    for memory, code in ((answer["needs"][0]["with_headroom_bytes"] + 1, 0), (int(needs / (1 - HEADROOM)) - 1, 65)):
        sandbox.write("one.yaml", f"version: 1\nnodes: [{{host: a1, devices: [{{type: huge, memory: {memory}B}}]}}]\n")
        expect_equal(sandbox.run("simulate", "job.yaml", "--fleet", "one.yaml", *words).returncode, code, f"{memory} bytes")
        fleet = fits(sandbox, "job.yaml", "--fleet", "one.yaml", *words, code=code)["fleet"]
        expect_equal(fleet["trains"], code == 0, "what it says of the fleet")
        if code == 0:
            expect_equal(fleet["tightest"], {"device": "a1/0", "needs": needs, "memory": memory}, "the tightest")
        else:
            expect("memory" in fleet["why_not"], f"why: {fleet['why_not']}")
    again = fits(sandbox, "job.yaml", "--fleet", "one.yaml", *may_recompute)["fleet"]
    expect(again["trains"] and again["tightest"]["needs"] < needs, f"with blocks computed again in less memory: {again}")
    mix = answer["smallest_mix"]["one_type"]
    cards = ", ".join(f"{{type: {stage['type']}}}" for stage in mix["stages"])
    sandbox.write("mix.yaml", f"version: 1\nnodes: [{{host: a1, devices: [{cards}]}}]\n")
    expect_exit(sandbox.run("simulate", "job.yaml", "--fleet", "mix.yaml", *words), 0)


def check_named_mixes_are_planned():
    """However little they leave free."""
    sandbox = Sandbox()
    for model in ("gpt2-350m", "gpt2-774m", "gpt2-1558m"):
        own = ("--set", "model={preset: %s}" % model, "--set", "train.global_batch=8", "--set", "train.eval={every: 0}")
        for name, mix in fits(sandbox, model)["smallest_mix"].items():
            if name == "sharded_state":
                continue
            cards = ", ".join(f"{{type: {stage['type']}}}" for stage in mix["stages"])
            sandbox.write("mix.yaml", f"version: 1\nnodes: [{{host: a1, devices: [{cards}]}}]\n")
            expect_exit(sandbox.run("simulate", "job.yaml", "--fleet", "mix.yaml", *own), 0)


def check_catalog():
    """The built-in one: models in the order of their size need devices in that order, text and left out."""
    sandbox = Sandbox()
    sizes = [fits(sandbox, model)["smallest_device"]["memory"] for model in ("gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m")]
    expect_equal(sizes, sorted(sizes), "memory by model")
    text = sandbox.run("fit", str(SOURCE / "configs" / "models" / "gpt2-124m.yaml"), "--set", "train.precision=bf16").stdout
    for word in ("124439808 parameters", "(simulated", "bf16", "smallest device: RTX4060 (8 GB) in bf16",
                 "smallest mix of one type: 2 RTX4060", "GTX1070", "it lacks bf16", "nothing of it was measured"):
        expect(word in text, f"no {word!r} in\n{text}")
    expect("fp32" not in text, f"a precision that was not asked for in\n{text}")
    only = fits(sandbox, "gpt2-124m", "--set", "resources={devices: {types: [A100], mix: forbid}}")
    expect_equal({device["type"].split("-")[0] for device in only["devices"]}, {"A100"}, "types admitted")
    expect_equal(only["smallest_mix"]["two_types"], None, "a mix that the job forbids")
    sandbox.write("cpu.yaml", "version: 1\nnodes: [{host: a1, devices: [{kind: cpu, type: xeon}]}]\n")
    unknown = fits(sandbox, "job.yaml", "--set", "fleet=cpu.yaml")["fleet"]
    expect(not unknown["trains"] and "no figures tell how fast a CPU is" in unknown["why_not"], f"of CPUs: {unknown}")
    own = fits(sandbox, "job.yaml")["fleet"]
    expect_equal((own["trains"], own["tightest"]["memory"]), (True, 1000000000), "the job's own fleet")


def fleet_of(sandbox, *cards):
    listed = ", ".join("{type: %s}" % card for card in cards)
    sandbox.write("named.yaml", f"version: 1\nnodes: [{{host: a1, devices: [{listed}]}}]\n")
    return ("--fleet", "named.yaml")


def check_devices_left_out_of_a_fleet():
    """Nothing is said to train on a device that nothing is compiled for, or that lacks what the job asks for."""
    sandbox = Sandbox()
    old = "no build computes on compute capability 6.0"
    alone = fits(sandbox, "gpt2-350m", *fleet_of(sandbox, "RTX3090"))["fleet"]
    expect_equal((alone["trains"], alone["left_out"]), (True, []), "a fleet of which every device may train it")
    mixed = fits(sandbox, "gpt2-350m", *fleet_of(sandbox, "P100", "RTX3090", "P100"))["fleet"]
    expect_equal(mixed["left_out"], [{"device": f"a1/{number}", "type": "P100", "why": old} for number in (0, 2)], "left out")
    expect_equal((mixed["trains"], mixed["devices_used"]), (True, 1), "trains on the other")
    expect_equal(mixed["tightest"], {**alone["tightest"], "device": "a1/1"}, "as if they were not there")
    text = sandbox.run("fit", "gpt2-350m", "--fleet", "named.yaml").stdout
    expect(f"named.yaml: left out: 2 P100 ({old})\n" in text, f"what is left out of the fleet in\n{text}")
    none = fits(sandbox, "gpt2-350m", *fleet_of(sandbox, "P100", "GTX1080"), code=65)["fleet"]
    expect_equal((none["trains"], none["devices_used"], none["tightest"]), (False, 0, None), "a fleet of old cards")
    expect_equal([device["type"] for device in none["left_out"]], ["P100", "GTX1080"], "all left out")
    expect_equal(none["why_not"], "none of its devices may train it", "why")
    result = sandbox.run("fit", "gpt2-350m", "--fleet", "named.yaml")
    expect_exit(result, 65)
    expect("no plan found: none of its devices may train it\nnamed.yaml: left out: 1 GTX1080 (" in result.stdout, result.stdout)
    expect("trains it on" not in result.stdout, result.stdout)
    bf16 = fits(sandbox, "gpt2-124m", "--set", "train.precision=bf16", *fleet_of(sandbox, "T4", "RTX3090"))["fleet"]
    expect_equal(bf16["left_out"], [{"device": "a1/0", "type": "T4", "why": "it lacks bf16"}], "lacks the precision")
    one_type = ("--set", "resources.devices.mix=forbid")
    fits(sandbox, "gpt2-350m", *one_type, *fleet_of(sandbox, "P100", "RTX3090"))
    fits(sandbox, "gpt2-350m", *one_type, *fleet_of(sandbox, "T4", "RTX3090"), code=65)


def check_mixes_not_asked_for():
    """Where nothing was tried, none is said to hold it."""
    sandbox = Sandbox()
    one, two = "smallest mix of one type: ", "smallest mix of two types: "
    cases = [
        ({"mix": "forbid"}, None, "the job forbids mixing"),
        ({"types": "[T4]"}, None, "only one type is admitted"),
        ({"count": 1}, "the job admits one device", "the job admits one device"),
        ({"count": 2}, None, None),
    ]
    for demand, like, unlike in cases:
        words = ("--set", "resources={devices: {%s}}" % ", ".join(f"{key}: {value}" for key, value in demand.items()))
        answer = fits(sandbox, "gpt2-124m", *words)
        expect_equal(answer["not_asked"], {"one_type": like, "two_types": unlike}, f"not asked with {demand}")
        text = sandbox.run("fit", "gpt2-124m", *words).stdout
        for title, why, mix in ((one, like, "one_type"), (two, unlike, "two_types")):
            expect_equal(f"{title}not asked: {why}\n" in text, why is not None, f"{demand}: {title} in\n{text}")
            expect(why is None or answer["smallest_mix"][mix] is None, f"{demand}: a mix that was not asked for")
        expect("none of up to" not in text, f"{demand}: something was tried in\n{text}")
        expect("the smallest mix is that of fewest devices, then least memory" in text, f"its order in\n{text}")


def check_refusals():
    sandbox = Sandbox()
    sandbox.write("bad.yaml", MODEL.replace("heads", "headz"))
    sandbox.write("catalog.yaml", catalog({"tiny": CARDS["tiny"]}).replace("memory: 1200KB", "memori: 1200KB"))
    sandbox.write("crumbs.yaml", catalog({"crumb": (100, "fp32: 1"), "bit": (90, "fp32: 1")}))
    sandbox.write("small.yaml", "version: 1\nnodes: [{host: a1, devices: [{type: T4, memory: 10KB}]}]\n")
    sandbox.write("cpu.yaml", "version: 1\nnodes: [{host: a1, devices: [{kind: cpu, type: xeon}]}]\n")
    sandbox.write("unknown.yaml", "version: 1\nnodes: [{host: a1, devices: [{type: T44}]}]\n")
    sandbox.write("laptop.yaml", "version: 1\nnodes: [{host: a1, devices: [{type: RTX-3060-Laptop-GPU}]}]\n")
    cases = [
        ((), 2, "JOB"),
        (("gpt2-124m", "--flet", "x"), 2, "--fleet"),
        (("gpt2-125m",), 66, r"'gpt2-125m' is neither a file nor a model known by name \(did you mean 'gpt2-124m'\?\)"),
        (("bad.yaml",), 65, r"bad\.yaml:3:1: unknown key 'headz' \(did you mean 'heads'\?\)"),
        (("gpt2-124m", "--set", "model.heads=7"), 65, r"model\.width 768 is not a multiple of model\.heads 7"),
        (("gpt2-124m", "--catalog", "nowhere.yaml"), 66, r"nowhere\.yaml"),
        (("gpt2-124m", "--catalog", "catalog.yaml"), 65, r"catalog\.yaml:\d+:\d+: unknown key 'memori'"),
        (("gpt2-124m", "--catalog", "crumbs.yaml"), 65,
         r"nothing of crumbs\.yaml trains gpt2-124m, nor up to 8 in a pipeline: the nearest, crumb \(.*\), lacks 2\.62 GiB of 2\.62 GiB in fp32"),
        (("job.yaml", "--fleet", "nowhere.yaml"), 66, r"nowhere\.yaml"),
        (("job.yaml", "--fleet", "small.yaml"), 65, r"no plan found for job on small\.yaml"),
        (("job.yaml", "--fleet", "cpu.yaml"), 65, r"no figures tell how fast a CPU is"),
        (("job.yaml", "--fleet", "unknown.yaml"), 65, r"unknown\.yaml:2:\d+: .*no figures of 'T44' \(did you mean 'T4'\?\)"),
        (("job.yaml", "--fleet", "laptop.yaml"), 65, r"laptop\.yaml:2:\d+: .*no figures of 'RTX-3060-Laptop-GPU' \("),
        (("gpt2-1558m", "--set", "resources={devices: {types: [RTX2060], count: 1}}"), 65, r"trains gpt2-1558m: the nearest, RTX2060"),
        (("gpt2-124m", "--set", "resources={devices: {types: [H300]}}"), 65, r"'types': configs/devices\.yaml has no figures of 'H300' \(did you mean 'H100'\?\)"),
        (("gpt2-124m", "--set", "resources={devices: {types: [T4, T44]}}"), 65, r"no figures of 'T44' \(did you mean 'T4'\?\)"),
    ]
    for arguments, code, message in cases:
        result = sandbox.run("fit", *arguments)
        expect_equal(result.returncode, code, f"exit code of {arguments}: {result.stderr!r}")
        expect(re.search(message, result.stderr), f"{arguments}: {result.stderr!r} is not {message!r}")
        expect_equal(result.stderr.count("\n"), 1, f"lines of {result.stderr!r}")


def main():
    check_against_counts()
    check_planner_agrees()
    check_named_mixes_are_planned()
    check_catalog()
    check_devices_left_out_of_a_fleet()
    check_mixes_not_asked_for()
    check_refusals()
    print("ok")


if __name__ == "__main__":
    run_test(main)
