"""A PyTorch script with ranks on two hosts that share no files: they train as one, tell of every step over the network, and go on
from the checkpoint of the host that rank 0 is on."""

import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import netns_hosts  # noqa: E402
from hosts import on  # noqa: E402
from sandbox import BIN, MOTLEY, Sandbox, expect, expect_equal, run_test  # noqa: E402

SCRIPT = """import sys
import motley_torch as motley
import torch
torch.manual_seed(3)
data = [(torch.randn(8), torch.randn(1)) for _ in range(48)]
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = motley.init(model, optimizer, global_batch=6, save_every=5)
loader, resumed = job.loader(data), job.step > 0
while job.step < int(sys.argv[1]):
    for x, y in loader:
        optimizer.zero_grad()
        job.backward(((model(x) - y) ** 2).sum(), len(x))
        optimizer.step()
        if job.rank == 0 and job.boundary:
            print("after", job.step, flush=True)
        if job.boundary and job.step == int(sys.argv[2]) and not resumed:
            sys.exit(1)
"""

NARROW = """import motley_torch as motley
import torch
model = torch.nn.Linear(2000, 500)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
job = motley.init(model, optimizer, global_batch=2)
for x in job.loader(torch.ones(40, 2000)):
    job.backward(model(x).sum(), len(x))
    optimizer.step()
"""


def missing():
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return ["torch", str(error)]
    reason = netns_hosts.possible()
    return ["netns", reason] if reason else []


def run(hosts, sandbox, fleet, *more, passes=2, end_at=0, code=0):
    sandbox.write("script.yaml", f"version: 1\nname: script\nfleet: {fleet}.yaml\nretry: {{max_restarts: 0}}\n"
                                 f"run: [{sys.executable}, train.py, '{8 * passes}', '{end_at}']\n")
    return on(hosts, sandbox, "n1", MOTLEY, "run", "script.yaml", "--rsh-agent", str(hosts.agent), *more, code=code)


def told(sandbox, hosts, number):
    path = sandbox.home / "state" / "motley" / "runs" / "script" / str(number) / "metrics.jsonl"
    return [json.loads(line) for line in on(hosts, sandbox, "n1", "cat", str(path)).stdout.splitlines()]


def trains_on_both(hosts, sandbox):
    run(hosts, sandbox, "one")
    alone = {row["step"]: row["loss"] for row in told(sandbox, hosts, 1)}
    said = run(hosts, sandbox, "two", "--fresh").stdout
    expect_equal(said, "".join(f"after {step}\n" for step in range(1, 17)), "what rank 0 has said")
    rows = told(sandbox, hosts, 2)
    expect_equal([row["step"] for row in rows], list(range(1, 17)), "steps told")
    worst = max(abs(row["loss"] / alone[row["step"]] - 1) for row in rows)
    expect(worst < 1e-5, f"losses differ by {worst}")
    found = json.loads(on(hosts, sandbox, "n1", MOTLEY, "report", "script", "--json").stdout)
    expect_equal([rank["device"] for rank in found["ranks"]], ["n1/0", "n2/0"], "ranks in the report")
    print("ok: trained on both hosts")


def is_limited(hosts, sandbox):
    """Little to compute and much to sum over the network: `motley diagnose` says so."""
    sandbox.write("narrow.py", NARROW)
    sandbox.write("narrow.yaml", f"version: 1\nname: narrow\nfleet: two.yaml\nrun: [{sys.executable}, narrow.py]\n")
    on(hosts, sandbox, "n1", MOTLEY, "run", "narrow.yaml", "--rsh-agent", str(hosts.agent))
    found = json.loads(on(hosts, sandbox, "n1", MOTLEY, "diagnose", "narrow", "--json").stdout)
    expect_equal(found["limit"], "network", f"what limits it: {found}")
    print("ok: a narrow network")


def is_heard_elsewhere(hosts, sandbox):
    """Rank 0 on the other host: its words are the job's all the same."""
    said = run(hosts, sandbox, "other", "--fresh").stdout
    expect_equal(said, "".join(f"after {step}\n" for step in range(1, 17)), "what rank 0 has said")
    print("ok: heard from another host")


def does_not_begin_anew(hosts, sandbox):
    """Where rank 0 is now there are no checkpoints, which is no reason to train from the start."""
    run(hosts, sandbox, "other", "--fresh", end_at=12, code=1)
    refused = run(hosts, sandbox, "one", end_at=12, code=1)
    expect("the run was to save checkpoints" in refused.stderr and "after" not in refused.stdout, f"{refused.stdout}{refused.stderr}")
    said = run(hosts, sandbox, "other", end_at=12).stdout
    expect(said.endswith("".join(f"after {step}\n" for step in range(11, 17))) and "after 10\n" not in said, f"where it went on: {said}")
    print("ok: not begun anew")


def goes_on(hosts, sandbox):
    on(hosts, sandbox, "n1", MOTLEY, "resume", "script", "--step", "10", "--rsh-agent", str(hosts.agent))
    first, again = told(sandbox, hosts, 2), told(sandbox, hosts, 3)
    expect_equal([row["step"] for row in again], list(range(1, 17)), "steps told")
    worst = max(abs(mine["loss"] / theirs["loss"] - 1) for mine, theirs in zip(again, first))
    expect(worst < 1e-6, f"losses differ by {worst}")
    print("ok: gone on from step 10")


def main():
    why = missing()
    if why:
        os.execvp("bash", ["bash", "tests/support/missing_capability.sh", *why])
    sandbox = Sandbox()
    # /tmp is private to each host: what they share must lie elsewhere.
    home = pathlib.Path("/var/tmp") / sandbox.home.name
    shutil.move(sandbox.home, home)
    sandbox.home = home
    sandbox.environment.update(XDG_STATE_HOME=str(home / "state"), XDG_CACHE_HOME=str(home / "cache"))
    sandbox.write("train.py", SCRIPT)
    for fleet, names in ("one", ["n1"]), ("two", ["n1", "n2"]), ("other", ["n2", "n1"]):
        sandbox.write(f"{fleet}.yaml", "version: 1\nnodes:\n" + "".join(
            f"  - {{host: {name}, devices: [{{kind: cpu, type: core, threads: 1}}]}}\n" for name in names))
    with netns_hosts.Hosts(["n1", "n2"], home, private=[str(home / "state")], shared=[str(BIN.parent)]) as hosts:
        trains_on_both(hosts, sandbox)
        goes_on(hosts, sandbox)
        is_limited(hosts, sandbox)
        is_heard_elsewhere(hosts, sandbox)
        does_not_begin_anew(hosts, sandbox)


if __name__ == "__main__":
    run_test(main)
