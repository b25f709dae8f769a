"""The job service across machines: tokens, logins and who may do what, over TLS on the loopback interface, with another
user's home as the second machine."""

import http.client
import json
import os
import pathlib
import pty
import re
import socket
import ssl
import stat
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import expect, expect_equal, expect_exit, run_test  # noqa: E402
from service import Service  # noqa: E402



class Machine:
    """Somewhere else: `motley` with a configuration of its own and no coordinator."""

    def __init__(self, service, name):
        self.service = service
        self.home = service.home / name
        self.home.mkdir()
        self.environment = {**service.environment, "HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"),
                            "XDG_STATE_HOME": str(self.home / "state")}
        self.environment.pop("MOTLEY_SOCKET", None)

    def run(self, *arguments, given="", environment=None):
        return subprocess.run(self.service.command(*arguments), cwd=self.service.home, input=given, text=True,
                              capture_output=True, timeout=120, env={**self.environment, **(environment or {})})

    def login(self, token, fingerprint=None, at=None):
        return self.run("login", at or self.service.address, "--fingerprint", fingerprint or self.service.fingerprint,
                        given=token + "\n")


def listen(service):
    """A coordinator that listens on a free port, and where."""
    service.start_coordinator("--listen", "127.0.0.1:0")
    said = re.findall(r"listening on (\S+): TLS, (\S+)", service.log())[-1]
    service.address, service.fingerprint = said


def token_for(service, user, role="user", *more):
    made = service.run("token", "create", "--user", user, "--role", role, "--json", *more)
    expect_exit(made, 0)
    return json.loads(made.stdout)


def files(service):
    tls = service.state / "tls"
    for name in ("authority.pem", "server.pem"):
        expect_equal(stat.S_IMODE((tls / name).stat().st_mode), 0o600, f"mode of {name}")
    made = service.run("token", "create", "--label", "for the lab")
    expect_exit(made, 0)
    expect(re.fullmatch(r"mtl_\d+_[0-9a-f]{64}\n", made.stdout), f"no token: {made.stdout!r}")
    expect(f"motley login {service.address} --fingerprint {service.fingerprint}" in made.stderr,
           f"not said how to use it: {made.stderr!r}")
    secret = made.stdout.strip().split("_")[2].encode()
    kept = b"".join(path.read_bytes() for path in service.state.glob("motley.db*"))
    expect(secret not in kept, "the token itself is in the database")
    expect("for the lab" in service.run("token", "ls").stdout, "not listed")
    named = service.run("token", "create", "--role", "node", "--node", "n7")
    expect_exit(named, 0)
    expect("--name n7" in named.stderr, f"the line that joins does not say the name: {named.stderr!r}")
    expect(re.search(r"node +n7 ", service.run("token", "ls").stdout), "not listed with its node")
    expect_exit(service.run("token", "create", "--node", "n7"), 2)
    print("ok: files")


def other_clients(service):
    """A client that knows nothing of ours: Python's own TLS, with the authority as the only one to be believed."""
    token = token_for(service, "ana", "viewer")["token"]
    host, port = service.address.split(":")
    believing = ssl.create_default_context(cafile=service.state / "tls" / "ca.pem")

    def status(headers, target="/v1/jobs", context=believing):
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
        connection.request("GET", target, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status, answer.headers

    for target in ("/v1/jobs", "/metrics"):
        expect_equal(status({"Authorization": f"Bearer {token}"}, target)[0], 200, f"status of {target} with a token")
    refused, headers = status({})
    expect_equal((refused, headers["WWW-Authenticate"]), (401, "Bearer"), "without a token")
    expect_equal(headers["Access-Control-Allow-Origin"], None, "CORS")
    expect_equal(status({"Authorization": f"Bearer {token[:-1]}"})[0], 401, "status with a wrong token")
    expect(token[:-1] not in service.log() and "a token from 127.0.0.1 was refused" in service.log(), "log of it")
    expect_equal(status({}, "/healthz")[0], 200, "status of healthz")
    expect_equal(status({"Authorization": f"Bearer {token}"}, "/v1/tokens")[0], 403, "status of a viewer's question")
    expect_equal(status({"Host": "evil.example", "Authorization": f"Bearer {token}"})[0], 421, "status of another host")
    try:
        status({}, context=ssl.create_default_context())
        expect(False, "a client that does not know the authority believes it")
    except ssl.SSLCertVerificationError:
        pass
    for header in ("", f"Authorization: Bearer {token}\r\n"):
        with believing.wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname=host) as stranger:
            stranger.sendall(f"POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\n{header}Content-Length: 1000000\r\n\r\n".encode())
            said = stranger.recv(4096).decode()
        expect(said.startswith("HTTP/1.1 403" if header else "HTTP/1.1 401") and "Connection: close" in said,
               f"a body is waited for: {said!r}")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            said = plain.recv(100)
        except ConnectionResetError:
            said = b""
        expect(not said.startswith(b"HTTP"), f"answered without TLS: {said!r}")
    print("ok: other clients")


def logins(service, there):
    """What goes wrong is one line; what was kept is for its owner alone."""
    token = token_for(service, "ben")["token"]
    wrong = there.login(token, fingerprint="sha256:" + "0" * 64)
    expect_exit(wrong, 77)
    expect(service.fingerprint in wrong.stderr and wrong.stderr.count("\n") == 1, f"not said: {wrong.stderr!r}")
    expect_exit(there.run("login", service.address, given=token), 2)
    expect_exit(there.login(token, fingerprint="sha1:00"), 2)
    expect_exit(there.login("mtl_1_" + "0" * 64), 77)
    expect_exit(there.login(""), 2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = there.login(token, at=f"127.0.0.1:{unused.getsockname()[1]}")
    expect_exit(nobody, 69)
    expect("refused" in nobody.stderr and "--listen" in nobody.stderr, nobody.stderr)
    expect_exit(there.login(token, at="nowhere.invalid:7070"), 69)
    expect(not (there.home / "config" / "motley").exists(), "a login that failed was kept")
    gone = there.run("ls")
    expect_exit(gone, 69)
    expect_exit(there.login(token), 0)
    kept = there.home / "config" / "motley" / "logins.json"
    expect_equal(stat.S_IMODE(kept.stat().st_mode), 0o600, "mode of what was kept")
    token_file = there.home / "token"
    token_file.write_text(token + "\n")
    expect_exit(there.run("login", service.address, "--fingerprint", service.fingerprint.split(":")[1].upper(),
                          "--token-file", str(token_file)), 0)
    expect_equal(len(json.loads(kept.read_text())["logins"]), 1, "logins to one address")
    typed_token(service, there, token)
    logins_at_once(service, there, token)
    print("ok: logins")
    return token


def logins_at_once(service, there, token):
    """None takes another's away, or its file from under it."""
    host, port = service.address.split(":")
    addresses = [f"{host}:{port}", f"localhost:{port}"]
    at_once = [subprocess.Popen(service.command("login", address, "--fingerprint", service.fingerprint, "--token-file", str(there.home / "token")),
                                cwd=service.home, env=there.environment, stderr=subprocess.PIPE, text=True)
               for address in addresses * 3]
    for login in at_once:
        said = login.communicate(timeout=60)[1]
        expect_equal(login.returncode, 0, f"exit code of a login among others\n{said}")
    kept = there.home / "config" / "motley"
    expect_equal(sorted(each["server"] for each in json.loads((kept / "logins.json").read_text())["logins"]), sorted(addresses), "logins")
    expect_equal([path.name for path in kept.iterdir()], ["logins.json"], "files of logins")
    expect_exit(there.run("logout", addresses[1]), 0)


def typed_token(service, there, token):
    """On a terminal it is asked for, and nobody who looks over a shoulder reads it."""
    ours, theirs = pty.openpty()
    login = subprocess.Popen(service.command("login", service.address, "--fingerprint", service.fingerprint), stdin=theirs,
                             stdout=theirs, stderr=theirs, cwd=service.home, env=there.environment)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
            if shown.endswith(b": "):
                os.write(ours, token.encode() + b"\n")
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    expect_equal(login.wait(timeout=30), 0, f"exit code\n{shown.decode()}")
    expect(b"logged in to" in shown and token.encode() not in shown, f"a token is shown: {shown!r}")


def jobs(service, there):
    """From the other machine as from this one; each changes only what is theirs."""
    mine = service.submit("--hold", name="of-the-admin")
    job = service.write("theirs.yaml", service.job_text(name="theirs"))
    followed = there.run("submit", job, "--follow")
    expect_exit(followed, 0)
    expect("after 40 steps" in followed.stdout and "(theirs): succeeded" in followed.stderr, followed.stderr)
    listed = json.loads(there.run("ls", "--json").stdout)["jobs"]
    expect_equal([(job["name"], job["owner"]) for job in listed][0], ("theirs", "ben"), "the newest job")
    refused = there.run("cancel", str(mine))
    expect_exit(refused, 77)
    expect("the token is ben's" in refused.stderr, refused.stderr)
    expect_equal(service.job(mine)["state"], "waiting", "state of the job of somebody else")
    held = int(there.run("submit", job, "--hold").stdout)
    expect_exit(there.run("cancel", str(held)), 0)
    expect_exit(service.run("cancel", str(mine)), 0)
    mine_alone = json.loads(there.run("ls", "--mine", "--json").stdout)["jobs"]
    expect_equal({job["owner"] for job in mine_alone}, {"ben"}, "owners of my jobs")
    expect_equal(there.run("ls", "--user", "ben", "--json").stdout, there.run("ls", "--mine", "--json").stdout, "jobs of ben")
    expect_exit(there.run("ls", "--user", "ben", "--mine"), 2)
    expect_equal(there.run("whoami").stdout, "ben (user)\n", "who one is there")
    expect("cancelled by ben" in there.run("events", "--job", str(held)).stdout, "not told who cancelled it")
    high = there.run("submit", job, "--priority", "51")
    expect_exit(high, 77)
    expect("above 50, the highest for the role user" in high.stderr and high.stderr.count("\n") == 1, high.stderr)
    expect_exit(there.run("token", "ls"), 77)
    expect_exit(there.run("token", "create", "--role", "admin"), 77)
    keyed = [there.run("submit", job, "--hold", "--key", "k").stdout for _ in range(2)]
    expect_equal(keyed[0], keyed[1], "jobs of the same key")
    local = service.run("submit", job, "--hold", "--key", "k")
    expect_exit(local, 0)
    expect(local.stdout != keyed[0], "the key of somebody else finds their job")
    for number in (keyed[0].strip(), local.stdout.strip()):
        expect_exit(service.run("cancel", number), 0)
    print("ok: jobs")


def which_service(service, there):
    """--server, $MOTLEY_SERVER, $MOTLEY_SOCKET, a login, this machine's own: the first that is there."""
    both = there.run("ls", "--socket", service.socket, "--server", service.address)
    expect_exit(both, 2)
    expect_exit(there.run("ls", "--server", service.address), 0)
    stranger = there.run("ls", "--server", "127.0.0.1:1")
    expect_exit(stranger, 66)
    expect("motley login 127.0.0.1:1" in stranger.stderr, stranger.stderr)
    expect_exit(there.run("ls", environment={"MOTLEY_SERVER": "127.0.0.1:1"}), 66)
    nobody = str(there.home / "nobody")
    expect_exit(there.run("ls", environment={"MOTLEY_SOCKET": nobody}), 69)
    expect_exit(there.run("ls", environment={"MOTLEY_SOCKET": nobody, "MOTLEY_SERVER": service.address}), 0)
    expect_exit(there.run("ls", "--socket", nobody), 69)
    print("ok: which service")


def restarts(service, there):
    """The authority stays: who has logged in need not do it again. Who follows goes on with the next coordinator."""
    job = service.submit(name="survivor", steps=400)
    follower = subprocess.Popen(service.command("logs", "-f", str(job)), cwd=service.home, env=there.environment,
                                stdout=subprocess.PIPE, text=True)
    service.wait_for_step(job, 10)
    service.kill_coordinator()
    service.start_coordinator("--listen", service.address)
    told = follower.communicate(timeout=60)[0]
    expect_equal(follower.returncode, 0, "exit code of who followed")
    expect_equal(told, service.run("logs", str(job)).stdout, "a log followed across coordinators")
    expect_exit(there.run("ls"), 0)
    print("ok: restarts")


def ends(service, there, token):
    number = token.split("_")[1]
    job = service.submit("--hold", name="watched")
    follower = subprocess.Popen(service.command("events", "-f"), cwd=service.home, env=there.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    service.wait_for(lambda: f"job {job} " in follower.stdout.readline(), "the events as they come", process=follower)
    expect_exit(service.run("token", "revoke", number), 0)
    refused = there.run("ls")
    expect_exit(refused, 77)
    expect("the token is not valid" in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr)
    expect_equal(follower.wait(timeout=30), 77, "exit code of who followed with a revoked token")
    expect("revoked" in service.run("token", "ls").stdout, "not listed as revoked")
    expect_exit(service.run("token", "revoke", "999"), 66)
    expect_exit(service.run("token", "revoke", "x"), 2)
    expect_exit(service.run("token", "revoke"), 2)
    expect_exit(service.run("token", "revoke", number, "--user", "ben"), 2)
    token_for(service, "kim"), token_for(service, "kim", "viewer")
    expect_equal(service.run("token", "revoke", "--user", "kim").stdout.count(" of kim is revoked\n"), 2, "tokens of kim")
    expect_exit(service.run("token", "revoke", "--user", "kim"), 66)
    expect(" (viewer) of kim is revoked by " in service.run("events").stdout, "who revoked is not told")
    expect_exit(there.run("logout", service.address), 0)
    expect_exit(there.run("logout", service.address), 66)
    expect_exit(there.run("ls"), 69)
    expect_exit(service.run("cancel", str(job)), 0)
    print("ok: ends")


def refused_starts(service):
    expect_exit(service.run("serve", "--listen", "7070", "--state", "s2"), 2)
    expect_exit(service.run("serve", "--name", "x", "--state", "s2"), 2)
    expect_exit(service.run("serve", "--listen", "127.0.0.1:1", "--name", "a,IP:b", "--state", "s2"), 2)
    taken = service.run("serve", "--fleet", "fleet.yaml", "--listen", service.address, "--state", "s2")
    expect_exit(taken, 77)
    expect("in use" in taken.stderr, taken.stderr)
    expect_exit(service.run("serve", "--fleet", "fleet.yaml", "--listen", "192.0.2.1:7070", "--state", "s2"), 69)
    print("ok: refused starts")


def main():
    service = Service()
    there = Machine(service, "there")
    try:
        listen(service)
        files(service)
        other_clients(service)
        token = logins(service, there)
        jobs(service, there)
        which_service(service, there)
        restarts(service, there)
        ends(service, there, token)
        refused_starts(service)
        expect_equal(service.end_coordinator(), 0, "exit code")
        service.wait_for(lambda: not service.processes(), "the end of all processes", seconds=10)
    finally:
        service.kill_all()


if __name__ == "__main__":
    run_test(main)
