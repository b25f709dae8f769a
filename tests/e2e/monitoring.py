"""What watches the service: the metrics, and that the rules and the dashboard of deploy/ ask for those there are."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import expect, expect_equal, expect_exit, run_test  # noqa: E402
from service import Service  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def promtool(*words, directory=None, text=None):
    subprocess.run(["promtool", *words], cwd=directory, input=text, text=True, check=True, timeout=60)


def metrics_there(service):
    status, text = service.request("GET", "/metrics")
    expect_equal(status, 200, "/metrics")
    promtool("check", "metrics", text=text)
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}


def asked_for(service):
    """Every expression asks for metrics that the coordinator exports."""
    there = metrics_there(service)
    dashboard = json.loads((ROOT / "deploy/grafana/motley.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked.append((ROOT / "deploy/prometheus/motley.rules.yml").read_text())
    for text in asked:
        unknown = set(re.findall(r"\bmotley_[a-z_]+\b", text)) - there
        expect_equal(unknown, set(), f"metrics that nobody exports in {text[:80]!r}")
    print("ok: rules and dashboard ask for what there is")


def checked(service):
    """The configuration as it is shipped, with the files that it wants beside it; when each rule fires."""
    shutil.copytree(ROOT / "deploy/prometheus", service.home / "prometheus")
    for name in ("token", "ca.pem"):
        service.write(f"prometheus/{name}", "")
    promtool("check", "config", "prometheus.yml", directory=service.home / "prometheus")
    promtool("test", "rules", "motley.rules.test.yml", directory=service.home / "prometheus")
    print("ok: promtool")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def scraped(service, port):
    """A real Prometheus, with the shipped configuration, over TLS and with a viewer's token."""
    home = service.home / "prometheus"
    token = service.run("token", "create", "--role", "viewer")
    expect_exit(token, 0)
    (home / "token").write_text(token.stdout.strip())
    shutil.copy(service.state / "tls" / "ca.pem", home / "ca.pem")
    text = (home / "prometheus.yml").read_text()
    expect("localhost:7430" in text, "no target to replace")
    (home / "prometheus.yml").write_text(text.replace("localhost:7430", f"localhost:{port}").replace("15s", "200ms"))
    own = free_port()
    with open(home / "log", "w") as log:
        prometheus = subprocess.Popen(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                                       f"--web.listen-address=127.0.0.1:{own}"], cwd=home, stdout=log, stderr=log)
    try:
        def devices():
            query = urllib.parse.urlencode({"query": "sum(motley_devices)"})
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{own}/api/v1/query?{query}", timeout=5) as answer:
                    found = json.load(answer)["data"]["result"]
            except OSError:
                return None
            return found and float(found[0]["value"][1])
        service.wait_for(lambda: devices() == 4, "Prometheus to have seen four devices", process=prometheus)
    finally:
        prometheus.terminate()
        prometheus.wait(timeout=30)
    print("ok: Prometheus scrapes it")


def main():
    service = Service()
    port = free_port()
    try:
        service.start_coordinator("--listen", f"localhost:{port}")
        asked_for(service)
        checked(service)
        scraped(service, port)
        service.end_coordinator()
    finally:
        service.kill_all()


if not shutil.which("promtool") or not shutil.which("prometheus"):
    script = ROOT / "tests/support/missing_capability.sh"
    sys.exit(subprocess.run(["bash", script, "promtool", "the package prometheus is not installed"]).returncode)
run_test(main)
