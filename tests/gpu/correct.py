"""The correctness part of the check: our tests on the GPU, and PyTorch beside the engine."""

import re
import subprocess
import sys
import time

from machine import ROOT, find_sanitizer
from programs import Tests, run_program, summary
from report import Outcome, row
from unlike import run_unlike

# In float64 there is no CUDA device; the rest of each binary computes on the device under test.
TESTS = {  # binary, filter, seconds
    "operations": ("device_ops_test", "*{device}*", 180),  # cuDNN compiles its kernels, for each shape about two seconds
    "own attention": ("device_ops_test", "*EachReducedDevice*{device}*", 60),
    "200 steps": ("gpu_curve_test", "*", 60),
    "every cut": ("cuts_test", "-*Float64*", 300),
    "resharding": ("reshard_test", "*", 90),
    "resume": ("resume_test", "-*Float64*", 60),
}
WITHOUT_CUDNN = ("own attention",)  # whose kernels a GPU with cuDNN has little use for
SMALL_OPERATIONS = "*Adamw*{device}*:*FixedPoint*{device}*:*Dropout*{device}*"
REFUSED = re.compile(r"Device not supported|command not found|No such file")


def passed_row(name, state):
    return row(name, "passed", "bool", float(state == "passed"), limit=1.0)


def outcome(name, state, seconds, detail, text):
    if state == "failed":
        print(text[-4000:], file=sys.stderr)
    return Outcome(name, state, seconds, detail, [passed_row(name, state)])


def check_tests(machine, name, left):
    binary, gtest_filter, seconds = TESTS[name]
    started = time.monotonic()
    environment = machine.environment(cudnn=name not in WITHOUT_CUDNN)
    tests = Tests(machine.test(binary), gtest_filter.format(device=machine.device), environment, min(seconds, left))
    state = "passed" if tests.run() else "failed"
    return outcome(name, state, time.monotonic() - started, tests.detail(), tests.text)


def check_memory_errors(machine, name, left):
    started = time.monotonic()
    command = [find_sanitizer(), "--error-exitcode=9", machine.test("device_ops_test"),
               f"--gtest_filter={SMALL_OPERATIONS.format(device=machine.device)}"]
    ended = run_program(command, machine.environment(), min(90, left))
    refused = ended.status != 0 and REFUSED.search(ended.text)
    state = "passed" if ended.status == 0 else "refused" if refused else "failed"
    detail = ended.text[refused.start():].splitlines()[0] if refused else summary(ended.text)
    return outcome(name, state, time.monotonic() - started, detail, ended.text)


def check_against_torch(machine, name, left):
    started = time.monotonic()
    ours = ["env", "LD_LIBRARY_PATH=" + machine.libraries(), machine.test("motley_engine_export")]
    command = [sys.executable, str(ROOT / "tests/oracle/gpt_torch.py"), *ours]
    ended = run_program(command, machine.environment(ours=False), min(120, left))
    state = "passed" if ended.status == 0 else "failed"
    return outcome(name, state, time.monotonic() - started, summary(ended.text), ended.text)


def check_unlike(machine, name, left):
    started = time.monotonic()
    try:
        detail, rows = run_unlike(machine, min(150, left))
        state = "passed"
    except (ValueError, OSError, KeyError, subprocess.SubprocessError) as error:
        state, detail, rows = "failed", f"{type(error).__name__}: {error}", []
    found = outcome(name, state, time.monotonic() - started, detail, detail)
    found.rows += rows
    return found


CHECKS = {
    "operations": check_tests,
    "own attention": check_tests,
    "200 steps": check_tests,
    "loss and gradients": check_against_torch,
    "resume": check_tests,
    "resharding": check_tests,
    "unlike devices": check_unlike,
    "memory errors": check_memory_errors,
    "every cut": check_tests,
}
NAMES = list(CHECKS)


def run(report, machine, only):
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        report.begin(name)
        left = report.seconds_left()
        if left < 2:
            report.add(outcome(name, "failed", 0, "no time is left", ""))
            continue
        report.add(check(machine, name, left))
