"""What pinning a dimension gains over leaving it to the planner: nothing, unless the search misses something. Small jobs made up from
seeds, on 2 to 6 cards of the catalog of one to three hosts; two in three hardly hold their model. `motley simulate` plans each freely and
with one setting of `parallel` at a time.

    tests/bench/run.sh planner pins [--json] [--seeds FIRST LAST]"""

import argparse
import json
import os
import pathlib
import random
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
from sandbox import Sandbox, run_test, sample_text  # noqa: E402

CARDS = ("A100-40GB", "RTX3090", "RTX4090", "T4", "RTX3060", "V100-32GB")
PINS = ("data=1", "data=2", "pipeline=1", "pipeline=2", "pipeline=3", "tensor=1", "tensor=2", "tensor=4", "shard_optimizer=on",
        "shard_optimizer=off", "host_optimizer=off", "recompute=off")
STATE_BYTES = 16  # of a parameter: fp32 weight, gradient, two moments


def made_up(sandbox, seed):
    """Writes the job and the fleet of this seed; a line that names them."""
    draw = random.Random(seed)
    layers, (width, heads) = draw.choice((4, 6, 8, 12, 16, 24)), draw.choice(((256, 4), (512, 8), (768, 12), (1024, 16)))
    context, vocab, samples = draw.choice((128, 256, 512, 1024)), draw.choice((256, 8000, 50257, 128000)), draw.choice((4, 8, 16, 32, 64))
    count, room, precision = draw.randint(2, 6), draw.choice((None, 1.15, 1.5)), draw.choice(("auto", "fp32"))
    share = STATE_BYTES * (12 * layers * width * width + (vocab + context) * width) / count
    hosts = [[] for _ in range(draw.randint(1, min(3, count)))]
    few = draw.sample(CARDS, draw.randint(1, 3))
    for number in range(count):
        memory = f", memory: {share * room * draw.uniform(0.7, 1.3) / 1e9 + 0.1:.2f}GB" if room else ""
        hosts[min(number, draw.randrange(len(hosts))) if number >= len(hosts) else number].append(f"{{type: {draw.choice(few)}{memory}}}")
    bandwidth = draw.choice(("100MB/s", "1GB/s", "10GB/s"))
    nodes = "\n".join(f"  - {{host: h{number}, devices: [{', '.join(devices)}]}}" for number, devices in enumerate(hosts))
    links = "\n".join(f"  - {{between: [h{a}, h{b}], bandwidth: {bandwidth}, latency: 0.1ms}}" for b in range(len(hosts)) for a in range(b))
    sandbox.write("fleet.yaml", f"version: 1\nnodes:\n{nodes}\n" + (f"links:\n{links}\n" if links else ""))
    sandbox.write("job.yaml", f"version: 1\nname: pins\nfleet: fleet.yaml\ndata: {{text: [text.txt], tokenizer: bytes}}\n"
                  f"model: {{type: gpt, layers: {layers}, heads: {heads}, width: {width}, context: {context}, vocab: {vocab}}}\n"
                  f"train: {{steps: 10, global_batch: {samples}, grain: 1, precision: {precision}}}\n")
    return f"{layers}x{width} v{vocab} c{context} b{samples} on {count} cards"


def step_of(sandbox, *setting):
    """Seconds of a step, None where nothing fits."""
    done = sandbox.run("simulate", "job.yaml", "--json", "--catalog", str(ROOT / "configs" / "devices.yaml"), *setting, timeout=900)
    if done.returncode not in (0, 65, 69):
        sys.exit(f"planner pins: {sandbox.home}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["plan"]["prediction"]["step_seconds"] if done.returncode == 0 else None


def compared(seed):
    """What the jobs are, the free plan's step over the best pinned one's (1 where none is quicker), that pin, seconds to plan freely;
    None where nothing fits."""
    sandbox = Sandbox(name="pins")
    sandbox.write("text.txt", sample_text(8000))
    about = made_up(sandbox, seed)
    begin = time.monotonic()
    free = step_of(sandbox)
    seconds = time.monotonic() - begin
    steps = {pin: step_of(sandbox, "--set", f"parallel.{pin}") for pin in PINS}
    found = {pin: step for pin, step in steps.items() if step}
    if not found:
        return None if free is None else (about, 1.0, "", seconds)
    pin = min(found, key=found.get)
    ratio = free / found[pin] if free else float("inf")
    return about, max(1.0, ratio), pin if ratio > 1.0001 else "", seconds


def row_of(seed, metric, unit, value):
    """As DESIGN.md §6 has it."""
    return {"bench": "planner", "case": f"pins/{seed}", "metric": metric, "unit": unit, "better": "lower", "ours": value, "limit": None,
            "peers": {}, "kind": "simulated"}


def main():
    parser = argparse.ArgumentParser(prog="run.sh planner pins", description="free plans beside pinned ones")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", nargs=2, type=int, default=(1, 40), metavar=("FIRST", "LAST"))
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.seeds[0], arguments.seeds[1] + 1):
        if (found := compared(seed)) is None:
            continue
        about, ratio, pin, seconds = found
        rows += [row_of(seed, "free_over_pinned", "ratio", ratio), row_of(seed, "seconds", "s", seconds)]
        if not arguments.json:
            print(f"{seed:4} {about:40} {ratio:7.4f} {pin:20} {seconds:6.2f} s", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    run_test(main)
