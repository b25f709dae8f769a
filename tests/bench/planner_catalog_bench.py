"""What `motley simulate` takes as a whole on fleets of the catalog, on which the model is cut or could be: reading, simulating what would be
measured, planning, and the workers that count the memory of plans. CPU time, with that of the programs it starts, and the most memory
of any of them.

    tests/bench/run.sh planner catalog [--json] [--case BEGIN OF A NAME]..."""

import argparse
import json
import os
import pathlib
import resource
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
from sandbox import Sandbox, run_test, sample_text  # noqa: E402

SLOTS = 8  # cards of a host, which are of one type
# Name, cards by type, model, samples a step, precision. No goal is stated for the command as a whole.
CASES = [
    ("3-three-types", {"RTX4090": 1, "RTX3090": 1, "RTX3060": 1}, "gpt2-1558m", 64, "bf16"),
    ("4-two-types", {"RTX3090": 2, "RTX3060": 2}, "gpt2-774m", 64, "bf16"),
    ("8-fits", {"A100-80GB": 4, "RTX3090": 4}, "gpt2-124m", 512, "bf16"),
    ("8-two-types", {"RTX3080": 4, "RTX3070": 4}, "gpt2-774m", 128, "bf16"),
    ("8-large", {"A100-80GB": 4, "RTX3090": 4}, "gpt2-1558m", 512, "bf16"),
    ("48-six-types", {"A100-80GB": 8, "RTX3090": 8, "RTX3080": 8, "A10": 8, "T4": 8, "RTX2080Ti": 8}, "gpt2-1558m", 512, "fp16"),
    ("64-two-types", {"RTX3090": 32, "RTX3080": 32}, "gpt2-774m", 1024, "bf16"),
    ("64-three-types", {"A100-80GB": 16, "A10": 16, "T4": 32}, "gpt2-774m", 1024, "fp16"),
    ("256-two-types", {"RTX3090": 128, "RTX3080": 128}, "gpt2-774m", 4096, "bf16"),
    ("1024-two-types", {"RTX3090": 512, "RTX3080": 512}, "gpt2-774m", 16384, "bf16"),
]


def fleet_text(cards):
    """Hosts of one type each."""
    text, number = "version: 1\nnodes:\n", 0
    for card, count in cards.items():
        for first in range(0, count, SLOTS):
            devices = ", ".join(f"{{type: {card}}}" for _ in range(first, min(count, first + SLOTS)))
            text += f"  - {{host: h{number}, devices: [{devices}]}}\n"
            number += 1
    return text


def simulated(name, cards, model, samples, precision):
    """The plan, CPU seconds, and bytes."""
    sandbox = Sandbox(name=name)
    sandbox.write("text.txt", sample_text(400_000))
    sandbox.write("fleet.yaml", fleet_text(cards))
    sandbox.write("job.yaml", f"version: 1\nname: {name}\nfleet: fleet.yaml\nmodel: {{preset: {model}}}\ndata: {{text: [text.txt]}}\n"
                  f"train: {{global_batch: {samples}, steps: 10, precision: {precision}}}\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = sandbox.run("simulate", "job.yaml", "--json", "--catalog", str(ROOT / "configs" / "devices.yaml"), timeout=900)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"planner catalog: {name}: exit {done.returncode}: {done.stderr}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout)["plan"], seconds, after.ru_maxrss * 1024


def row_of(name, metric, unit, value):
    """As DESIGN.md §6 has it."""
    return {"bench": "planner", "case": f"catalog/{name}", "metric": metric, "unit": unit, "better": "lower", "ours": value, "limit": None,
            "peers": {}, "kind": "simulated"}


def main():
    parser = argparse.ArgumentParser(prog="run.sh planner catalog", description="planning as a whole, on fleets of the catalog")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", default=[], help="begin of a name; may be repeated")
    arguments = parser.parse_args()
    rows = []
    for name, *about in CASES:
        if arguments.case and not name.startswith(tuple(arguments.case)):
            continue
        plan, seconds, most = simulated(name, *about)
        search = plan["search"]
        rows += [row_of(name, "seconds", "s", seconds), row_of(name, "step_seconds", "s", search["step_seconds"]),
                 row_of(name, "gap", "ratio", search["gap"]), row_of(name, "memory_so_far", "B", most)]
        if not arguments.json:
            print(f"{name:18} {seconds:7.2f} s of CPU time, step {search['step_seconds']:8.4f} s, gap {search['gap']:.3f}, "
                  f"at most {most / 1e6:5.0f} MB so far", flush=True)
    if not rows:
        sys.exit("planner catalog: no such case; there are: " + ", ".join(case[0] for case in CASES))
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    run_test(main)
