"""The test bed by itself: what its links promise, measured with plain sockets: nothing is ever faster than its link, and the best of
a few tries is not much slower."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import netns_hosts  # noqa: E402
from linked_hosts import GIGABIT, LinkedHosts  # noqa: E402
from netns_hosts import address_of  # noqa: E402
from sandbox import BIN, expect, fail, run_test  # noqa: E402

DELAY = 0.0002
BYTES = 16 << 20
PORT = 7001

# Answers every request, 8 bytes with a size and then as many bytes, with one byte.
SERVER = f"""
import socket, threading
def serve(connection):
    buffer = bytearray(1 << 20)
    while head := connection.recv(8, socket.MSG_WAITALL):
        left = int.from_bytes(head, "big")
        while left > 0:
            left -= connection.recv_into(buffer, min(left, len(buffer)))
        connection.sendall(b"!")
listener = socket.create_server(("", {PORT}))
print("ready", flush=True)
while True:
    connection = listener.accept()[0]
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""

# Arguments: address, bytes of a request, of the requests before it, how many are timed. Prints the shortest time in seconds.
CLIENT = f"""
import socket, sys, time
address, size, warm, repeats = sys.argv[1], *map(int, sys.argv[2:])
connection = socket.create_connection((address, {PORT}), timeout=5)
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
connection.settimeout(60)
def request(payload):
    start = time.monotonic()
    connection.sendall(payload)
    assert connection.recv(1) == b"!"
    return time.monotonic() - start
request(warm.to_bytes(8, "big") + bytes(warm))
payload = size.to_bytes(8, "big") + bytes(size)
print(min(request(payload) for _ in range(repeats)))
"""


class Bed:
    """Two hosts, a and b, each with a server."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.servers = [self._start(name, SERVER) for name in hosts.names]
        for server in self.servers:
            expect(server.stdout.readline() == "ready\n", "a server did not start")

    def _start(self, name, program, *arguments):
        # Ahead of others, so that a busy machine is not taken for a slow link.
        command = self.hosts.command_on(name, ["nice", "-n", "-10", sys.executable, "-c", program, *map(str, arguments)])
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start_client(self, source, target, size, warm=4 << 20, repeats=1):
        address = address_of(self.hosts.names.index(target))
        return self._start(source, CLIENT, address, size, warm, repeats)

    def end(self):
        for server in self.servers:
            server.kill()
            server.wait()


def seconds_of(client):
    out, err = client.communicate(timeout=60)
    expect(client.returncode == 0, f"a transfer failed: {err[-1000:]}")
    return float(out)


def expect_near(measured, expected, what, slack=0.25, tries=6):
    """The best of at most `tries` measurements takes at most `slack` longer than expected; none takes less."""
    seen = []
    for _ in range(tries):
        seen.append(measured())
        expect(seen[-1] > 0.95 * expected, f"{what}: {seen[-1] * 1e3:.2f} ms, expected {expected * 1e3:.2f}")
        if seen[-1] <= expected * (1 + slack):
            print(f"ok: {what}: {seen[-1] * 1e3:.2f} ms, expected {expected * 1e3:.2f}")
            return
    fail(f"{what}: {[f'{value * 1e3:.2f}' for value in seen]} ms, expected {expected * 1e3:.2f}, at most {slack:.0%} more")


def transfers(bed):
    expect_near(lambda: seconds_of(bed.start_client("a", "b", BYTES)), BYTES / GIGABIT, "16 MiB at 1 Gbit/s")

    def slower_of_both():
        # Long enough that the answer, which waits behind the other direction's data, does not count.
        clients = [bed.start_client("a", "b", 4 * BYTES, repeats=2), bed.start_client("b", "a", 4 * BYTES, repeats=2)]
        return max(seconds_of(client) for client in clients)

    expect_near(slower_of_both, 4 * BYTES / GIGABIT, "both directions at once")
    bed.hosts.slow("b", 25e6)
    expect_near(lambda: seconds_of(bed.start_client("a", "b", BYTES)), BYTES / 25e6, "to a slow host")
    expect_near(lambda: seconds_of(bed.start_client("b", "a", BYTES)), BYTES / 25e6, "from a slow host")
    bed.hosts.slow("b", GIGABIT)


def round_trips(bed):
    def measured():
        return seconds_of(bed.start_client("a", "b", 1, 1, 20))

    # Long, so that what the machine itself needs for a round trip does not count beside it.
    bed.hosts.set_delay("a", "b", 100 * DELAY)
    expect_near(measured, 200 * DELAY, "a long round trip")
    bed.hosts.set_delay("a", "b", DELAY)
    short = measured()
    expect(2 * DELAY <= short <= 100 * DELAY, f"a short round trip takes {short * 1e3:.2f} ms")


def cuts(bed):
    """A transfer through a cut stands still, and ends when the cut is healed; who comes new meanwhile does not get in."""
    bed.hosts.slow("b", 25e6)
    client = bed.start_client("a", "b", BYTES, warm=1)
    before = bed.hosts.traffic("b")[1]
    while bed.hosts.traffic("b")[1] < before + BYTES / 8:
        expect(client.poll() is None, "the transfer ended too early")
        time.sleep(0.01)
    bed.hosts.cut("b")
    reached = bed.hosts.traffic("b")[1]
    expect(bed.start_client("a", "b", 1).wait() != 0, "a connection to a host that is cut off")
    expect(bed.hosts.traffic("b")[1] == reached, "something reached a host that is cut off")
    expect(client.poll() is None, "the transfer ended through the cut")
    bed.hosts.heal("b")
    seconds_of(client)
    bed.hosts.slow("b", GIGABIT)
    print("ok: cut and healed")


def main():
    reason = netns_hosts.possible()
    if reason:
        os.execvp("bash", ["bash", "tests/support/missing_capability.sh", "netns", reason])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        with LinkedHosts(["a", "b"], home, private=[], shared=[str(BIN.parent)], delay=DELAY) as hosts:
            bed = Bed(hosts)
            transfers(bed)
            round_trips(bed)
            cuts(bed)
            bed.end()


if __name__ == "__main__":
    run_test(main)
