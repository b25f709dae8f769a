"""A place of its own for `motley`, for tests that run the real programs: state, cache, job, fleet."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = pathlib.Path(os.environ["MOTLEY_TEST_BIN_DIR"])
MOTLEY = str(BIN / "motley")
WORKER = str(BIN / "motley-worker")
MEETING = pathlib.Path(__file__).with_name("meeting.py")

FLEET = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 4
    devices:
      - {kind: cpu, type: fast, threads: 1, paced: {speed: 1, memory: 1GB}}
      - {kind: cpu, type: fast, threads: 1, paced: {speed: 1, memory: 1GB}}
      - {kind: cpu, type: slow, threads: 1, paced: {speed: 0.3333, memory: 1GB}}
      - {kind: cpu, type: slow, threads: 1, paced: {speed: 0.3333, memory: 1GB}}
"""

JOB = """version: 1
name: %(name)s
fleet: fleet.yaml
model: {type: gpt, layers: 2, heads: 2, width: 32, context: 16}
data: {text: [text.txt]}
train:
  global_batch: 16
  steps: %(steps)d
%(grain)s  optimizer: {type: adamw, lr: 1.0e-3, clip: 1.0}
  schedule: {type: cosine, warmup: 10, min_lr: 1.0e-4}
  numerics: %(numerics)s
  seed: 7
  eval: {every: 200, samples: 8}
checkpoint: {every: %(every)d, keep: 3}
"""


def sample_text(size=20000):
    """Text with something to learn in it, the same everywhere."""
    words = "the plan says who computes what and the fleet obeys while grains are dealt ".split()
    return " ".join(words[(i * i + i // 7) % len(words)] for i in range(size // 5))


class Sandbox:
    """A directory with a job and a fleet; processes started in it can be told by their environment."""

    made = []  # all of this process, for run_test

    def __init__(self, steps=40, every=10, numerics="fast", grain=None, cache=None, name="job"):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="motley-e2e-"))
        Sandbox.made.append(self)
        self.name = name
        self.environment = dict(os.environ)
        self.environment["XDG_STATE_HOME"] = str(self.home / "state")
        self.environment["XDG_CACHE_HOME"] = str(cache or self.home / "cache")
        self.environment["XDG_CONFIG_HOME"] = str(self.home / "config")
        self.write("text.txt", sample_text())
        self.write("fleet.yaml", FLEET)
        self.write_job(steps=steps, every=every, numerics=numerics, grain=grain)

    def write(self, name, text):
        path = self.home / name
        path.write_text(text)
        return str(path)

    def write_job(self, steps=40, every=10, numerics="fast", grain=None):
        line = f"  grain: {grain}\n" if grain else ""
        values = dict(name=self.name, steps=steps, every=every, numerics=numerics, grain=line)
        self.write("job.yaml", JOB % values)

    def command(self, *arguments):
        return [MOTLEY, *arguments]

    def run(self, *arguments, timeout=120, environment=None):
        """Runs `motley` to its end; stdout and stderr as text."""
        return subprocess.run(self.command(*arguments), cwd=self.home, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout,
                              env={**self.environment, **(environment or {})})

    def start(self, *arguments, environment=None):
        """Starts `motley` in a process group of its own, output into log.txt."""
        log = open(self.home / "log.txt", "a")
        return subprocess.Popen(self.command(*arguments), cwd=self.home, stdout=log, stderr=log,
                                stdin=subprocess.DEVNULL, start_new_session=True,
                                env={**self.environment, **(environment or {})})

    def log(self):
        path = self.home / "log.txt"
        return path.read_text() if path.exists() else ""

    def run_directory(self, number=1):
        return self.home / "state" / "motley" / "runs" / self.name / str(number)

    def metrics(self, number=1):
        """The steps of metrics.jsonl; a line still being written is left out."""
        path = self.run_directory(number) / "metrics.jsonl"
        rows = []
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return [row for row in rows if "loss_bits" in row]

    def last_step(self):
        rows = self.metrics()
        return rows[-1]["step"] if rows else 0

    def losses(self, number=1):
        return {row["step"]: row["loss_bits"] for row in self.metrics(number)}

    def processes(self):
        """{pid: command line} of everything running with this sandbox's state directory."""
        mark = f"XDG_STATE_HOME={self.home}/state".encode()
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                status = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[0]
                if status == "Z" or mark not in pathlib.Path(f"/proc/{entry}/environ").read_bytes():
                    continue
                line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
                found[int(entry)] = line.replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                pass  # it ended while we looked
        return found

    def wait_for(self, condition, what, seconds=60, process=None):
        deadline = time.monotonic() + seconds
        while not condition():
            if process is not None and process.poll() is not None:
                fail(f"motley ended with {process.returncode} before: {what}\n{self.log()[-3000:]}")
            if time.monotonic() > deadline:
                fail(f"waited {seconds} s in vain for: {what}\n{self.log()[-3000:]}")
            time.sleep(0.02)


def run_test(main):
    """Runs a test. Its sandboxes go when it has passed; else they stay to be looked at, and it is said where."""
    try:
        main()
    except BaseException:
        print("kept: " + " ".join(str(sandbox.home) for sandbox in Sandbox.made), file=sys.stderr)
        raise
    for sandbox in Sandbox.made:
        shutil.rmtree(sandbox.home, ignore_errors=True)


def fail(message):
    print(f"FAILED: {message}", file=sys.stderr)
    sys.exit(1)


def expect(condition, message):
    if not condition:
        fail(message)


def expect_equal(actual, expected, what):
    expect(actual == expected, f"{what}: expected {expected!r}, got {actual!r}")


def expect_exit(result, code):
    expect(result.returncode == code,
           f"exit {result.returncode} instead of {code}\n--- stdout\n{result.stdout[-3000:]}\n"
           f"--- stderr\n{result.stderr[-3000:]}")


def kill(pid):
    os.kill(pid, signal.SIGKILL)
