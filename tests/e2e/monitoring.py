"""What watches the service: the metrics, and that the rules and the dashboard of deploy/ ask for those there are."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import expect_equal, run_test  # noqa: E402
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


def main():
    service = Service()
    try:
        service.start_coordinator()
        asked_for(service)
        checked(service)
        service.end_coordinator()
    finally:
        service.kill_all()


if not shutil.which("promtool"):
    script = ROOT / "tests/support/missing_capability.sh"
    sys.exit(subprocess.run(["bash", script, "promtool", "the package prometheus is not installed"]).returncode)
run_test(main)
