"""The speed part of the check: kernels against what the device can do, trainings against PyTorch's."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import Outcome, row
from trainees import Model, OurTraining, Rounds, TorchTraining, TrainingDied

KERNEL_SECONDS = 110
KERNEL_GOAL = 0.80  # of the measured copy bandwidth, for operations that bandwidth limits
MEMORY_GOAL = 0.03
SHARE_OF_MEMORY = 0.42  # a micro-batch is chosen so that ours needs no more: PyTorch's training is there, too

MODELS = {
    "gpt2-124m": (Model("gpt2-124m bf16", (12, 12, 768, 1024, 50257), 64, (64, 32, 16)), 500e3, 1.10, 20, 5, 110),
    "gpt2-1558m": (Model("gpt2-1558m bf16", (48, 25, 1600, 1024, 50257), 64, (32, 16, 8, 4)), 52e3, 1.05, 5, 3, 240),
}
TINY = {
    "gpt2-124m": (Model("tiny bf16", (2, 2, 32, 32, 259), 8, (8, 4)), 500e3, 1.10, 4, 2, 60),
    "gpt2-1558m": (Model("small bf16", (3, 2, 48, 32, 300), 8, (4, 2)), 52e3, 1.05, 3, 2, 60),
}


# --- limits and kernels

class Limits:
    """What was measured of the device in this run, by anyone."""

    def __init__(self):
        self.bytes_per_second = self.flops_per_second = 0.0
        self.peers = {}

    def text(self):
        return f"copy {self.bytes_per_second / 1e9:.0f} GB/s, product {self.flops_per_second / 1e12:.0f} TFLOP/s"


def measure_limits(machine, limits, deadline):
    """What PyTorch reaches."""
    command = [sys.executable, str(Path(__file__).with_name("gpt_torch_speed.py")), "limits", machine.device]
    done = subprocess.run(command, env=machine.environment(ours=False), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=max(1, deadline - time.monotonic()), check=False)
    for line in done.stdout.splitlines():
        for name, value in json.loads(line).items():
            limits.peers[name] = max(limits.peers.get(name, 0), value)
            setattr(limits, name, max(getattr(limits, name), value))
    return done.stderr.strip().splitlines()[-1] if done.returncode != 0 else ""


def own_attention_lines(machine, model, lines, deadline):
    """Of attention once more where it may have gone through cuDNN: by our own kernels."""
    own = []
    for line in lines:
        if machine.device == "cuda" and line["name"].startswith("attention") and time.monotonic() < deadline:
            command = kernel_command(machine, model, line["index"], line["index"] + 1)
            done = subprocess.run(command, env=machine.environment(cudnn=False), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  timeout=max(1, deadline - time.monotonic()), check=False)
            own += [json.loads(found) for found in done.stdout.splitlines() if found.endswith("}")]
    return [{**line, "name": "own " + line["name"]} for line in own]


def kernel_command(machine, model, *which):
    return [machine.test("motley_kernel_speed"), machine.device, "tiny" if machine.tiny else "full",
            *map(str, (*model.sizes, model.micro_batches[0], *which))]


def kernel_lines(machine, model, deadline):
    """What motley_kernel_speed measures; behind an operation that fails it is started anew."""
    lines, first = [], 0
    while time.monotonic() < deadline:
        command = kernel_command(machine, model, first)
        with subprocess.Popen(command, env=machine.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                out, complaint = process.communicate(timeout=max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                out, complaint = process.communicate()
        new = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
        lines += new
        if process.returncode == 0:
            return lines
        if not new or "error" not in new[-1]:  # it died, or there was no time: the next one is to blame
            first = lines[-1]["index"] + 1 if lines else 0
            said = complaint.strip().splitlines()
            lines.append({"index": first, "name": f"operation {first}", "error": said[-1] if said else f"status {process.returncode}"})
        first = lines[-1]["index"] + 1
        if len([line for line in lines if "error" in line]) > 20:
            break
    return lines


def share_of_limit(line, limits):
    """(the share of what the device can do, whether bandwidth is the limit)"""
    moving = line["bytes"] / limits.bytes_per_second
    computing = line["tensor_flops"] / limits.flops_per_second
    return max(moving, computing) / line["seconds"], moving >= computing


def kernel_outcome(line, case, limits):
    if "error" in line:
        return Outcome(line["name"], "failed", 0, line["error"])
    if "limit" in line:
        rate, unit = (line["bytes"], "bytes/s") if line["limit"] == "copy" else (line["tensor_flops"], "FLOP/s")
        peer = limits.peers.get("bytes_per_second" if line["limit"] == "copy" else "flops_per_second")
        rows = [row(line["name"], "rate", unit, rate / line["seconds"], peers={"pytorch": peer} if peer else {})]
        return Outcome.of_rows(line["name"], 0, f"{rate / line['seconds']:.4g} {unit}, PyTorch {peer or 0:.4g}", rows)
    share, by_bandwidth = share_of_limit(line, limits)
    rows = [row(f"{case} {line['name']}", "share_of_bandwidth" if by_bandwidth else "share_of_product_rate", "ratio", share,
                limit=KERNEL_GOAL if by_bandwidth else None)]
    detail = (f"{line['times']:3} x {line['seconds'] * 1e6:9.1f} us (spread {line['spread']:.0%})  {line['bytes'] / line['seconds'] / 1e9:7.0f}"
              f" GB/s {line['tensor_flops'] / line['seconds'] / 1e12:6.1f} TFLOP/s  {share:6.1%} of the {'copy' if by_bandwidth else 'product'}")
    return Outcome.of_rows(line["name"], 0, detail, rows)


def check_kernels(report, machine, model, limits):
    report.begin("kernels")
    started = time.monotonic()
    deadline = started + min(KERNEL_SECONDS, report.seconds_left())
    try:
        complaint = measure_limits(machine, limits, deadline)
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        complaint = str(error)
    lines = kernel_lines(machine, model, deadline)
    for line in lines:
        if line.get("limit") == "copy" and "seconds" in line:
            limits.bytes_per_second = max(limits.bytes_per_second, line["bytes"] / line["seconds"])
        if line.get("limit") == "matmul" and "seconds" in line:
            limits.flops_per_second = max(limits.flops_per_second, line["tensor_flops"] / line["seconds"])
    report.add(Outcome("limits", "failed" if complaint else "measured", time.monotonic() - started,
                       limits.text() + (f"; PyTorch's not measured: {complaint}" if complaint else "")))
    if not limits.bytes_per_second or not limits.flops_per_second:
        return
    for line in lines:
        report.add(kernel_outcome(line, model.name, limits))
    try:
        for line in own_attention_lines(machine, model, lines, deadline):
            report.add(kernel_outcome(line, model.name, limits))
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        report.add(Outcome("own attention", "failed", 0, str(error)))
    timed = [line for line in lines if "seconds" in line and "limit" not in line]
    report.add(Outcome("all kernels", "measured", time.monotonic() - started,
                       f"{sum(line['times'] * line['seconds'] for line in timed) * 1e3:.1f} ms one after the other"))


# --- trainings

class Comparison:
    """One model trained by both, in rounds."""

    def __init__(self, model, machine, folder, deadline):
        self.model, self.machine, self.deadline = model, machine, deadline
        self.ours, self.torch = OurTraining(model, machine, folder), None
        self.our_rounds, self.torch_rounds = Rounds(), Rounds()
        self.predicted = self.used = self.ready = None
        self.micro_batch, self.peer_failed, self.torch_compiled = 0, "", ""

    def choose_micro_batch(self):
        for self.micro_batch in self.model.micro_batches:
            self.predicted = self.ours.predicted(self.micro_batch)
            if self.predicted <= SHARE_OF_MEMORY * self.machine.memory():
                return

    def start_ours(self):
        before = self.machine.memory_used(None) if self.machine.device == "cuda" else 0
        self.ours.start()
        seconds = self.ours.wait_for_steps(3, self.deadline)
        after = self.machine.memory_used(self.ours.process.pid)
        self.ours.pause(max(seconds))
        if before is not None and after is not None:
            self.used = after - before

    def start_torch(self):
        """Compiled as a whole if that is over in time, else block by block, else not."""
        forms = ("whole", "blocks", "plain") if self.machine.device == "cuda" else ("plain",)
        for self.torch_compiled in forms:
            patience = (self.deadline - time.monotonic()) * (0.65 if self.torch_compiled == "whole" else 0.8)
            self.torch = TorchTraining(self.model, self.machine, self.micro_batch, self.torch_compiled)
            try:
                self.ready = self.torch.hear(time.monotonic() + patience)
                return
            except TrainingDied as died:
                self.peer_failed = str(died)
                self.end_torch()

    def end_torch(self):
        if self.torch is not None:
            self.torch.end()
        self.torch = None

    def run(self, steps, rounds):
        self.choose_micro_batch()
        try:
            self.start_ours()
            self.start_torch()
            for _ in range(rounds):
                self.our_rounds.add(self.ours.seconds_of_steps(steps, self.deadline))
                if self.torch is not None:
                    self.torch_round(steps)
        finally:
            self.ours.end()
            self.end_torch()

    def torch_round(self, steps):
        try:
            self.torch_rounds.add(self.torch.seconds_of_steps(steps, self.deadline))
        except (TrainingDied, OSError) as died:
            self.peer_failed = str(died)
            self.end_torch()


def training_outcomes(name, seconds, found, goals, limits):
    """`goals`: tokens a second, and times PyTorch's."""
    model, ours, peer = found.model, found.our_rounds.seconds(), found.torch_rounds.seconds()
    speed = model.tokens() / ours
    peers = {"pytorch": model.tokens() / peer} if peer else {}
    rows = [row(model.name, "tokens_per_second", "tokens/s", speed, limit=goals[0], peers=peers, bench="engine")]
    spread = f"rounds within {found.our_rounds.spread():.1%}"
    yield Outcome.of_rows(name, seconds, f"{speed:.0f} tokens/s, micro-batch {found.micro_batch}, step {ours * 1e3:.1f} ms, {spread}", rows)
    if peer:
        compiled = f"{found.torch_compiled} compiled in {found.ready['compile_seconds']:.0f} s"
        yield Outcome.of_rows(f"{name}: PyTorch", 0, f"{model.tokens() / peer:.0f} tokens/s: ours {peer / ours:.3f}x (PyTorch "
                              f"{found.ready['version']}, {compiled}, rounds within {found.torch_rounds.spread():.1%})",
                              [row(model.name, "over_pytorch", "ratio", peer / ours, limit=goals[1])])
    else:
        yield Outcome(f"{name}: PyTorch", "failed", 0, found.peer_failed)
    yield utilization(name, model, speed, limits, found.machine.data_sheet_flops())
    yield memory_outcome(name, found)


def utilization(name, model, speed, limits, data_sheet):
    done = speed * model.flops_per_token()
    text, rows = f"{done / 1e12:.0f} TFLOP/s at 6·parameters + 6·layers·width·context a token", []
    for what, peak in (("of the largest product", limits.flops_per_second), ("of the data sheet", data_sheet)):
        if peak:
            text += f"; {done / peak:.1%} {what}"
            rows.append(row(model.name, "mfu " + what, "ratio", done / peak))
    return Outcome.of_rows(f"{name}: model FLOPs", 0, text, rows)


def memory_outcome(name, found):
    if not found.used:
        return Outcome(f"{name}: memory", "refused", 0, f"predicted {found.predicted / 1e9:.2f} GB; nobody tells what is used")
    error = found.used / found.predicted - 1
    peak = found.ready and found.ready["peak_bytes"]
    said = f"; PyTorch's {peak / 1e9:.2f} GB" if peak else ""
    return Outcome.of_rows(f"{name}: memory", 0, f"used {found.used / 1e9:.2f} GB, with the driver's own, of {found.predicted / 1e9:.2f} GB"
                           f" predicted: {error:+.1%}{said}",
                           [row(found.model.name, "memory_error", "ratio", abs(error), better="lower", limit=MEMORY_GOAL)])


def check_training(report, machine, name, case, limits):
    model, tokens_goal, ratio_goal, steps, rounds, seconds = case
    report.begin(name)
    started = time.monotonic()
    deadline = started + min(seconds, report.seconds_left())
    with tempfile.TemporaryDirectory() as folder:
        found = Comparison(model, machine, folder, deadline)
        complaint = ""
        try:
            found.run(steps, rounds)
        except (TrainingDied, OSError, subprocess.SubprocessError, ValueError) as error:
            complaint = f"{type(error).__name__}: {error}"
        spent = time.monotonic() - started
        if complaint:
            report.add(Outcome(name, "failed", spent, complaint))
        if found.our_rounds.all:
            for outcome in training_outcomes(name, spent, found, (tokens_goal, ratio_goal), limits):
                report.add(outcome)


def run(report, machine, only, _jobs):
    cases = TINY if machine.tiny else MODELS
    limits = Limits()
    if not only or "kernels" in only:
        check_kernels(report, machine, cases["gpt2-124m"][0], limits)
    for name, case in cases.items():
        if not only or name in only:
            check_training(report, machine, name, case, limits)


NAMES = ["kernels", *MODELS]
PROGRAMS = ("motley-worker", "tests/motley_kernel_speed")
