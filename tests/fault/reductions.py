"""Reductions among ranks on hosts of their own (linked_hosts.py; needs root) when something goes wrong: a rank is killed or
stopped, calls something else, or the link is cut, cut for a moment, or slow; before a rank contributes, before the hosts exchange
their sums, before a rank takes its total, and in an ordinary collective. Whatever the fault, every rank ends by itself; who is lost
is named with the phase by all who are left."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import netns_hosts  # noqa: E402
from linked_hosts import GIGABIT, LinkedHosts  # noqa: E402
from sandbox import BIN, expect, fail, run_test  # noqa: E402

PROGRAM = BIN / "tests" / "faulty_sum"
PATIENCE = 2.0  # seconds of silence that ranks bear; of a rank that waits for others who wait, up to twice that
LIMIT = 25.0  # nothing waits longer, by far; only what hangs does
PHASES = ("contribute", "across", "receive", "collective")
# Ranks of each host, and by phase who misbehaves: a rank that others of its host wait for, one that speaks for its host, one that
# only receives, any.
SHAPES = {(2, 2): dict(contribute=3, across=2, receive=3, collective=3),
          (3, 1): dict(contribute=1, across=3, receive=2, collective=3)}


class Case:
    """One mpirun over both hosts."""

    def __init__(self, hosts, home, shape, phase, fault):
        self.name = f"{'+'.join(map(str, shape))} {phase} {fault}"
        self.hosts, self.shape, self.phase, self.fault = hosts, shape, phase, fault
        self.victim, self.ranks = SHAPES[shape][phase], range(sum(shape))
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="case-", dir=home))
        self.output = open(self.home / "output", "w")
        environment = dict(os.environ)
        environment.pop("MOTLEY_DEBUG", None)
        options = {"mismatch": ["-x", "MOTLEY_DEBUG=collectives"], "vanish": ["--enable-recovery"],
                   "unheard": ["--enable-recovery", "-x", "MOTLEY_FAILPOINT=notice_lost:1"]}.get(fault, [])
        action = {"vanish": "kill", "unheard": "kill", "cut": "wait", "heal": "wait", "slow": "wait"}.get(fault, fault)
        command = [shutil.which("mpirun.openmpi") or "mpirun", "--bind-to", "none", "-n", str(len(self.ranks)), *options, "--host",
                   ",".join(f"{host}:{count}" for host, count in zip(hosts.names, shape)), "--mca", "plm_rsh_agent", str(hosts.agent),
                   "--mca", "btl_tcp_if_include", "eth0", str(PROGRAM), str(self.home), ",".join(map(str, shape)), phase,
                   str(self.victim), action, str(PATIENCE)]
        self.mpirun = subprocess.Popen(hosts.command_on(hosts.names[0], command), stdin=subprocess.DEVNULL, stdout=self.output,
                                       stderr=self.output, env=environment)

    def text(self, name):
        path = self.home / name
        return path.read_text().strip() if path.exists() else None

    def lines(self, ranks=None):
        """What the ranks said in the end; None of those that have not."""
        return {rank: self.text(f"rank.{rank}") for rank in ranks or self.ranks}

    def report(self):
        return f"{self.name}: {self.lines()}\n{self.text('output')[-2000:]}"

    def wait(self, condition, what):
        end = time.monotonic() + LIMIT
        while not condition():
            expect(time.monotonic() < end, f"waited in vain until {what}: {self.report()}")
            time.sleep(0.01)

    def is_ready(self):
        return all(self.text(f"ready.{rank}") is not None for rank in self.ranks)

    def signal(self, name):
        (self.home / name).touch()

    def has_reached(self):
        return self.text(f"reached.{self.victim}") is not None

    def processes(self, host):
        """Its ranks there."""
        return [line for line in self.hosts.processes(host).values() if line.startswith(f"{PROGRAM} {self.home} ")]

    def expect_lines(self, pattern, ranks=None):
        for rank, line in self.lines(ranks).items():
            expect(line and re.search(pattern, line), f"rank {rank} said {line!r}, not {pattern!r}: {self.report()}")

    def expect_end(self, code=None):
        """Of mpirun and all its ranks, with this exit code or any but 0."""
        self.wait(lambda: self.mpirun.poll() is not None, "mpirun ends")
        ended = self.mpirun.returncode
        expect(ended == code if code is not None else ended != 0, f"mpirun ends with {ended}: {self.report()}")
        for host in self.hosts.names:
            self.wait(lambda host=host: not self.processes(host), f"no rank is left on {host}")
        self.output.close()


def ready(hosts, home, shape, phase, fault):
    """One after the other, and again where a busy machine is silent for longer than ranks bear before anything is tried."""
    for _ in range(5):
        case = Case(hosts, home, shape, phase, fault)
        case.wait(lambda case=case: case.is_ready() or case.mpirun.poll() is not None, "the first sum is over")
        if case.is_ready():
            return case
        case.expect_end()
    return fail(f"does not begin: {case.report()}")


def started(hosts, home, fault, shapes=tuple(SHAPES)):
    """Cases of this fault at every phase, with a sum behind them and the next one begun."""
    cases = [ready(hosts, home, shape, phase, fault) for shape in shapes for phase in PHASES]
    for case in cases:
        case.signal("start")
    return cases


def at_phase(hosts, home, fault):
    """The same, where the victims wait for what happens to the link."""
    cases = started(hosts, home, fault)
    for case in cases:
        case.wait(case.has_reached, "the victim has come to the phase")
    return cases


def let_go(cases):
    for case in cases:
        case.signal("go")


def killed(hosts, home):
    """mpirun sees it and ends the others; it says which rank."""
    for case in started(hosts, home, "kill"):
        case.expect_end(128 + signal.SIGKILL)
        expect(f"process rank {case.victim} " in case.text("output"), f"no word of the killed rank: {case.report()}")


def expect_named_by_survivors(case):
    wanted = rf"^rank {case.victim} did not answer in all_reduce_sum of integers"
    if case.phase != "collective":
        wanted = rf"rank {case.victim}( or rank \d)* \({case.phase}\) did not answer in a reduction"
    case.expect_lines(wanted, [rank for rank in case.ranks if rank != case.victim])


def vanished(hosts, home):
    """A rank is killed where mpirun cares for no rank's end, nor for its status."""
    for case in started(hosts, home, "vanish"):
        case.expect_end(case.mpirun.wait(LIMIT))
        expect_named_by_survivors(case)


def unheard(hosts, home):
    """Rank 1 hears of it only by way of the ranks beside it, and before they end."""
    case = ready(hosts, home, (2, 2), "contribute", "unheard")
    case.signal("start")
    case.expect_end(case.mpirun.wait(LIMIT))
    expect_named_by_survivors(case)


def stopped(hosts, home):
    """Nobody sees it but those who wait: who stands next to it names it, the others have it from there."""
    for case in started(hosts, home, "stop"):
        case.expect_end()
        expect_named_by_survivors(case)


def mismatched(hosts, home):
    """Each rank is told both calls."""
    calls = {"contribute": "barrier where rank 0 calls reduction 1 of 400000 int64",
             "across": "barrier where rank 0 calls reduction 1 of 1000 int64",
             "receive": "reduction 1 of 800000 float64 where rank 0 calls reduction 1 of 800000 int64",
             "collective": "all_reduce_sum of 41 int64 where rank 0 calls all_reduce_sum of 40 int64"}
    for case in started(hosts, home, "mismatch"):
        case.expect_end(70)
        case.expect_lines(f"^rank {case.victim} calls {calls[case.phase]}$")


def is_across(case, rank):
    """What a rank says of a cut link: ranks of the other host."""
    first = case.shape[0]
    there = "".join(str(other) for other in case.ranks if (other < first) != (rank < first))
    if case.phase == "collective":
        return rf"^ranks?( [{there}])+ did not answer in all_reduce_sum of integers"
    return rf"^rank [{there}] \(across\) did not answer in a reduction"


def cut(hosts, home):
    """Each side names the other, and ends without it."""
    cases = at_phase(hosts, home, "cut")
    hosts.cut(hosts.names[1])
    let_go(cases)
    for case in cases:
        for host in hosts.names:
            case.wait(lambda case=case, host=host: not case.processes(host), f"no rank is left on {host}")
        for rank in case.ranks:
            case.expect_lines(is_across(case, rank), [rank])
    hosts.heal(hosts.names[1])
    for case in cases:
        case.expect_end()


def healed(hosts, home):
    cases = at_phase(hosts, home, "heal")
    hosts.cut(hosts.names[1])
    let_go(cases)
    time.sleep(PATIENCE / 4)  # TCP tries again well before patience ends
    hosts.heal(hosts.names[1])
    expect_sums(cases)


def slow(hosts, home):
    """The sums take longer than silence may, but there is no silence."""
    cases = at_phase(hosts, home, "slow")
    hosts.slow(hosts.names[1], GIGABIT / 15)
    let_go(cases)
    expect_sums(cases)
    hosts.slow(hosts.names[1], GIGABIT)


def expect_sums(cases):
    for case in cases:
        case.expect_end(0)
        case.expect_lines("^ok$")


@contextlib.contextmanager
def bed():
    # Not beneath /tmp, which is private to each host.
    with tempfile.TemporaryDirectory(prefix="motley-faults-", dir="/var/tmp") as home:
        with LinkedHosts(["a", "b"], home, private=[], shared=[str(BIN.parent)]) as hosts:
            try:
                yield hosts, home
            finally:  # ranks of a test that has failed would wait for ever
                for pid in left_over(hosts):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def left_over(hosts):
    """By process."""
    return {pid: line for name in hosts.names for pid, line in hosts.processes(name).items() if pid != hosts.switch.pid}


def expect_nothing_left(hosts):
    end = time.monotonic() + LIMIT
    while left := left_over(hosts):
        expect(time.monotonic() < end, f"still running: {left}")
        time.sleep(0.05)


def main():
    reason = netns_hosts.possible()
    if reason:
        os.execvp("bash", ["bash", "tests/support/missing_capability.sh", "netns", reason])
    chosen = [globals()[name] for name in sys.argv[1:]] or [killed, vanished, unheard, stopped, mismatched, cut, healed, slow]
    with bed() as (hosts, home):
        for fault in chosen:
            begun = time.monotonic()
            fault(hosts, home)
            expect_nothing_left(hosts)
            print(f"ok: {fault.__name__}, {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    run_test(main)
