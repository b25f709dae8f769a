"""A few paced fleets of `run.sh planner accuracy` on a logical clock, where what was predicted is what happens: rows as DESIGN.md §6
names them, and nothing above their limits."""

import json
import pathlib
import subprocess
import sys
import unittest

import fleets

BENCH = pathlib.Path(__file__).resolve().parents[1] / "planner_accuracy_bench.py"
CASES = ["paced-07", "hand-uneven-stages", "hand-shares-in-stages", "hand-unlike-sharded-state"]
KEYS = {"bench", "case", "metric", "unit", "better", "ours", "limit", "peers", "kind"}
LOGICAL_CLOCK = 0.01  # of a step: nothing is left to chance there


class SmallCasesTest(unittest.TestCase):
    def test_predictions_are_what_happens(self):
        options = [option for case in CASES for option in ("--case", case)]
        printed = subprocess.run([sys.executable, str(BENCH), "--json", *options], check=True, stdout=subprocess.PIPE)
        rows = json.loads(printed.stdout)
        self.assertEqual({row["case"] for row in rows if row["metric"] == "step_error"}, {f"accuracy/{case}" for case in CASES})
        for row in rows:
            self.assertEqual(set(row), KEYS)
            self.assertEqual((row["bench"], row["kind"], row["better"]), ("planner", "paced", "lower"))
            self.assertLessEqual(row["ours"], min(row["limit"], LOGICAL_CLOCK), row)


class FleetsTest(unittest.TestCase):
    """The table covers what the planner's error is promised for."""

    def test_fleets_are_as_many_and_as_unlike_as_promised(self):
        cases = fleets.all_cases()
        paced = [case for case in cases if case.kind == "paced"]
        self.assertGreaterEqual(len(paced), 30)
        self.assertGreaterEqual(len(cases) - len(paced), 6)
        self.assertEqual({len(case.devices) for case in paced}, set(range(2, 9)))
        for case in paced:
            speeds = [device.speed for device in case.devices]
            self.assertLessEqual(max(speeds) / min(speeds), 8.01, case.name)
        self.assertEqual(len({case.name for case in cases}), len(cases))

    def test_they_are_the_same_each_time(self):
        self.assertEqual(fleets.all_cases(), fleets.all_cases())


if __name__ == "__main__":
    sys.exit(unittest.main())
