"""What a check found: said, and written down, as it comes, so that a check that is cut short has told all it knew."""

import datetime
import json
import os
import sys
import threading
import time
from pathlib import Path


def row(case, metric, unit, ours, *, better="higher", limit=None, peers=None, kind="measured", bench="gpu"):
    """A row of DESIGN.md §6."""
    return {"bench": bench, "case": case, "metric": metric, "unit": unit, "better": better, "ours": ours, "limit": limit,
            "peers": peers or {}, "kind": kind}


def met(measured):
    """Whether a row keeps to its limit; None where it has none."""
    if measured["limit"] is None or measured["ours"] is None:
        return None
    return measured["ours"] >= measured["limit"] if measured["better"] == "higher" else measured["ours"] <= measured["limit"]


class Outcome:
    """What became of a check: "passed", "failed", "refused" by the machine, "not reached" in the time there was; of a measurement "goal met", "missed", "measured"."""

    def __init__(self, name, state, seconds, detail, rows=()):
        self.name, self.state, self.seconds, self.detail, self.rows = name, state, seconds, detail, list(rows)

    @classmethod
    def of_rows(cls, name, seconds, detail, rows):
        """A measurement with the goals among its rows."""
        marks = [mark for mark in map(met, rows) if mark is not None]
        return cls(name, "measured" if not marks else "goal met" if all(marks) else "missed", seconds, detail, rows)

    def line(self):
        return f"{self.name:34}  {self.state:11}  {self.seconds:6.1f} s  {self.detail}"


class Report:
    """Of a part that has so many seconds: what does not fit is not reached, which is no error. add() may be called by any thread."""

    def __init__(self, part, machine, as_json, seconds):
        self.part, self.machine, self.as_json, self.seconds = part, machine, as_json, seconds
        self.outcomes, self.started, self.lock = [], time.monotonic(), threading.Lock()
        self.about = f"{machine.name()}\n\n{machine.version()}, MOTLEY_TEST_SEED={machine.seed}"

    def seconds_left(self):
        return max(0.0, self.seconds - (time.monotonic() - self.started))

    def begin(self, name):
        print(f"{name} ... ({self.seconds_left():.0f} s left)", file=sys.stderr, flush=True)

    def add(self, outcome):
        with self.lock:
            self.outcomes.append(outcome)
            print(outcome.line(), file=sys.stderr if self.as_json else sys.stdout, flush=True)
            self.write()

    def rows(self):
        return [found for outcome in self.outcomes for found in outcome.rows]

    def write(self):
        place = Path(os.environ.get("OUT", "."))
        table = "\n".join(outcome.line() for outcome in self.outcomes)
        text = f"## {datetime.date.today().isoformat()}, {self.part}: {self.about}\n\n```\n{table}\n```\n"
        place.joinpath(f"results_{self.part}.md").write_text(text, encoding="utf-8")
        place.joinpath(f"rows_{self.part}.json").write_text(json.dumps(self.rows(), indent=1) + "\n", encoding="utf-8")

    def finish(self):
        """The exit status: a goal that was missed is a result, a check that failed an error."""
        self.write()
        if self.as_json:
            print(json.dumps(self.rows()))
        return 1 if any(outcome.state == "failed" for outcome in self.outcomes) else 0
