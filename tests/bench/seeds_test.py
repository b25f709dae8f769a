"""Rows of published tables: named as DESIGN.md §6 has it, labelled simulated, with the published figures, and in an order that must hold."""

import json
import pathlib
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parent / "seeds_bench.py"
PUBLISHED = {
    "bert-base": [1200, 4500, 3800, 4200, None],
    "transformer": [850, 1050, 1250, 1400, 1650],
    "accumulation": [1200, 18, 800, 12, 1100, 12],
}


class SeedsTest(unittest.TestCase):
    def test_rows(self):
        done = subprocess.run([sys.executable, str(BENCH), "--json"], check=True, stdout=subprocess.PIPE)
        rows = json.loads(done.stdout)
        published, ours = {}, {}
        for row in rows:
            self.assertEqual(set(row), {"bench", "case", "metric", "unit", "better", "ours", "limit", "peers", "kind"})
            self.assertEqual((row["bench"], row["kind"]), ("seeds", "simulated"))
            table, name = row["case"].split("/")
            published.setdefault(table, []).append(row["peers"].get("published"))
            ours[table, name, row["metric"]] = row["ours"]
        self.assertEqual(published, PUBLISHED)

        def speed(table, name):
            return ours[table, name, "samples_per_second"]
        mixed = "2 A100 + 2 RTX3090, "
        speeds = [speed("bert-base", mixed + name) for name in ("equal batches", "planned batches", "any plan")]
        self.assertEqual(speeds, sorted(speeds), "more freedom is no slower")
        self.assertLess(speed("bert-base", "4 A100"), 4 * speed("bert-base", "1 A100"))
        cards = "4 RTX3090, "
        self.assertLessEqual(speed("transformer", cards + "plain"), speed("transformer", cards + "dynamic batch"))
        self.assertLess(speed("transformer", cards + "plain"), speed("transformer", cards + "compressed"))
        self.assertLess(speed("accumulation", "at every micro-batch"), speed("accumulation", "at the boundary"))
        self.assertLess(ours["accumulation", "at the boundary", "memory"], ours["accumulation", "none", "memory"])


if __name__ == "__main__":
    sys.exit(unittest.main())
