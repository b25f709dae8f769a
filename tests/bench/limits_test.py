"""Small cases of every benchmark: rows as DESIGN.md §6 names them, and none of the goals below missed."""

import json
import os
import subprocess
import sys
import unittest

CASES = [("engine", "quickstart fp32"), ("engine", "width256 fp32"), ("kernels", "quickstart"), ("planner", "synthetic/64"),
         ("planner", "alike-2/64"), ("planner", "replan/64")]
GOALS = {"exact_over_fast", "gap"}  # metrics whose limit is a promise; other limits are what the hardware allows
KEYS = {"bench", "case", "metric", "unit", "better", "ours", "limit", "peers", "kind"}


def rows_of(bench, case):
    program = os.path.join(os.environ["MOTLEY_TEST_BIN_DIR"], "bench", "bench_" + bench)
    printed = subprocess.run([program, "--json"] + [case], check=True, stdout=subprocess.PIPE)
    return json.loads(printed.stdout)


class LimitsTest(unittest.TestCase):
    def check_row(self, row):
        self.assertEqual(set(row), KEYS)
        self.assertIn(row["better"], ("higher", "lower"))
        if row["metric"] in GOALS:
            self.assertLessEqual(row["ours"], row["limit"], row)

    def test_rows_and_goals(self):
        for bench, case in CASES:
            with self.subTest(bench=bench, case=case):
                rows = rows_of(bench, case)
                self.assertTrue(rows)
                for row in rows:
                    self.assertEqual(row["bench"], bench)
                    self.check_row(row)


if __name__ == "__main__":
    sys.exit(unittest.main())
