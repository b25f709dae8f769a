"""A Slurm of several nodes on one machine, as root: munge, slurmctld and a slurmd for each node, in a directory of its own.

GPUs are character devices that nobody computes on; a job sees them as any job would (CUDA_VISIBLE_DEVICES, SLURM_*).
"""

import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ("slurmctld", "slurmd", "sinfo", "munged")


def possible():
    """Why not; empty: it is."""
    if os.geteuid() != 0:
        return "root", "Slurm's daemons and device files need root"
    missing = [program for program in PROGRAMS if not shutil.which(program, path="/usr/sbin:/usr/bin:" + os.environ["PATH"])]
    return ("slurm", f"no {missing[0]} (packages slurm-wlm, munge)") if missing else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Cluster:
    """nodes: {name: {"features": "a100", "gres": {"a100": 2}}}. `environment` is what its commands need."""

    def __init__(self, home, nodes, partition="mixed"):
        self.home = pathlib.Path(home)
        self.nodes = nodes
        self.partition = partition
        self.temporary = self.home / "tmp"
        self.processes = []
        self.environment = {**os.environ, "SLURM_CONF": str(self.home / "slurm.conf"),
                            "PATH": os.environ["PATH"] + ":/usr/sbin"}

    def __enter__(self):
        self.home.mkdir(parents=True, exist_ok=True)
        os.chmod(self.home, 0o755)
        self.write_configuration()
        self.start_munge()
        self.start("slurmctld", "-D")
        for name in self.nodes:
            self.start("slurmd", "-D", "-N", name, within=self.own_temporary_files())
        self.wait_until_idle()
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()

    def write_configuration(self):
        # What is queued again may start once credentials of its last time have expired: after two minutes, if nothing is said.
        lines = ["ClusterName=unlike", f"SlurmctldHost={socket.gethostname()}(127.0.0.1)", f"SlurmctldPort={free_port()}",
                 "SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", f"AuthInfo=socket={self.home}/munge.socket,cred_expire=5",
                 "CredType=cred/munge", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
                 "SwitchType=switch/none", "SchedulerType=sched/backfill", "SelectType=select/cons_tres",
                 "SelectTypeParameters=CR_Core", "GresTypes=gpu", "ReturnToService=2", "SlurmdParameters=config_overrides",
                 "JobRequeue=1", "MinJobAge=300", "SchedulerParameters=sched_interval=2,bf_interval=2", "KillWait=20", "ResumeTimeout=5",
                 f"StateSaveLocation={self.home}/ctld", f"SlurmdSpoolDir={self.home}/spool-%n",
                 f"SlurmctldPidFile={self.home}/ctld.pid", f"SlurmdPidFile={self.home}/slurmd-%n.pid",
                 f"SlurmctldLogFile={self.home}/ctld.log", f"SlurmdLogFile={self.home}/slurmd-%n.log"]
        gres = []
        for name, node in self.nodes.items():
            listed = ",".join(f"gpu:{kind}:{count}" for kind, count in node["gres"].items())
            lines.append(f"NodeName={name} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={free_port()} CPUs=4 "
                         f"RealMemory=2000 Feature={node['features']} Gres={listed} State=UNKNOWN")
            for kind, count in node["gres"].items():
                files = [self.device_file(f"{name}-{kind}-{i}") for i in range(count)]
                gres += [f"NodeName={name} Name=gpu Type={kind} File={file}" for file in files]
            (self.home / f"spool-{name}").mkdir()
        lines.append(f"TaskProlog={self.prolog()}")
        lines.append(f"PartitionName={self.partition} Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP")
        (self.home / "ctld").mkdir()
        (self.home / "slurm.conf").write_text("\n".join(lines) + "\n")
        (self.home / "gres.conf").write_text("\n".join(gres) + "\n")
        (self.home / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def prolog(self):
        path = self.home / "prolog.sh"
        path.write_text(f'#!/bin/sh\necho "export TMPDIR={self.temporary}"\n')
        path.chmod(0o755)
        return path

    def own_temporary_files(self):
        """What gives a node a place of its own for them, at the same path on all: Open MPI's daemons remove what they take for
        left behind of others, also what one is just making. Nothing where no mounts may be made."""
        self.temporary.mkdir(exist_ok=True)
        command = ["unshare", "--mount", "/bin/sh", "-c", 'mount --make-rprivate / && mount -t tmpfs tmpfs "$0" && exec "$@"',
                   str(self.temporary)]
        return command if subprocess.run([*command, "true"], capture_output=True).returncode == 0 else []

    def device_file(self, name):
        path = self.home / name
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 3))
        return path

    def start_munge(self):
        key = self.home / "munge.key"
        key.write_bytes(os.urandom(128))
        os.chmod(key, 0o400)
        self.start("munged", "-F", f"--key-file={key}", f"--socket={self.home}/munge.socket", f"--pid-file={self.home}/munge.pid",
                   f"--log-file={self.home}/munge.log", f"--seed-file={self.home}/munge.seed", "--force")
        self.wait_for(lambda: (self.home / "munge.socket").exists(), "munged")

    def start(self, program, *arguments, within=()):
        log = open(self.home / f"{program}.out", "a")
        program = shutil.which(program, path=self.environment["PATH"])
        self.processes.append(subprocess.Popen([*within, program, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                               env=self.environment))

    def wait_for(self, condition, what, seconds=120):
        """what: said when it was in vain; a function, if it is to be looked up then."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = "".join(path.read_text()[-1000:] for path in sorted(self.home.glob("*.log")) + sorted(self.home.glob("*.out")))
                raise RuntimeError(f"waited {seconds} s in vain for {what() if callable(what) else what}\n{logs}")
            time.sleep(0.05)

    def wait_until_idle(self):
        self.wait_for(lambda: self.command("sinfo", "-h", "-o", "%t %D").split() == ["idle", str(len(self.nodes))],
                      "idle nodes")

    def command(self, *words):
        """stdout of one of Slurm's commands."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=60).stdout
