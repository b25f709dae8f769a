"""The job service on one machine: what its users type, and that neither a killed coordinator nor a killed attempt
costs them a job."""

import json
import os
import pathlib
import pty
import re
import resource
import signal
import stat
import subprocess
import sys
import termios
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import BIN, WORKER, expect, expect_equal, expect_exit, kill, run_test  # noqa: E402
from service import Service  # noqa: E402

GPU = "GPU-12345678-1234-1234-1234-123456789abc"
LONG = 20000  # steps: more than any of these tests waits for


def measured_first(service, *jobs):
    """One of the jobs that train the same was measured before it got its devices, the others never."""
    told = [service.job(job) for job in jobs]
    expect_equal([[attempt["outcome"] for attempt in job["attempts"]] for job in told],
                 [["measured", "done"]] + [["done"]] * (len(jobs) - 1), "outcomes")
    expect_equal(told[0]["attempts"][0]["devices"], ["localhost/0"], "devices it was measured on")
    events = service.run("events", "--job", str(jobs[0])).stdout
    expect("measuring how fast it is on localhost/0" in events and "measured: fast " in events, events)
    rows = json.loads(service.run("profiles", "--service", "--json").stdout)
    expect_equal([(row["job"], row["type"]) for row in rows], [(jobs[0], "fast")], "profiles of the service")
    expect("samples/s" in service.run("profiles", "--service").stdout, "no table of profiles")
    print("ok: measured first")


def submissions(service):
    """Jobs side by side, an invalid one, a repeated one."""
    service.write("wrong.yaml", service.job_text() + "prioritty: 3\n")
    wrong = service.run("submit", "wrong.yaml")
    expect_exit(wrong, 65)
    expect(f"{service.home}/wrong.yaml:" in wrong.stderr and "did you mean 'priority'?" in wrong.stderr,
           f"not said where: {wrong.stderr!r}")
    greedy = service.run("submit", service.write("greedy.yaml", service.job_text(devices=3)))
    expect_exit(greedy, 69)
    first, second = service.submit(name="first"), service.submit(name="second")
    service.write("again.yaml", service.job_text(name="again"))
    keyed = [service.run("submit", "again.yaml", "--key", "k1").stdout for _ in range(2)]
    expect_equal(keyed[0], keyed[1], "jobs of the same key")
    other = service.run("submit", service.write("other.yaml", service.job_text(name="other")), "--key", "k1")
    expect_exit(other, 2)
    for job in (first, second, int(keyed[0])):
        service.wait_for_state(job, "succeeded")
    measured_first(service, first, second, int(keyed[0]))
    listed = json.loads(service.run("ls", "--state", "finished", "--json").stdout)["jobs"]
    expect_equal([job["id"] for job in listed], [3, 2, 1], "jobs in the list, the newest first")
    expect("succeeded" in service.run("ls", "--name", "second").stdout, "not listed by name")
    logs = service.run("logs", str(first)).stdout
    expect("efficiency" in logs and "after 40 steps" in logs, f"the log is not kept: {logs!r}")
    followed = service.run("logs", "-f", str(second))
    expect_exit(followed, 0)
    expect_equal(followed.stdout, service.run("logs", str(second)).stdout, "a log followed after its end")
    eager = service.run("submit", service.write("eager.yaml", service.job_text(name="eager")), "--follow")
    expect_exit(eager, 0)
    expect("after 40 steps" in eager.stdout and "(eager): succeeded" in eager.stderr, f"not followed: {eager.stderr!r}")
    service.write("named.yaml", service.job_text(name="named") + "fleet: fleet.yaml\n")
    named = service.run("submit", "named.yaml", "--hold")
    expect_exit(named, 0)
    expect(f"fleet: {service.home}/fleet.yaml is not used" in named.stderr, f"not said: {named.stderr!r}")
    expect_exit(service.run("cancel", named.stdout.strip()), 0)
    events = service.run("events", "--job", str(first), "--all").stdout
    expect("submitted" in events and "succeeded" in events, events)
    expect(all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \d+  job ", line) for line in events.splitlines()), events)
    last = service.run("events", "-n", "1", "--job", str(first)).stdout
    expect_equal(last, events.splitlines(keepends=True)[-1], "the newest event")
    expect_equal(service.run("events", "-f", "-n", "1", "--job", str(first)).stdout, last, "the newest event, followed")
    expect_exit(service.run("events", "-n", "1", "--all"), 2)
    print("ok: submissions")


def requests(service):
    """Hold, release, why, requeue, cancel; who runs goes on from its checkpoint."""
    job = service.submit("--hold", name="patient", devices=2, steps=LONG)
    why = service.run("why", str(job))
    expect("it is held" in why.stdout and f"motley release {job}" in why.stdout, why.stdout)
    nothing = service.run("logs", str(job))
    expect_exit(nothing, 0)
    expect_equal((nothing.stdout, nothing.stderr), ("", f"job {job} has printed nothing yet: it is held\n"), "a log with nothing in it")
    missing = service.run("logs", str(job), "--attempt", "1")
    expect_exit(missing, 66)
    expect(f"job {job} has no attempt 1 yet" in missing.stderr, missing.stderr)
    expect_exit(service.run("release", str(job)), 0)
    service.wait_for_step(job, 25)
    missing = service.run("logs", str(job), "--rank", "2")
    expect_exit(missing, 66)
    expect(f"job {job} has no rank 2: the last one is 1" in missing.stderr, missing.stderr)
    waiting = service.submit(name="waiting")
    why = json.loads(service.run("why", str(waiting), "--json").stdout)
    expect(f"job {job} holds localhost/0, localhost/1" in why["reasons"], why)
    expect(why["estimated_start_seconds"] is not None and why["estimated_start_seconds"] > 10, why)
    expect("estimated start: in about" in service.run("why", str(waiting)).stdout, "no estimated start")
    expect_exit(service.run("hold", str(job)), 0)
    service.wait_for_state(job, "waiting")
    expect(f"to continue: motley release {job}\n" in service.run("logs", str(job)).stdout, "no way on for who is held")
    service.wait_for_state(waiting, "succeeded")
    before = service.step_of(job)
    expect_exit(service.run("release", str(job)), 0)
    service.wait_for_step(job, before + 10)
    expect("continuing from step" in service.run("logs", str(job), "--attempt", "2").stdout, "it began anew")
    expect_exit(service.run("requeue", str(job)), 0)
    service.wait_for(lambda: service.job(job)["attempt"] == 3, "attempt 3")
    expect_exit(service.run("cancel", str(job)), 0)
    service.wait_for_state(job, "cancelled")
    expect_exit(service.run("cancel", str(job)), 77)
    expect_exit(service.run("show", "999"), 66)
    expect_equal([attempt["outcome"] for attempt in service.job(job)["attempts"]], ["stopped"] * 3, "outcomes")
    print("ok: requests")


def resumed(service):
    """What has ended with a checkpoint goes on in a new job, from the newest or an earlier one; the old one keeps its own."""
    job = service.submit(name="revived", steps=400, more="max_duration: 1h\nlabels: {team: vision}\n")
    early = service.run("resume", str(job))
    expect_exit(early, 77)
    expect(f"job {job} has not ended" in early.stderr, early.stderr)
    service.wait_for_step(job, 45)
    expect_exit(service.run("cancel", str(job)), 0)
    service.wait_for_state(job, "cancelled")
    log = service.run("logs", str(job)).stdout
    expect(f"to continue: motley resume {job}\n" in log and "motley release" not in log, f"no way on: {log[-500:]}")
    released = service.run("release", str(job))
    expect_exit(released, 77)
    expect(f"motley resume {job}" in released.stderr, released.stderr)
    saved = sorted((service.state / "jobs" / str(job)).glob("motley/runs/revived/1/checkpoints/step-*"))
    steps = [int(path.name[5:13]) for path in saved]
    expect_exit(service.run("resume", str(job), "--step", "7"), 66)
    expect_exit(service.run("resume", str(job), "--fleet", "fleet.yaml"), 2)
    heir = service.run("resume", str(job))
    expect_exit(heir, 0)
    expect(f"to go on from job {job}" in heir.stderr, heir.stderr)
    heir = int(heir.stdout)
    expect_exit(service.run("rm", str(job)), 77)
    service.wait_for_state(heir, "succeeded")
    log = service.run("logs", str(heir)).stdout
    expect(f"going on from step {steps[-1]} of job {job}" in log and f"continuing from step {steps[-1]}" in log, f"not from there: {log}")
    expect_equal(service.job(heir)["job"]["service"]["labels"], {"team": "vision"}, "what it keeps")
    expect(f"goes on from job {job}" in service.run("show", str(heir)).stdout, "not shown")
    expect_equal(sorted(saved[0].parent.glob("step-*")), saved, "checkpoints of the old job")
    again = json.loads(service.run("resume", str(job), "--step", str(steps[0]), "--json").stdout)["id"]
    service.wait_for_state(again, "succeeded")
    expect(f"continuing from step {steps[0]}" in service.run("logs", str(again)).stdout, "not from the earlier step")
    expect_equal(losses(service, again), losses(service, heir), "losses")
    none = service.run("resume", str(heir))
    expect_exit(none, 77)
    expect("has succeeded" in none.stderr, none.stderr)
    print("ok: resumed")


def losses(service, job):
    path, = (service.state / "jobs" / str(job)).glob("motley/runs/*/1/metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["loss_bits"] for row in rows if "loss_bits" in row]


def on_terminal(service, *arguments, keys=b""):
    """What a terminal of 80 columns is sent; keys are typed once it shows anything."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    program = subprocess.Popen(service.command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, cwd=service.home,
                               env=service.environment)
    sent = os.read(ours, 4096)
    os.write(ours, keys)
    expect_equal(program.wait(timeout=30), 0, f"exit code of {arguments}")
    expect_equal(termios.tcgetattr(theirs), before, "modes of the terminal")
    os.set_blocking(ours, False)
    try:
        while piece := os.read(ours, 4096):
            sent += piece
    except BlockingIOError:
        pass
    os.close(theirs)
    os.close(ours)
    return sent.decode()


def watched(service):
    """How far a job is, who does what, and output that steers no terminal."""
    job = service.submit(name="watched", devices=2, steps=LONG)

    def progress():
        return service.job(job)["progress"]
    service.wait_for(lambda: (progress() or {}).get("eta_seconds"), "progress of the job")
    told = progress()
    expect(0 < told["step"] < told["steps"] == LONG and told["samples_per_second"] > 0, told)
    whole = json.loads(service.request("GET", f"/v1/jobs/{job}/progress")[1])["progress"]
    expect_equal([rank["device"] for rank in whole["ranks"]], ["localhost/0", "localhost/1"], "devices of ranks")
    expect(all(0 < rank["memory_bytes"] <= rank["memory_limit_bytes"] for rank in whole["ranks"]), whole["ranks"])
    expect(re.search(rf"running +\d+/{LONG} +\d", service.run("ls").stdout), "no progress in the list")
    expect(re.search(rf"now: step \d+/{LONG} .* left", service.run("show", str(job)).stdout), "no progress shown")
    expect(f'motley_job_step{{job="{job}",name="watched"}}' in service.request("GET", "/metrics")[1], "no metric")
    once = service.run("top", "--once")
    expect_exit(once, 0)
    expect(re.search(rf"localhost/0 +fast +{job} watched +\d+%", once.stdout), once.stdout)
    devices = json.loads(service.run("top", "--json").stdout)["devices"]
    expect_equal([device["job"] for device in devices], [job, job, None, None], "jobs of the devices")
    screen = on_terminal(service, "top", keys=b"xq")
    expect("localhost/0" in screen and screen.endswith("\x1b[?25h\x1b[?1049l"), f"not as it was: {screen!r}")
    log = service.state / "jobs" / str(job) / "motley/runs/watched/1/attempts/1/rank-0001.log"
    expect(log.read_text().startswith(service.run("logs", str(job), "--rank", "1").stdout), "the log of a rank")
    service.run("cancel", str(job))
    service.wait_for_state(job, "cancelled")
    expect_equal(progress(), None, "progress of a job that has ended")
    rude = service.write("rude.yaml", "version: 1\nname: rude\nrun: [printf, 'a\\033[2Jb\\n']\nresources: {devices: {count: 1}}\n")
    job = int(service.run("submit", rude).stdout)
    service.wait_for_state(job, "succeeded")
    expect("a\x1b[2Jb\n" in service.run("logs", str(job)).stdout, "other bytes in a file")
    expect("a^[[2Jb\r\n" in on_terminal(service, "logs", str(job)), "a job steers a terminal")
    print("ok: watched")


def held_up(service):
    """A slow device with as much to do as it likes is named, while it runs and in the report."""
    text = service.job_text(name="uneven", steps=LONG).replace("count: 1, types: [fast]", "count: 3..4")
    pins = [f"    - {{stages: [{{layers: [0, 3], devices: [localhost/{device}]}}], grains: {grains}}}\n"
            for device, grains in ((0, 3), (1, 3), (2, 2))]
    text = text.replace("train:\n", "train:\n  grain: 2\n", 1) + "pin:\n  leave_out: [localhost/3]\n  replicas:\n" + "".join(pins)
    job = int(service.run("submit", service.write("uneven.yaml", text)).stdout)
    service.wait_for(lambda: (service.job(job)["progress"] or {}).get("straggler"), "the rank that holds others up")
    said = r"rank 2 \(slow on localhost\) holds the others up: they wait \d\d % of the time"
    for command in (["show", str(job)], ["top"]):
        expect(re.search(said, service.run(*command).stdout), f"not named: {service.run(*command).stdout}")
    service.wait_for_step(job, 45)
    service.run("cancel", str(job))
    service.wait_for_state(job, "cancelled")
    report = service.run("report", str(service.state / "jobs" / str(job) / "motley/runs/uneven/1"))
    expect(re.search(f"straggler +{said}", report.stdout), f"not in the report: {report}")
    print("ok: held up")


def order(service):
    """Dependencies and the longest duration."""
    first = service.submit(name="before", steps=LONG)
    second = service.submit(name="after", more=f"after: {first}\n")
    expect_equal(service.job(second)["state"], "waiting", "state of a job that comes after another")
    service.run("cancel", str(first))
    service.wait_for_state(first, "cancelled")
    service.wait_for_state(second, "cancelled")
    short = service.submit(name="short", steps=LONG, more="max_duration: 2s\n")
    service.wait_for_state(short, "failed")
    expect_equal(service.job(short)["cause"], "its longest duration has passed", "cause")
    expect(f"to continue: motley resume {short}\n" in service.run("logs", str(short)).stdout, "no way on for who has run out of time")
    print("ok: order")


def alternatives(service):
    """The first alternative that the devices can be: here, of them alone, and in the service."""
    resources = service.job_text().splitlines()[-1]
    text = service.job_text(name="either").replace(
        resources, "any_of: [{count: 3, types: [fast]}, {types: [slow], limits: {slow: 1}}]")
    service.write("either.yaml", text)
    job = int(service.run("submit", "either.yaml").stdout)
    service.wait_for_state(job, "succeeded")
    expect_equal([attempt["devices"] for attempt in service.job(job)["attempts"]], [["localhost/2"]], "devices")
    expect_equal(service.job(job)["job"]["any_of"][0]["count"], {"low": 3, "high": 3}, "what was submitted")
    never = service.run("submit", service.write("never.yaml", text.replace("slow]", "none]")))
    expect_exit(never, 69)
    expect("any_of.0: the job wants 3 devices and 2" in never.stderr and "any_of.1: no device of type none" in never.stderr,
           f"not said of each: {never.stderr!r}")
    alone = service.run("profile", "either.yaml", "--fleet", "fleet.yaml")
    expect_exit(alone, 0)
    expect("fast" not in alone.stdout, f"more was measured than the alternative has: {alone.stdout!r}")
    print("ok: alternatives")


def arrays(service):
    """One submission, many jobs: their numbers, their environment, at most so many at once; ranges of numbers."""
    program = ("version: 1\nname: sweep\nrun: [sh, -c, 'echo index $MOTLEY_ARRAY_INDEX of $MOTLEY_ARRAY_SIZE; sleep $NAP']\n"
               "env: {NAP: '0'}\nresources: {devices: {count: 1}}\n")
    service.write("sweep.yaml", program + "array: {index: [3, 5..6], at_once: 1}\n")
    submitted = service.run("submit", "sweep.yaml", "--key", "sweep")
    expect_exit(submitted, 0)
    first, last = map(int, submitted.stdout.strip().split(".."))
    expect(f"jobs {first} to {last}" in submitted.stderr and last == first + 2, submitted.stderr)
    expect_equal(service.run("submit", "sweep.yaml", "--key", "sweep").stdout, submitted.stdout, "the same key")
    after = service.submit(name="last", more=f"after: [{first}..{last}]\n")
    service.wait_for_state(after, "succeeded")
    listed = json.loads(service.run("ls", "--array", str(first), "--json").stdout)["jobs"]
    expect_equal([(job["name"], job["array"]["index"]) for job in listed], [("sweep-6", 6), ("sweep-5", 5), ("sweep-3", 3)],
                 "jobs of the array")
    expect("index 5 of 3" in service.run("logs", str(first + 1)).stdout, "the program is not told its index")
    attempts = [service.job(number)["attempts"][0] for number in range(first, last + 1)]
    expect(all(a["ended"] <= b["begun"] for a, b in zip(attempts, attempts[1:])), f"several at once: {attempts}")
    alone = service.run("run", "sweep.yaml")
    expect_exit(alone, 65)
    expect("motley submit" in alone.stderr, alone.stderr)
    service.write("over.yaml", program.replace("sweep", "over") + "array: {over: {env.NAP: [100, 200], priority: [1, 2]}}\n")
    over = service.run("submit", "over.yaml", "--hold").stdout.strip()
    first, last = map(int, over.split(".."))
    told = service.job(last)
    expect_equal((last - first, told["job"]["program"]["env"]["NAP"], told["priority"]), (3, "200", 2), "the last one")
    expect_exit(service.run("release", f"{first}..{last}"), 0)
    service.wait_for_state(last, "running")
    mixed = service.run("cancel", "999", f"{first}..{last}")
    expect_exit(mixed, 66)
    expect("there is no job 999" in mixed.stderr, mixed.stderr)
    for number in range(first, last + 1):
        service.wait_for_state(number, "cancelled")
    expect_exit(service.run("cancel", f"{last}..{first}"), 2)
    service.write("nap.yaml", program.replace("sweep", "nap") + "array: {over: {env.NAP: [100, 100, 100, 100, 100, 100]}, at_once: 1}\n")
    first, last = map(int, service.run("submit", "nap.yaml").stdout.strip().split(".."))
    service.wait_for_state(first, "running")
    expect_exit(service.run("cancel", f"{first}..{last}"), 0)
    service.wait_for_state(first, "cancelled")
    expect(not any(service.job(number)["attempts"] for number in range(first + 1, last + 1)), "one began while all were cancelled")
    print("ok: arrays")


def updates(service):
    """A job gets another priority and other devices while it waits; what has devices keeps them."""
    holder = service.submit(name="holder", devices=2, steps=LONG)
    waiting = service.submit(name="moved")
    service.wait_for_state(holder, "running")
    updated = service.run("update", str(waiting), "--set", "priority=70", "--set", "labels.team=vision")
    expect_exit(updated, 0)
    expect_equal([service.job(waiting)["priority"], service.job(waiting)["job"]["service"]["labels"]], [70, {"team": "vision"}],
                 "what is kept")
    expect("priority 50 → 70" in service.run("events", "--job", str(waiting)).stdout, "not told")
    refused = service.run("update", str(waiting), "--set", "train.steps=5")
    expect_exit(refused, 65)
    expect("'train.steps' of a job that is submitted cannot be changed" in refused.stderr, refused.stderr)
    expect_exit(service.run("update", str(waiting), "--set", "resources.devices.count=9"), 69)
    expect_exit(service.run("update", str(holder), "--set", "resources.devices.count=1"), 77)
    service.kill_coordinator()
    service.start_coordinator()
    expect_equal(service.job(waiting)["priority"], 70, "priority after a restart")
    expect_exit(service.run("update", str(waiting), "--set", "resources.devices.types=[slow]"), 0)
    service.wait_for_state(waiting, "succeeded")
    expect_equal(service.job(holder)["state"], "running", "who had devices")
    expect_exit(service.run("cancel", str(holder)), 0)
    service.wait_for_state(holder, "cancelled")
    print("ok: updates")


def killed_coordinator(service):
    """Training does not notice; the next coordinator finds it, and all that was acknowledged."""
    job = service.submit("--key", "survivor", name="survivor", devices=2, steps=2000)
    queued = service.submit(name="queued")
    service.wait_for_step(job, 10)
    pid = service.attempt_pid(job)
    followed = service.home / "followed.txt"
    follower = subprocess.Popen(service.command("logs", "-f", str(job)), cwd=service.home, env=service.environment,
                                stdout=followed.open("w"))
    service.wait_for(lambda: followed.stat().st_size > 0, "the log as it comes", process=follower)
    service.kill_coordinator()
    gone = service.run("ls")
    expect_exit(gone, 69)
    expect("start one with `motley serve`" in gone.stderr, f"no hint: {gone.stderr!r}")
    before = service.step_of(job)
    service.wait_for_step(job, before + 20)
    service.start_coordinator()
    expect("1 attempts under way" in service.log().splitlines()[-1], service.log()[-500:])
    expect_equal(service.job(job)["state"], "running", "state after the restart")
    service.wait_for_state(job, "succeeded")
    told = service.job(job)
    expect_equal((told["restarts"], len(told["attempts"]), service.attempt_pid(job)), (0, 1, pid), "undisturbed")
    expect_equal(follower.wait(timeout=20), 0, "exit code of who followed")
    expect_equal(followed.read_text(), service.run("logs", str(job)).stdout, "a log followed across coordinators")
    service.wait_for_state(queued, "succeeded")
    expect_equal(service.submit("--key", "survivor", name="survivor", devices=2, steps=2000), job, "the same key")
    print("ok: killed coordinator")


def ended_while_nobody_looked(service):
    """An attempt that ends between two coordinators, and a graceful end of one."""
    job = service.submit(name="quiet", steps=200)
    service.wait_for_step(job, 1)
    expect_equal(service.end_coordinator(), 0, "exit code of a coordinator asked to end")
    service.wait_for((service.attempt_directory(job) / "ended.json").exists, "the end of the attempt")
    service.start_coordinator()
    service.wait_for_state(job, "succeeded")
    print("ok: ended while nobody looked")


def killed_attempt(service):
    """Its process and the one above its ranks: the job is tried again and goes on where it was."""
    job = service.submit(name="phoenix", steps=400)
    service.wait_for_step(job, 45)
    kill(service.attempt_pid(job))
    service.wait_for(lambda: service.job(job)["attempt"] == 2, "attempt 2")
    first = service.run("show", str(job)).stdout.splitlines()[0]
    expect(first.endswith("attempt 2"), f"a failure that it has behind it: {first}")
    service.wait_for_state(job, "succeeded")
    told = service.job(job)
    expect_equal((told["restarts"], told["attempts"][0]["cause"]), (1, "its process was killed, or crashed"), "restarts")
    expect("continuing from step" in service.run("logs", str(job), "--attempt", "2").stdout, "it began anew")
    print("ok: killed attempt")


def one_at_a_time(service):
    second = service.run("serve", "--fleet", "fleet.yaml")
    expect_exit(second, 77)
    expect(f"process {service.coordinator.pid}" in second.stderr, f"the holder is not named: {second.stderr!r}")
    elsewhere = service.run("serve", "--fleet", "fleet.yaml", "--state", "other", "--socket", service.socket)
    expect_exit(elsewhere, 77)
    expect_equal(stat.S_IMODE(os.stat(service.socket).st_mode), 0o600, "mode of the socket")
    service.home.chmod(0o755)
    here = service.run("serve", "--fleet", "fleet.yaml", "--state", ".", "--socket", "elsewhere")
    expect_exit(here, 77)
    expect("which holds other files" in here.stderr, f"not said why: {here.stderr!r}")
    expect_equal(stat.S_IMODE(service.home.stat().st_mode), 0o755, "mode of a directory that is not the service's")
    print("ok: one at a time")


def api(service):
    """What other clients see: sizes, unknown paths, methods, pages, metrics."""
    status, text = service.request("POST", "/v1/jobs?source=%2Fx%2Fjob.yaml", "version: 1\nnaem: x\n")
    expect_equal(status, 422, "status of an invalid job")
    expect(json.loads(text)["error"]["message"].startswith("/x/job.yaml:2:1: unknown key 'naem'"), text)
    expect_equal(service.request("POST", "/v1/jobs", "x" * (2 << 20))[0], 413, "status of a body too long")
    expect_equal(service.request("GET", "/healthz", headers={"X": "x" * 10000})[0], 431, "status of a header too long")
    expect_equal(service.request("DELETE", "/v1/jobs")[0], 405, "status of another method")
    expect_equal(service.request("GET", "/v1/nothing")[0], 404, "status of an unknown path")
    expect_equal(service.request("HEAD", "/healthz"), (200, ""), "the header alone")
    expect_equal(service.request("GET", "/v1/jobs?stat=queued")[0], 400, "status of an unknown parameter")
    page = json.loads(service.request("GET", "/v1/jobs?limit=2")[1])
    after = json.loads(service.request("GET", f"/v1/jobs?limit=200&before={page['next']}")[1])
    numbers = [job["id"] for job in page["jobs"] + after["jobs"]]
    expect_equal(numbers, list(range(numbers[0], 0, -1)), "jobs of the pages")
    metrics = service.request("GET", "/metrics")[1]
    expect('motley_devices{type="fast",state="free"} 2' in metrics, metrics)
    fleet = json.loads(service.request("GET", "/v1/fleet")[1])
    expect_equal([device["job"] for device in fleet["devices"]], [None] * 4, "owners of devices")
    stream = service.request("GET", "/v1/events?job=1", headers={"Accept": "text/event-stream"})[1]
    expect("event: job\ndata: {" in stream and '"text":"succeeded"' in stream, stream)
    print("ok: api")


def removed(service):
    """A job that has ended is forgotten with its runs; one that has not is not."""
    job = service.submit("--hold", name="gone")
    expect_exit(service.run("rm", str(job)), 77)
    service.run("release", str(job))
    service.wait_for_state(job, "succeeded")
    directory = service.state / "jobs" / str(job)
    expect(directory.is_dir(), "it has run nowhere")
    expect_exit(service.run("rm", "9999..9999", str(job)), 66)  # one that is not there keeps no other from it
    expect(not directory.exists(), "its runs are still there")
    expect_exit(service.run("show", str(job)), 66)
    print("ok: removed")


def full_disk(service):
    """Nothing can be written for a while: refused, told, trained on; then it goes on by itself."""
    job = service.submit(name="afloat", steps=LONG)
    service.wait_for_step(job, 5)
    pid = service.coordinator.pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    refused = service.run("submit", "submitted.yaml", "--key", "later")
    expect_exit(refused, 1)
    expect("nothing can be kept at the moment" in refused.stderr, f"not said: {refused.stderr!r}")
    expect_equal(service.request("POST", f"/v1/jobs/{job}/cancel")[0], 507, "status while the disk is full")
    expect_equal(service.request("GET", "/readyz")[0], 503, "readiness")
    expect_equal(service.job(job)["state"], "running", "what is told of a job")
    step = service.step_of(job)
    service.wait_for_step(job, step + 20)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
    service.wait_for(service.answers, "a coordinator that writes again", process=service.coordinator)
    expect_exit(service.run("cancel", str(job)), 0)
    service.wait_for_state(job, "cancelled")
    expect_equal(len(service.job(job)["attempts"]), 1, "attempts")
    later = service.run("submit", "submitted.yaml", "--key", "later", "--hold")
    expect_exit(later, 0)
    expect_exit(service.run("cancel", later.stdout.strip()), 0)
    print("ok: full disk")


def no_room(service):
    """A job whose checkpoints do not fit waits for room, however often it fails, and then ends well. A small disk, which only a
    coordinator of its own sees."""
    if os.geteuid() != 0:
        expect("root" not in os.environ.get("MOTLEY_REQUIRE", "").split(","), "root is required")
        print("skipped without root: no room")
        return
    small, state = service.home / "small", service.home / "tight"
    small.mkdir()
    serve = service.command("serve", "--fleet", "fleet.yaml", "--state", str(state))
    other = subprocess.Popen(["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=1000k none "$0" && exec "$@"', str(small), *serve],
                             cwd=service.home, env=service.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    at = ["--socket", str(state / "socket")]
    service.wait_for(lambda: service.run("ls", *at).returncode == 0, "a coordinator with a small disk", process=other)
    service.write("tight.yaml", service.job_text(name="tight").replace("keep: 3", "keep: 3, dir: small"))
    expect_exit(service.run("submit", "tight.yaml", *at), 0)

    def told():
        return json.loads(service.run("show", "1", "--json", *at).stdout)
    service.wait_for(lambda: told()["attempt"] == 4 and told()["state"] == "waiting", "more failures than a job may have", seconds=60)
    expect_equal(told()["restarts"], 0, "restarts of a job that nobody is to blame for")
    expect("make room" in told()["cause"], f"cause not named: {told()['cause']}")
    subprocess.run(["nsenter", "-t", str(other.pid), "--mount", "mount", "-o", "remount,size=100m", str(small)], check=True, timeout=10)
    service.wait_for(lambda: told()["state"] == "succeeded", "a job that has room", seconds=60)
    other.terminate()
    expect_equal(other.wait(timeout=20), 0, "exit code")
    print("ok: no room")


def kept_for_a_while(service):
    """With --keep what has ended goes by itself, at the start of a coordinator for one."""
    job = service.submit(name="short-lived")
    service.wait_for_state(job, "succeeded")
    expect_exit(service.run("serve", "--keep", "90"), 2)
    service.end_coordinator()
    service.start_coordinator("--keep", "1us")
    service.wait_for(lambda: service.run("show", str(job)).returncode == 66, "the job to be forgotten")
    service.wait_for(lambda: not (service.state / "jobs" / str(job)).exists(), "its runs to be removed")
    print("ok: kept for a while")


def killed_while_measuring(service):
    """A rank that dies while an attempt measures its devices costs the job one of its restarts, as one that trains does."""
    text = service.job_text(name="fragile", devices=2).replace("width: 32", "width: 48")
    job = int(service.run("submit", service.write("fragile.yaml", text)).stdout)
    service.wait_for(lambda: service.job(job)["attempt"] == 2, "the attempt after the one that measured")
    service.wait_for(lambda: [os.kill(pid, signal.SIGKILL) for pid in workers(service)], "a rank that measures")
    service.wait_for_state(job, "succeeded")
    told = service.job(job)
    expect_equal((told["restarts"], [attempt["outcome"] for attempt in told["attempts"]]), (1, ["measured", "failed", "done"]), told)
    runs = service.state / "jobs" / str(job) / "motley/runs/fragile/1/attempts"
    expect_equal(os.listdir(runs), ["1"], "attempts that were launched")
    print("ok: killed while measuring")


def workers(service):
    return [pid for pid, line in service.processes().items() if line.split()[0] == WORKER]


def stopped_unasked(service):
    """Whoever stops an attempt behind the service's back finds another one, after a while."""
    job = service.submit(name="prodded", steps=LONG)
    service.wait_for_step(job, 25)
    os.kill(service.attempt_pid(job), signal.SIGTERM)
    service.wait_for(lambda: service.job(job)["attempt"] == 2, "attempt 2")
    told = service.job(job)
    expect_equal((told["restarts"], told["attempts"][0]["outcome"]), (0, "stopped"), "restarts")
    expect("before it is tried again: it stopped by itself" in service.run("events", "--job", str(job)).stdout,
           "it did not wait")
    service.run("cancel", str(job))
    service.wait_for_state(job, "cancelled")
    print("ok: stopped unasked")


def copied(service):
    """A backup is a database that a coordinator serves."""
    expect_exit(service.run("backup", "copy.db"), 0)
    expect_exit(service.run("backup", "copy.db"), 2)
    copy = service.home / "from-copy"
    copy.mkdir()
    expect_equal(stat.S_IMODE((service.home / "copy.db").stat().st_mode), 0o600, "mode of the copy")
    (service.home / "copy.db").rename(copy / "motley.db")
    other = service.start("serve", "--fleet", "fleet.yaml", "--state", str(copy))
    listed = ["ls", "--json", "--socket", str(copy / "socket")]
    service.wait_for(lambda: service.run(*listed).returncode == 0, "a coordinator of the copy", process=other)
    expect_equal(service.run(*listed).stdout, service.run("ls", "--json").stdout, "jobs of the copy")
    other.send_signal(signal.SIGTERM)
    expect_equal(other.wait(timeout=20), 0, "exit code")
    print("ok: copied")


def put_back(service):
    """What has begun since a backup that is put back is stopped before its devices are given away; agents of later join again."""
    service.write("box.yaml", f"version: 1\nnodes:\n  - host: box\n    devices: [{{kind: cuda, type: A100, uuid: {GPU}, memory: 8GB}}]\n")

    def start_agent():
        agent = service.start("agent", "--join", service.socket, "--name", "box", "--fleet", "box.yaml")
        service.wait_for(lambda: node("box")["state"] == "ready", "the node", process=agent)
        return agent

    def node(name):
        nodes = json.loads(service.run("nodes", "--json").stdout)["nodes"]
        return next((node for node in nodes if node["name"] == name), {"state": "unknown"})
    agent = start_agent()
    service.write("tick.yaml", "version: 1\nname: tick\nresources: {devices: {count: 1, types: [slow]}}\n"
                               f"run: [sh, -c, 'while [ ! -e {service.home}/enough ]; do sleep 0.1; done']\n")
    tick = int(service.run("submit", "tick.yaml", "--hold").stdout)
    told = service.run("backup", "earlier.db")
    expect("cancelled since then" in told.stderr, f"not said what is undone: {told.stderr!r}")
    agent.terminate()
    expect_equal(agent.wait(timeout=30), 0, "exit code of an agent")
    agent = start_agent()
    for _ in range(3):
        service.run("release", str(tick))
        service.wait_for_state(tick, "running")
        service.run("hold", str(tick))
        service.wait_for_state(tick, "waiting")
    service.write("slow.yaml", "version: 1\nname: slow\nresources: {devices: {count: 2, types: [fast]}}\n"
                               "run: [sh, -c, 'trap \"sleep 4; exit 0\" TERM; touch $MOTLEY_CHECKPOINT_DIR/here-$$; while :; do sleep 0.1; done']\n")
    unknown = int(service.run("submit", "slow.yaml").stdout)
    place = service.state / "jobs" / str(unknown) / "motley" / "runs" / "slow" / "1" / "checkpoints"
    service.wait_for(lambda: len(list(place.glob("here-*"))) == 2, "two ranks")
    pid = service.attempt_pid(unknown)
    alone = service.start("agent", "--join", service.socket, "--name", "alone", "--fleet", service.write("alone.yaml", "version: 1\nnodes:\n"
                          f"  - host: alone\n    devices: [{{kind: cuda, type: A100, uuid: {GPU[:-1]}d, memory: 8GB}}]\n"))
    service.wait_for(lambda: node("alone")["state"] == "ready", "another node", process=alone)
    service.end_coordinator()
    before = time.monotonic()
    alone.terminate()
    expect_equal(alone.wait(timeout=30), 0, "exit code of an agent without a coordinator")
    expect(time.monotonic() - before < 8, f"it took {time.monotonic() - before} s")  # once it was 11, whatever the machine
    (service.home / "earlier.db").rename(service.state / "motley.db")
    for more in ("motley.db-wal", "motley.db-shm"):
        (service.state / more).unlink(missing_ok=True)
    service.start_coordinator()
    attempt = f"attempt 1 of job {unknown} on localhost/0, localhost/1"
    late = service.submit(name="late", devices=2)
    expect(late > unknown, f"number {late} after {unknown}")
    why = service.run("why", str(late)).stdout
    expect(f"{attempt} is over, but not all of its processes have ended" in why, why)
    expect_equal([device["aside"] for device in node("localhost")["devices"]], [True, True, False, False], "devices set aside")
    expect("localhost/1 is given to nobody" in service.run("nodes").stdout, "not shown with the nodes")
    service.wait_for_state(late, "succeeded")
    events = service.run("events", "--all").stdout
    told = [events.find(text) for text in (f"{attempt} runs, which nobody knew of: it is stopped", f"nothing runs any more of {attempt}",
                                           "launching attempt 1 on localhost/0, localhost/1")]
    expect(-1 not in told and told[1] < events.rfind("launching attempt 1 on localhost/0, localhost/1"), events)
    expect(json.loads((service.attempt_directory(unknown) / "ended.json").read_text()), "it was not let end by itself")
    service.wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the end of its process")
    expect(str(service.attempt_directory(unknown)) in service.log(), "its directory is not named")
    service.wait_for(lambda: node("box")["state"] == "ready", "the agent of later to join again", process=agent)
    agent.terminate()
    expect_equal(agent.wait(timeout=30), 0, "exit code of an agent")
    service.write("enough", "")
    service.run("release", str(tick))
    service.wait_for_state(tick, "succeeded")
    expect_equal([attempt["attempt"] for attempt in service.job(tick)["attempts"]], [4], "attempts that its database knows of")
    print("ok: put back")


def stuck_runner(service):
    """Who is to end the ranks of a killed attempt does nothing: they are ended all the same, before their devices are given away."""
    service.write("stuck.yaml", "version: 1\nname: stuck\nresources: {devices: {count: 2, types: [fast]}}\nretry: {max_restarts: 0}\n"
                                "run: [sh, -c, 'sleep 1000']\n")
    job = int(service.run("submit", "stuck.yaml").stdout)
    pid = service.attempt_pid(job)

    def left():
        return {pid: line for pid, line in service.processes().items() if f"/jobs/{job}/" in environment_of(pid)}
    service.wait_for(lambda: sum("sleep 1000" in line for line in left().values()) >= 2, "two ranks")
    runners = [pid for pid, line in left().items() if " program-runner" in line or " runner" in line]
    for runner in runners:
        os.kill(runner, signal.SIGSTOP)
    expect(runners, f"no runner among {left()}")
    kill(pid)
    late = service.submit(name="late", devices=2)
    service.wait_for(lambda: service.job(late)["attempt"] == 1, "devices for the next job")
    expect_equal(left(), {}, "processes of an attempt whose devices another one has")
    service.wait_for_state(late, "succeeded")
    expect_equal(service.job(job)["attempts"][0]["cause"], "its process was killed, or crashed", "cause")
    service.run("cancel", str(job))
    print("ok: stuck runner")


def environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def one_machine(service):
    """A node may be the coordinator's own machine by another name: what their ranks share in memory is not mixed up."""
    fleet = (service.home / "fleet.yaml").read_text().splitlines(keepends=True)
    service.write("nodeb.yaml", "".join(fleet[:7]).replace("localhost", "nodeb") + fleet[6])
    agent = service.start("agent", "--join", service.socket, "--name", "nodeb", "--fleet", "nodeb.yaml")
    service.wait_for(lambda: "nodeb" in service.run("nodes").stdout, "the node", process=agent)
    job = service.submit(name="both", devices=4)
    service.wait_for_state(job, "succeeded", seconds=120)
    told = service.job(job)
    expect_equal(told["restarts"], 0, "restarts over two nodes of one machine")
    expect_equal(told["attempts"][-1]["devices"], ["localhost/0", "localhost/1", "nodeb/0", "nodeb/1"], "devices")
    agent.terminate()
    expect_equal(agent.wait(timeout=30), 0, "exit code of an agent")
    expect_exit(service.run("forget", "nodeb"), 0)
    print("ok: one machine")


def bounded_logs(service):
    """A program that prints too much goes on; its logs are cut, but for how it ended."""
    service.end_coordinator()
    service.start_coordinator("--log-limit", "64KiB")
    service.write("chatty.yaml", "version: 1\nname: chatty\nrun: [sh, -c, 'seq 100000; echo it ended so; exit 3']\n"
                                 "retry: {max_restarts: 0}\nresources: {devices: {count: 1}}\n")
    job = int(service.run("submit", "chatty.yaml").stdout)
    service.wait_for_state(job, "failed")
    for rank in ([], ["--rank", "0"]):
        log = service.run("logs", str(job), *rank).stdout
        expect("motley: this log has 64 KiB" in log and "it ended so" in log, f"not cut: {log[-1000:]!r}")
        expect(len(log) < 80000, f"{len(log)} bytes are kept")
    expect("it ended so" in service.job(job)["cause"], service.job(job)["cause"])
    wrong = service.run("serve", "--log-limit", "much", "--state", "s2")
    expect_exit(wrong, 2)
    expect("--log-limit" in wrong.stderr, wrong.stderr)
    print("ok: bounded logs")


def gpus(service):
    """What the driver of an agent's machine tells (a stand-in for it) reaches those who look."""
    machine = {"gpus": [{"uuid": GPU, "memory": 8 << 30, "free": 5 << 30, "numbers": {"temperature": 64, "utilisation": 93}}]}
    service.write("gpu.yaml", f"version: 1\nnodes:\n  - host: box\n    devices: [{{kind: cuda, type: A100, uuid: {GPU}, memory: 8GB}}]\n")
    agent = service.start("agent", "--join", service.socket, "--name", "box", "--fleet", "gpu.yaml",
                          environment={"MOTLEY_NVML_STAND_IN": service.write("machine.json", json.dumps(machine)),
                                       "LD_LIBRARY_PATH": str(BIN.parent / "lib" / "stand_in")})

    def temperature():
        return json.loads(service.run("top", "--json").stdout)["devices"][-1]["temperature"]
    service.wait_for(lambda: temperature() == 64, "the temperature of the GPU", process=agent)
    table = service.run("top").stdout
    expect(re.search(r"box/0 +A100 +- +- +- +- +3.0/8.0 GiB +93% +64C\n", table), table)
    metrics = service.request("GET", "/metrics")[1]
    expect(f'DCGM_FI_DEV_GPU_TEMP{{device="box/0",UUID="{GPU}",Hostname="box"}} 64\n' in metrics, metrics)
    agent.terminate()
    expect_equal(agent.wait(timeout=30), 0, "exit code of the agent")
    service.wait_for(lambda: temperature() is None, "the end of what it told")
    print("ok: GPUs")


def main():
    service = Service()
    try:
        service.start_coordinator()
        submissions(service)
        requests(service)
        resumed(service)
        watched(service)
        held_up(service)
        order(service)
        alternatives(service)
        arrays(service)
        updates(service)
        killed_coordinator(service)
        ended_while_nobody_looked(service)
        killed_attempt(service)
        killed_while_measuring(service)
        stopped_unasked(service)
        one_at_a_time(service)
        api(service)
        full_disk(service)
        no_room(service)
        copied(service)
        put_back(service)
        stuck_runner(service)
        one_machine(service)
        removed(service)
        kept_for_a_while(service)
        bounded_logs(service)
        gpus(service)
        expect_equal(service.end_coordinator(), 0, "exit code")
        service.wait_for(lambda: not service.processes(), "the end of all processes", seconds=10)
    finally:
        service.kill_all()


if __name__ == "__main__":
    run_test(main)
