"""Two hosts with separate file systems and unequal slots: through `motley run`, and by the user's own mpirun."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import netns_hosts  # noqa: E402
from sandbox import BIN, MEETING, MOTLEY, WORKER, Sandbox, expect, expect_equal, fail, kill, run_test  # noqa: E402

STEPS = 300
FLEET = """version: 1
pace: {clock: virtual, flops: 1.0e9}
nodes:
  - host: n1
    slots: 2
    devices:
      - {kind: cpu, type: fast, threads: 1, paced: {speed: 1, memory: 1GB}}
      - {kind: cpu, type: slow, threads: 1, paced: {speed: 0.3333, memory: 1GB}}
  - host: n2
    slots: 1
    devices:
      - {kind: cpu, type: fast, threads: 1, paced: {speed: 1, memory: 1GB}}
"""


def on(hosts, sandbox, name, *command, code=0, environment=None):
    """Runs a command on a host, in the sandbox."""
    result = subprocess.run(hosts.command_on(name, list(command)), cwd=sandbox.home, capture_output=True,
                            text=True, stdin=subprocess.DEVNULL, timeout=180,
                            env={**sandbox.environment, **(environment or {})})
    if result.returncode != code:
        fail(f"{' '.join(command)} on {name}: exit {result.returncode}, not {code}\n{result.stdout[-2000:]}\n"
             f"{result.stderr[-3000:]}")
    return result


def start_on(hosts, sandbox, name, *command):
    return subprocess.Popen(hosts.command_on(name, list(command)), cwd=sandbox.home, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, env=sandbox.environment)


def on_count(hosts, sandbox, name, path):
    """Lines of a file on a host; 0 while there is none."""
    return int(on(hosts, sandbox, name, "sh", "-c", f"cat {path} 2>/dev/null | wc -l").stdout)


def losses_on(hosts, sandbox, name, path):
    text = on(hosts, sandbox, name, "cat", path).stdout
    rows = [json.loads(line) for line in text.splitlines()]
    return {row["step"]: row["loss_bits"] for row in rows if "loss_bits" in row}


def through_motley(hosts, sandbox):
    """Runs, is killed on the other host half-way, restarts by itself from what reached this host, and ends."""
    arguments = ["run", "job.yaml", "--rsh-agent", str(hosts.agent), "--json"]
    final = json.loads(on(hosts, sandbox, "n1", MOTLEY, *arguments).stdout)
    expect_equal(final["steps"], STEPS, "steps")
    reference = losses_on(hosts, sandbox, "n1", final["run_dir"] + "/metrics.jsonl")
    elsewhere = on(hosts, sandbox, "n2", "sh", "-c", f"ls {final['run_dir']}/checkpoints 2>/dev/null | grep -c ^step- || true")
    expect_equal(elsewhere.stdout.strip(), "0", "committed checkpoints on a host that does not commit")
    again = start_on(hosts, sandbox, "n1", MOTLEY, *arguments, "--fresh")
    metrics = str(pathlib.Path(final["run_dir"]).with_name("2") / "metrics.jsonl")
    sandbox.wait_for(lambda: on_count(hosts, sandbox, "n1", metrics) >= 60, "step 60 of the second run")
    for pid, line in hosts.processes("n2").items():
        if "motley-worker train" in line:
            kill(pid)
    out, err = again.communicate(timeout=180)
    expect_equal(again.returncode, 0, f"exit after a kill on the other host\n{err[-2000:]}")
    expect(json.loads(out)["restarts"] >= 1, "nothing was restarted")
    expect_equal(losses_on(hosts, sandbox, "n1", metrics), reference,
                 "losses after a rank on the other host was killed")
    print("ok: motley run over two hosts")


def fleet_of_hosts(hosts, sandbox):
    """`fleet init --hosts` asks each host itself, and says which one does not answer."""
    arguments = ["fleet", "init", "--rsh-agent", str(hosts.agent), "--hosts"]
    on(hosts, sandbox, "n1", MOTLEY, *arguments, "n1:2,n2", "-o", "found.yaml")
    text = (sandbox.home / "found.yaml").read_text()
    expect_equal([line.split()[2] for line in text.splitlines() if line.startswith("  - host:")], ["n1", "n2"], "hosts")
    expect("slots: 2" in text and text.count("kind: cpu") == 2, text)
    on(hosts, sandbox, "n1", MOTLEY, "plan", "job.yaml", "--fleet", "found.yaml", "--rsh-agent", str(hosts.agent))
    missing = on(hosts, sandbox, "n1", MOTLEY, *arguments, "n1,n3", code=69)
    expect("host n3 does not tell its devices" in missing.stderr, missing.stderr)
    for wrong in ("n1,n1", "n1:0", "n1:x", ","):
        on(hosts, sandbox, "n1", MOTLEY, *arguments, wrong, code=2)
    print("ok: a fleet of two hosts")


def by_hand(hosts, sandbox):
    """No motley process: plan, hostfile, mpirun; killed, and resumed by the same command."""
    on(hosts, sandbox, "n1", MOTLEY, "plan", "job.yaml", "-o", "plan.json", "--rsh-agent", str(hosts.agent))
    hostfile = on(hosts, sandbox, "n1", MOTLEY, "export", "hostfile", "plan.json").stdout
    expect_equal(hostfile.split(), ["n1", "slots=2", "n2", "slots=1"], "hostfile")
    sandbox.write("hosts.txt", hostfile)
    sandbox.write("job.json", on(hosts, sandbox, "n1", MOTLEY, "export", "job", "job.yaml").stdout)
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    run_dir = str(sandbox.home / "state" / "by-hand")

    def train(failpoint=None, code=0):
        pass_on = ["-x", f"MOTLEY_FAILPOINT={failpoint}"] if failpoint else []
        result = subprocess.run(
            hosts.command_on("n1", [mpirun, "--hostfile", "hosts.txt", "--bind-to", "none", "--mca", "plm_rsh_agent",
                                    str(hosts.agent), "--mca", "btl_tcp_if_include", "10.213.7.0/24", *pass_on,
                                    WORKER, "train", "--job", str(sandbox.home / "job.json"), "--plan",
                                    str(sandbox.home / "plan.json"), "--run-dir", run_dir]),
            cwd=sandbox.home, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=180,
            env=sandbox.environment)
        expect((result.returncode == 0) == (code == 0),
               f"mpirun by hand: exit {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}")

    train()
    reference = losses_on(hosts, sandbox, "n1", run_dir + "/metrics.jsonl")
    expect_equal(sorted(reference), list(range(1, STEPS + 1)), "steps by hand")
    run_dir += "-killed"
    train(failpoint="kill_at_step_35:1", code=1)
    train()
    expect_equal(losses_on(hosts, sandbox, "n1", run_dir + "/metrics.jsonl"), reference, "losses after a kill by hand")
    print("ok: mpirun by hand over two hosts")


def programs(hosts, sandbox):
    """Any program, with its ranks on hosts that share none of its run's files."""
    meeting = sandbox.write("meeting.py", MEETING.read_text())

    def arguments(mode):
        sandbox.write("program.yaml", f"version: 1\nname: program\nfleet: fleet.yaml\n"
                                      f"run: [{sys.executable}, {meeting}, {mode}]\nretry: {{max_restarts: 0}}\n")
        return ["run", "program.yaml", "--fresh", "--rsh-agent", str(hosts.agent)]

    def there(number, name, path):
        home = sandbox.home / "state" / "motley" / "runs" / "program" / str(number) / "checkpoints"
        return on(hosts, sandbox, name, "sh", "-c", f"cat {home}/{path} 2>/dev/null || true").stdout

    met = on(hosts, sandbox, "n1", MOTLEY, *arguments("meet"))
    expect("met [1, 2]" in met.stdout, f"ranks that rank 0 met: {met.stdout}")
    expect_equal([there(1, "n1", "here-0"), there(1, "n1", "here-1"), there(1, "n2", "here-2")],
                 ["n1 0 0", "n1 1 0", "n2 0 1"], "where ranks ran")
    failed = on(hosts, sandbox, "n1", MOTLEY, *arguments("fail"), code=1)
    expect("rank 2 on n2/0 (fast) ended with status 3" in failed.stderr, failed.stderr)
    process = start_on(hosts, sandbox, "n1", MOTLEY, *arguments("wait"))
    sandbox.wait_for(lambda: there(3, "n2", "here-2") and there(3, "n1", "here-0"), "ranks on both hosts", process=process)
    on(hosts, sandbox, "n1", "pkill", "-TERM", "-f", "motley run program.yaml")
    out, err = process.communicate(timeout=60)
    expect_equal(process.returncode, 75, f"exit code of who was asked to stop\n{out}{err}")
    expect(on(hosts, sandbox, "n2", "ls", str(sandbox.home / "state/motley/runs/program/3/checkpoints")).stdout.count("saved-2"),
           "rank 2 was not asked to save")
    process = start_on(hosts, sandbox, "n1", MOTLEY, *arguments("wait"))
    sandbox.wait_for(lambda: there(4, "n2", "here-2"), "a rank on the other host", process=process)
    on(hosts, sandbox, "n1", "pkill", "-KILL", "-f", "motley run program.yaml")
    process.communicate(timeout=60)
    sandbox.wait_for(lambda: not any(meeting in line for line in hosts.processes("n2").values()),
                     "the end of the rank on the other host")
    print("ok: programs over two hosts")


def narrow(hosts, sandbox):
    """Little to compute and much to sum over the network, beside the little: `motley diagnose` and the prediction say so."""
    sandbox.write("narrow.yaml", """version: 1
name: narrow
model: {type: gpt, layers: 2, heads: 4, width: 256, context: 8}
data: {text: [text.txt]}
train: {global_batch: 2, steps: 20, optimizer: {type: adamw, lr: 1.0e-3}, seed: 7}
""")
    sandbox.write("two.yaml", "version: 1\nnodes:\n" + "".join(
        f"  - {{host: {name}, slots: 1, devices: [{{kind: cpu, type: core, threads: 1}}]}}\n" for name in ("n1", "n2")))
    done = on(hosts, sandbox, "n1", MOTLEY, "run", "narrow.yaml", "--fleet", "two.yaml", "--json", "--no-compare", "--plan", sandbox.write(
        "two.json", json.dumps({"version": 1, "numerics": "fast", "global_batch": 2, "grain": 1,
                                "ranks": [{"device": "n1/0"}, {"device": "n2/0"}],
                                "replicas": [{"stages": [{"first_layer": 0, "last_layer": 3, "ranks": [rank]}],
                                              "micro_batch": 1, "grains": 1} for rank in (0, 1)]})),
       "--rsh-agent", str(hosts.agent))
    found = json.loads(on(hosts, sandbox, "n1", MOTLEY, "diagnose", "narrow", "--json").stdout)
    expect_equal(found["limit"], "network", f"what limits it: {found}")

    def of_run(name):
        return json.loads(on(hosts, sandbox, "n1", "cat", json.loads(done.stdout)["run_dir"] + "/" + name).stdout)

    prediction = of_run("plan.json")["prediction"]
    expect(prediction["hidden_seconds"] > 0, f"what computing hides: {prediction}")
    busy = of_run("profile.json")["reductions"][0].get("busy_share", 0)
    expect(0 <= busy <= 1, f"what sums take of computing: {busy}")
    print("ok: a narrow network")


def main():
    reason = netns_hosts.possible()
    if reason:
        os.execvp("bash", ["bash", "tests/support/missing_capability.sh", "netns", reason])
    sandbox = Sandbox(steps=STEPS, every=20)
    # /tmp is private to each host: what they share must lie elsewhere.
    home = pathlib.Path("/var/tmp") / sandbox.home.name
    shutil.move(sandbox.home, home)
    sandbox.home = home
    sandbox.environment["XDG_STATE_HOME"] = str(home / "state")
    sandbox.environment["XDG_CACHE_HOME"] = str(home / "cache")
    sandbox.write("fleet.yaml", FLEET)
    with netns_hosts.Hosts(["n1", "n2"], home, private=[str(home / "state")], shared=[str(BIN.parent)]) as hosts:
        through_motley(hosts, sandbox)
        by_hand(hosts, sandbox)
        fleet_of_hosts(hosts, sandbox)
        programs(hosts, sandbox)
        narrow(hosts, sandbox)


if __name__ == "__main__":
    run_test(main)
