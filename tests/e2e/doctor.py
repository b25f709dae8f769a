"""`motley doctor` where something is wrong: the right line is broken, with the right fix."""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, run_test  # noqa: E402


def findings(sandbox, **environment):
    result = sandbox.run("doctor", "--json", environment=environment)
    rows = {row["what"]: row for row in json.loads(result.stdout)}
    broken = any(row["health"] == "BROKEN" for row in rows.values())
    expect_equal(result.returncode, 78 if broken else 0, f"exit code of {rows}")
    return rows


def program(sandbox, folder, name, script):
    directory = sandbox.home / folder
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return str(path)


def expect_finding(rows, what, health, detail, fix):
    row = rows[what]
    expect_equal(row["health"], health, f"{what}: {row}")
    expect(detail in row["detail"] and fix in row["fix"], f"{what}: {row}")
    print(f"ok: {what}: {row['detail']} -> {row['fix']}")


def check_healthy(sandbox):
    rows = findings(sandbox)
    for what in ("motley-worker", "CPU kernels", "MPI launch", "disk"):
        expect_finding(rows, what, "good", "", "")
        expect_equal(rows[what]["fix"], "", f"a fix for what is good: {rows[what]}")
    built = json.loads(sandbox.run("--version", "--json").stdout)["mpi"]
    expect(built in rows["MPI launch"]["detail"], f"--version says {built!r}, the doctor {rows['MPI launch']}")


def check_path(sandbox):
    program(sandbox, "empty", "unused", "")
    rows = findings(sandbox, PATH=str(sandbox.home / "empty"))
    expect_finding(rows, "compiler", "absent", "none", "apt-get install g++")
    expect_finding(rows, "MPI launch", "BROKEN", "mpirun is not in PATH", "apt-get install openmpi-bin")
    program(sandbox, "old", "c++", "echo 'c++ (Debian 10.2.1-6) 10.2.1'\n")
    program(sandbox, "old", "mpirun.openmpi", "echo 'no network interface' >&2; exit 1\n")
    rows = findings(sandbox, PATH=f"{sandbox.home}/old:{sandbox.environment['PATH']}")
    expect_finding(rows, "compiler", "absent", "10.2.1, too old", "-DCMAKE_CXX_COMPILER=/usr/bin/g++")
    expect_finding(rows, "MPI launch", "BROKEN", "no network interface", "mpirun -n 2 hostname")


def check_worker(sandbox):
    rows = findings(sandbox, MOTLEY_WORKER=str(sandbox.home / "nothing"))
    expect_finding(rows, "motley-worker", "BROKEN", "no worker program", "unset MOTLEY_WORKER")
    expect_finding(rows, "MPI launch", "BROKEN", "not tried", "see motley-worker above")
    other = program(sandbox, "other", "motley-worker", 'echo \'{"version": "0.0.1", "git": "older"}\'\n')
    rows = findings(sandbox, MOTLEY_WORKER=other)
    expect_finding(rows, "motley-worker", "BROKEN", "of another version (older)", "unset MOTLEY_WORKER")


def check_directories(sandbox):
    file = sandbox.write("file", "not a directory")
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        rows = findings(sandbox, **{variable: file})
        expect_finding(rows, "disk", "BROKEN", file, f"set {variable} to")
    taken = sandbox.write(f"motley-{os.getuid()}", "not a directory")
    rows = findings(sandbox, TMPDIR=str(sandbox.home))
    expect_finding(rows, "MPI launch", "BROKEN", "not a directory", f"remove what stands in the way: {taken}")


def main():
    for check in (check_healthy, check_path, check_worker, check_directories):
        check(Sandbox())


if __name__ == "__main__":
    run_test(main)
