"""Programs run to their end, or to the end of their time; tests of GoogleTest one by one where they hinder each other."""

import re
import subprocess
import time

RESULT = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:,| \(|$)", re.M)
MOST_ALONE = 30  # tests that failed are run again by themselves


class Ended:
    def __init__(self, status, text):
        self.status, self.text = status, text


def run_program(command, environment, seconds):
    """Status 124 where it was not over in time, 127 where there is no such program; stdout and stderr together."""
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=max(1.0, seconds), check=False)
        return Ended(done.returncode, done.stdout)
    except FileNotFoundError as error:
        return Ended(127, str(error))
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
        return Ended(124, f"{said}\nError: not over after {seconds:.0f} s")


def summary(text):
    """The line that says most: what failed, else what was counted or measured."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (r"Failure$|ERROR SUMMARY: [1-9]|Error|DIFFERS", r"largest difference|agrees with|PASSED"):
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[-1] if lines else "no output"


class Tests:
    """The tests of a binary. A fault of a GPU ends all that this process might still compute, so a test that failed is run
    again alone, and those behind a crash in a process of their own."""

    def __init__(self, binary, gtest_filter, environment, seconds):
        self.binary, self.filter, self.environment = binary, gtest_filter, environment
        self.deadline = time.monotonic() + seconds
        self.state = {}  # by name: OK, FAILED, SKIPPED
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
        """Notes what became of them; the test under way when the process died has failed."""
        ended = run_program([self.binary, f"--gtest_filter={gtest_filter}"], self.environment, self.seconds_left())
        for state, name in RESULT.findall(ended.text):
            self.state[name] = state
        begun = re.findall(r"^\[ RUN      \] (\S+)", ended.text, re.M)
        if ended.status != 0 and begun and begun[-1] not in self.state:
            self.state[begun[-1]] = "FAILED"
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
        return False

    def failed(self):
        return [name for name, state in self.state.items() if state == "FAILED"]

    def run_alone(self):
        failed = self.failed()
        if len(failed) < 2:
            return
        for name in failed[:MOST_ALONE]:
            if self.seconds_left() < 1:
                return
            ended = self.run_some(name)
            if ended.status != 0:
                self.text += f"\n--- {name} alone\n{ended.text[-1500:]}"

    def detail(self):
        failed = self.failed()
        if not failed:
            return summary(self.text)
        return f"{len(failed)} of {len(self.state)} fail by themselves: {' '.join(failed[:8])}{' …' if len(failed) > 8 else ''}; {summary(self.text)}"
