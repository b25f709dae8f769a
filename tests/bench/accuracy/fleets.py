"""The fleets on which predictions are compared with what happened: paced ones made from a fixed seed, and devices that are only held
back (held_back.py), whose speeds nobody states; and hosts with slow links (tests/support/linked_hosts.py)."""

import dataclasses
import json
import math
import random

SEED = 20261123
PACED = 28  # for which `motley` plans
STEP_SECONDS = {"virtual": 0.5, "sleep": 0.8}  # about, where all devices compute all the time
VOCAB = 256  # of bytes
LEAST_MEMORY = 2_100_000  # a rank of the smallest models needs about so much


@dataclasses.dataclass(frozen=True)
class Model:
    layers: int
    width: int
    context: int
    heads: int = 4

    def parameters(self):
        """As core/model.h lists them."""
        return self.layers * (12 * self.width**2 + 13 * self.width) + (VOCAB + self.context + 2) * self.width

    def flops(self, samples):
        """Of a step, about."""
        return 6 * self.parameters() * samples * self.context


@dataclasses.dataclass(frozen=True)
class Device:
    """Paced, or, with `cpu`, an unpaced one that is held back."""
    speed: float = 1
    overhead_us: int = 0
    half_batch: float = 0
    memory: int = 1 << 30
    cpu: str = ""  # "20%": of a core in any time; "@1": on core 1 with what else is there

    def text(self, number):
        paced = "" if self.cpu else (f", paced: {{speed: {self.speed}, memory: {self.memory}B, overhead: {self.overhead_us}us, "
                                     f"half_batch: {self.half_batch}}}")
        memory = f", memory: {self.memory}B" if self.cpu else ""
        return f"      - {{kind: cpu, type: d{number}, threads: 1{memory}{paced}}}\n"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    devices: tuple
    model: Model
    samples: int
    clock: str = "virtual"
    steps: int = 12
    grain: int = 0  # 0: chosen
    plan: str = ""  # JSON of one made by hand; default: what `motley plan` finds
    hosts: int = 1  # with as many devices each
    rate: float = 0  # bytes per second of the link of each

    @property
    def kind(self):
        if self.is_held_back():
            return "beside" if self.hosts > 1 else "throttled"
        return "linked" if self.hosts > 1 else "paced"

    def is_held_back(self):
        return bool(self.devices[0].cpu)

    def host_names(self):
        return [f"h{number}" for number in range(self.hosts)] if self.hosts > 1 else ["localhost"]

    def needs_quota(self):
        return any(device.cpu.endswith("%") for device in self.devices)

    def fleet_text(self):
        flops = self.model.flops(self.samples) / (self.hosts * STEP_SECONDS[self.clock] * sum(device.speed for device in self.devices))
        pace = "" if self.is_held_back() else f"pace: {{clock: {self.clock}, flops: {flops:.3e}}}\n"
        slots = len(self.devices) // self.hosts
        nodes = ""
        for number, host in enumerate(self.host_names()):
            devices = "".join(device.text(i) for i, device in enumerate(self.devices) if i // slots == number)
            nodes += f"  - host: {host}\n    slots: {slots}\n    devices:\n{devices}"
        return f"version: 1\n{pace}nodes:\n{nodes}"

    def job_text(self):
        model = self.model
        grain = f"  grain: {self.grain}\n" if self.grain else ""
        return f"""version: 1
name: {self.name}
fleet: fleet.yaml
model: {{type: gpt, layers: {model.layers}, heads: {model.heads}, width: {model.width}, context: {model.context}}}
data: {{text: [text.txt]}}
train:
  global_batch: {self.samples}
{grain}  steps: {self.steps}
  optimizer: {{type: adamw, lr: 1.0e-3, clip: 1.0}}
  seed: 7
  eval: {{every: 0, samples: 4}}
checkpoint: {{every: 1000000}}
"""


# --- paced, planned by `motley`

def speeds(source, count):
    """The fastest 1, the slowest that is up to 8 times slower, the rest anywhere between."""
    slowest = 1 / source.uniform(1, 8)
    between = [math.exp(source.uniform(math.log(slowest), 0)) for _ in range(count - 2)]
    return [round(speed, 3) for speed in (1, *between, slowest)]


def shuffled(source, values):
    return source.sample(values, len(values))


def paced_case(source, number):
    count = 2 + number % 7
    clock = "sleep" if number % 3 == 2 else "virtual"
    # What waits for real must compute little.
    model = Model(source.choice([6, 8, 12]), 32, 16) if clock == "sleep" else Model(
        source.choice([4, 6, 10, 12]), source.choice([32, 48, 64]), source.choice([16, 32]))
    samples = source.choice([24, 32, 48] if clock == "sleep" else [32, 47, 64])
    whole = 26 * model.parameters()  # bytes, about, with what summing and saving take
    # For all but, sometimes, the first. Long pipelines leave devices idle: true waiting for them would take too long.
    tight = number % 3 == 1 or (clock == "sleep" and count < 5)
    first_tight = number % 2 == 1 and count > 2
    devices = []
    for place, speed in enumerate(shuffled(source, speeds(source, count))):
        short = tight and (place > 0 or first_tight)
        memory = max(LEAST_MEMORY, int(whole * source.uniform(0.55, 0.8))) if short else 1 << 30
        devices.append(Device(speed, source.choice([0, 100, 300, 1000]), source.choice([0, 0.5, 2]), memory))
    return Case(f"paced-{number:02}", tuple(devices), model, samples, clock, grain=source.choice([0, 0, 1, 2]) if samples % 2 == 0 else 0)


# --- paced, planned by hand

def plan_text(samples, replicas, grain=1, **more):
    """Each replica is (samples, micro-batch, stages), a stage (last layer, shares[, recomputation of a layer])."""
    ranks, written = 0, []
    for part, micro_batch, stages in replicas:
        first, cut = 0, []
        for last, shares, *recompute in stages:
            stage = {"first_layer": first, "last_layer": last, "ranks": list(range(ranks, ranks + len(shares)))}
            if len(shares) > 1:
                stage["shares"] = shares
            if recompute:
                stage["recompute"] = recompute * (last - first + 1)
            cut.append(stage)
            first, ranks = last + 1, ranks + len(shares)
        written.append({"stages": cut, "micro_batch": micro_batch, "grains": part // grain})
    return json.dumps({"version": 1, "numerics": "fast", "global_batch": samples, "grain": grain,
                       "ranks": [{"device": f"localhost/{rank}"} for rank in range(ranks)], "replicas": written, **more})


def by_hand(name, clock, speeds_, replicas, **more):
    """Of a model with layers 0 to 9."""
    samples = sum(part for part, _, _ in replicas)
    devices = tuple(Device(speed, 200, 0.5) for speed in speeds_)
    return Case(f"hand-{name}", devices, Model(8, 32, 16, heads=8), samples, clock, plan=plan_text(samples, replicas, **more))


def cases_by_hand():
    whole, alone = 9, [1.0]
    return [
        by_hand("uneven-stages", "virtual", [1, 0.5, 0.25], [(24, 3, [(5, alone), (7, alone), (whole, alone)])]),
        by_hand("uneven-stages-sleep", "sleep", [0.3, 1], [(16, 3, [(2, alone), (whole, alone)])]),
        by_hand("shares", "virtual", [0.75, 0.25], [(24, 4, [(whole, [0.75, 0.25])])]),
        by_hand("shares-sleep", "sleep", [1, 1], [(8, 8, [(whole, [0.5, 0.5])])]),
        by_hand("shares-in-stages", "virtual", [0.9, 0.3, 0.6, 0.5], [(25, 2, [(4, [0.75, 0.25]), (whole, [0.5, 0.5])])]),
        by_hand("unlike-sharded-state", "virtual", [1, 0.3, 0.2, 0.4], [(24, 4, [(whole, alone)]), (16, 2, [(3, alone), (6, alone), (whole, alone)])],
                shard_optimizer=True),
        by_hand("unlike-sharded-state-sleep", "sleep", [1, 0.3, 0.4], [(20, 4, [(whole, alone)]), (12, 2, [(4, alone), (whole, alone)])],
                shard_optimizer=True),
        by_hand("recomputing", "virtual", [1, 0.4, 0.6], [(12, 4, [(whole, alone, "block")]), (12, 3, [(5, alone, "mlp"), (whole, alone)])]),
    ]


# --- on two hosts with two devices each, planned by hand

def linked(name, replicas, ranks=(0, 1, 2, 3), rate=12.5e6, **more):
    """`ranks`: of the stages, in their order; the first two are on one host."""
    plan = json.loads(plan_text(sum(part for part, _, _ in replicas), replicas, **more))
    plan["ranks"] = [{"device": device} for device in ("h0/0", "h0/1", "h1/0", "h1/1")]
    for replica in plan["replicas"]:
        for stage in replica["stages"]:
            stage["ranks"] = [ranks[rank] for rank in stage["ranks"]]
    devices = tuple(Device(speed, 200, 0.5) for speed in (1, 0.6, 0.8, 0.5))
    return Case(f"linked-{name}", devices, Model(8, 128, 32, heads=8), plan["global_batch"], "sleep", plan=json.dumps(plan), hosts=2, rate=rate)


def linked_cases():
    whole, alone, cut = 9, [1.0], [(4, [1.0]), (9, [1.0])]
    two, over = [(8, 2, cut), (8, 2, cut)], [0, 2, 1, 3]
    return [
        linked("whole", [(5, 5, [(whole, alone)]), (3, 3, [(whole, alone)]), (5, 5, [(whole, alone)]), (3, 3, [(whole, alone)])]),
        linked("stages-within", two),
        linked("stages-within-sharded-state", two, shard_optimizer=True),
        linked("stages-over", two, over),
        linked("whole-and-stages", [(6, 3, [(whole, alone)]), (10, 2, [(3, alone), (6, alone), (whole, alone)])]),
    ]


# --- held back, measured only

def throttled(name, cpus, *, samples=48, memory=0, plan=""):
    """`memory`: of each device, as a share of what the whole model takes, about; 0: enough. Sections of four samples are long beside
    the periods of a quota."""
    model = Model(6, 256, 128)
    whole = 26 * model.parameters()
    devices = tuple(Device(cpu=cpu, memory=int(whole * (memory or 40))) for cpu in cpus)
    return Case(f"throttled-{name}", devices, model, samples, "sleep", 11, 4, plan)


def throttled_cases():
    alone = [1.0]
    return [
        throttled("2x", ["30%", "60%"]),
        throttled("6x", ["10%", "60%"]),
        throttled("3-unlike", ["15%", "30%", "60%"]),
        throttled("4-in-pairs", ["15%", "15%", "40%", "40%"], samples=64),
        throttled("pipeline", ["40%", "60%"], memory=1.5),
        throttled("pipeline-by-hand", ["25%", "60%"], plan=plan_text(48, [(48, 4, [(2, alone), (7, alone)])], grain=4)),
        throttled("one-core-for-two", ["@0", "@0", "@1"], samples=64),
    ]


# --- one on each of two hosts, measured only: they sum gradients beside their last backward pass

def beside(name, rate, samples=16, micro_batch=0, **more):
    """`micro_batch` 0: `motley` plans."""
    plan = ""
    if micro_batch:
        made = json.loads(plan_text(2 * samples, [(samples, micro_batch, [(9, [1.0])])] * 2, **more))
        made["ranks"] = [{"device": "h0/0"}, {"device": "h1/0"}]
        plan = json.dumps(made)
    devices = tuple(Device(cpu=cpu) for cpu in ("@0", "@1"))
    return Case(f"beside-{name}", devices, Model(8, 256, 128), 2 * samples, "sleep", 11, plan=plan, hosts=2, rate=rate)


def beside_cases():
    return [
        beside("hidden", 50e6, micro_batch=16),
        beside("longer-than-a-pass", 12.5e6, micro_batch=16),
        beside("micro-batches", 50e6, micro_batch=4),
        beside("sharded-state", 50e6, micro_batch=16, shard_optimizer=True),
        beside("planned", 25e6),
    ]


def all_cases():
    source = random.Random(SEED)
    return [paced_case(source, number) for number in range(PACED)] + cases_by_hand() + linked_cases() + throttled_cases() + beside_cases()
