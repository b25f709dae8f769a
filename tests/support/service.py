"""A coordinator in a place of its own, and what its users type, for tests of the job service."""

import json
import os
import signal
import urllib.parse
from http.client import HTTPConnection
import socket as sockets

from sandbox import Sandbox, expect, expect_exit, fail

FINAL = ("succeeded", "failed", "cancelled")


class UnixConnection(HTTPConnection):
    """HTTP over a Unix socket, as any client may speak it."""

    def __init__(self, path, timeout=10):
        super().__init__("motley", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Service(Sandbox):
    """Jobs by submit(); a coordinator that start_coordinator() starts and kill_coordinator() kills."""

    coordinator = None

    @property
    def state(self):
        return self.home / "state" / "motley" / "service"

    @property
    def socket(self):
        return str(self.state / "socket")

    def job_text(self, name="job", devices=1, steps=40, more=""):
        self.name = name
        self.write_job(steps=steps, every=20)
        text = (self.home / "job.yaml").read_text().replace("fleet: fleet.yaml\n", "")
        return f"{text}resources: {{devices: {{count: {devices}, types: [fast]}}}}\n{more}"

    def start_coordinator(self, *arguments):
        self.coordinator = self.start("serve", "--fleet", "fleet.yaml", *arguments)
        self.wait_for(self.answers, "a coordinator that answers", process=self.coordinator)

    def answers(self):
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def kill_coordinator(self):
        os.kill(self.coordinator.pid, signal.SIGKILL)
        self.coordinator.wait(timeout=10)

    def end_coordinator(self):
        self.coordinator.terminate()
        return self.coordinator.wait(timeout=20)

    def kill_all(self):
        """Attempts outlive their coordinator: after a test that has failed, too."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def request(self, method, target, body=None, headers=None):
        """The status and the text of the answer."""
        connection = UnixConnection(self.socket)
        try:
            try:
                connection.request(method, target, body=body, headers=headers or {})
            except BrokenPipeError:
                pass  # it has answered before it had read all
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def post_job(self, text, key=None, query=""):
        """The job as the service tells it."""
        source = urllib.parse.quote(str(self.home / "job.yaml"), safe="")
        headers = {"Idempotency-Key": key} if key else {}
        status, answer = self.request("POST", f"/v1/jobs?source={source}{query}", text, headers)
        expect(status == 201, f"submission: {status} {answer}")
        return json.loads(answer)

    def submit(self, *arguments, **job):
        """The number that `motley submit` prints."""
        self.write("submitted.yaml", self.job_text(**job))
        result = self.run("submit", "submitted.yaml", *arguments)
        expect_exit(result, 0)
        return int(result.stdout)

    def job(self, number):
        result = self.run("show", str(number), "--json")
        expect_exit(result, 0)
        return json.loads(result.stdout)

    def wait_for_state(self, number, *states, seconds=60):
        def there():
            state = self.job(number)["state"]
            if state in FINAL and state not in states:
                fail(f"job {number} is {state}, not {states}: {self.job(number)['cause']}\n{self.log()[-2000:]}")
            return state in states
        self.wait_for(there, f"job {number} to be {' or '.join(states)}", seconds=seconds)

    def attempt_directory(self, number, attempt=1):
        return self.state / "jobs" / str(number) / "attempts" / str(attempt)

    def attempt_pid(self, number, attempt=1):
        path = self.attempt_directory(number, attempt) / "begun.json"
        self.wait_for(path.exists, f"attempt {attempt} of job {number} to begin")
        return json.loads(path.read_text())["pid"]

    def step_of(self, number):
        """The last step the job has trained."""
        rows = list((self.state / "jobs" / str(number) / "motley" / "runs").glob("*/1/metrics.jsonl"))
        lines = rows[0].read_text().splitlines() if rows else []
        return sum("loss_bits" in line for line in lines)

    def wait_for_step(self, number, step):
        self.wait_for(lambda: self.step_of(number) >= step, f"step {step} of job {number}")
