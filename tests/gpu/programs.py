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
    def __init__(self, status, text):
        self.status, self.text = status, text


def run_program(command, environment, seconds):
    """Status 124 where it was not over in time, 127 where there is no such program; stdout and stderr together."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", start_new_session=True)
    except FileNotFoundError as error:
        return Ended(127, str(error))
    with process:
        try:
            said = process.communicate(timeout=max(1.0, seconds))[0]
            return Ended(process.returncode, said)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started, which holds the pipe
            said = process.communicate()[0]
            return Ended(124, f"{said}\nError: not over after {seconds:.0f} s")


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
        self.state = {}  # by name: OK, FAILED, SKIPPED, HUNG
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
        """Notes what became of them. The test under way when the process died has failed; when it was stopped, it hung."""
        ended = run_program([self.binary, f"--gtest_filter={gtest_filter}"], self.environment, SHARE * self.seconds_left())
        for state, name in RESULT.findall(ended.text):
            self.state[name] = state
        begun = re.findall(r"^\[ RUN      \] (\S+)", ended.text, re.M)
        if ended.status != 0 and begun and begun[-1] not in [name for _, name in RESULT.findall(ended.text)]:
            self.state[begun[-1]] = "HUNG" if ended.status == 124 else "FAILED"
        return ended

    def run(self):
        """Whether all passed."""
        ended = self.run_some(self.filter)
        self.text = ended.text
        if ended.status == 0:
            return True
        names = self.names()
        while self.seconds_left() > 1:
            rest = [name for name in names if name not in self.state]
            known = len(self.state)
            if not rest:
                break
            self.run_some(":".join(rest))
            if len(self.state) == known:
                break
        self.run_alone()
        return bool(names) and not self.failed() and not self.only_alone and all(name in self.state for name in names)

    def failed(self):
        return [name for name, state in self.state.items() if state in ("FAILED", "HUNG")]

    def run_alone(self):
        """One that hung may only have come too late; one that failed among others may have been hindered by them."""
        failed = self.failed()
        if len(self.state) < 2:
            return
        for name in failed[:MOST_ALONE]:
            if self.seconds_left() < 1:
                return
            hung = self.state[name] == "HUNG"
            ended = self.run_some(name)
            if ended.status == 0 and not hung:
                self.only_alone.append(name)
            if ended.status != 0:
                self.text += f"\n--- {name} alone\n{ended.text[-1500:]}"

    def detail(self):
        found = summary(self.text)
        if self.only_alone:
            found = f"passed only alone: {some(self.only_alone)}; {found}"
        if failed := self.failed():
            found = f"{len(failed)} of {len(self.state)} fail by themselves: {some(failed)}; {found}"
        return found
