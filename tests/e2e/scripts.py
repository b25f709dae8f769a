"""PyTorch scripts on unlike devices: the same losses however many ranks share a batch, as much of it for each as its device is
worth, and on again after a kill, also on fewer ranks."""

import json
import os
import pathlib
import re
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402
from service import Service  # noqa: E402

try:
    import torch  # noqa: F401
except ImportError as missing:
    skip = pathlib.Path(__file__).resolve().parents[1] / "support/missing_capability.sh"
    os.execvp("bash", ["bash", str(skip), "torch", str(missing)])

SPEEDS = {"one": [1], "equal": [1, 1], "unlike": [1, 1, 1 / 3, 1 / 3], "three": [1, 1, 1 / 3]}
STEPS = 50

SCRIPT = """import json, os, pathlib, signal, sys, time
import motley_torch as motley
import numpy
import torch
from torch.nn import functional

class Data(torch.utils.data.Dataset):
    def __init__(self):
        numbers = torch.Generator().manual_seed(1)
        self.x = torch.randn(500, 20, generator=numbers)
        self.y = self.x[:, :4].argmax(1)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, i):
        return self.x[i], self.y[i]

die_at, dropout, workers = int(pathlib.Path("die_at").read_text()), float(sys.argv[1]), int(sys.argv[2])

numpy.random.seed(3)
torch.manual_seed(3)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(64, 4))
model.register_buffer("mask", torch.ones(3, dtype=torch.bool))
model.register_buffer("count", torch.tensor(7))
model.register_buffer("halves", torch.ones(2, dtype=torch.bfloat16))
model.register_buffer("none", torch.empty(0, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.7), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
job = motley.init(model, optimizer, *schedules, flops_per_sample=2e6)
loader = job.loader(Data(), num_workers=workers)
place = pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"])
while True:
    for x, y in loader:
        optimizer.zero_grad()
        if dropout:
            x = x + numpy.random.normal(0, 0.1)
        job.backward(functional.cross_entropy(model(x), y, reduction="sum"), len(x))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedules[0].step()
        if not job.boundary:
            continue
        if job.rank == 0:
            print("loss", job.step, repr(job.loss), flush=True)
        if job.step == die_at and job.rank == job.ranks - 1 and not (place / "dead").exists():
            (place / "dead").write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        if job.step == %d:
            sys.exit(0)
    schedules[1].step()
""" % STEPS


# A slow device has no memory for more than 5 samples, and while it trains for no more than 2.
LARGE = """import os, sys
import motley_torch as motley
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = motley.init(model, optimizer, global_batch=32, flops_per_sample=2e6)
largest = 0
for x in job.loader(torch.ones(64, 4)):
    largest = max(largest, len(x))
    if os.environ["MOTLEY_DEVICE_TYPE"] == "slow" and len(x) > (5 if "MOTLEY_MEASURE" in os.environ or "later" not in sys.argv else 2):
        (bytearray if "later" in sys.argv else torch.empty)(1 << 50)  # MemoryError, or torch's own
    job.backward(model(x).sum(), len(x))
    optimizer.step()
print("largest", largest)
"""


# Asks torch.distributed who it is, looks at a batch, leaves its passes early, freezes and unfreezes, and keeps something after each pass.
EARLY = """import os, pathlib, signal
import motley_torch as motley
import torch
import torch.distributed as dist

what = pathlib.Path("what").read_text().split()
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], 0.5)
job = motley.init(model, optimizer, schedule, micro_batch=2, flops_per_sample=2e6)
data = torch.randn(48, 8)
loader = job.loader(data)
assert motley.steps_per_pass(data) == job.steps_per_pass == 6
next(iter(loader))  # a look at the data is no pass
dead = pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"], "dead")
for number in job.passes(4):
    for x in loader:
        if "top" in what and job.step == 4 * (number + 1):
            break
        model[0].requires_grad_(job.step >= 6)
        optimizer.zero_grad()
        job.backward((model(x) - x.mean(1, keepdim=True)).square().sum(), len(x))
        optimizer.step()
        if not job.boundary:
            continue
        if dist.get_rank() == 0:
            print("loss", job.step, repr(job.loss), flush=True)
        if "die" in what and job.step == 10 and job.rank == 0 and not dead.exists():
            dead.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        if "top" not in what and job.step % 4 == 0:
            break
    schedule.step()
    weights = [float(parameter.double().sum()) for parameter in model.parameters()]
    for rank in range(dist.get_world_size()):
        theirs = [weights]
        dist.broadcast_object_list(theirs, src=rank)
        assert theirs == [weights], f"ranks have drifted apart: {theirs} {weights}"
    if dist.get_rank() == 0:
        print(f"pass {number} {job.loss:.9f} {sum(weights):.9f}", flush=True)
"""


# What a training script may get wrong.
WRONG = """import pathlib
import motley_torch as motley
import torch

what = pathlib.Path("what").read_text().split()

torch.manual_seed(3)
model, other = torch.nn.Linear(4, 2), torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD([*model.parameters(), *(other.parameters() if "foreign" in what else [])], lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
if "synchronous" in what:
    model = torch.nn.Sequential(model, torch.nn.SyncBatchNorm(2))
if "norm" in what:
    model = torch.nn.Sequential(model, torch.nn.BatchNorm1d(2))
job = motley.init(model.bfloat16() if "half" in what else model, optimizer, global_batch=8, micro_batch=2, save_every=1)
loader = job.loader([torch.randn(4) for _ in range(240 if "own" in what else 12 if "short" in what and job.rank else 24)])
if "second" in what:
    motley.init(other, torch.optim.SGD(other.parameters(), lr=0.1), global_batch=8)
for number in job.passes(2 if {"leave", "apart", "added"} & set(what) else 1):
    for x in loader:
        if "rate" in what:
            optimizer.param_groups[0]["lr"] = 0.1 + 0.1 * job.rank
        loss = model(x.to(next(model.parameters()).dtype)).square().sum() * (float("nan") if "nan" in what and job.step == 2 else 1)
        optimizer.zero_grad()
        job.backward(loss, len(x))
        if "added" in what and job.step == 3:
            optimizer.add_param_group({"params": list(other.parameters())})
        if ("idle" not in what or job.rank == 0) and ("own" not in what or job.step % 8 == 1):
            optimizer.step()
        if "schedule" in what:
            schedule.step()
        if "leave" in what and not job.boundary:
            break
        if ("apart" in what or "sooner" in what) and job.boundary and job.rank == 1:
            break
        if "within" in what and not job.boundary:
            break
if "norm" in what:
    means = job._ranks.gather(model[1].running_mean.tolist())
    assert means[0] == means[1], f"averages of the ranks: {means}"
"""


def fleet_text(speeds, half_batch=0.0):
    devices = "".join(f"      - {{kind: cpu, type: {'fast' if speed == 1 else 'slow'}, threads: 1, "
                      f"paced: {{speed: {speed:.4f}, half_batch: {half_batch}}}}}\n" for speed in speeds)
    return ("version: 1\npace: {clock: sleep, flops: 1.0e9}\nnodes:\n"
            f"  - host: localhost\n    slots: {len(speeds)}\n    devices:\n{devices}")


def prepare(sandbox, fleet, die_at=0, dropout=0.0, workers=0, micro_batch=None):
    sandbox.name = "script"
    sandbox.write("train.py", SCRIPT)
    sandbox.write("die_at", str(die_at))  # no argument: it would be another program, measured anew and perhaps dealt otherwise
    sandbox.write("fleet.yaml", fleet_text(SPEEDS[fleet]))
    sandbox.write("script.yaml", f"""version: 1
name: script
fleet: fleet.yaml
run: {sys.executable} train.py {dropout} {workers}
train: {{global_batch: 32}}
checkpoint: {{every: 5}}
retry: {{max_restarts: 0}}
{f'env: {{MOTLEY_MICRO_BATCH: "{micro_batch}"}}' if micro_batch else ''}
""")


def losses(text):
    return {int(step): float(loss) for step, loss in re.findall(r"^loss (\d+) (\S+)$", text, re.MULTILINE)}


def expect_same(found, wanted, tolerance, what):
    expect_equal(sorted(found), sorted(wanted), f"steps of {what}")
    worst = max(abs(found[step] / wanted[step] - 1) for step in wanted)
    expect(worst <= tolerance, f"{what}: losses differ by {worst}")


def trained(sandbox, fleet, **more):
    prepare(sandbox, fleet, **more)
    result = sandbox.run("run", "script.yaml", "--fresh")
    expect_exit(result, 0)
    return result


def newest(sandbox):
    runs = sandbox.run_directory().parent
    return max((path for path in runs.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def told(sandbox):
    """By the ranks of the newest run: its metrics."""
    return [json.loads(line) for line in (newest(sandbox) / "metrics.jsonl").read_text().splitlines()]


def shared(sandbox):
    """One rank, two equal ones, four that are not."""
    alone = losses(trained(sandbox, "one").stdout)
    expect_equal(sorted(alone), list(range(1, STEPS + 1)), "steps")
    expect_same({row["step"]: row["loss"] for row in told(sandbox)}, alone, 1e-12, "what the run was told")
    expect(alone[STEPS] < alone[1] / 2, f"nothing was learnt: {alone}")
    equal = trained(sandbox, "equal", workers=1, micro_batch=5)
    expect_same(losses(equal.stdout), alone, 1e-4, "two equal ranks, four micro-batches each")
    expect_equal([row["step"] for row in told(sandbox)], list(range(1, STEPS + 1)), "steps told where workers read the data")
    unlike = trained(sandbox, "unlike")
    expect_same(losses(unlike.stdout), alone, 1e-4, "four unlike ranks")
    report = json.loads(sandbox.run("report", "script", "--json").stdout)
    expect_equal((report["state"], report["steps"]), ("finished", STEPS), "what is reported")
    # Not `efficiency`: on a busy machine emulated steps may take longer than they stand for, and then there is none.
    expect(report["predicted_step_seconds"] and report["solo_sum_samples_per_second"] and len(report["ranks"]) == 4, f"{report}")
    expect("Report (paced): finished" in unlike.stderr, unlike.stderr)
    kinds = unlike.stderr.count("measuring the program on")
    expect(kinds <= 2, f"one of each kind at most is measured: {unlike.stderr}")
    dealt = re.search(r"samples of a step: localhost/0 (\d+), localhost/1 (\d+), localhost/2 (\d+), localhost/3 (\d+) \(", unlike.stderr)
    expect(dealt, unlike.stderr)
    fast, other_fast, slow, other_slow = map(int, dealt.groups())
    expect_equal(fast + other_fast + slow + other_slow, 32, "samples of all")
    expect(abs(fast - 12) <= 1 and abs(slow - 4) <= 1, f"three times as quick: {dealt.group(0)}")
    print("ok: shared")
    return alone


def killed(sandbox, alone):
    """A rank dies; the run goes on from the newest checkpoint as if it had not, within a pass and at the end of one (15 steps),
    also without one of its devices."""
    dropped = losses(trained(sandbox, "unlike", dropout=0.2).stdout)
    for fleet, die_at, dropout, wanted, tolerance in (("unlike", 28, 0.2, dropped, 1e-6), ("three", 31, 0.0, alone, 1e-4)):
        prepare(sandbox, "unlike", die_at, dropout)
        result = sandbox.run("run", "script.yaml", "--fresh")
        expect_exit(result, 1)
        expect("rank 3 on localhost/3 (slow) ended with signal 9" in result.stderr, result.stderr)
        prepare(sandbox, fleet, die_at, dropout)
        result = sandbox.run("run", "script.yaml")
        expect_exit(result, 0)
        rest = losses(result.stdout)
        expect_equal(sorted(rest), list(range(die_at // 5 * 5 + 1, STEPS + 1)), "steps after the checkpoint")
        expect_same(rest, {step: wanted[step] for step in rest}, tolerance, f"killed at {die_at}, on {fleet}")
    print("ok: killed")


def stopped(sandbox, alone):
    """Asked to stop, all ranks save the same step; the same command goes on from it."""
    prepare(sandbox, "unlike")
    process = sandbox.start("run", "script.yaml", "--fresh")
    sandbox.wait_for(lambda: "loss 5 " in sandbox.log(), "some steps", process=process)
    process.send_signal(signal.SIGTERM)
    expect_equal(process.wait(timeout=60), 75, "exit code of who was asked to stop")
    done = losses(sandbox.log())
    expect("measuring" not in sandbox.log(), f"measured again: {sandbox.log()}")
    result = sandbox.run("run", "script.yaml")
    expect_exit(result, 0)
    rest = losses(result.stdout)
    expect_equal(min(rest), max(done) + 1, "the first step after the stop")
    expect_same({**done, **rest}, alone, 1e-4, "stopped and gone on")
    rows = told(sandbox)
    expect_equal([row["step"] for row in rows], list(range(1, STEPS + 1)), "steps of both attempts")
    expect_equal({row["step"] for row in rows if row["epoch"] == 2}, set(rest), "steps of the second")
    print("ok: stopped")


def damaged(sandbox):
    """Half a checkpoint is named, and the one before it is taken; where none is whole nothing begins anew by itself."""
    prepare(sandbox, "one", die_at=23)
    expect_exit(sandbox.run("run", "script.yaml", "--fresh"), 1)
    place = newest(sandbox) / "checkpoints"
    kept = sorted(place.glob("step-*"))
    expect_equal([path.name for path in kept], ["step-00000010.e1", "step-00000015.e1", "step-00000020.e1"], "checkpoints")
    tensors = kept[2] / "s0000.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    for number in (0, 1):
        kept[number].rename(place / f"elsewhere-{number}")
    result = sandbox.run("run", "script.yaml")
    expect_exit(result, 1)
    expect("no checkpoint in" in result.stderr and "--fresh" in result.stderr, result.stderr)
    expect_equal([path.name for path in place.glob(".suspect-*")], [".suspect-step-00000020.e1"], "set aside")
    (place / "elsewhere-1").rename(kept[1])
    result = sandbox.run("run", "script.yaml")
    expect_exit(result, 0)
    expect_equal(min(losses(result.stdout)), 16, "the first step after an older checkpoint")
    print("ok: damaged")


def gone_back(sandbox, alone):
    """To an earlier step, in a run of its own."""
    before = newest(sandbox)
    result = sandbox.run("resume", "script", "--step", "40")
    expect_exit(result, 0)
    expect(newest(sandbox) != before, "it is not a run of its own")
    expect_same(losses(result.stdout), {step: alone[step] for step in range(41, STEPS + 1)}, 1e-6, "from step 40")
    expect_equal([row["step"] for row in told(sandbox)], list(range(1, STEPS + 1)), "steps of the new run")
    unknown = sandbox.run("resume", "script", "--step", "41")
    expect("has no checkpoint of step 41" in unknown.stderr, unknown.stderr)
    print("ok: gone back")


def wrong(sandbox):
    """What would train ranks apart is said at once; a state that no training mends replaces none that is fine."""
    sandbox.write("wrong.py", WRONG)
    sandbox.write("fleet.yaml", fleet_text([1, 1]))
    sandbox.write("wrong.yaml", f"version: 1\nname: wrong\nfleet: fleet.yaml\nrun: {sys.executable} wrong.py\n"
                                "retry: {max_restarts: 0}\n")

    def run(what, code):
        sandbox.write("what", what)  # no argument: as in `prepare`
        result = sandbox.run("run", "wrong.yaml", "--fresh")
        expect_exit(result, code)
        places = sandbox.home / "state" / "motley" / "runs" / "wrong"
        place = max((path for path in places.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)) / "checkpoints"
        return result.stdout + result.stderr, sorted(path.name for path in place.iterdir())

    for what, said in (("foreign", "parameters that the model has not"), ("rate", "different learning rates"),
                       ("short", "samples are dealt by the plan"), ("schedule", "has changed within a step"),
                       ("leave", "where job.boundary is false"), ("apart", "different steps"), ("synchronous", "use BatchNorm"),
                       ("idle", "different numbers of updates"), ("second", "for one training"), ("added", "had not at motley.init()"),
                       ("sooner", "left its loop at another job.step"), ("within", "has ended within step 1")):
        expect(said in run(what, 1)[0], f"{what}: not said")
    expect_equal(run("half", 0)[1], [f"step-0000000{step}.e1" for step in (1, 2, 3)], "checkpoints of a model in bf16")
    expect("gradients of the others are lost" in run("own", 0)[0], "gradients accumulated by the script itself: not said")
    run("norm", 0)
    expect_equal(run("nan", 0)[1], ["step-00000001.e1", "step-00000002.e1"], "checkpoints before the loss was lost")
    print("ok: wrong")


def left_early(sandbox):
    """Passes that are left early are gone on with as they were, and what was kept after earlier ones stays."""
    sandbox.write("early.py", EARLY)
    sandbox.write("early.yaml", f"version: 1\nname: early\nfleet: fleet.yaml\nrun: {sys.executable} early.py\n"
                                "train: {global_batch: 8}\ncheckpoint: {every: 4}\nretry: {max_restarts: 0}\n")

    def run(what, speeds, fresh=("--fresh",), code=0):
        sandbox.write("fleet.yaml", fleet_text(speeds))
        sandbox.write("what", what)
        result = sandbox.run("run", "early.yaml", *fresh)
        expect_exit(result, code)
        return result

    def passes(text):
        return re.findall(r"^pass .*$", text, re.MULTILINE)

    alone = run("", [1])
    expect_equal((len(losses(alone.stdout)), len(passes(alone.stdout))), (16, 4), "steps and passes")
    expect_same(losses(run("top", [1, 1 / 3]).stdout), losses(alone.stdout), 1e-4, "passes left before a step")
    run("die", [1, 1 / 3], code=1)
    rest = run("die", [1, 1 / 3], fresh=())
    expect("told nothing" not in rest.stderr, rest.stderr)
    expect_same(losses(rest.stdout), {step: loss for step, loss in losses(alone.stdout).items() if step > 8}, 1e-4, "passes left early")
    expect_equal([line.split()[1] for line in passes(rest.stdout)], ["2", "3"], "passes after the checkpoint")
    print("ok: left early")


def small_memory(sandbox):
    """A micro-batch that a device has no memory for is found before anything is trained, and never given to it; one for which it
    has none later costs an attempt."""
    sandbox.write("large.py", LARGE)
    sandbox.write("fleet.yaml", fleet_text([1 / 3, 1], half_batch=0.5))  # of 4 samples, each takes 25 % less time than alone
    for when, largest in ("", 4), ("later", 2):
        sandbox.write("large.yaml", f"version: 1\nname: large\nfleet: fleet.yaml\nrun: {sys.executable} large.py {when}\n"
                                    "train: {global_batch: 32}\nretry: {max_restarts: 0}\n")
        result = sandbox.run("run", "large.yaml", "--fresh")
        expect_exit(result, 0)
        dealt = re.search(r"samples of a step: localhost/0 (\d+), localhost/1 (\d+) \(", result.stderr)
        expect(dealt and abs(int(dealt.group(1)) - 8) <= 1, result.stderr)
        found = int(re.search(r"^largest (\d+)$", result.stdout, re.MULTILINE).group(1))
        expect(1 < found <= largest, f"of 1, 2, 4 and 8 samples: {found}")
    expect("localhost/0 has no memory for micro-batches of 4 samples: going on with 2" in result.stderr, result.stderr)
    expect("measuring" not in sandbox.run("run", "large.yaml", "--fresh").stderr, "measured though it is known")
    again = sandbox.run("run", "large.yaml", "--fresh", "--refresh").stderr
    expect_equal(again.count("measuring the program on"), 2, f"devices measured again: {again}")
    print("ok: small memory")


def served(service, alone):
    """The same in the job service: held with a checkpoint, and on again; a second time from an earlier step, as another job."""
    prepare(service, "unlike")
    text = (service.home / "script.yaml").read_text().replace("fleet: fleet.yaml\n", "")
    service.write("script.yaml", text + "resources: {devices: {count: 4}}\n")
    service.start_coordinator()
    job = service.run("submit", "script.yaml").stdout.strip()
    log = lambda: service.run("logs", job).stdout  # noqa: E731
    service.wait_for(lambda: "loss 5 " in log(), "some steps")
    expect_exit(service.run("hold", job), 0)
    service.wait_for_state(int(job), "waiting")
    expect_exit(service.run("release", job), 0)
    service.wait_for_state(int(job), "succeeded")
    expect_same(losses(log()), alone, 1e-4, "a job of the service")
    heir = service.run("resume", job, "--step", "40")
    expect_exit(heir, 0)
    service.wait_for_state(int(heir.stdout), "succeeded")
    expect_same(losses(service.run("logs", heir.stdout.strip()).stdout), {step: alone[step] for step in range(41, STEPS + 1)}, 1e-4,
                "a job that goes on from another one's checkpoint")
    print("ok: served")


def main():
    sandbox = Sandbox()
    alone = shared(sandbox)
    stopped(sandbox, alone)
    killed(sandbox, alone)
    damaged(sandbox)
    gone_back(sandbox, alone)
    wrong(sandbox)
    left_early(sandbox)
    small_memory(sandbox)
    service = Service(cache=sandbox.home / "cache")
    try:
        served(service, alone)
        expect_equal(service.end_coordinator(), 0, "exit code")
    finally:
        service.kill_all()


if __name__ == "__main__":
    run_test(main)
