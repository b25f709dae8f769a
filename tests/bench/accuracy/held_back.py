"""Holds back the ranks of a run: a share of a core's time (the quota of a cgroup, which only root may set) or a core that several share
(taskset). `motley` starts the ranks through a script that finds out which device it is to be."""

import contextlib
import os
import pathlib

CGROUPS = pathlib.Path("/sys/fs/cgroup")
PERIOD = 10_000  # microseconds; short beside a step
WEIGHT = 100  # times that of what else runs here: a rank must get its quota though others compute

# Rank r of a profile is device r, in a training the plan says; of hosts each has one.
SCRIPT = """#!/usr/bin/python3
import json, os, sys
rank, words = os.environ.get("OMPI_COMM_WORLD_RANK"), sys.argv[1:]
if rank is not None:
    device = int(rank)
    if %(hosts)r > 1:
        device = %(names)r.index(os.uname().nodename)
    elif "--attempt" in words:
        plan = json.load(open(words[words.index("--attempt") + 1]))["plan"]
        device = int(plan["ranks"][device]["device"].rsplit("/", 1)[1])
    group, core = %(places)r[device]
    if group:
        open(group + "/cgroup.procs", "w").write("0")
    os.sched_setaffinity(0, [core])
os.execv(%(worker)r, [%(worker)r, *words])
"""


def version_2():
    return (CGROUPS / "cgroup.controllers").exists()


def write(path, value):
    path.write_text(f"{value}\n")


def make_group(name, percent):
    group = (CGROUPS if version_2() else CGROUPS / "cpu") / name
    group.mkdir()
    quota = int(PERIOD * percent / 100)
    if version_2():
        write(group / "cpu.max", f"{quota} {PERIOD}")
        write(group / "cpu.weight", 100 * WEIGHT)
    else:
        write(group / "cpu.cfs_period_us", PERIOD)
        write(group / "cpu.cfs_quota_us", quota)
        write(group / "cpu.shares", 1024 * WEIGHT)
    return group


def why_not():
    """Empty if quotas can be set here."""
    try:
        if version_2():
            write(CGROUPS / "cgroup.subtree_control", "+cpu")
        make_group(f"motley-{os.getpid()}-try", 50).rmdir()
    except OSError as error:
        return f"no quota of CPU time can be set: {error}"
    return ""


@contextlib.contextmanager
def worker_of(case, home, worker):
    """The path of what `motley` shall take for its worker. Who has a quota has a core, too: of a quota that threads use on several cores
    a part of a millisecond or so is left unused on each, in every period."""
    groups, places = [], []
    busy = [0.0] * os.cpu_count()  # percent, by core
    try:
        for number, device in enumerate(case.devices):
            if device.cpu.startswith("@"):
                places.append(("", int(device.cpu[1:]) % os.cpu_count()))
                continue
            percent = float(device.cpu.rstrip("%"))
            groups.append(make_group(f"motley-{os.getpid()}-{number}", percent))
            places.append((str(groups[-1]), busy.index(min(busy))))
            busy[places[-1][1]] += percent
        script = pathlib.Path(home) / "held-back-worker"
        script.write_text(SCRIPT % {"places": places, "worker": worker, "hosts": case.hosts, "names": case.host_names()})
        script.chmod(0o755)
        yield str(script)
    finally:
        for group in groups:
            with contextlib.suppress(OSError):
                group.rmdir()
