"""The correctness part of the check: our tests on the GPU, and PyTorch beside the engine."""

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from machine import ROOT, find_sanitizer
from programs import Tests, run_program, summary
from report import Outcome, row
from unlike import run_unlike

SOME_CUTS = ("Cuts.TwentyFourLayers*", "Cuts.RecomputingGivesTheSameBits*", "ExactCuts.GiveTheSameBits")
# The reference computes on the CPU, and so do all in float64; what is left computes on the device under test.
TESTS = {  # binary, filter, seconds
    "operations": ("device_ops_test", "-*/reference:Gradients.*", 180),  # cuDNN compiles its kernels, for each shape about two seconds
    "own attention": ("device_ops_test", "*EachReducedDevice*{device}*", 60),
    "memory": ("device_memory_test", "*", 30),
    "200 steps": ("gpu_curve_test", "*", 60),
    "some cuts": ("cuts_test", ":".join(SOME_CUTS), 120),
    "every cut": ("cuts_test", "-" + ":".join(("*Float64*", *SOME_CUTS)), 300),
    "resharding": ("reshard_test", "*", 90),
    "resume": ("resume_test", "-*Float64*", 60),
}
WITHOUT_CUDNN = ("own attention",)  # whose kernels a GPU with cuDNN has little use for

SMALL_CASES = "*SmallCases.*"
# Only kernels of ours are looked at for races: libraries synchronise in ways that the tool does not know.
OURS = ("--kernel-name", "kns=motley")
SANITIZERS = {  # tool, options, seconds, what it ends with when all is well
    "memory errors": ("memcheck", ("--report-api-errors", "no"), 90, r"ERROR SUMMARY: 0 errors"),
    "races": ("racecheck", OURS, 60, r"RACECHECK SUMMARY: 0 hazards"),
    "barriers": ("synccheck", OURS, 45, r"ERROR SUMMARY: 0 errors"),
}
NOT_ITS_DEVICE = re.compile(r"^=+ .*Device not supported.*", re.M)
TESTS_PASSED = re.compile(r"^\[  PASSED  \] [1-9]", re.M)


def passed_row(name, state):
    return row(name, "passed", "bool", None if state == "not reached" else float(state == "passed"), limit=1.0)


def outcome(name, state, seconds, detail, text):
    if state == "failed":
        print(text[-4000:], file=sys.stderr)
    return Outcome(name, state, seconds, detail, [passed_row(name, state)])


def state_of(ended):
    return "not reached" if ended.late else "passed" if ended.status == 0 else "failed"


def check_tests(machine, name, left):
    binary, gtest_filter, seconds = TESTS[name]
    started = time.monotonic()
    environment = machine.environment(cudnn=name not in WITHOUT_CUDNN)
    tests = Tests(machine.test(binary), gtest_filter.format(device=machine.device), environment, min(seconds, left))
    state = tests.run()
    return outcome(name, state, time.monotonic() - started, tests.detail(), tests.text)


def sanitizer_says(ended, clean):
    """(state, detail). Refused: the tool is not there, or says that it does not know the device. A tool that ends well without
    having run anything has been seen, so its words and the tests' must both be there."""
    if ended.missing:
        return "refused", ended.text
    if refused := NOT_ITS_DEVICE.search(ended.text):
        return "refused", refused[0]
    state = state_of(ended)
    if state == "passed" and not (re.search(clean, ended.text) and TESTS_PASSED.search(ended.text)):
        return "failed", f"nothing was checked; {summary(ended.text)}"
    return state, summary(ended.text)


def check_with_sanitizer(machine, name, left):
    tool, options, seconds, clean = SANITIZERS[name]
    started = time.monotonic()
    command = [find_sanitizer(), "--tool", tool, *options, "--error-exitcode=9", machine.test("device_ops_test"),
               f"--gtest_filter={SMALL_CASES}"]
    ended = run_program(command, machine.environment(), min(seconds, left))
    state, detail = sanitizer_says(ended, clean)
    return outcome(name, state, time.monotonic() - started, detail, ended.text)


def check_against_torch(machine, name, left):
    started = time.monotonic()
    ours = ["env", "LD_LIBRARY_PATH=" + machine.libraries(), machine.test("motley_engine_export")]
    cases = ["bf16"] if machine.tiny else []
    command = [sys.executable, str(ROOT / "tests/oracle/gpt_torch.py"), *cases, *ours]
    ended = run_program(command, machine.environment(ours=False), min(120, left))
    return outcome(name, state_of(ended), time.monotonic() - started, summary(ended.text), ended.text)


def check_unlike(machine, name, left):
    started = time.monotonic()
    try:
        detail, rows = run_unlike(machine, min(150, left))
        state = "passed"
    except subprocess.TimeoutExpired as late:
        state, rows = "not reached", []
        said = (late.stderr or b"").decode(errors="replace")
        print(said[-4000:], file=sys.stderr)
        detail = f"under way after {late.timeout:.0f} s: {' '.join(map(str, late.cmd))}; {summary(said)}"
    except (ValueError, OSError, KeyError, subprocess.SubprocessError) as error:
        state, detail, rows = "failed", f"{type(error).__name__}: {error}", []
    found = outcome(name, state, time.monotonic() - started, detail, detail)
    found.rows += rows
    return found


CHECKS = {
    "operations": check_tests,
    "own attention": check_tests,
    "memory": check_tests,
    "200 steps": check_tests,
    "loss and gradients": check_against_torch,
    "resume": check_tests,
    "resharding": check_tests,
    "unlike devices": check_unlike,
    "some cuts": check_tests,
    "memory errors": check_with_sanitizer,
    "races": check_with_sanitizer,
    "barriers": check_with_sanitizer,
    "every cut": check_tests,
}
NAMES = list(CHECKS)
ALONE = ("unlike devices",)  # which it measures
PROGRAMS = ("motley", "motley-worker", "tests/motley_engine_export",
            *sorted({f"tests/{binary}" for binary, _, _ in TESTS.values()}))


def run_one(report, machine, name):
    report.begin(name)
    left = report.seconds_left()
    report.add(CHECKS[name](machine, name, left) if left >= 2 else outcome(name, "not reached", 0, "no time is left", ""))


def run(report, machine, only, jobs):
    names = [name for name in NAMES if not only or name in only]
    beside = [name for name in names if name not in ALONE] if jobs > 1 else []
    for name in names:
        if name not in beside:
            run_one(report, machine, name)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda name: run_one(report, machine, name), beside))
