"""The check of a GPU, tried out on the CPU: what it reports of programs that pass, fail, crash, or are not there."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

CHECK = Path(__file__).with_name("check.py")
PROGRAMS = Path(os.environ["MOTLEY_TEST_BIN_DIR"])

# A binary of three tests, of which the second ends the process, so that the third is not run.
CRASHING = """
case "$*" in
  *list_tests*) printf 'Suite.\\n  First\\n  Second\\n  Third  # GetParam()\\n';;
  *=Suite.Third) printf '[ RUN      ] Suite.Third\\n[       OK ] Suite.Third (1 ms)\\n';;
  *=Suite.Second) printf '[ RUN      ] Suite.Second\\nx.cc:7: Failure\\n'; kill -9 $$;;
  *) printf '[ RUN      ] Suite.First\\n[       OK ] Suite.First (1 ms)\\n[ RUN      ] Suite.Second\\n'; kill -9 $$;;
esac
"""
PASSING_AND_DYING = """
case "$*" in
  *list_tests*) printf 'Suite.\\n  First\\n';;
  *) printf '[ RUN      ] Suite.First\\n[       OK ] Suite.First (1 ms)\\n'; kill -9 $$;;
esac
"""
HINDERED = """
case "$*" in
  *list_tests*) printf 'Suite.\\n  First\\n  Second\\n';;
  *=Suite.Second) printf '[ RUN      ] Suite.Second\\n[       OK ] Suite.Second (1 ms)\\n';;
  *) printf '[ RUN      ] Suite.First\\n[       OK ] Suite.First (1 ms)\\n[ RUN      ] Suite.Second\\n[  FAILED  ] Suite.Second (1 ms)\\n'; exit 1;;
esac
"""
# A tool that runs what it is given, and one that says something and ends with a status.
SANITIZER = """
while [ "${1#--}" != "$1" ]; do if [ "$1" = --tool ] || [ "$1" = --kernel-name ] || [ "$1" = --report-api-errors ]; then shift; fi; shift; done
"$@" && echo "========= ERROR SUMMARY: 0 errors"
"""
SAYING = "echo '{}'; exit {}"
# Of two GPUs, the second in the order of nvidia-smi is CUDA's first.
SMI = """
case "$*" in *"-i GPU-b"*) echo "NVIDIA H100 PCIe, 580.1, 81559 MiB";; *) echo "NVIDIA A100-SXM4-80GB, 580.1, 81920 MiB";; esac
"""
WORKER = """echo '{"note": "", "devices": [{"kind": "cpu"}, {"kind": "cuda", "name": "NVIDIA H100 PCIe", "uuid": "GPU-b", "memory": 8}]}'"""
# Measures operation 0, dies of operation 1, and when it is started behind that measures operation 2.
FAULTY_KERNELS = """
if [ "${9:-0}" = 0 ]; then
  echo '{"index": 0, "name": "copy", "limit": "copy", "times": 1, "bytes": 100, "tensor_flops": 0, "seconds": 1e-9, "spread": 0}'
  echo '{"index": 1, "name": "product", "limit": "matmul", "times": 1, "bytes": 1, "tensor_flops": 100, "seconds": 1e-9, "spread": 0}'
  echo 'illegal address' >&2; exit 1
fi
echo '{"index": 3, "name": "quick", "times": 2, "bytes": 1e6, "tensor_flops": 0, "seconds": 1e-9, "spread": 0}'
echo '{"index": 4, "name": "slow", "times": 2, "bytes": 1e2, "tensor_flops": 0, "seconds": 1, "spread": 0}'
"""


def check(directory, part, *arguments, device="cpu", **environment):
    return subprocess.run([sys.executable, CHECK, part, "--device", device, *arguments], cwd=directory,
                          env={**os.environ, "OUT": directory, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)


def program(directory, name, script, below="tests"):
    path = Path(directory, below, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + script, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class CheckTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name

    def results(self, part):
        return Path(self.directory, f"results_{part}.md").read_text(encoding="utf-8")


class CorrectTest(CheckTest):
    def test_real_programs_pass(self):
        done = check(self.directory, "correct", "--programs", PROGRAMS, "--only", "operations", "--only", "200 steps", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual([(row["case"], row["ours"]) for row in rows], [("operations", 1.0), ("200 steps", 1.0)])
        self.assertRegex(self.results("correct"), r"operations +passed")
        self.assertIn("largest difference", self.results("correct"))
        self.assertRegex(self.results("correct"), r"MOTLEY_TEST_SEED=\d+")

    def test_losses_and_gradients_are_those_of_pytorch(self):
        done = check(self.directory, "correct", "--programs", PROGRAMS, "--only", "loss and gradients")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("agrees with PyTorch", done.stdout)

    def test_a_failure_is_shown_and_counted(self):
        program(self.directory, "reshard_test", "echo 'x.cc:1: Failure'; exit 1")
        done = check(self.directory, "correct", "--programs", self.directory, "--only", "resharding", "--only", "resume", "--jobs", "2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("x.cc:1: Failure", done.stdout)
        self.assertEqual(done.stdout.count("failed"), 2, "a missing program fails too")

    def sanitized(self, script, tests=None):
        """The line about memory errors, with such a tool and such tests, or the real ones."""
        program(self.directory, "compute-sanitizer", script, below="tools")
        where = PROGRAMS
        if tests is not None:
            program(self.directory, "device_ops_test", tests)
            where = self.directory
        path = f"{self.directory}/tools:{os.environ['PATH']}"
        return check(self.directory, "correct", "--programs", where, "--only", "memory errors", PATH=path).stdout

    def test_the_memory_checker_sees_every_operation(self):
        self.assertRegex(self.sanitized(SANITIZER), r"memory errors +passed")

    def test_a_memory_checker_that_finds_nothing_as_nothing_ran_is_no_pass(self):
        said = self.sanitized(SAYING.format("========= ERROR SUMMARY: 0 errors", 0), "exit 0")
        self.assertRegex(said, r"memory errors +failed .*nothing was checked")

    def test_a_memory_checker_refuses_only_in_its_own_words(self):
        self.assertRegex(self.sanitized(SAYING.format("========= Error: Device not supported. Please", 1), ""), r"memory errors +refused")
        self.assertRegex(self.sanitized(SAYING.format("x: libx.so: cannot open shared object file: No such file", 127), ""),
                         r"memory errors +failed")
        done = check(self.directory, "correct", "--only", "memory errors", CUDA_HOME=self.directory, PATH="/usr/bin:/bin")
        self.assertRegex(done.stdout, r"memory errors +refused .*compute-sanitizer")

    def test_without_programs_is_an_error_and_not_without_a_gpu(self):
        done = check(self.directory, "correct", device="cuda", MOTLEY_TEST_BIN_DIR=self.directory, MOTLEY_REQUIRE="")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, rf"not built: .*{self.directory}/tests/device_memory_test")

    def test_the_card_is_cudas_first(self):
        program(self.directory, "nvidia-smi", SMI, below="tools")
        program(self.directory, "motley-worker", WORKER, below="")
        sys.path.insert(0, str(CHECK.parent))
        from machine import Machine  # pylint: disable=import-outside-toplevel
        machine = Machine("cuda", Path(self.directory), False)
        with unittest.mock.patch.dict(os.environ, PATH=f"{self.directory}/tools:{os.environ['PATH']}"):
            self.assertRegex(machine.name(), "^NVIDIA H100 PCIe, 580")
        self.assertEqual(machine.data_sheet_flops(), 756e12)

    def test_only_the_memory_checker_may_be_refused(self):
        program(self.directory, "resume_test", "echo Device not supported; exit 1")
        done = check(self.directory, "correct", "--programs", self.directory, "--only", "resume")
        self.assertEqual(done.returncode, 1)

    def test_tests_behind_a_crash_are_run(self):
        program(self.directory, "resume_test", CRASHING)
        done = check(self.directory, "correct", "--programs", self.directory, "--only", "resume")
        self.assertEqual(done.returncode, 1)
        self.assertIn("1 of 3 fail by themselves: Suite.Second", done.stdout)

    def test_one_that_passes_only_alone_is_no_pass(self):
        program(self.directory, "resume_test", HINDERED)
        done = check(self.directory, "correct", "--programs", self.directory, "--only", "resume")
        self.assertEqual(done.returncode, 1)
        self.assertIn("passed only alone: Suite.Second", done.stdout)

    def test_unlike_devices_are_planned_and_trained_without_mpi(self):
        done = check(self.directory, "correct", "--programs", PROGRAMS, "--only", "unlike devices", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row["metric"]: row for row in json.loads(done.stdout)}
        self.assertEqual(rows["efficiency"]["kind"], "paced")
        self.assertAlmostEqual(rows["efficiency"]["ours"], 1, delta=0.02)  # samples alone are in grains of another size
        # Of 64 samples in proportion 4 : 2 : 1 : 1 the first computes 32; in equal shares the last computes 16, four times as slowly.
        self.assertAlmostEqual(rows["over_equal_split"]["ours"], 2, delta=0.1)
        self.assertLess(rows["prediction_error"]["ours"], 0.01)

    def test_what_hangs_is_ended_with_what_it_started(self):
        program(self.directory, "resume_test", "echo '[ RUN      ] Suite.Hangs'; sleep 1000 & sleep 1000")
        done = check(self.directory, "correct", "--programs", self.directory, "--only", "resume", "--only", "every cut", "--seconds", "3")
        self.assertEqual(done.returncode, 0, "too little time is no fault of the device's")
        self.assertRegex(done.stdout, r"resume +not reached +[2-9].* s .*1 not reached: Suite.Hangs; not over")
        self.assertRegex(done.stdout, r"every cut +not reached")

    def test_a_program_that_dies_behind_its_last_test_has_failed(self):
        program(self.directory, "resume_test", PASSING_AND_DYING)
        done = check(self.directory, "correct", "--programs", self.directory, "--only", "resume")
        self.assertRegex(done.stdout, r"resume +failed")


class SpeedTest(CheckTest):
    def test_the_whole_part_in_miniature(self):
        done = check(self.directory, "speed", "--programs", PROGRAMS, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = json.loads(done.stdout)
        by_metric = {(row["case"], row["metric"]): row for row in rows}
        for case, speed, ratio in (("tiny bf16", 500e3, 1.10), ("small bf16", 52e3, 1.05)):
            tokens = by_metric[case, "tokens_per_second"]
            self.assertEqual(tokens["limit"], speed)
            self.assertAlmostEqual(tokens["ours"] / tokens["peers"]["pytorch"], by_metric[case, "over_pytorch"]["ours"])
            self.assertEqual(by_metric[case, "over_pytorch"]["limit"], ratio)
            self.assertEqual(by_metric[case, "memory_error"]["limit"], 0.03)
            self.assertIn((case, "mfu of the largest product"), by_metric)
        shares = [row for row in rows if row["metric"] == "share_of_bandwidth"]
        for operation in ("layer norm forward", "layer norm backward", "cross entropy", "adamw", "embedding backward", "bias gradient"):
            self.assertTrue([row for row in shares if operation in row["case"] and row["limit"] == 0.80], operation)
        products = [row["case"] for row in rows if row["metric"] == "share_of_product_rate"]
        for form in ("matmul", "gelu", "gelu gradient"):
            self.assertTrue([case for case in products if form in case], form)
        self.assertIn("ours", self.results("speed"))

    def test_operations_behind_one_that_fails_are_measured(self):
        program(self.directory, "motley_kernel_speed", FAULTY_KERNELS)
        done = check(self.directory, "speed", "--programs", self.directory, "--only", "kernels")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"operation 2 +failed .*illegal address")
        self.assertRegex(done.stdout, r"quick +goal met")
        self.assertRegex(done.stdout, r"slow +missed")

    def test_trainings_that_fail_are_told_and_leave_nothing_behind(self):
        done = check(self.directory, "speed", "--programs", self.directory, "--only", "gpt2-124m", "--only", "gpt2-1558m")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.count("failed"), 2)


if __name__ == "__main__":
    unittest.main()
