"""PyTorch scripts on emulated devices, as `motley run` shares a batch among them and as DistributedDataParallel does.

    tests/bench/run.sh bridge [--json]

`efficiency` is the samples a second of four devices, 3:3:1:1, over the sum of each alone; `speedup_over_ddp` that over the same model
under plain DDP, whose ranks wait as long for a sample. `shim_overhead` is what the shim adds to a step of one rank, both in one process,
turn by turn. `loss_error` is the greatest relative difference of a step's loss from that of one rank. `unweighted_gradient_error`
shows what plain DDP would do with 3 + 1 samples: the worst element, relative to the greatest gradient; `gradient_error` ours."""

import argparse
import difflib
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
from comm_bench import mpi_environment  # noqa: E402
from sandbox import Sandbox, run_test  # noqa: E402

SCRIPTS = pathlib.Path(__file__).resolve().parent / "bridge"
FLEETS = {"fast": [1], "slow": [1 / 3], "equal": [1, 1], "unlike": [1, 1, 1 / 3, 1 / 3]}
BATCH = 32
FLOPS = 4.0e7  # a second, of speed 1


def fleet_text(speeds):
    devices = "".join(f"      - {{kind: cpu, type: d{speed:.2f}, threads: 1, paced: {{speed: {speed:.6f}}}}}\n" for speed in speeds)
    return (f"version: 1\npace: {{clock: sleep, flops: {FLOPS}}}\nnodes:\n"
            f"  - host: localhost\n    slots: {len(speeds)}\n    devices:\n{devices}")


class Bench:
    def __init__(self):
        self.sandbox = Sandbox(name="bridge")

    def run(self, script, fleet):
        """Seconds of each step and losses, as rank 0 prints them."""
        self.sandbox.write("fleet.yaml", fleet_text(FLEETS[fleet]))
        self.sandbox.write("bridge.yaml", f"""version: 1
name: bridge
fleet: fleet.yaml
run: [{sys.executable}, {SCRIPTS / script}, {ROOT / "configs"}]
env: {{PYTHONPATH: {ROOT / "configs/scripts"}, OMP_NUM_THREADS: "1"}}
train: {{global_batch: {BATCH}}}
retry: {{max_restarts: 0}}
""")
        done = self.sandbox.run("run", "bridge.yaml", "--fresh", timeout=600, environment={**mpi_environment(), **self.sandbox.environment})
        if done.returncode != 0:
            sys.exit(f"bridge: {script} on {fleet}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return statistics.median(step["seconds"] for step in steps[3:]), [step["loss"] for step in steps]


def new_lines(example):
    """Of the changed example: what the plain one does not have."""
    def code(name):
        text = (ROOT / "configs/scripts" / name).read_text().split('"""', 2)[2]
        return [line.split("  #")[0] for line in text.splitlines()]
    changes = difflib.ndiff(code(f"{example}_ddp.py"), code(f"{example}_motley.py"))
    return sum(line.startswith("+ ") and line.strip("+ ") != "" for line in changes)


def alone():
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'configs/scripts'}:{ROOT / 'worker/bridge'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(SCRIPTS / "alone.py"), str(ROOT / "configs")], env=environment, check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def measured():
    bench = Bench()
    solo = {name: bench.run("shim.py", name) for name in ("fast", "slow")}
    equal, unlike, ddp = bench.run("shim.py", "equal"), bench.run("shim.py", "unlike"), bench.run("ddp.py", "unlike")
    of_one = solo["fast"][1]
    error = max(abs(loss / wanted - 1) for losses in (equal[1], unlike[1]) for loss, wanted in zip(losses, of_one))
    sum_of_solo = 2 * BATCH / solo["fast"][0] + 2 * BATCH / solo["slow"][0]
    in_process = alone()
    return [row_of("new_lines", max(map(new_lines, ("gpt", "resnet"))), "", "lower", 5), row_of("loss_error", error, "", "lower", 1e-4),
            row_of("efficiency", BATCH / unlike[0] / sum_of_solo, "", "higher", 0.93),
            row_of("speedup_over_ddp", ddp[0] / unlike[0], "", "higher", 1.7, {"ddp": 1.0}),
            row_of("shim_overhead", in_process["overhead"], "", "lower", 0.01),
            row_of("unweighted_gradient_error", in_process["unweighted"], "", "lower", None),
            row_of("gradient_error", in_process["weighted"], "", "lower", 1e-6)]


def row_of(metric, value, unit, better, limit, peers=None):
    """As DESIGN.md §6 has it."""
    return {"bench": "bridge", "case": "gpt 3:3:1:1", "metric": metric, "unit": unit, "better": better, "ours": value, "limit": limit,
            "peers": peers or {}, "kind": "paced"}


def main():
    parser = argparse.ArgumentParser(prog="run.sh bridge", description="PyTorch scripts on unlike devices")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measured()
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        goal = "" if row["limit"] is None else f"{'at most' if row['better'] == 'lower' else 'at least'} {row['limit']:g}"
        kept = row["limit"] is None or (row["ours"] <= row["limit"] if row["better"] == "lower" else row["ours"] >= row["limit"])
        print(f"{row['metric']:26} {row['ours']:>12.4g}  {goal:16} {'' if kept else 'MISSED'}")


if __name__ == "__main__":
    run_test(main)
