"""Programs run to their end, or to the end of their time; tests of GoogleTest one by one where they hinder each other."""

import os
import re
import signal
import subprocess
import time

RESULT = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:,| \(|$)", re.M)
SHARE = 0.75  # of the time left goes to one process: if it hangs, what is behind it can still be run
MOST_ALONE = 30  # tests that failed are run again by themselves


class Ended:
    """`late`: stopped, as it was not over in time; `missing`: there is no such program. A program may also end with 124 or 127
    itself, such as one whose libraries are not found."""

    def __init__(self, status, text, late=False, missing=False):
        self.status, self.text, self.late, self.missing = status, text, late, missing


def run_program(command, environment, seconds):
    """stdout and stderr together."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
    except FileNotFoundError as error:
        return Ended(127, str(error), missing=True)
    with process:
        try:
            said = process.communicate(timeout=max(1.0, seconds))[0]
            return Ended(process.returncode, said)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started, which holds the pipe
            said = process.communicate()[0]
            return Ended(124, f"{said}\nnot over after {seconds:.0f} s", late=True)


def summary(text):
    """The line that says most: what failed, else what was counted or measured."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (r"Failure$|ERROR SUMMARY: [1-9]|Error|DIFFERS", r"largest difference|agrees with|PASSED"):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[-1] if lines else "no output"


def some(names):
    return " ".join(names[:8]) + (" …" if len(names) > 8 else "")


class Tests:
    """The tests of a binary. A fault of a GPU ends all that this process might still compute, so a test that failed is run
    again alone, and those behind a crash in a process of their own."""

    def __init__(self, binary, gtest_filter, environment, seconds):
        self.binary, self.filter, self.environment = binary, gtest_filter, environment
        self.deadline = time.monotonic() + seconds
        self.listed = []
        self.state = {}  # by name: OK, FAILED, SKIPPED, LATE
        self.only_alone = []
        self.text = ""

    def seconds_left(self):
        return self.deadline - time.monotonic()

    def names(self):
        listed = run_program([self.binary, "--gtest_list_tests", f"--gtest_filter={self.filter}"], self.environment, self.seconds_left())
        suite, names = "", []
        for line in listed.text.splitlines() if listed.status == 0 else []:
            word = line.split("#")[0].strip()
            if line.startswith("  "):
                names.append(suite + word)
            elif word.endswith("."):
                suite = word
        return names

    def run_some(self, gtest_filter):
        """Notes what became of them. The test under way when the process died has failed; when it was stopped, it is late."""
        ended = run_program([self.binary, f"--gtest_filter={gtest_filter}"], self.environment, SHARE * self.seconds_left())
        for state, name in RESULT.findall(ended.text):
            self.state[name] = state
        begun = re.findall(r"^\[ RUN      \] (\S+)", ended.text, re.M)
        if ended.status != 0 and begun and begun[-1] not in [name for _, name in RESULT.findall(ended.text)]:
            self.state[begun[-1]] = "LATE" if ended.late else "FAILED"
        return ended

    def run(self):
        """"passed", "failed", or "not reached" where none failed but time was too short for some."""
        ended = self.run_some(self.filter)
        self.text = ended.text
        if ended.status == 0:
            return "passed"
        died_after = not ended.late and not self.failed()
        self.listed = self.names()
        while self.seconds_left() > 1:
            rest = [name for name in self.listed if name not in self.state]
            known = len(self.state)
            if not rest:
                break
            self.run_some(":".join(rest))
            if len(self.state) == known:
                break
        self.run_alone()
        if died_after or self.failed() or self.only_alone:
            return "failed"
        return "not reached" if self.not_reached() or not self.listed else "passed"

    def failed(self):
        return [name for name, state in self.state.items() if state == "FAILED"]

    def late(self):
        return [name for name, state in self.state.items() if state == "LATE"]

    def not_reached(self):
        return self.late() + [name for name in self.listed if name not in self.state]

    def run_alone(self):
        """One that was stopped may only have begun too late; one that failed among others may have been hindered by them."""
        again = self.failed()[:MOST_ALONE] + self.late()
        if len(self.state) < 2:
            return
        for name in again:
            if self.seconds_left() < 1:
                return
            was_late = self.state[name] == "LATE"
            ended = self.run_some(name)
            if ended.late and not was_late:
                self.state[name] = "FAILED"  # which it did before
            if ended.status == 0 and not was_late:
                self.only_alone.append(name)
            if ended.status != 0:
                self.text += f"\n--- {name} alone\n{ended.text[-1500:]}"

    def detail(self):
        found = summary(self.text)
        if self.only_alone:
            found = f"passed only alone: {some(self.only_alone)}; {found}"
        if not_reached := self.not_reached():
            found = f"{len(not_reached)} not reached: {some(not_reached)}; {found}"
        if failed := self.failed():
            found = f"{len(failed)} of {len(self.state)} fail by themselves: {some(failed)}; {found}"
        return found
