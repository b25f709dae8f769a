"""The coordinator is killed again and again, at any moment, while clients submit, cancel, hold and release: nothing that
was acknowledged is lost, a repeated key is the same job, no attempt is performed twice, and what trains trains on.

service_kills.py [KILLS] [SEED]: 20 kills, and a new seed, which is printed, unless told otherwise."""

import json
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import expect, expect_equal, run_test  # noqa: E402
from service import Service  # noqa: E402

CLIENTS = 4
TRAINED = 6  # jobs that really run; the others are held


class Client(threading.Thread):
    """Submits jobs and asks things of its own ones, one after the other; remembers every acknowledgement."""

    def __init__(self, service, number, seed):
        super().__init__(daemon=True)
        self.service, self.number, self.random = service, number, random.Random(seed * 100 + number)
        self.text = service.job_text(name=f"client-{number}")
        self.jobs = {}       # key -> number, as acknowledged
        self.requests = {}   # number -> the requests that were acknowledged, the last one last
        self.unsure = {}     # number -> the request whose answer never came
        self.ending = threading.Event()

    def run(self):
        while not self.ending.is_set():
            try:
                if self.jobs and self.random.random() < 0.4:
                    self.ask()
                else:
                    self.submit(f"{self.number}-{len(self.jobs)}")
            except (OSError, ValueError, json.JSONDecodeError):
                time.sleep(0.01)  # killed meanwhile, or not there yet
            except Exception as error:  # of http.client: an answer that broke off
                if type(error).__module__ != "http.client":
                    raise

    def submit(self, key):
        status, answer = self.service.request("POST", "/v1/jobs?hold=true&source=" + str(self.service.home / "job.yaml"),
                                              self.text, {"Idempotency-Key": key})
        expect_equal(status, 201, f"status of a submission ({answer})")
        number = json.loads(answer)["id"]
        expect_equal(self.jobs.setdefault(key, number), number, f"number of the job with key {key}")

    def ask(self):
        number = self.random.choice(list(self.jobs.values()))
        if "cancel" in self.requests.get(number, []) or number in self.unsure:
            return
        request = self.random.choice(["hold", "cancel"])
        self.unsure[number] = request
        status, answer = self.service.request("POST", f"/v1/jobs/{number}/{request}")
        expect_equal(status, 200, f"status of {request} ({answer})")
        del self.unsure[number]
        self.requests.setdefault(number, []).append(request)


def check(service, clients):
    """After all kills: every acknowledgement holds."""
    for client in clients:
        for key, number in client.jobs.items():
            job = json.loads(service.request("GET", f"/v1/jobs/{number}")[1])
            cancelled = "cancel" in client.requests.get(number, [])
            maybe = client.unsure.get(number) == "cancel"
            expected = ("cancelled",) if cancelled else ("waiting", "cancelled") if maybe else ("waiting",)
            expect(job["state"] in expected, f"job {number} (key {key}) is {job['state']}, not {expected}")
            client.submit(key)


def kill_again_and_again(service, kills, seed):
    """What was acknowledged: submissions, requests."""
    moments = random.Random(seed)
    service.start_coordinator()
    clients = [Client(service, number, seed) for number in range(CLIENTS)]
    service.wait_for_state(service.submit(name="measured", steps=20), "succeeded")
    trained = [service.submit(name=f"trained-{i}", steps=300) for i in range(TRAINED)]
    for client in clients:
        client.start()
    for _ in range(kills):
        time.sleep(moments.expovariate(1 / 0.15))
        service.kill_coordinator()
        service.coordinator = service.start("serve", "--fleet", "fleet.yaml")
    service.wait_for(service.answers, "a coordinator that answers", process=service.coordinator)
    for client in clients:
        expect(client.is_alive(), f"client {client.number} has ended")
        client.ending.set()
        client.join()
    check(service, clients)
    for job in trained:
        service.wait_for_state(job, "succeeded")
        told = service.job(job)
        expect_equal((told["restarts"], len(told["attempts"])), (0, 1), f"restarts and attempts of job {job}")
        begun = service.run("logs", str(job)).stdout.count("(attempt 1)")
        expect(begun <= 1, f"the attempt of job {job} was performed {begun} times")
    expect_equal(service.end_coordinator(), 0, "exit code")
    return (sum(len(client.jobs) for client in clients),
            sum(len(asked) for client in clients for asked in client.requests.values()))


def main():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"{kills} kills, seed {seed}")
    service = Service()
    try:
        submissions, requests = kill_again_and_again(service, kills, seed)
    finally:
        service.kill_all()
    print(f"ok: {submissions} submissions and {requests} requests acknowledged, none lost")


if __name__ == "__main__":
    run_test(main)
