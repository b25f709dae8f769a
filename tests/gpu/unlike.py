"""Four unlike devices made of one: parts of a GPU's multiprocessors (throttled), or paced CPUs. Measured, planned and trained with
nothing but `motley` and `motley-worker`, ranks as threads: the plan against an equal split, against the sum of what each device does
alone, and against its own prediction."""

import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from report import row


class Case:
    """Shapes of the model, samples of a step (alone: fewer), and the devices with what is theirs in YAML and in JSON."""

    def __init__(self, kind, model, batch, batch_alone, devices):
        self.kind, self.model, self.batch, self.batch_alone, self.devices = kind, model, batch, batch_alone, devices


def shares(sizes):
    taken = 0
    for size in sizes:
        yield (f"{{kind: cuda, type: sms-{size}, share: {{sms: {size}}}, memory: 20GB}}",
               {"kind": "cuda", "type": f"sms-{size}", "memory": 20_000_000_000, "share": {"sms": size, "first": taken}})
        taken += size


def paced(speeds):
    for speed in speeds:
        yield (f"{{kind: cpu, type: speed-{speed}, threads: 1, paced: {{speed: {speed}, memory: 1GB, overhead: 1ms}}}}",
               {"kind": "cpu", "type": f"speed-{speed}", "memory": 1_000_000_000,
                "paced": {"speed": speed, "overhead_ns": 1_000_000, "half_batch": 0.0}})


CASES = {  # of few samples: a profile measures micro-batches up to all of them
    "full": Case("throttled", {"layers": 6, "heads": 8, "width": 512, "context": 1024}, 256, 64, list(shares((64, 32, 16, 8)))),
    "tiny": Case("paced", {"layers": 1, "heads": 2, "width": 16, "context": 16}, 64, 16, list(paced((1, 0.5, 0.25, 0.25)))),
}
STEPS = 7
JOB = """version: 1
name: unlike
model: {{type: gpt, layers: {layers}, heads: {heads}, width: {width}, context: {context}}}
data: {{text: [text], tokenizer: bytes}}
train: {{global_batch: {batch}, steps: {steps}, optimizer: {{type: adamw, lr: 1.0e-4}}, precision: {precision}, eval: {{every: 0, samples: 1}}}}
"""
PACE = "pace: {clock: virtual, flops: 1.0e+9}\n"
FLEET = """version: 1
{pace}nodes:
  - host: localhost
    devices:
{devices}"""


class Unlike:
    def __init__(self, machine, folder, seconds):
        self.machine, self.folder, self.case = machine, Path(folder), CASES["tiny" if machine.tiny else "full"]
        self.deadline = time.monotonic() + seconds
        self.precision = "fp32" if machine.tiny else "bf16"
        self.is_paced = self.case.kind == "paced"

    def run_program(self, program, *arguments):
        command = [str(self.machine.programs / program), *map(str, arguments)]
        home = {"XDG_STATE_HOME": str(self.folder / "state"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run(command, cwd=self.folder, env={**self.machine.environment(), **home}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=True, timeout=max(1, self.deadline - time.monotonic())).stdout

    def write_job(self, name, batch):
        text = JOB.format(**self.case.model, batch=batch, steps=STEPS, precision=self.precision)
        (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        self.run_program("motley", "export", "job", f"{name}.yaml", "--fleet", "fleet.yaml", "-o", f"{name}.json")

    def fleet(self, numbers):
        pace = {"clock": "virtual", "pace_flops": 1e9} if self.is_paced else {}
        return self.machine.fleet([{"id": f"localhost/{i}", **self.case.devices[i][1]} for i in numbers], **pace)

    def write_documents(self):
        (self.folder / "text").write_bytes(bytes(i * i % 251 for i in range(max(1 << 14, 300 * self.case.model["context"]))))
        lines = "".join(f"      - {words}\n" for words, _ in self.case.devices)
        (self.folder / "fleet.yaml").write_text(FLEET.format(pace=PACE if self.is_paced else "", devices=lines), encoding="utf-8")
        self.write_job("job", self.case.batch)
        self.write_job("alone", self.case.batch_alone)
        request = {"version": 1, "epoch": 1, "job": json.loads((self.folder / "job.json").read_text(encoding="utf-8")),
                   "fleet": self.fleet(range(len(self.case.devices))), "control": "", "key_file": ""}
        (self.folder / "request.json").write_text(json.dumps(request), encoding="utf-8")

    def train(self, name, job, plan):
        """Seconds of a step, and the first step's loss."""
        ranks = len(json.loads((self.folder / plan).read_text(encoding="utf-8"))["ranks"])
        self.run_program("motley-worker", "train", "--job", job, "--plan", plan, "--run-dir", name, "--ranks", ranks)
        lines = (self.folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        steps = [json.loads(line) for line in lines]
        return statistics.median(step["step_seconds"] for step in steps[2:] if not step["special"]), steps[0]["loss"]

    def plan(self, name, *options):
        self.run_program("motley", "plan", "job.yaml", "--fleet", "fleet.yaml", "--profile", "profile.json", "-o", name, *options)
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def samples_per_second_alone(self, number, micro_batch):
        grains = self.case.batch_alone
        stage = {"first_layer": 0, "last_layer": self.case.model["layers"] + 1, "ranks": [0]}
        plan = {"version": 1, "numerics": "fast", "global_batch": grains, "grain": 1, "ranks": [{"device": f"localhost/{number}"}],
                "replicas": [{"stages": [stage], "micro_batch": min(micro_batch, grains), "grains": grains}],
                "fleet": self.fleet([number])}
        (self.folder / "alone_plan.json").write_text(json.dumps(plan), encoding="utf-8")
        return grains / self.train(f"alone-{number}", "alone.json", "alone_plan.json")[0]

    def sum_alone(self, planned):
        """Of the devices the plan uses, each with its micro-batch there."""
        total = 0.0
        for replica in planned["replicas"]:
            rank = replica["stages"][0]["ranks"][0]
            number = int(planned["ranks"][rank]["device"].split("/")[1])
            total += self.samples_per_second_alone(number, replica["micro_batch"])
        return total

    def run(self):
        """(what to say, rows)"""
        self.write_documents()
        profile = self.run_program("motley-worker", "profile", "--request", "request.json", "--ranks", len(self.case.devices))
        (self.folder / "profile.json").write_text(profile, encoding="utf-8")
        planned = self.plan("plan.json")
        predicted = planned["prediction"]["step_seconds"]
        self.plan("equal.json", "--equal-split")
        step, loss = self.train("planned", "job.json", "plan.json")
        equal, equal_loss = self.train("equal", "job.json", "equal.json")
        if abs(loss / equal_loss - 1) > 1e-3:
            raise ValueError(f"the first loss is {loss:.6f} as planned, {equal_loss:.6f} in equal shares")
        efficiency = self.case.batch / step / self.sum_alone(planned)
        given = "/".join(str(replica["grains"] * planned["grain"]) for replica in planned["replicas"])
        rows = [row("unlike devices", "efficiency", "ratio", efficiency, kind=self.case.kind),
                row("unlike devices", "over_equal_split", "ratio", equal / step, limit=1.0, kind=self.case.kind),
                row("unlike devices", "prediction_error", "ratio", abs(predicted / step - 1), better="lower", kind=self.case.kind)]
        return (f"{self.case.kind}: {efficiency:.1%} of the sum alone, {equal / step:.2f}x the equal split, {predicted * 1e3:.1f} ms"
                f" predicted, {step * 1e3:.1f} ms; samples {given}"), rows


def run_unlike(machine, seconds):
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Unlike(machine, folder, seconds).run()
        except subprocess.CalledProcessError as error:
            said = [line for line in error.stderr.splitlines() if line.strip()]
            program = Path(error.cmd[0]).name
            raise ValueError(f"{program} {error.cmd[1]}: status {error.returncode}; {said[-1] if said else ''}") from None
