"""The job service over several hosts, each a node with an agent (one of them over TLS) and no ssh: devices come, jobs train over
nodes, a host is killed, a node is drained, the coordinator is killed while all train on."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import netns_hosts  # noqa: E402
from sandbox import BIN, MEETING, MOTLEY, Sandbox, expect, expect_equal, expect_exit, kill, run_test  # noqa: E402
from service import Service, UnixConnection  # noqa: E402

STEPS = 400
NODES = ("n1", "n2", "n3")
DOOR = "head:7430"
FLEET = "version: 1\npace: {clock: virtual, flops: 1.0e9}\nnodes:\n" + "".join(
    f"  - host: {host}\n    slots: 2\n    devices:\n" + "".join(
        f"      - {{kind: cpu, type: {kind}, threads: 1, paced: {{speed: {speed}, memory: 1GB}}}}\n"
        for kind, speed in devices)
    for host, devices in (("n1", [("fast", 1)]), ("n2", [("fast", 1)]), ("n3", [("fast", 1), ("slow", 0.3333)])))
# Follows events over the network a hundred times, with the token that it is given; and takes all places there are for those who say
# nothing.
ELSEWHERE = f"""
import http.client, socket, ssl, sys, time
followers = [http.client.HTTPSConnection("{DOOR}", context=ssl._create_unverified_context()) for _ in range(100)]
for follower in followers:
    follower.request("GET", "/v1/events", headers={{"Accept": "text/event-stream", "Authorization": "Bearer " + sys.argv[1]}})
answers = [follower.getresponse() for follower in followers]
print({{answer.status for answer in answers}}, flush=True)
def silent():
    connection = socket.create_connection({tuple(DOOR.split(":"))})
    connection.setblocking(False)
    return connection
def is_closed(connection):
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True
strangers = [silent() for _ in range(100)]
while True:
    strangers = [silent() if is_closed(one) else one for one in strangers]
    time.sleep(0.02)
"""


class Cluster(Service):
    """A coordinator on a host without devices, and an agent on each of the others."""

    def __init__(self):
        super().__init__(numerics="exact", grain=2)
        # /tmp is private to each host: what they share must lie elsewhere.
        home = pathlib.Path("/var/tmp") / self.home.name
        shutil.move(self.home, home)
        self.home = home
        self.environment["XDG_STATE_HOME"] = str(home / "state")
        self.environment["XDG_CACHE_HOME"] = str(home / "cache")
        self.environment["PATH"] = self.without_ssh()
        self.write("fleet.yaml", FLEET)
        self.agents = {}

    def without_ssh(self):
        """A PATH on which there is no ssh."""
        tools = self.home / "tools"
        tools.mkdir()
        for directory in os.environ["PATH"].split(":"):
            for name in os.listdir(directory) if os.path.isdir(directory) else []:
                if name not in ("ssh", "rsh") and not (tools / name).is_symlink():
                    (tools / name).symlink_to(os.path.join(directory, name))
        return str(tools)

    def job_text(self, name="job", devices="2", steps=STEPS, more=""):
        self.name = name
        self.write_job(steps=steps, every=20, numerics="exact", grain=2)
        text = (self.home / "job.yaml").read_text().replace("fleet: fleet.yaml\n", "")
        return f"{text}resources: {{devices: {{count: {devices}}}}}\n{more}"

    def start_on(self, host, *arguments):
        log = open(self.home / "log.txt", "a")
        return subprocess.Popen(self.hosts.command_on(host, [MOTLEY, *arguments]), cwd=self.home, stdout=log, stderr=log,
                                stdin=subprocess.DEVNULL, start_new_session=True, env=self.environment)

    def start_coordinator(self):
        self.coordinator = self.start_on("head", "serve", "--no-local", "--listen", DOOR)
        self.wait_for(self.answers, "a coordinator that answers", process=self.coordinator)

    def start_agent(self, name, *arguments):
        """n2 joins over the network, the others by the coordinator's socket, which they share."""
        way = ["--join", self.socket]
        if name == "n2":
            made = self.run("token", "create", "--role", "node", "--node", name, "--label", name, "--json")
            expect_exit(made, 0)
            token = json.loads(made.stdout)
            expect_equal(token["node"], name, "the node of its token")
            self.fingerprint = token["fingerprint"]
            way = ["--join", DOOR, "--token-file", self.write("n2.token", token["token"]), "--fingerprint", self.fingerprint]
        self.agents[name] = self.start_on(name, "agent", *way, "--name", name, "--fleet", "fleet.yaml", *arguments)

    def kill_host(self, name):
        """As when its power is cut: nothing of it says good-bye."""
        for pid in self.hosts.processes(name):
            try:
                kill(pid)
            except ProcessLookupError:
                pass
        self.agents[name].wait(timeout=10)

    def nodes(self):
        result = self.run("nodes", "--json")
        expect_exit(result, 0)
        return {node["name"]: node for node in json.loads(result.stdout)["nodes"]}

    def wait_for_nodes(self, **states):
        def there():
            nodes = self.nodes()
            return all(name in nodes and nodes[name]["state"] == state for name, state in states.items())
        self.wait_for(there, f"nodes to be {states}")

    def wait_for_attempt(self, job, attempt):
        self.wait_for(lambda: self.job(job)["attempt"] == attempt, f"attempt {attempt} of job {job}")

    def hosts_of(self, job, attempt):
        return {device.split("/")[0] for device in self.job(job)["attempts"][attempt - 1]["devices"]}

    def losses_of(self, job):
        metrics = list((self.state / "jobs" / str(job) / "motley" / "runs").glob("*/1/metrics.jsonl"))
        rows = [json.loads(line) for line in metrics[0].read_text().splitlines()]
        return {row["step"]: row["loss_bits"] for row in rows if "loss_bits" in row}


def reference():
    """The losses of `motley run` on one device: `exact` has the same bits on any others."""
    alone = Sandbox(steps=STEPS, every=200, numerics="exact", grain=2)
    fleet = (alone.home / "fleet.yaml").read_text().splitlines(keepends=True)
    alone.write("fleet.yaml", "".join(fleet[:7]))
    expect_exit(alone.run("run", "job.yaml"), 0)
    return alone.losses()


def nodes_come(cluster):
    """A job waits for the first nodes; what they have is shown."""
    first = cluster.submit(name="first", devices="2")
    expect_equal(cluster.job(first)["state"], "queued", "state of a job without any device")
    for name in NODES:
        cluster.start_agent(name, *(["--label", "rack=7"] if name == "n1" else []))
    cluster.wait_for_nodes(n1="ready", n2="ready", n3="ready")
    nodes = cluster.nodes()
    expect(nodes["n1"]["labels"].pop("motley.version"), "no version among the labels")
    expect_equal(nodes["n1"]["labels"], {"rack": "7"}, "labels")
    expect_equal([device["id"] for device in nodes["n3"]["devices"]], ["n3/0", "n3/1"], "devices")
    table = cluster.run("nodes").stdout
    expect("rack=7" in table and "ready" in table, table)
    second = cluster.start_on("n3", "agent", "--join", cluster.socket, "--name", "n1", "--fleet", "fleet.yaml")
    expect_equal(second.wait(timeout=60), 77, "exit code of a second agent of one name")
    return first


def trains_over_nodes(cluster, first, losses):
    cluster.wait_for_state(first, "succeeded", seconds=120)
    job = cluster.submit(name="wide", devices="4")
    cluster.wait_for_state(job, "succeeded", seconds=120)
    expect_equal(cluster.hosts_of(job, 1), set(NODES), "hosts of a job on all devices")
    expect_equal(cluster.losses_of(job), losses, "losses over three nodes and on one device")
    for name in NODES:
        cluster.wait_for(lambda: len(cluster.hosts.processes(name)) == 1, f"only the agent on {name}")
    print("ok: a job over nodes")


def programs_over_nodes(cluster):
    """Any program: its ranks meet, and nothing of it is left where it ran once it is cancelled."""
    meeting = cluster.write("meeting.py", MEETING.read_text())

    def submit(mode):
        job = cluster.run("submit", cluster.write("meeting.yaml", f"version: 1\nname: meeting\nresources: {{devices: {{count: 4}}}}\n"
                                                  f"run: [{sys.executable}, {meeting}, {mode}]\n"))
        expect_exit(job, 0)
        return int(job.stdout)

    job = submit("meet")
    cluster.wait_for_state(job, "succeeded", seconds=60)
    expect_equal(cluster.hosts_of(job, 1), set(NODES), "hosts of a program")
    job = submit("wait")
    place = cluster.state / "jobs" / str(job) / "motley" / "runs" / "meeting" / "1" / "checkpoints"
    cluster.wait_for(lambda: len(list(place.glob("here-*"))) == 4, "four ranks that have met")
    expect_exit(cluster.run("cancel", str(job)), 0)
    cluster.wait_for_state(job, "cancelled", seconds=60)
    expect_equal(len(list(place.glob("saved-*"))), 4, "ranks that were asked to save")
    for name in NODES:
        cluster.wait_for(lambda: len(cluster.hosts.processes(name)) == 1, f"only the agent on {name}")
    print("ok: programs over nodes")


def crowded(cluster, losses):
    """As many as may follow events, and more, by the socket and from where n2 is: nodes and jobs do not notice."""
    followers = [UnixConnection(cluster.socket) for _ in range(300)]
    for follower in followers:
        follower.request("GET", "/v1/events?after=0", headers={"Accept": "text/event-stream"})
    answers = [follower.getresponse() for follower in followers]
    statuses = [answer.status for answer in answers]
    expect_equal((statuses.count(200), statuses.count(503)), (256, 44), "followers let in and turned away")
    made = cluster.run("token", "create", "--role", "viewer", "--json")
    expect_exit(made, 0)
    elsewhere = subprocess.Popen(cluster.hosts.command_on("n2", [sys.executable, "-c", ELSEWHERE, json.loads(made.stdout)["token"]]),
                                 stdout=subprocess.PIPE, text=True)
    expect_equal(elsewhere.stdout.readline(), "{200}\n", "followers beside the agent of n2")
    begun = time.monotonic()
    job = cluster.submit(name="crowded", devices="4")
    expect_exit(cluster.run("events", "-f"), 69)
    cluster.wait_for_state(job, "succeeded", seconds=120)
    told = cluster.job(job)
    expect_equal((told["restarts"], len(told["attempts"])), (0, 1), "undisturbed")
    expect_equal(cluster.losses_of(job), losses, "losses among followers")
    time.sleep(max(0, begun + 8 - time.monotonic()))  # nodes that are silent are lost after five
    expect_equal({node["state"] for node in cluster.nodes().values()}, {"ready"}, "nodes")
    expect("is lost" not in cluster.run("events").stdout, "a node was lost")
    elsewhere.kill()
    elsewhere.wait()
    for answer in answers:
        answer.close()
    print("ok: crowded")


def killed_host(cluster, losses):
    """Its job goes on with what is left; when it is back it is used again."""
    job = cluster.submit(name="bereaved", devices="2..4")
    cluster.wait_for_step(job, 45)
    busy = cluster.run("top", "--once").stdout
    expect(all(f"n{i}/0 " in busy for i in (1, 2, 3)) and f"{job} bereaved" in busy, busy)
    cluster.kill_host("n2")
    cluster.wait_for_nodes(n2="lost")
    cluster.wait_for_attempt(job, 2)
    told = cluster.job(job)
    expect_equal(told["attempts"][0]["cause"], "node n2 is lost: silent for 5 s", "cause")
    expect_equal(cluster.hosts_of(job, 2), {"n1", "n3"}, "hosts after the loss")
    waiting = cluster.submit(name="waiting", devices="4", steps=20)
    why = cluster.run("why", str(waiting)).stdout
    expect("node n2 is lost: silent for 5 s" in why, why)
    cluster.wait_for_state(job, "succeeded", seconds=120)
    expect_equal(cluster.losses_of(job), losses, "losses of a job that has lost a node")
    cluster.start_agent("n2")
    cluster.wait_for_state(waiting, "succeeded", seconds=120)
    events = cluster.run("events", "--all").stdout
    expect("node n2  lost: silent for 5 s" in events and "node n2  ready" in events, events[-2000:])
    told = cluster.run("forget", "n2")
    expect_exit(told, 77)
    expect("node n2 is ready" in told.stderr and told.stderr.count("\n") == 1, told.stderr)
    print("ok: killed host")


def drained(cluster, losses):
    """What runs there is stopped at the deadline and goes on elsewhere."""
    job = cluster.submit(name="moved", devices="1..4")
    cluster.wait_for_step(job, 30)
    result = cluster.run("drain", "n1", "--deadline", "1s", "--reason", "a new fan")
    expect_exit(result, 0)
    expect("draining" in result.stdout and "a new fan" in result.stdout, result.stdout)
    cluster.wait_for_attempt(job, 2)
    expect_equal(cluster.hosts_of(job, 2), {"n2", "n3"}, "hosts beside the drained one")
    expect_equal(cluster.job(job)["attempts"][0]["outcome"], "stopped", "outcome")
    metrics = cluster.request("GET", "/metrics")[1]
    expect('motley_nodes{state="draining"} 1' in metrics, metrics)
    cluster.wait_for_state(job, "succeeded", seconds=120)
    expect_equal(cluster.losses_of(job), losses, "losses of a job that was moved")
    expect_exit(cluster.run("undrain", "n1"), 0)
    cluster.wait_for_nodes(n1="ready")
    expect_exit(cluster.run("drain", "n9"), 66)
    expect_exit(cluster.run("drain", "n1", "--deadline", "soon"), 2)
    print("ok: drained")


def killed_coordinator(cluster, losses):
    """Nobody who trains is disturbed, whichever process starts them on other nodes."""
    job = cluster.submit(name="steady", devices="4", steps=STEPS)
    cluster.wait_for_step(job, 20)
    pid = cluster.attempt_pid(job)
    cluster.kill_coordinator()
    before = cluster.step_of(job)
    cluster.wait_for_step(job, before + 20)
    cluster.start_coordinator()
    cluster.wait_for_nodes(n1="ready", n2="ready", n3="ready")
    cluster.wait_for_state(job, "succeeded", seconds=120)
    told = cluster.job(job)
    expect_equal((told["restarts"], len(told["attempts"]), cluster.attempt_pid(job)), (0, 1, pid), "undisturbed")
    expect_equal(cluster.losses_of(job), losses, "losses across coordinators")
    print("ok: killed coordinator")


def ended(cluster):
    """Agents that are asked to end leave nothing, and their jobs wait for them."""
    job = cluster.submit(name="left", devices="4", steps=100000)
    cluster.wait_for_step(job, 5)
    cluster.agents["n3"].terminate()
    expect_equal(cluster.agents["n3"].wait(timeout=30), 0, "exit code of an agent")
    expect_equal(cluster.hosts.processes("n3"), {}, "processes on a node without agent")
    cluster.wait_for(lambda: cluster.job(job)["state"] in ("waiting", "queued"), "a job without its node")
    expect_equal(cluster.job(job)["attempts"][0]["cause"], "node n3 is lost: its agent has ended", "cause")
    cluster.run("cancel", str(job))
    expect_exit(cluster.run("forget", "n9"), 66)
    cluster.wait_for(lambda: cluster.run("forget", "n3").returncode == 0, "a node that is forgotten")
    expect_equal(sorted(cluster.nodes()), ["n1", "n2"], "nodes")
    expect("node n3  forgotten" in cluster.run("events", "--all").stdout, "its history")
    impostor = cluster.start_on("n1", "agent", "--join", DOOR, "--token-file", str(cluster.home / "n2.token"), "--fingerprint",
                                cluster.fingerprint, "--name", "n3", "--fleet", "fleet.yaml")
    expect_equal(impostor.wait(timeout=60), 77, "exit code of an agent with the token of another node")
    expect("the token is node n2's, not n3's" in cluster.log(), "not said whose token it is")
    for name in ("n1", "n2"):
        cluster.wait_for(lambda: len(cluster.hosts.processes(name)) == 1, f"only the agent on {name}")
        cluster.agents[name].terminate()
        expect_equal(cluster.agents[name].wait(timeout=30), 0, "exit code of an agent")
    print("ok: ended")


def main():
    reason = netns_hosts.possible()
    if reason:
        os.execvp("bash", ["bash", "tests/support/missing_capability.sh", "netns", reason])
    losses = reference()
    cluster = Cluster()
    with netns_hosts.Hosts(["head", *NODES], cluster.home, private=[], shared=[str(BIN.parent)]) as hosts:
        cluster.hosts = hosts
        try:
            cluster.start_coordinator()
            first = nodes_come(cluster)
            trains_over_nodes(cluster, first, losses)
            programs_over_nodes(cluster)
            crowded(cluster, losses)
            killed_host(cluster, losses)
            drained(cluster, losses)
            killed_coordinator(cluster, losses)
            ended(cluster)
            expect_equal(cluster.end_coordinator(), 0, "exit code")
            cluster.wait_for(lambda: not cluster.processes(), "the end of all processes", seconds=10)
        finally:
            cluster.kill_all()


if __name__ == "__main__":
    run_test(main)
