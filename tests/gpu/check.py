"""The check of a GPU, started by run.sh. Programs and torch do the work; here they are run, counted and reported."""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 480  # for each check

# {ours} gives our programs their libraries, and torch none of them. In float64 there is no CUDA device; the rest of each
# program computes on the device under test.
CHECKS = {
    "operations": ["{ours}", "{tests}/device_ops_test", "--gtest_filter=*{device}*"],
    "memory errors": ["{ours}", "{sanitizer}", "--error-exitcode=9", "{tests}/device_ops_test",
                      "--gtest_filter=*Adamw*{device}*:*FixedPoint*{device}*:*Dropout*{device}*"],
    "loss and gradients": ["{python}", "{root}/tests/oracle/gpt_torch.py", "{ours}", "{tests}/motley_engine_export"],
    "200 steps": ["{ours}", "{tests}/gpu_curve_test"],
    "every cut": ["{ours}", "{tests}/cuts_test", "--gtest_filter=-*Float64*"],
    "resharding": ["{ours}", "{tests}/reshard_test"],
    "resume": ["{ours}", "{tests}/resume_test"],
}
REFUSED = re.compile(r"Device not supported|command not found|No such file")


class Outcome:
    """What became of a check: "passed", "failed", or "refused" by the machine."""

    def __init__(self, name, state, seconds, detail):
        self.name, self.state, self.seconds, self.detail = name, state, seconds, detail

    def row(self):
        return {"bench": "gpu", "case": self.name, "metric": "passed", "unit": "bool", "better": "higher",
                "ours": float(self.state == "passed"), "limit": 1.0, "peers": {}, "kind": "measured"}


def find_sanitizer():
    beside_nvcc = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/compute-sanitizer"
    return shutil.which("compute-sanitizer") or str(beside_nvcc)


def library_path(programs):
    """What a bundle carries, and where the toolkit's and PyTorch's CUDA libraries lie: the loader need not know them."""
    found = [str(programs.parent / "lib"), str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64")]
    for place in sys.path:
        found += [str(path) for path in Path(place).glob("nvidia/*/lib")] if place else []
    return ":".join([os.environ.get("LD_LIBRARY_PATH", ""), *found]).strip(":")


def environment(device):
    return {**os.environ, "MOTLEY_TEST_DEVICE": device, "MOTLEY_REQUIRE": "torch,gpu" if device == "cuda" else "torch"}


def summary(text):
    """The line that says most: what failed, else what was counted or measured."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (r"Failure$|ERROR SUMMARY: [1-9]|Error|DIFFERS", r"largest difference|agrees with|PASSED"):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[-1] if lines else "no output"


def command_of(name, words):
    ours = ["env", "LD_LIBRARY_PATH=" + words["libraries"]]
    parts = [ours if word == "{ours}" else [word.format(**words)] for word in CHECKS[name]]
    return [word for part in parts for word in part]


def run_check(name, command, device):
    started = time.monotonic()
    try:
        done = subprocess.run(command, env=environment(device), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=SECONDS, check=False)
        text, code = done.stdout, done.returncode
    except FileNotFoundError as error:
        text, code = str(error), 127
    except subprocess.TimeoutExpired as error:
        text, code = f"{error.stdout or ''}\nError: not over after {SECONDS} s", 124
    refused = code != 0 and name == "memory errors" and REFUSED.search(text)
    state = "passed" if code == 0 else "refused" if refused else "failed"
    if state == "failed":
        print(text[-4000:], file=sys.stderr)
    detail = refused.string[refused.start():].splitlines()[0] if refused else summary(text)
    return Outcome(name, state, time.monotonic() - started, detail)


def machine(device):
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return f"no NVIDIA GPU, device {device}"


def code_version(programs):
    try:
        command = ["env", "LD_LIBRARY_PATH=" + library_path(programs), programs / "motley-worker", "version"]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown version"
    return printed.strip()


def table(outcomes):
    width = max(len(outcome.name) for outcome in outcomes)
    return "\n".join(f"{o.name:{width}}  {o.state:7}  {o.seconds:6.1f} s  {o.detail}" for o in outcomes)


def results_text(outcomes, device, programs):
    date = datetime.date.today().isoformat()
    return f"## {date}: {machine(device)}\n\n{code_version(programs)}\n\n```\n{table(outcomes)}\n```\n"


def has_gpu(programs):
    command = ["env", "LD_LIBRARY_PATH=" + library_path(programs), programs / "motley-worker", "devices", "--json"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return any(found.get("kind") == "cuda" for found in json.loads(printed.stdout)["devices"])


def arguments():
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="Checks Motley on a GPU.")
    parser.add_argument("part", choices=["correct"])
    parser.add_argument("--json", action="store_true", help="rows on stdout, the table on stderr")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tries out the check itself")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="this check alone; may be repeated")
    parser.add_argument("--programs", type=Path, default=ROOT / "build/release/bin")
    return parser.parse_args()


def main():
    args = arguments()
    if args.device == "cuda" and not has_gpu(args.programs):
        script = ROOT / "tests/support/missing_capability.sh"
        return subprocess.run(["bash", script, "gpu", "motley-worker devices shows none"], check=False).returncode
    words = {"tests": args.programs / "tests", "device": args.device, "root": ROOT, "python": sys.executable,
             "sanitizer": find_sanitizer(), "libraries": library_path(args.programs)}
    outcomes = []
    for name in args.only or CHECKS:
        print(f"{name} ...", file=sys.stderr)
        outcomes.append(run_check(name, command_of(name, words), args.device))
    print(table(outcomes), file=sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps([outcome.row() for outcome in outcomes]))
    Path(os.environ.get("OUT", "."), "results.md").write_text(results_text(outcomes, args.device, args.programs), encoding="utf-8")
    return 1 if any(outcome.state == "failed" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
