"""Sums whose gradients are compressed between hosts beside sums that are not, on two hosts of two ranks joined by a link of exact
rate and delay (tests/support/linked_hosts.py; needs root).

    tests/bench/run.sh codecs [--json] [--rounds N] [--size BYTES]

The codecs take turns within each round; a figure is the median over the rounds. Every run checks that what was summed and what was
kept back make up the whole."""

import argparse
import itertools
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench")]
from comm_bench import WORKER, place_of  # noqa: E402
from cases import Layout  # noqa: E402

CODECS = ["off", "fp16", "bf16", "int8", "sign", "top_k"]
GOALS = {("200mbit", "int8"): 3.0, ("200mbit", "top_k"): 15.0}  # times less than off
RATES = {"200mbit": 25e6, "1gbit": 125e6}  # bytes a second


def seconds_of(place, codec, size):
    done = place.run([str(WORKER), "bench-comm", "--level", "world", "--sizes", f"{size}B", "--compress", codec, "--repetitions", "3",
                      "--json"], [])
    if done.returncode != 0:
        raise SystemExit(f"{codec}: {done.stderr}")
    return json.loads(done.stdout)["rows"][0]["seconds"]


def measure(rate, rounds, size):
    times = {codec: [] for codec in CODECS}
    with place_of(Layout("2x2", (2, 2), (rate, rate))) as place:
        for _, codec in itertools.product(range(rounds), CODECS):
            times[codec].append(seconds_of(place, codec, size))
    return {codec: statistics.median(some) for codec, some in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peers", action="store_true", help="there are none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=64 << 20)
    arguments = parser.parse_args()
    rows = []
    for name, rate in RATES.items():
        times = measure(rate, arguments.rounds, arguments.size)
        for codec in CODECS[1:]:
            rows.append({"bench": "codecs", "case": f"2x2 {arguments.size >> 20}MiB {name} {codec}", "metric": "times_less", "unit": "x",
                         "better": "higher", "ours": times["off"] / times[codec], "limit": GOALS.get((name, codec)), "peers": {},
                         "kind": "throttled"})
        if not arguments.json:
            print(f"{name}: off {times['off'] * 1e3:.1f} ms")
            for row in rows[-len(CODECS) + 1:]:
                goal = f"   goal {row['limit']:g}x" if row["limit"] else ""
                print(f"  {row['case'].split()[-1]:6} {row['ours']:6.2f}x less time{goal}")
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
