"""Two trainings of one model on one device in turns: ours, and PyTorch's. Each keeps its place in memory while the other computes."""

import ctypes
import json
import queue
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def die_with_parent():
    """A training goes on for ever, and a stopped one hears nothing but SIGKILL."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class TrainingDied(Exception):
    """With the last that it said."""


class Model:
    def __init__(self, name, sizes, batch, micro_batches):
        self.name, self.batch, self.micro_batches = name, batch, micro_batches
        self.layers, self.heads, self.width, self.context, self.vocab = self.sizes = sizes

    def parameters(self):
        block = 12 * self.width**2 + 13 * self.width
        return (self.vocab + self.context + 2) * self.width + self.layers * block

    def flops_per_token(self):
        """6 for each parameter, forward and backward, and the causal half of attention's two products."""
        return 6 * self.parameters() + 6 * self.layers * self.width * self.context

    def tokens(self):
        return self.batch * self.context

    def job(self, text):
        return {
            "version": 1, "name": "speed", "source": "", "fleet": "",
            "model": {"type": "gpt", "layers": self.layers, "heads": self.heads, "width": self.width, "context": self.context,
                      "vocab": self.vocab, "dropout": 0.0},
            "data": {"text": [], "files": [str(text)], "tokenizer": "bytes", "held_out": 0.05},
            "train": {"global_batch": self.batch, "grain": 1, "steps": 1000000,
                      "optimizer": {"type": "adamw", "lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0},
                      "schedule": {"type": "constant", "warmup": 0, "min_lr": 0.0},
                      "precision": "bf16", "loss_scale": None, "numerics": "fast", "seed": 1337, "eval": {"every": 0, "samples": 1}},
            "checkpoint": {"every_steps": 0, "every_ns": 0, "keep": 2, "dir": ""},
            "devices": {"count": None, "types": [], "memory": {"low": 0, "high": (1 << 63) - 1}, "mix": True},
            "retry": {"max_restarts": 0, "exclude_failed_devices": True}}

    def plan(self, machine, micro_batch):
        device = {"id": "localhost/0", "kind": machine.device, "type": machine.device, "threads": 2}
        return {"version": 1, "numerics": "fast", "global_batch": self.batch, "grain": 1, "ranks": [{"device": "localhost/0"}],
                "replicas": [{"stages": [{"first_layer": 0, "last_layer": self.layers + 1, "ranks": [0]}],
                              "micro_batch": micro_batch, "grains": self.batch}],
                "fleet": machine.fleet([device])}


class OurTraining:
    """`motley-worker train` of one rank, stopped and continued as a process: it goes on for ever and never saves."""

    def __init__(self, model, machine, folder):
        self.model, self.machine, self.folder = model, machine, Path(folder)
        self.process, self.window = None, 0.0
        text = self.folder / "text"
        text.write_bytes(random.Random(7).randbytes(max(1 << 16, 512 * model.context)))
        (self.folder / "job.json").write_text(json.dumps(model.job(text)), encoding="utf-8")

    def predicted(self, micro_batch):
        """Bytes on the device; writes the plan."""
        plan = self.folder / "plan.json"
        plan.write_text(json.dumps(self.model.plan(self.machine, micro_batch)), encoding="utf-8")
        said = self.machine.worker("estimate", "--job", self.folder / "job.json", "--plan", plan, "--json")
        return json.loads(said)[0]["total_bytes"]

    def start(self):
        command = [str(self.machine.programs / "motley-worker"), "train", "--job", "job.json", "--plan", "plan.json", "--run-dir", "run"]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=self.machine.environment(), stdout=log,
                                            stderr=subprocess.STDOUT, preexec_fn=die_with_parent)

    def steps(self):
        """(when it ended, seconds) of each step so far."""
        try:
            lines = (self.folder / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        except OSError:
            return []
        steps = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(step["time"], step["step_seconds"]) for step in steps]

    def wait_for_steps(self, count, deadline, since=0.0):
        """Seconds of at least `count` steps that began after `since`."""
        while True:
            whole = [seconds for end, seconds in self.steps() if end - seconds >= since]
            if len(whole) >= count:
                return whole
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise TrainingDied(f"ours: status {self.process.poll()} after {len(self.steps())} steps; {self.last_words()}")
            time.sleep(0.01)

    def last_words(self):
        lines = (self.folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def seconds_of_steps(self, count, deadline):
        """The first step after a pause is left out."""
        self.process.send_signal(signal.SIGCONT)
        seconds = self.wait_for_steps(count + 1, deadline, time.time())[1:]
        self.pause(max(seconds))
        return seconds

    def pause(self, step_seconds):
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(min(step_seconds, 3))  # until the device has done what was asked of it

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class TorchTraining:
    def __init__(self, model, machine, micro_batch, compiled):
        command = [sys.executable, str(Path(__file__).with_name("gpt_torch_speed.py")), "train", machine.device,
                   *map(str, (*model.sizes, model.batch, micro_batch)), compiled]
        self.process = subprocess.Popen(command, env=machine.environment(ours=False), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        self.said, self.complaints = queue.Queue(), []
        threading.Thread(target=lambda: [self.said.put(line) for line in self.process.stdout], daemon=True).start()
        threading.Thread(target=lambda: [self.complaints.append(line) for line in self.process.stderr], daemon=True).start()

    def hear(self, deadline):
        while True:
            try:
                return json.loads(self.said.get(timeout=0.2))
            except queue.Empty:
                if self.process.poll() is None and time.monotonic() < deadline:
                    continue
                words = [line.strip() for line in self.complaints if line.strip()]
                raise TrainingDied(f"PyTorch: status {self.process.poll()}; {words[-1] if words else 'not ready in time'}") from None

    def seconds_of_steps(self, count, deadline):
        self.process.stdin.write(f"{count + 1}\n")
        self.process.stdin.flush()
        return self.hear(deadline)["seconds"][1:]

    def end(self):
        self.process.kill()
        self.process.wait()


class Rounds:
    """Seconds of steps by round."""

    def __init__(self):
        self.medians, self.all = [], []

    def add(self, seconds):
        self.medians.append(statistics.median(seconds))
        self.all += seconds

    def seconds(self):
        return statistics.median(self.all) if self.all else None

    def spread(self):
        return (max(self.medians) - min(self.medians)) / statistics.median(self.medians)
