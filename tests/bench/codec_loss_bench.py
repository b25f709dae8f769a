"""What compressing gradients between hosts costs in loss: a small GPT reads this repository (configs/jobs/quickstart.yaml, with a
smaller model), two ranks that are hosts of their own, one training for each codec and seed.

    tests/bench/run.sh codec_loss [--json] [--case CASE]... [--steps N] [--seeds N]

A figure is the evaluation loss at the end as a multiple of that of the training whose sums are not compressed, the median over the
seeds. Ranks are threads of one process: no link, no root."""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
from sandbox import MOTLEY, WORKER  # noqa: E402

CASES = {"fp16": "fp16", "bf16": "bf16", "int8": "int8", "sign": "sign", "top_k": "top_k",
         "sign at once": {"type": "sign", "warmup": 0}, "top_k at once": {"type": "top_k", "warmup": 0}}
GOAL = 1.01
NO_GOAL = ("sign at once", "top_k at once")  # what the warm-up is for
LAYERS, WIDTH, GRAIN = 2, 64, 8
HOSTS = ["a", "b"]


def job(compress, steps, seed):
    source = (ROOT / "configs/jobs/quickstart.yaml").read_text()
    source = re.sub(r"layers: \d+(.*)width: \d+", rf"layers: {LAYERS}\1width: {WIDTH}", source)
    source = re.sub(r"global_batch: \d+", f"global_batch: {GRAIN * len(HOSTS)}\n  grain: {GRAIN}", source)
    source = re.sub(r"  steps: \d+", f"  steps: {steps}", source)
    source = re.sub(r"warmup: \d+", "warmup: 50", source)
    source = re.sub(r"seed: \d+", f"seed: {seed}", source)
    source = re.sub(r"eval: .*", f"eval: {{every: {steps}, samples: 64}}", source)
    source = re.sub(r"checkpoint: .*", "checkpoint: {every: 1000000}", source)
    source = re.sub(r"fleet: .*\n", "", source).replace("../../", f"{ROOT}/")
    return source + f"parallel: {{compress: {json.dumps(compress)}}}\n"


def plan():
    """One replica on each host, by hand, with its fleet; its compression is the job's."""
    device = {"kind": "cpu", "type": "core", "uuid": "", "threads": 1, "memory": None, "price_per_hour": 0.0, "paced": None}
    stage = {"first_layer": 0, "last_layer": LAYERS + 1}
    return {
        "version": 1, "numerics": "fast", "global_batch": GRAIN * len(HOSTS), "grain": GRAIN, "shard_optimizer": False,
        "ranks": [{"device": f"{host}/0", "host": host, "type": "core"} for host in HOSTS],
        "replicas": [{"stages": [{**stage, "ranks": [rank]}], "micro_batch": GRAIN, "grains": 1} for rank in range(len(HOSTS))],
        "fleet": {"version": 1, "source": "", "clock": "sleep", "pace_flops": 1e9, "links": [],
                  "devices": [{"id": f"{host}/0", "host": host, **device} for host in HOSTS]}}


def final_loss(compress, steps, seed):
    with tempfile.TemporaryDirectory(prefix="motley-codec-loss-") as home:
        home = pathlib.Path(home)
        (home / "job.yaml").write_text(job(compress, steps, seed))
        exported = subprocess.run([MOTLEY, "export", "job", "job.yaml"], cwd=home, check=True, capture_output=True, text=True).stdout
        (home / "job.json").write_text(exported)
        (home / "plan.json").write_text(json.dumps(plan()))
        done = subprocess.run([WORKER, "train", "--job", home / "job.json", "--plan", home / "plan.json", "--run-dir", home / "run",
                               "--ranks", str(len(HOSTS))], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"codec_loss: {compress}: exit {done.returncode}\n{done.stderr[-2000:]}")
        lines = (home / "run/metrics.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["eval_loss"]


def main():
    parser = argparse.ArgumentParser(prog="run.sh codec_loss", description="loss with compressed gradients")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", choices=list(CASES), default=[])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each case")
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    without = [final_loss("off", arguments.steps, seed) for seed in seeds]
    if not arguments.json:
        print(f"{'off':14} loss {statistics.median(without):.4f} after {arguments.steps} steps", flush=True)
    rows = []
    for case in arguments.case or CASES:
        ratios = [final_loss(CASES[case], arguments.steps, seed) / loss for seed, loss in zip(seeds, without)]
        goal = None if case in NO_GOAL else GOAL
        rows.append({"bench": "codec_loss", "case": f"{case} {arguments.steps} steps", "metric": "loss_ratio", "unit": "x",
                     "better": "lower", "ours": statistics.median(ratios), "limit": goal, "peers": {}, "kind": "measured"})
        if not arguments.json:
            print(f"{case:14} {rows[-1]['ours']:.4f} of it ({min(ratios):.4f} to {max(ratios):.4f})" +
                  (f"   goal {goal:g}" if goal else ""), flush=True)
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    sys.exit(main())
