"""Published tables of mixed and data-parallel training beside what we say of the same cards, simulated from configs/devices.yaml:

    tests/bench/run.sh seeds [--json] [--case BEGIN OF A NAME]...

Nobody here has those cards, and the tables do not say what their models, batches and links were: what is assumed stands above each table
and is tuned to no figure of it. All models are GPTs. Each difference is explained in one sentence."""

import argparse
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]
os.environ.setdefault("MOTLEY_TEST_BIN_DIR", str(ROOT / "build/release/bin"))
from sandbox import Sandbox, run_test, sample_text  # noqa: E402

CONTEXT = 128
BERT = {"name": "bert-base", "model": f"type: gpt, layers: 12, heads: 12, width: 768, context: {CONTEXT}, vocab: 30522", "batch": 1024,
        "about": f"a GPT of BERT-base's size (12 layers, width 768, vocabulary 30522), {CONTEXT} tokens a sample, 1024 samples a step"}
TRANSFORMER = {"name": "transformer", "model": f"type: gpt, layers: 12, heads: 8, width: 512, context: {CONTEXT}, vocab: 37000", "batch": 512,
               "about": f"a GPT of the base Transformer's size (12 layers, width 512, vocabulary 37000), {CONTEXT} tokens a sample, 512 samples a step"}
PLAIN_MICRO_BATCH = 16
ACCUMULATED = 4  # micro-batches of a step
CARDS = 4


class Simulator:
    """`motley simulate` of one model."""

    def __init__(self, model):
        self.sandbox = Sandbox(name=model["name"])
        self.sandbox.write("text.txt", sample_text(400_000))
        self.sandbox.write("job.yaml", f"version: 1\nname: {model['name']}\nmodel: {{{model['model']}}}\ndata: {{text: [text.txt]}}\n"
                           f"train: {{global_batch: {model['batch']}, steps: 10, precision: bf16}}\n")
        self.batch = model["batch"]

    def run(self, hosts, *words, plan=None):
        """`hosts`: the types of the cards of each. The plan with its prediction, or None where none fits."""
        nodes = "".join(f"  - host: h{number}\n    devices: [" + ", ".join(f"{{type: {card}, uuid: GPU-{number}-{i}}}" for i, card in enumerate(cards)) +
                        "]\n" for number, cards in enumerate(hosts))
        self.sandbox.write("fleet.yaml", "version: 1\nnodes:\n" + nodes)
        command = ["simulate", "job.yaml", "--fleet", "fleet.yaml", "--json", "--catalog", str(ROOT / "configs" / "devices.yaml"), *words]
        if plan is not None:
            command += ["--plan", self.sandbox.write("plan.json", json.dumps(plan))]
        result = self.sandbox.run(*command, timeout=600)
        if result.returncode == 65 and plan is not None and "memory" in result.stderr:
            return None
        if result.returncode != 0:
            sys.exit(f"seeds: exit {result.returncode}: {result.stderr}")
        return json.loads(result.stdout)["plan"]

    def equal(self, hosts, micro_batch, *words, batch=None):
        """The same number of samples for every card."""
        devices = [f"h{number}/{i}" for number, cards in enumerate(hosts) for i in range(len(cards))]
        batch = batch or self.batch
        share = batch // len(devices)
        replicas = [{"stages": [{"first_layer": 0, "last_layer": 13, "ranks": [rank]}], "micro_batch": micro_batch, "grains": share // micro_batch}
                    for rank in range(len(devices))]
        plan = {"version": 1, "numerics": "fast", "global_batch": batch, "grain": micro_batch, "ranks": [{"device": name} for name in devices],
                "replicas": replicas}
        return self.run(hosts, "--set", f"train.global_batch={batch}", *words, plan=plan)

    def best_equal(self, hosts):
        """With the micro-batch that is best for all."""
        share = self.batch // sum(map(len, hosts))
        sizes = [size for size in (2 ** power for power in range(3, 12)) if share % size == 0]
        plans = [plan for plan in (self.equal(hosts, size) for size in sizes) if plan]
        return min(plans, key=seconds)


def seconds(plan):
    return plan["prediction"]["step_seconds"]


def speed(plan):
    return plan["global_batch"] / seconds(plan)


def whole_seconds(plan):
    """Of the quickest plan whose devices hold the model each: this one, or what lost to a pipeline."""
    if all(len(replica["stages"]) == 1 for replica in plan["replicas"]):
        return seconds(plan)
    return next(other["step_seconds"] for other in plan["search"]["rejected"] if other["what"].startswith("data parallel over"))


def memory_of(plan):
    return max(rank["memory"] for rank in plan["prediction"]["ranks"])


def hidden_seconds(plan):
    """What a step would take at best if sums went on beside its backward pass, two thirds of the computing."""
    prediction = plan["prediction"]
    return seconds(plan) - min(prediction["communication_seconds"], prediction["compute_seconds"] * 2 / 3)


class Row:
    def __init__(self, case, published, ours, why, limit=None, metric="samples_per_second"):
        self.case, self.published, self.ours, self.why, self.limit, self.metric = case, published, ours, why, limit, metric

    def as_json(self):
        is_speed = self.metric == "samples_per_second"
        return {"bench": "seeds", "case": self.case, "metric": self.metric, "unit": "samples/s" if is_speed else "GB",
                "better": "higher" if is_speed else "lower", "ours": self.ours, "limit": self.limit,
                "peers": {"published": self.published} if self.published else {}, "kind": "simulated"}


def bert_rows():
    simulator = Simulator(BERT)
    mixed = [["A100-40GB"] * 2 + ["RTX3090"] * 2]
    planned = simulator.run(mixed)
    return [
        Row("bert-base/1 A100", 1200, speed(simulator.run([["A100-40GB"]])),
            "the catalog has a card reach 60 % of its data sheet's rate and feeds it without a pause; the published run was of another model, whose batch, "
            "precision and input are not told"),
        Row("bert-base/4 A100", 4500, speed(simulator.run([["A100-40GB"] * 4])),
            "the same, four times, for sums over NVLink at its full rate take 2 % of a step; published are 94 % of four times one"),
        Row("bert-base/2 A100 + 2 RTX3090, equal batches", 3800, speed(simulator.best_equal(mixed)),
            "by the data sheets an RTX 3090 has 0.23 of an A100's rate, so that equal batches wait for it most of a step; "
            "the published 3800 imply cards that are nearly alike on that model"),
        Row("bert-base/2 A100 + 2 RTX3090, planned batches", 4200, BERT["batch"] / whole_seconds(planned),
            "dealing by speed is worth more to us because our cards are more unlike; what is left of the sum of their speeds goes into sums of "
            "gradients through host memory, at 8 GB/s after the backward pass"),
        Row("bert-base/2 A100 + 2 RTX3090, any plan", None, speed(planned),
            "no such row was published: what the planner takes when it may cut the model, too"),
    ]


def transformer_rows():
    simulator = Simulator(TRANSFORMER)
    hosts = [["RTX3090"] * 2] * 2
    compress = ("--set", "parallel.compress=int8")
    plain = simulator.equal(hosts, PLAIN_MICRO_BATCH)
    dynamic = simulator.best_equal(hosts)
    compressed = simulator.equal(hosts, PLAIN_MICRO_BATCH, *compress)
    everything = simulator.equal(hosts, dynamic["replicas"][0]["micro_batch"], *compress)
    late = "a GPU's sums go out after its backward pass here, so this row is no better than without; beside it stands what hiding them could give at best"
    return [
        Row("transformer/4 RTX3090, plain", 850, speed(plain),
            f"micro-batches of {PLAIN_MICRO_BATCH} and whole sums over 10 Gbit/s, at the catalog's share of a card's rate; "
            "the published model and link are not told"),
        Row("transformer/4 RTX3090, dynamic batch", 1050, speed(dynamic),
            "on four equal cards there is nothing to deal, so what we gain is the larger micro-batch alone"),
        Row("transformer/4 RTX3090, compressed", 1250, speed(compressed),
            "int8 sends a quarter of the bytes between hosts, and no time is charged for making them; the codec published is not told"),
        Row("transformer/4 RTX3090, overlapped", 1400, speed(plain), late, limit=plain["global_batch"] / hidden_seconds(plain)),
        Row("transformer/4 RTX3090, all", 1650, speed(everything), "the larger micro-batch and int8 together, without the overlap; " + late.split("; ")[1],
            limit=everything["global_batch"] / hidden_seconds(everything)),
    ]


def accumulation_rows():
    simulator = Simulator(BERT)
    hosts = [["RTX3090"] * CARDS]
    share = BERT["batch"] // CARDS
    none = simulator.equal(hosts, share)
    boundary = simulator.equal(hosts, share // ACCUMULATED)
    small = simulator.equal(hosts, share // ACCUMULATED, batch=BERT["batch"] // ACCUMULATED)
    often = small["prediction"]
    each = ACCUMULATED * (often["step_seconds"] - often["update_seconds"]) + often["update_seconds"]
    cases = [
        ("none", 1200, 18, none, speed(none),
         "the whole share of a step at once, at the catalog's share of the card's rate",
         "a share of 256 samples; that of the published run is not told"),
        ("at every micro-batch", 800, 12, small, BERT["batch"] / each,
         "our engine never does that: it is put together from a step of one micro-batch, whose sums over PCIe at its full rate cost less than published",
         "one micro-batch of 64, so activations are a quarter of what they were, and parameters and optimizer state stay; published memory falls by a third"),
        ("at the boundary", 1100, 12, boundary, speed(boundary),
         "smaller micro-batches cost little by the catalog's figures, and sums are paid once a step",
         "as at every micro-batch: gradients are summed where they lie"),
    ]
    rows = []
    for name, published, published_gb, plan, ours, why, why_memory in cases:
        rows.append(Row(f"accumulation/{name}", published, ours, why))
        rows.append(Row(f"accumulation/{name}", published_gb, memory_of(plan) / 1e9, why_memory, metric="memory"))
    return rows


TABLES = [
    ("bert-base", f"{BERT['about']}; all cards in one host", bert_rows),
    ("transformer", f"{TRANSFORMER['about']}; two hosts of two cards, 10 Gbit/s between them", transformer_rows),
    ("accumulation", f"{BERT['about']}; four RTX 3090 in one host, {ACCUMULATED} micro-batches a step", accumulation_rows),
]


def print_table(about, rows):
    print(f"\n{about} (simulated from configs/devices.yaml; the published figures are others' measurements)")
    print(f"{'':46} {'':10} {'published':>9} {'ours':>8} {'at best':>8} {'ratio':>6}")
    for row in rows:
        unit = "samples/s" if row.metric == "samples_per_second" else "GB"
        digits = 0 if unit == "samples/s" else 1
        published = f"{row.published}" if row.published else "-"
        limit = f"{row.limit:.0f}" if row.limit else ""
        ratio = f"{row.ours / row.published:.2f}" if row.published else ""
        print(f"{row.case:46} {unit:10} {published:>9} {row.ours:>8.{digits}f} {limit:>8} {ratio:>6}")
        print(f"    {row.why}")


def main():
    parser = argparse.ArgumentParser(prog="run.sh seeds", description="published tables beside ours, simulated")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--case", action="append", default=[], help="begin of a table's name; may be repeated")
    arguments = parser.parse_args()
    tables = [table for table in TABLES if not arguments.case or any(table[0].startswith(word) for word in arguments.case)]
    if not tables:
        sys.exit("seeds: no such table; there are: " + ", ".join(name for name, _, _ in TABLES))
    all_rows = []
    for _, about, rows_of in tables:
        rows = rows_of()
        all_rows += rows
        if not arguments.json:
            print_table(about, rows)
    if arguments.json:
        print(json.dumps([row.as_json() for row in all_rows], indent=1))


if __name__ == "__main__":
    run_test(main)
