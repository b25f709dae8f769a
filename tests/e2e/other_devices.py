"""A job that the policy gives a device too small for it gets another, and costs nobody anything; without one it says why."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import expect, expect_equal, run_test  # noqa: E402
from service import Service  # noqa: E402

FLEET = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: localhost
    slots: 2
    devices:
      - {kind: cpu, type: small, threads: 1, paced: {speed: 4, memory: 1MB}}
      - {kind: cpu, type: large, threads: 1, paced: {speed: 1, memory: 1GB}}
"""


def submit(service, name, types):
    text = service.job_text(name=name).replace("types: [fast]", f"types: [{types}]")
    return int(service.run("submit", service.write(f"{name}.yaml", text)).stdout)


def main():
    service = Service()
    try:
        service.write("fleet.yaml", FLEET)
        service.start_coordinator()
        job = submit(service, "either", "small, large")
        service.wait_for_state(job, "succeeded")
        attempts = [(attempt["outcome"], attempt["devices"]) for attempt in service.job(job)["attempts"]]
        expect_equal(attempts, [("measured", ["localhost/0", "localhost/1"]), ("failed", ["localhost/0"]),
                                ("done", ["localhost/1"])], "attempts: the faster one first, then the one that holds it")
        expect_equal(service.job(job)["restarts"], 0, "restarts")
        events = service.run("events", "--job", str(job)).stdout
        expect("queued for other devices: no device can hold the model" in events, f"not said why: {events}")
        job = submit(service, "small", "small")
        service.wait_for_state(job, "failed")
        expect("no device can hold the model" in service.job(job)["cause"], service.job(job)["cause"])
        expect_equal(service.end_coordinator(), 0, "exit code")
    finally:
        service.kill_all()


if __name__ == "__main__":
    run_test(main)
