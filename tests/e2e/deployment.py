"""What deploy/ promises: programs installed to any prefix and as a package, a unit that is told what it must know."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import BIN, Sandbox, expect, expect_equal, fail, run_test  # noqa: E402
from service import Service  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = BIN.parent


def shell(*command, code=0, environment=None, directory=ROOT):
    result = subprocess.run([str(word) for word in command], cwd=directory, capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=300, env={**os.environ, **(environment or {})})
    if result.returncode != code:
        fail(f"{command}: exit {result.returncode}, not {code}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
    return result


def trains(sandbox, program, where):
    """Ranks start through mpirun with the modules of that installation, which nothing but its place leads to."""
    result = subprocess.run([str(program), "run", "job.yaml", "--json", "--fresh"], cwd=sandbox.home, capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=120, env=sandbox.environment)
    expect_equal(result.returncode, 0, f"a run of {where}\n{result.stderr[-2000:]}")
    expect_equal(json.loads(result.stdout)["state"], "finished", f"a run of {where}")


def installed(sandbox):
    prefix = sandbox.home / "prefix"
    shell("cmake", "--install", BUILD, "--prefix", prefix)
    trains(sandbox, prefix / "bin" / "motley", "a prefix")
    moved = sandbox.home / "moved"
    prefix.rename(moved)
    trains(sandbox, moved / "bin" / "motley", "a prefix that was moved")
    completion = (moved / "share/bash-completion/completions/motley").read_text()
    expect("worth" in completion, "no completion for bash")
    expect((moved / "share/motley/configs/jobs/quickstart.yaml").exists(), "no jobs to start from")
    expect((moved / "lib/motley/motley_torch.py").exists(), "nothing for scripts to import")
    print("ok: a prefix")


def package(sandbox):
    directory = sandbox.home / "package"
    directory.mkdir()
    shell("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", directory)
    file = next(directory.glob("motley_*.deb"))
    depends = shell("dpkg-deb", "-f", file, "Depends").stdout
    for needed in ("libopenmpi3", "libopenblas0", "libsqlite3-0", "openmpi-bin"):
        expect(needed in depends, f"the package does not depend on {needed}: {depends}")
    shell("dpkg-deb", "-x", file, directory / "root")
    trains(sandbox, directory / "root/usr/bin/motley", "the package")
    unit = (directory / "root/usr/lib/systemd/system/motley.service").read_text()
    expect("ExecStart=/usr/bin/motley serve " in unit, f"the unit does not start the program:\n{unit}")
    expect("KillMode=process" in unit, "the unit would end what trains with the coordinator")
    agent = (directory / "root/usr/lib/systemd/system/motley-agent.service").read_text()
    expect("ExecStart=/usr/bin/motley agent " in agent, f"the unit does not start the agent:\n{agent}")
    scripts = directory / "scripts"
    shell("dpkg-deb", "-e", file, scripts)
    expect("try-restart motley.service" in (scripts / "postinst").read_text(), "an upgrade leaves the old coordinator at work")
    print("ok: a Debian package")


def missing_libraries(sandbox):
    """All of them in one go, with nothing installed."""
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("yaml-cpp", "SQLite3", "MPI")]
    result = shell("bash", ROOT / "deploy/install.sh", "--prefix", "none", "--build", "build", *hidden, code=78,
                   directory=sandbox.home)
    expect((sandbox.home / "build" / "install.log").exists(), "not built where the user stands")
    for name in ("yaml-cpp", "SQLite3", "MPI, with mpicxx"):
        expect(re.search(rf"^ *{name}.* \(on Debian: lib", result.stderr, re.MULTILINE), f"{name} is not named: {result.stderr}")
    expect_equal(list((sandbox.home / "none").iterdir()), [], "installed without libraries")
    expect_equal(shell("bash", "deploy/install.sh", code=2).stderr.split()[0], "deploy/install.sh", "usage")
    print("ok: missing libraries")


def unit(service):
    """As systemd would: told when it serves and when it ends."""
    path = str(service.home / "notify")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(path)
    manager.settimeout(30)
    service.coordinator = service.start("serve", "--fleet", "fleet.yaml", environment={"NOTIFY_SOCKET": path})
    expect_equal(manager.recv(256), b"READY=1", "the first word to the service manager")
    expect(service.answers(), "it says that it is ready and does not answer")
    agent = service.start("agent", "--join", service.socket, "--name", "n1", environment={"NOTIFY_SOCKET": path})
    expect_equal(manager.recv(256), b"READY=1", "the first word of an agent")
    expect("n1" in service.run("nodes").stdout, "it says that it has joined and has not")
    agent.terminate()
    expect_equal(agent.wait(timeout=30), 0, "exit of the agent")
    expect_equal(manager.recv(256), b"STOPPING=1", "the last word of an agent")
    expect_equal(service.end_coordinator(), 0, "exit of the coordinator")
    expect_equal(manager.recv(256), b"STOPPING=1", "the last word to the service manager")
    print("ok: Type=notify")


def main():
    sandbox = Sandbox(steps=20)
    installed(sandbox)
    package(sandbox)
    missing_libraries(sandbox)
    service = Service()
    try:
        unit(service)
    finally:
        service.kill_all()


run_test(main)
