"""The check of a GPU, started by run.sh. Programs and torch do the work; here they are run, counted and reported."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import correct
import speed
from machine import ROOT, Machine, smi
from report import Report

PARTS = {"correct": correct, "speed": speed}


def arguments():
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description="Checks Motley on a GPU.")
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--json", action="store_true", help="rows on stdout, the table on stderr")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: tries out the check itself")
    parser.add_argument("--tiny", action="store_true", help="small models, for trying out; always so on the CPU")
    parser.add_argument("--only", action="append", metavar="CHECK", help="this check alone; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many checks of `correct` at a time (default: 1)")
    parser.add_argument("--seconds", type=float, default=450, help="for the whole part (default: 450)")
    built = os.environ.get("MOTLEY_TEST_BIN_DIR") or ROOT / "build/release/bin"
    parser.add_argument("--programs", type=Path, default=built, help="default: $MOTLEY_TEST_BIN_DIR, build/release/bin")
    args = parser.parse_args()
    if args.jobs < 1 or (args.jobs > 1 and args.part != "correct"):
        parser.error("--jobs is at least 1, and 1 but for `correct`")
    names = PARTS[args.part].NAMES
    for name in args.only or []:
        if name not in names:
            parser.error(f"no check '{name}'; there are: {', '.join(names)}")
    return args


def missing_programs(machine, wanted):
    return [str(machine.programs / name) for name in wanted if not (machine.programs / name).is_file()]


def no_gpu(machine):
    """The exit status where there is none to check; nothing where there is one. One that only the driver sees is an error, and so
    is that ours cannot say."""
    try:
        gpus, note = machine.gpus()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"motley-worker devices: {error}", file=sys.stderr)
        return 1
    if gpus:
        return None
    if driver_sees := smi("name"):
        print(f"nvidia-smi shows {driver_sees}, motley-worker no GPU: {note}", file=sys.stderr)
        return 1
    script = ROOT / "tests/support/missing_capability.sh"
    return subprocess.run(["bash", script, "gpu", f"motley-worker devices shows none: {note}"], check=False).returncode


def main():
    args = arguments()
    machine = Machine(args.device, args.programs.absolute(), args.tiny or args.device == "cpu")
    if args.device == "cuda":
        if missing := missing_programs(machine, PARTS[args.part].PROGRAMS):
            print(f"not built: {' '.join(missing)}", file=sys.stderr)
            return 1
        if (status := no_gpu(machine)) is not None:
            return status
    report = Report(args.part, machine, args.json, args.seconds)
    PARTS[args.part].run(report, machine, args.only, args.jobs)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
