"""Hosts on one machine (netns_hosts.py) whose links have an exact rate and delay: tests/support/link_switch.cc in the place of
the bridge. Rates are bytes per second of IP packets, delays seconds for one way. Needs root."""

import os
import subprocess

from netns_hosts import Hosts, address_of
from sandbox import BIN, fail

GIGABIT = 125e6  # bytes per second

# Whatever this machine is set to: links that hardly lose need no more, and a namespace may always choose it.
CONGESTION = "net.ipv4.tcp_congestion_control=reno"
# The kernel counts the headers of each of a segment's frames, the switch those of the segment; and the switch shall not starve.
HELD_RATE = 1.04


class LinkedHosts(Hosts):
    """A context: the hosts exist while it is open. Every host has `rate` in both directions, every pair `delay`, until told otherwise.

        with LinkedHosts(["a", "b"], home, private=[], shared=[bin], rate=GIGABIT, delay=0.0002) as hosts:
            hosts.slow("b", 25e6)
            hosts.cut("b")
    """

    def __init__(self, names, directory, private, shared, rate=GIGABIT, delay=0.0002):
        super().__init__(names, directory, private, shared)
        self.rate, self.delay = rate, delay
        self.switch = None

    def slow(self, name, rate, down=None):
        """Bytes per second that the host sends, and (default: as many) receives, from now on."""
        self._tell(f"rate {name} {rate} {down or rate}")
        self._hold_back(self.holders[name], rate)

    def set_delay(self, one, other, seconds):
        self._tell(f"delay {one} {other} {seconds:.9f}")

    def cut(self, name):
        """From now on nothing reaches the host or leaves it, and nobody is told: a cable pulled."""
        self._tell(f"cut {name}")

    def heal(self, name):
        self._tell(f"heal {name}")

    def traffic(self, name):
        """(bytes sent, bytes received, packets lost) of the host until now."""
        return tuple(int(word) for word in self._tell(f"traffic {name}"))

    def _open_network(self):
        program = os.path.join(BIN, "tests", "link_switch")
        self.switch = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _close_network(self):
        if self.switch is None:
            return
        self.switch.stdin.close()
        self.switch.stdout.close()
        self.switch.wait()

    def _join(self, number, holder):
        self._tell(f"host {self.names[number]} /proc/{holder.pid}/ns/net {address_of(number)} {self.rate} {self.rate}")
        for other in self.names[:number]:
            self.set_delay(other, self.names[number], self.delay)
        self._run("nsenter", "--target", str(holder.pid), "--net", "sysctl", "-q", "-w", CONGESTION)
        self._hold_back(holder, self.rate)
        return "eth0"

    def _hold_back(self, holder, rate):
        """Lets what cannot be sent yet wait in the host, where TCP sees it and keeps it short, and not in the switch."""
        bits = round(8 * rate * HELD_RATE)
        self._run("nsenter", "--target", str(holder.pid), "--net", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf",
                  "rate", f"{bits}bit", "burst", "128kb", "limit", "16mb")

    def _tell(self, command):
        """The words of the switch's answer; the command is in effect."""
        try:
            self.switch.stdin.write(command + "\n")
            self.switch.stdin.flush()
            answer = self.switch.stdout.readline().split()
        except BrokenPipeError:
            answer = []
        if not answer or answer[0] != "ok":
            fail(f"link_switch: {command}: {' '.join(answer) or 'it has ended'}")
        return answer[1:]
