"""What limits a run, planted and found: computing, input, the link within a host, unequal work, stages that wait. That between
hosts is in hosts.py."""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

# `hidden`: it cannot be seen to use motley_torch, so that nobody measures it.
SCRIPT = """import sys, time
import torch
hidden, late, parameters = sys.argv[1] == "hidden", float(sys.argv[2]), int(sys.argv[3])
motley = __import__("motley_torch")

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 480
    def __getitem__(self, i):
        if late:  # even a sleep of nothing gives the core away
            time.sleep(late)
        return torch.ones(4)

torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
model.register_parameter("ballast", torch.nn.Parameter(torch.zeros(parameters)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
job = motley.init(model, optimizer, flops_per_sample=1e6)
for x in job.loader(Data()):
    job.backward(model(x).sum() + 0 * model.ballast[0], len(x))
    optimizer.step()
"""

# Five steps a pass; `average` after each, `validate` after each pass: seconds.
ROUTINES = """import sys, time
import motley_torch as motley
import torch
average, validate = float(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
job = motley.init(model, optimizer, schedule, flops_per_sample=1e6)
loader = job.loader([torch.ones(4) for _ in range(120)])
for number in job.passes(4):
    for x in loader:
        job.backward(model(x).sum(), len(x))
        optimizer.step()
        if average:
            time.sleep(average)
    time.sleep(validate)
    schedule.step()
"""


def limit_of(sandbox, run):
    result = sandbox.run("diagnose", run, "--json")
    expect_exit(result, 0)
    text = sandbox.run("diagnose", run)
    found = json.loads(result.stdout)
    expect(text.stdout.startswith(found["limit"] + ": ") and found["advice"] in text.stdout, text.stdout)
    expect(abs(sum(cost["seconds"] for cost in found["costs"]) / found["step_seconds"] - 1) < 1e-6, f"parts of a step: {found}")
    return found


def run_script(sandbox, speeds, *arguments, flops="1.0e9"):
    devices = "".join(f"      - {{kind: cpu, type: card, threads: 1, paced: {{speed: {speed}}}}}\n" for speed in speeds)
    sandbox.write("cards.yaml", f"version: 1\npace: {{clock: sleep, flops: {flops}}}\nnodes:\n  - host: localhost\n"
                                f"    slots: {len(speeds)}\n    devices:\n{devices}")
    result = sandbox.run("run", "--script", "train.py", "--fleet", "cards.yaml", "--set", "train.global_batch=24", "--fresh", "--",
                         *map(str, arguments),
                         environment={"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"})
    expect_exit(result, 0)


def of_script(sandbox, speeds, mode="seen", late=0.0, parameters=1, flops="1.0e9"):
    run_script(sandbox, speeds, mode, late, parameters, flops=flops)
    return limit_of(sandbox, "train")


def routines(sandbox):
    """What a script does in each step is part of it; what it does between passes is not, wherever schedules are stepped."""
    sandbox.write("train.py", ROUTINES)
    for average, validate in ((0.0, 0.5), (0.03, 0.5)):
        run_script(sandbox, [1], average, validate)
        newest = max((sandbox.home / "state/motley/runs/train").glob("[0-9]*"), key=lambda path: int(path.name))
        steps = [json.loads(line) for line in (newest / "metrics.jsonl").read_text().splitlines()]
        special = {row["step"] for row in steps if row["special"]}
        expect({6, 11, 16} <= special, f"steps that hold what is not of every step: {special}")
        expect(len(special) < 10, f"most are ordinary, but on a busy machine: {special}")
        step = limit_of(sandbox, "train")["step_seconds"]
        expect(0.02 + average < step < 0.3, f"an ordinary step of 24 ms, and {average} s of its own work: {step}")
    print("ok: routines")


def scripts(sandbox):
    sandbox.write("train.py", SCRIPT.replace('motley = __import__("motley_torch")', "import motley_torch as motley"))
    expect_equal(of_script(sandbox, [1])["limit"], "compute", "alone on a slow device")
    late = of_script(sandbox, [1], late=0.004)
    expect_equal((late["limit"], late["rank"]), ("input", 0), "samples that come late")
    expect(late["share"] > 0.5, f"96 ms of input, 24 ms of computing: {late}")
    heavy = of_script(sandbox, [1, 1], parameters=8_000_000)
    expect_equal(heavy["limit"], "host link", "a large gradient between ranks of a host")
    sandbox.write("train.py", SCRIPT)
    uneven = of_script(sandbox, [1, 1, 0.25], mode="hidden", flops="2.0e8")
    expect_equal((uneven["limit"], uneven["rank"]), ("imbalance", 2), "equal shares for unlike devices")
    print("ok: scripts")


def waiting(sandbox):
    """Two stages with one micro-batch: one computes at a time."""
    plan = {"version": 1, "numerics": "fast", "global_batch": 16, "grain": 1,
            "ranks": [{"device": "localhost/0"}, {"device": "localhost/1"}],
            "replicas": [{"stages": [{"first_layer": 0, "last_layer": 1, "ranks": [0]},
                                     {"first_layer": 2, "last_layer": 3, "ranks": [1]}], "micro_batch": 16, "grains": 16}]}
    sandbox.write("plan.json", json.dumps(plan))
    expect_exit(sandbox.run("run", "job.yaml", "--plan", "plan.json"), 0)
    expect_equal(limit_of(sandbox, "job")["limit"], "waiting", "stages that wait for each other")
    print("ok: waiting")


def nothing_told(sandbox):
    sandbox.write("mute.yaml", "version: 1\nname: mute\nfleet: fleet.yaml\nrun: ['true']\n")
    expect_exit(sandbox.run("run", "mute.yaml"), 0)
    result = sandbox.run("diagnose", "mute")
    expect(result.returncode != 0 and "told" in result.stderr, f"a program that tells nothing: {result}")
    expect_exit(sandbox.run("run"), 2)
    both = sandbox.run("run", "--script", "nowhere.py", "job.yaml")
    expect_exit(both, 2)
    expect("'job.yaml' beside --script: what is for the script follows --" in both.stderr, both.stderr)
    missing = sandbox.run("run", "--script", "nowhere.py")
    expect(missing.returncode != 0 and "nowhere.py: no such file" in missing.stderr, missing.stderr)
    print("ok: nothing told")


def main():
    sandbox = Sandbox()
    waiting(sandbox)
    nothing_told(sandbox)
    try:
        import torch  # noqa: F401
    except ImportError as why:
        skip = pathlib.Path(__file__).resolve().parents[1] / "support/missing_capability.sh"
        os.execvp("bash", ["bash", str(skip), "torch", str(why)])
    routines(sandbox)
    scripts(sandbox)


if __name__ == "__main__":
    run_test(main)
