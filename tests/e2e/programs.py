"""Jobs that are programs (`run:`): what their ranks are told, one that fails, one that is stopped and goes on, by hand
and in the job service."""

import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, kill, run_test  # noqa: E402
from service import Service  # noqa: E402

PROGRAM = """import json, os, pathlib, signal, sys, time
rank = int(os.environ["RANK"])
mode = sys.argv[1]
place = pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"])
(place / f"environment-{rank}.json").write_text(json.dumps({**os.environ, "cwd": os.getcwd()}))
print("rank", rank, "in attempt", os.environ["MOTLEY_ATTEMPT"], flush=True)
if mode == "fail" and rank == 2:
    time.sleep(0.3)
    print("no more luck", flush=True)
    sys.exit(3)
if mode == "wait" and not (place / "enough").exists():
    def stop(*_):
        time.sleep(0.2 * rank)
        (place / f"saved-{rank}").write_text("")
        sys.exit(75 if rank % 2 else 0)
    signal.signal(signal.SIGTERM, stop)
    (place / f"ready-{rank}").write_text("")
    while True:
        time.sleep(0.05)
if mode == "fail":
    time.sleep(60)
"""


def job_text(mode, more=""):
    return f"""version: 1
name: program
run: {sys.executable} ../program.py {mode}
workdir: place
env: {{GREETING: "hello world", OMP_NUM_THREADS: "7"}}
setup: [/bin/sh, -c, "echo $GREETING > setup.txt"]
train: {{global_batch: 30, grain: 4}}
retry: {{max_restarts: 0}}
{more}"""


def prepare(sandbox, mode, more=""):
    sandbox.name = "program"
    (sandbox.home / "place").mkdir(exist_ok=True)
    sandbox.write("program.py", PROGRAM)
    sandbox.write("program.yaml", job_text(mode, more))


def environments(checkpoints):
    return [json.loads((checkpoints / f"environment-{rank}.json").read_text()) for rank in range(4)]


def told(sandbox):
    """torchrun's environment and ours; nothing that the job or the user sets is overridden."""
    prepare(sandbox, "env", "fleet: fleet.yaml\n")
    result = sandbox.run("run", "program.yaml", environment={"MASTER_PORT": "1", "WORLD_SIZE": "99", "NCCL_DEBUG": "INFO"})
    expect_exit(result, 0)
    expect("4 ranks with equal shares: nobody has measured the program" in result.stderr, result.stderr)
    expect("rank 0 in attempt 1" in result.stdout and "rank 1" not in result.stdout, f"output of rank 0: {result.stdout!r}")
    seen = environments(sandbox.run_directory() / "checkpoints")
    for rank, environment in enumerate(seen):
        wanted = {"RANK": str(rank), "LOCAL_RANK": str(rank), "ROLE_RANK": str(rank), "WORLD_SIZE": "4",
                  "LOCAL_WORLD_SIZE": "4", "ROLE_WORLD_SIZE": "4", "GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                  "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "program/1",
                  "MOTLEY_JOB": "program", "MOTLEY_ATTEMPT": "1", "MOTLEY_DEVICE": f"localhost/{rank}",
                  "MOTLEY_DEVICE_TYPE": "fast" if rank < 2 else "slow", "MOTLEY_GLOBAL_BATCH": "30", "MOTLEY_GRAIN": "4",
                  "MOTLEY_GRAINS": "2", "MOTLEY_MICRO_BATCH": "4", "MOTLEY_SAMPLES": "8" if rank < 3 else "6",
                  "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "7", "GREETING": "hello world", "NCCL_DEBUG": "INFO",
                  "cwd": str(sandbox.home / "place")}
        expect_equal({name: environment.get(name) for name in wanted}, wanted, f"environment of rank {rank}")
    expect_equal(sum(float(environment["MOTLEY_SHARE"]) for environment in seen), 1.0, "shares")
    expect_equal(len({environment["MASTER_PORT"] for environment in seen} - {"1"}), 1, "one port to meet at")
    expect_equal((sandbox.home / "place" / "setup.txt").read_text(), "hello world\n", "what setup has written")
    again = sandbox.run("run", "program.yaml")
    expect_exit(again, 0)
    expect("run program/1 is finished" in again.stderr, again.stderr)
    print("ok: told")


def found(sandbox):
    """Programs are found as the user's shell would, whatever stands between; another program is another run."""
    tools = sandbox.home / "tools"
    tools.mkdir()
    (tools / "uname").write_text("#!/bin/sh\necho the one of the user\n")
    (tools / "uname").chmod(0o755)
    sandbox.write("found.yaml", "version: 1\nname: found\nfleet: fleet.yaml\nrun: [uname, now]\n")
    result = sandbox.run("run", "found.yaml", environment={"PATH": f"{tools}:{os.environ['PATH']}", "MOTLEY_MEASURE": "/x"})
    expect_exit(result, 0)
    expect_equal(result.stdout, "the one of the user\n", "output")
    sandbox.write("found.yaml", "version: 1\nname: found\nfleet: fleet.yaml\nrun: [uname, later]\n")
    other = sandbox.run("run", "found.yaml")
    expect_exit(other, 65)
    expect("found.yaml:4" in other.stderr and "(run) has changed since run found/1" in other.stderr, other.stderr)
    print("ok: found")


def one_fails(sandbox):
    """It ends the others, and is named with what it said last."""
    prepare(sandbox, "fail", "fleet: fleet.yaml\n")
    result = sandbox.run("run", "program.yaml", "--fresh", timeout=30)
    expect_exit(result, 1)
    expect("rank 2 on localhost/2 (slow) ended with status 3: no more luck" in result.stderr, result.stderr)
    expect("rank-0002.log" in result.stderr, f"no log named: {result.stderr!r}")
    sandbox.write("program.yaml", job_text("fail", "fleet: fleet.yaml\n").replace("setup: [", "setup: [/bin/false, "))
    result = sandbox.run("run", "program.yaml", "--fresh")
    expect_exit(result, 1)
    expect("setup failed (status 1)" in result.stderr, result.stderr)
    print("ok: one fails")


def missing(sandbox):
    """What is not there is looked for once: by hand, in the service, before the program and as the program."""
    for more in ("run: [no-such-program]\n", "run: ['true']\nsetup: [no-such-program]\n"):
        sandbox.write("missing.yaml", "version: 1\nname: missing\nfleet: fleet.yaml\n" + more)
        result = sandbox.run("run", "missing.yaml", "--fresh", timeout=30)
        expect_exit(result, 66)
        expect("no program no-such-program" in result.stderr and "trying again" not in result.stderr, result.stderr)
    sandbox.write("missing.yaml", "version: 1\nname: own66\nfleet: fleet.yaml\nretry: {max_restarts: 1}\nrun: [sh, -c, 'exit 66']\n")
    result = sandbox.run("run", "missing.yaml", "--fresh", timeout=30)
    expect_exit(result, 1)
    expect("trying again" in result.stderr, f"a program's own status is not ours: {result.stderr}")
    print("ok: missing")


def left_out(sandbox):
    """A device on which a program fails twice running is left out, unless the job wants as many."""
    text = ("version: 1\nname: picky\nfleet: fleet.yaml\nrun: [sh, -c, 'test $MOTLEY_DEVICE != localhost/1']\n"
            "train: {global_batch: 8}\n")
    sandbox.write("picky.yaml", text)
    result = sandbox.run("run", "picky.yaml", "--fresh")
    expect_exit(result, 0)
    expect("device localhost/1 failed twice running and is left out" in result.stderr, result.stderr)
    sandbox.write("picky.yaml", text + "resources: {devices: {count: 4}}\n")
    result = sandbox.run("run", "picky.yaml", "--fresh")
    expect_exit(result, 1)
    expect("without localhost/1, the job wants 4 devices" in result.stderr, result.stderr)
    print("ok: left out")


def interrupted(sandbox, through_shell):
    """Every rank is asked to stop and gets the time to save, also one that a shell has started; the same command goes on."""
    prepare(sandbox, "wait", "fleet: fleet.yaml\n")
    if through_shell:
        text = (sandbox.home / "program.yaml").read_text()
        command = f"{sys.executable} ../program.py wait"
        sandbox.write("program.yaml", text.replace(f"run: {command}", f"run: [sh, -c, '{command}; exit $?']"))
    process = sandbox.start("run", "program.yaml", "--fresh")
    places = sandbox.home / "state" / "motley" / "runs" / "program"
    newest = max(int(path.name) for path in places.iterdir() if path.name.isdigit())
    sandbox.wait_for(lambda: (places / str(newest + 1)).is_dir(), "the run", process=process)
    place = places / str(newest + 1) / "checkpoints"
    sandbox.wait_for(lambda: len(list(place.glob("ready-*"))) == 4, "four ranks", process=process)
    process.send_signal(signal.SIGTERM)
    expect_equal(process.wait(timeout=30), 75, "exit code of who was asked to stop")
    expect_equal(len(list(place.glob("saved-*"))), 4, "ranks that have saved")
    for path in place.glob("ready-*"):
        path.unlink()
    process = sandbox.start("run", "program.yaml")
    sandbox.wait_for(lambda: len(list(place.glob("ready-*"))) == 4, "four ranks again", process=process)
    expect_equal(environments(place)[3]["TORCHELASTIC_RESTART_COUNT"], "1", "restarts")
    kill(process.pid)
    process.wait(timeout=10)
    sandbox.wait_for(lambda: not sandbox.processes(), "the end of all processes")
    (place / "enough").write_text("")
    expect_exit(sandbox.run("run", "program.yaml"), 0)
    print("ok: interrupted" + (" through a shell" if through_shell else ""))


def stubborn(sandbox):
    """Who does not end when asked to is killed after the time that the job has for it."""
    sandbox.write("stubborn.yaml", "version: 1\nname: stubborn\nfleet: fleet.yaml\nstop_grace: 1s\n"
                                   "run: [sh, -c, 'trap \"\" TERM; touch $MOTLEY_CHECKPOINT_DIR/ready-$RANK; while :; do sleep 0.1; done']\n")
    process = sandbox.start("run", "stubborn.yaml", "--fresh")
    places = sandbox.home / "state" / "motley" / "runs" / "stubborn"
    sandbox.wait_for(lambda: len(list(places.glob("1/checkpoints/ready-*"))) == 4, "four ranks", process=process)
    process.send_signal(signal.SIGTERM)
    # Far below what it is without.
    expect(process.wait(timeout=20) != 0, "it has ended well")
    expect("had not ended by itself 1" in sandbox.log(), f"not said why: {sandbox.log()[-500:]}")
    print("ok: stubborn")


ASKED_TWICE = """import os, pathlib, signal, subprocess, sys, time
rank, above = int(os.environ["RANK"]), os.getppid()
place = pathlib.Path(os.environ["MOTLEY_CHECKPOINT_DIR"])
def stop(*_):
    if rank == 0:  # what is above it gets to know of its end and of the second signal together
        subprocess.Popen(["sh", "-c", f"kill -STOP {above}; kill -TERM {above}; sleep 0.5; kill -CONT {above}"])
        time.sleep(0.2)
    else:
        time.sleep(2)
    (place / f"saved-{rank}").write_text("")
    sys.exit(75)
signal.signal(signal.SIGTERM, stop)
(place / f"ready-{rank}").write_text("")
while True:
    time.sleep(0.05)
"""


def asked_twice(sandbox):
    """A rank that is asked to stop once more as it ends does not end the others before they have saved."""
    sandbox.write("twice.yaml", f"version: 1\nname: twice\nfleet: fleet.yaml\nrun: [{sys.executable}, twice.py]\n")
    sandbox.write("twice.py", ASKED_TWICE)
    process = sandbox.start("run", "twice.yaml", "--fresh")
    place = sandbox.home / "state" / "motley" / "runs" / "twice" / "1" / "checkpoints"
    sandbox.wait_for(lambda: len(list(place.glob("ready-*"))) == 4, "four ranks", process=process)
    process.send_signal(signal.SIGTERM)
    expect_equal(process.wait(timeout=30), 75, "exit code of who was asked to stop")
    expect_equal(len(list(place.glob("saved-*"))), 4, "ranks that have saved")
    print("ok: asked twice")


def wrong(sandbox):
    """What makes no sense with a program is an error where it stands."""
    prepare(sandbox, "env")
    lines = len(job_text("env").splitlines())
    for more, where, what in (("model: {preset: gpt2-124m}\n", f"{lines + 1}:", "'model' is of no use to a job with 'run'"),
                              ("checkpoint: {every: 5m}\n", f"{lines + 1}:", "'every' of a program is a number of steps"),
                              ("run: [x]\n", f"{lines + 1}:", "")):
        sandbox.write("program.yaml", job_text("env", more))
        result = sandbox.run("run", "program.yaml")
        expect_exit(result, 65)
        expect(f"program.yaml:{where}" in result.stderr and what in result.stderr, result.stderr)
    sandbox.write("program.yaml", job_text("env").replace("30, grain: 4", "30, steps: 4"))
    expect("'train.steps' is of no use" in sandbox.run("run", "program.yaml").stderr, "steps of a program")
    sandbox.write("lonely.yaml", "version: 1\nworkdir: x\n")
    expect("lonely.yaml:2:10: 'workdir' is for a job with 'run'" in sandbox.run("run", "lonely.yaml").stderr, "workdir alone")
    prepare(sandbox, "env")
    planned = sandbox.run("plan", "program.yaml")
    expect_exit(planned, 65)
    expect("program.yaml:3:6: 'run': a job that is a program has no model" in planned.stderr, planned.stderr)
    print("ok: wrong")


def cancelled_at_once(service):
    """Its log speaks of no seconds that have not passed, nor, when it has ended well, of options that submit lacks."""
    text = "version: 1\nname: brief\nrun: [sleep, '%s']\nresources: {devices: {count: 1}}\n"
    for nap in (0, 0.1, 0.2, 0.3, 0.4):
        job = int(service.run("submit", service.write("brief.yaml", text % 60)).stdout)
        service.wait_for_state(job, "running")
        time.sleep(nap)
        service.run("cancel", str(job))
        service.wait_for_state(job, "cancelled", seconds=20)
        log = service.run("logs", str(job)).stdout
        expect("later" not in log and "to continue" not in log, f"cancelled after {nap} s: {log}")
    job = int(service.run("submit", service.write("brief.yaml", text % 0)).stdout)
    service.wait_for_state(job, "succeeded")
    log = service.run("logs", str(job)).stdout
    expect("run brief/1 in" in log and "--fresh" not in log, log)


def served(service):
    """Held with a checkpoint, released, cancelled, by the job service; one that fails has failed."""
    service.write("nowhere.yaml", "version: 1\nname: nowhere\nrun: ['true']\nworkdir: not-there\n")
    nowhere = service.run("submit", "nowhere.yaml")
    expect_exit(nowhere, 65)
    expect("nowhere.yaml:4:10: 'workdir': there is no directory" in nowhere.stderr, nowhere.stderr)
    prepare(service, "wait", "resources: {devices: {count: 4}}\n")
    submitted = service.run("submit", "program.yaml")
    expect_exit(submitted, 0)
    job = int(submitted.stdout)
    place = service.state / "jobs" / str(job) / "motley" / "runs" / "program" / "1" / "checkpoints"
    ready = lambda: len(list(place.glob("ready-*"))) == 4  # noqa: E731
    service.wait_for(ready, "four ranks")
    service.wait_for(lambda: "rank 0 in attempt 1" in service.run("logs", str(job)).stdout, "its words in the log of the job")
    expect_exit(service.run("hold", str(job)), 0)
    service.wait_for_state(job, "waiting")
    expect_equal(len(list(place.glob("saved-*"))), 4, "ranks that have saved")
    for path in place.glob("ready-*"):
        path.unlink()
    expect_exit(service.run("release", str(job)), 0)
    service.wait_for(ready, "four ranks again")
    expect_equal(environments(place)[0]["MOTLEY_ATTEMPT"], "2", "attempt")
    expect_exit(service.run("cancel", str(job)), 0)
    service.wait_for_state(job, "cancelled")
    service.wait_for(lambda: not [pid for pid in service.processes() if pid != service.coordinator.pid], "all to end")
    cancelled_at_once(service)
    service.write("missing.yaml", "version: 1\nname: missing\nrun: [no-such-program]\nresources: {devices: {count: 1}}\n")
    absent = int(service.run("submit", "missing.yaml").stdout)
    service.wait_for_state(absent, "failed")
    told = service.job(absent)
    expect_equal((told["restarts"], len(told["attempts"])), (0, 1), "attempts with what is not there")
    expect("no program no-such-program" in told["cause"] and "attempt failed" not in service.run("logs", str(absent)).stdout, told)
    prepare(service, "fail", "resources: {devices: {count: 4}}\n")
    failing = int(service.run("submit", "program.yaml").stdout)
    service.wait_for_state(failing, "failed")
    expect("rank 2 on localhost/2 (slow) ended with status 3: no more luck" in service.job(failing)["cause"],
           service.job(failing)["cause"])
    print("ok: served")


def main():
    sandbox = Sandbox()
    told(sandbox)
    found(sandbox)
    one_fails(sandbox)
    missing(sandbox)
    left_out(sandbox)
    interrupted(sandbox, through_shell=False)
    interrupted(sandbox, through_shell=True)
    stubborn(sandbox)
    asked_twice(sandbox)
    wrong(sandbox)
    service = Service()
    try:
        service.start_coordinator()
        served(service)
        expect_equal(service.end_coordinator(), 0, "exit code")
    finally:
        service.kill_all()


if __name__ == "__main__":
    run_test(main)
