"""The check of a GPU, tried out on the CPU: what it reports of programs that pass, fail, or are not there."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).with_name("check.py")
PROGRAMS = Path(os.environ["MOTLEY_TEST_BIN_DIR"])


def check(directory, *arguments):
    return subprocess.run([sys.executable, CHECK, "correct", "--device", "cpu", *arguments], cwd=directory,
                          env={**os.environ, "OUT": directory}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)


def program(directory, name, script):
    path = Path(directory, "tests", name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + script, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class CheckTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name

    def test_real_programs_pass(self):
        done = check(self.directory, "--programs", PROGRAMS, "--only", "operations", "--only", "200 steps", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual([(row["case"], row["ours"]) for row in rows], [("operations", 1.0), ("200 steps", 1.0)])
        results = Path(self.directory, "results.md").read_text(encoding="utf-8")
        self.assertRegex(results, r"operations +passed")
        self.assertIn("largest difference", results)

    def test_a_failure_is_shown_and_counted(self):
        program(self.directory, "reshard_test", "echo 'x.cc:1: Failure'; exit 1")
        done = check(self.directory, "--programs", self.directory, "--only", "resharding", "--only", "resume")
        self.assertEqual(done.returncode, 1)
        self.assertIn("x.cc:1: Failure", done.stdout)
        self.assertEqual(done.stdout.count("failed"), 2, "a missing program fails too")

    def test_only_the_memory_checker_may_be_refused(self):
        program(self.directory, "resume_test", "echo Device not supported; exit 1")
        done = check(self.directory, "--programs", self.directory, "--only", "resume")
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
