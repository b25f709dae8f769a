"""Hosts on one machine: each a set of namespaces (network, mounts, host name) with /tmp, /dev/shm and the state directory to
itself, joined by a bridge. Needs root. The agent script runs a command on one of them as ssh would."""

import os
import pathlib
import stat
import subprocess

from sandbox import fail

SUBNET = "10.213.7"


def possible():
    """Whether this user may make namespaces here; if not, why."""
    if os.geteuid() != 0:
        return "not root"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "ip", "link", "set", "lo", "up"],
                           capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


def address_of(number):
    return f"{SUBNET}.{number + 1}"


class Hosts:
    """A context: the hosts exist while it is open."""

    def __init__(self, names, directory, private, shared):
        """`private` directories are each host's own; `shared` ones stay visible even beneath /tmp."""
        self.names, self.directory = names, pathlib.Path(directory)
        self.private, self.shared = private, shared
        self.holders = {}
        self.bridge = f"motley{os.getpid() % 100000}"

    def __enter__(self):
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _open(self):
        self._open_network()
        lines = ["127.0.0.1 localhost"]
        lines += [f"{address_of(i)} {name}" for i, name in enumerate(self.names)]
        (self.directory / "hosts").write_text("\n".join(lines) + "\n")
        for i, name in enumerate(self.names):
            self._start(i, name)
        self.agent = self.directory / "agent.sh"
        self.agent.write_text(
            "#!/bin/bash\n# agent HOST COMMAND…: what ssh would do\nhost=$1\nshift\n"
            f'pid=$(cat "{self.directory}/$host.pid" 2>/dev/null) || '
            '{ echo "no route to $host" >&2; exit 255; }\n'
            'exec nsenter --target "$pid" --net --mount --uts -- /bin/bash -c "$*"\n')
        self.agent.chmod(self.agent.stat().st_mode | stat.S_IXUSR)

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()
        self._close_network()

    def _open_network(self):
        self._run("ip", "link", "add", self.bridge, "type", "bridge")
        self._run("ip", "link", "set", self.bridge, "up")

    def _close_network(self):
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)

    def _join(self, number, holder):
        """Gives the host of that process a device of the network; returns its name."""
        inside, outside = f"veth{number}", f"{self.bridge[:10]}v{number}"
        self._run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        self._run("ip", "link", "set", outside, "master", self.bridge, "up")
        self._run("ip", "link", "set", inside, "netns", str(holder.pid))
        return inside

    def _run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"{' '.join(command)}: {done.stderr.strip()}")

    def _start(self, number, name):
        kept = {path: self.directory / f"kept-{i}" for i, path in enumerate(self.shared)}
        mounts = "; ".join(
            [f"mkdir -p {aside} && mount --bind {path} {aside}" for path, aside in kept.items()] +
            [f"mkdir -p {path} && mount -t tmpfs tmpfs {path}"
             for path in ["/tmp", "/dev/shm", *self.private]] +
            [f"mkdir -p {path} && mount --bind {aside} {path}" for path, aside in kept.items()])
        script = (f"hostname {name}; mount --make-rprivate /; mount --bind {self.directory}/hosts /etc/hosts; "
                  f"{mounts}; ip link set lo up; echo ready; exec sleep infinity")
        holder = subprocess.Popen(["unshare", "--net", "--mount", "--uts", "/bin/bash", "-c", script],
                                  stdout=subprocess.PIPE, text=True)
        self.holders[name] = holder
        if holder.stdout.readline().strip() != "ready":
            fail(f"host {name} did not start")
        inside = self._join(number, holder)
        enter = ["nsenter", "--target", str(holder.pid), "--net"]
        self._run(*enter, "ip", "addr", "add", f"{address_of(number)}/24", "dev", inside)
        self._run(*enter, "ip", "link", "set", inside, "up")
        (self.directory / f"{name}.pid").write_text(str(holder.pid))

    def command_on(self, name, command):
        """`command` (a list) as one to run here; it starts in the hosts' directory."""
        pid = str(self.holders[name].pid)
        return ["nsenter", "--target", pid, "--net", "--mount", "--uts", "--", "/bin/sh", "-c",
                'cd "$0" && exec "$@"', str(self.directory), *command]

    def processes(self, name):
        """{pid: command line} of everything on that host, its holder left out."""
        holder = self.holders[name].pid
        here = os.readlink(f"/proc/{holder}/ns/net")
        found = {}
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and int(entry) != holder and os.readlink(f"/proc/{entry}/ns/net") == here:
                    found[int(entry)] = pathlib.Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " ")
            except OSError:
                pass  # it ended while we looked
        return found
