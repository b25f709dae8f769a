#!/usr/bin/env python3
"""Checks the habits of the house that a compiler does not: who may include what, sizes, names, format.

    lint.py [ROOT] [--without-tools]     prints FILE:LINE: what is wrong; exits 1 if anything is, 77 if a tool is missing

Only what can be decided from the text of one tree, in a few seconds. lint_test.py plants one violation of each rule.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

from cpp_functions import find_functions, without_comments_and_strings

Finding = namedtuple("Finding", "path line text")

CODE_FOLDERS = ("core", "kernels", "comm", "planner", "worker", "scheduler", "tests")
SEARCHED = CODE_FOLDERS + ("cmake", "configs", "deploy", ".ci")
SKIPPED_FOLDERS = {"build", "__pycache__", ".git"}
CPP = {".h", ".cc", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".cmake"}

# The include table of the design: each folder sees itself and these.
MAY_INCLUDE = {
    "core": (),
    "kernels": ("core",),
    "planner": ("core",),
    "comm": ("core", "kernels"),
    "worker": ("core", "comm", "kernels"),
    "scheduler": ("core", "planner"),
    "tests": CODE_FOLDERS,
}

# Libraries that one place hides from the rest: (header, files that may include it, where that is). Tests may use all.
CONFINED_HEADERS = (
    (r"mpi\.h$", r"comm/", "comm/"),
    (r"nccl\.h$", r"comm/", "comm/"),
    (r"(cuda|cublas|cudnn|curand|cusparse|nvml|nvToolsExt|cooperative_groups|cub/|thrust/|mma\.h)",
     r".*\.cuh?$|comm/.*nccl", "*.cu, *.cuh and the NCCL files of comm/"),
    (r"yaml-cpp/", r"core/spec/", "core/spec/"),
    (r"boost/", r"scheduler/", "scheduler/"),
    (r"boost/beast", r"scheduler/service/", "scheduler/service/"),
    (r"sqlite3\.h$", r"scheduler/store/", "scheduler/store/"),
    (r"openssl/", r"scheduler/service/", "scheduler/service/"),
)

MAX_FUNCTION_LINES = 70
MAX_KERNEL_LINES = 100  # in kernels/, and only with a comment that says "Long because ..."
EXPECTED_FUNCTION_LINES = 40  # nine of ten functions of a folder stay below
MAX_PARAMETERS = 6  # then an options struct
MAX_KERNEL_PARAMETERS = 8
OTHERS_INTERFACES = re.compile(r"tests/support/cuda_on_host/")  # declared as the library declares them
MAX_FILE_LINES = 800

EMPTY_NAMES = re.compile(r"(^|_)(utils?|helpers?|common)(_|$)")
GETENV = re.compile(r"\bgetenv\s*\(")
GETENV_ALLOWED = re.compile(r"core/debug_env\.|comm/launch_env\.|kernels/discovery\.|tests/support/")
# Written with a class so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.~}>-])[/](work|root|home/\w+|Users|tmp/wt)[/]")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


class Tree:
    """The text files of a source tree, read once."""

    def __init__(self, root):
        self.root = Path(root)
        self.paths = sorted(self._walk())
        self._text = {}

    def _walk(self):
        for entry in self.root.iterdir():
            if entry.is_file():
                yield entry.name
        for top in SEARCHED:
            for folder, subfolders, names in os.walk(self.root / top):
                subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
                for name in names:
                    yield (Path(folder) / name).relative_to(self.root).as_posix()

    def text(self, path):
        if path not in self._text:
            data = (self.root / path).read_bytes()
            self._text[path] = "" if b"\0" in data else data.decode("utf-8", errors="replace")
        return self._text[path]

    def with_suffix(self, suffixes):
        return [path for path in self.paths if Path(path).suffix in suffixes]


def top_folder(path):
    return path.split("/")[0]


def check_includes(tree):
    for path in tree.with_suffix(CPP):
        folder = top_folder(path)
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                for problem in include_problems(path, folder, *match.groups()):
                    yield Finding(path, number, problem)


def include_problems(path, folder, quote, header):
    target = top_folder(header) if "/" in header else None
    if target in CODE_FOLDERS:
        if target != folder and target not in MAY_INCLUDE.get(folder, ()):
            yield f"{folder}/ may not include {target}/ ({header})"
        if quote == "<":
            yield f"our own headers are included with quotes ({header})"
    elif quote == '"':
        yield f"include is not rooted at the repository ({header}); other libraries take <>"
    if folder == "tests":
        return
    for pattern, allowed, where in CONFINED_HEADERS:
        if re.match(pattern, header) and not re.match(allowed, path):
            yield f"{header} is included only in {where}"


def check_functions(tree):
    lengths = {}
    for path in tree.with_suffix(CPP):
        folder = top_folder(path)
        lines = tree.text(path).splitlines()
        for function in find_functions(tree.text(path)):
            length = function.last_line - function.first_line + 1
            lengths.setdefault(folder, []).append((length, path, function.first_line))
            yield from function_findings(path, folder, function, length, lines)
    for folder, measured in sorted(lengths.items()):
        yield from ratchet_finding(folder, sorted(measured))


def function_findings(path, folder, function, length, lines):
    is_kernel = folder == "kernels"
    limit = MAX_FUNCTION_LINES
    if is_kernel and "Long because" in "\n".join(lines[max(0, function.first_line - 8):function.last_line]):
        limit = MAX_KERNEL_LINES
    if length > limit:
        hint = " (up to 100 with a comment 'Long because ...')" if is_kernel and limit < MAX_KERNEL_LINES else ""
        yield Finding(path, function.first_line, f"function of {length} lines; the limit is {limit}{hint}")
    most = MAX_KERNEL_PARAMETERS if is_kernel else MAX_PARAMETERS
    if function.parameters > most and not OTHERS_INTERFACES.match(path):
        yield Finding(path, function.first_line,
                      f"function of {function.parameters} parameters; after {most} comes an options struct")


def ratchet_finding(folder, measured):
    """Small functions stay small: the 90th percentile of each folder is bounded, once there is something to measure."""
    if len(measured) < 20:
        return
    length, path, line = measured[(len(measured) * 9) // 10]
    if length > EXPECTED_FUNCTION_LINES:
        yield Finding(path, line, f"a tenth of the functions of {folder}/ have {length} lines or more; "
                                  f"{EXPECTED_FUNCTION_LINES} is expected: cut some of them")


def check_file_sizes(tree):
    for path in tree.with_suffix(CPP | SCRIPTS):
        count = tree.text(path).count("\n")
        if count > MAX_FILE_LINES:
            yield Finding(path, 1, f"file of {count} lines; the limit is {MAX_FILE_LINES}")


def check_names(tree):
    for path in tree.paths:
        for part in Path(path).parts:
            if EMPTY_NAMES.search(part.split(".")[0].lower()):
                yield Finding(path, 1, f"'{part}' says nothing about what is inside")


def check_getenv(tree):
    for path in tree.with_suffix(CPP):
        if GETENV_ALLOWED.match(path):
            continue
        for number, line in enumerate(without_comments_and_strings(tree.text(path)).splitlines(), 1):
            if GETENV.search(line):
                yield Finding(path, number, "environment variables are read in core/debug_env.* and comm/launch_env.*, CUDA's in kernels/discovery.cc, only")


def check_machine_paths(tree):
    for path in tree.paths:
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = MACHINE_PATH.search(line)
            if match:
                yield Finding(path, number, f"path of one machine: {match.group()}")


def check_listed(tree):
    """Sources are listed, never globbed; one that no CMakeLists.txt names is built by nobody."""
    for path in tree.with_suffix(CPP):
        if top_folder(path) not in CODE_FOLDERS:
            continue
        folders = [Path("."), *reversed(Path(path).parents[:-1])]
        if not any(lists(tree, folder, path) for folder in folders):
            yield Finding(path, 1, "listed in no CMakeLists.txt")
    for path in tree.paths:
        if path.endswith(("CMakeLists.txt", ".cmake")):
            for number, line in enumerate(tree.text(path).splitlines(), 1):
                if re.match(r"\s*file\(\s*GLOB.*\.(cc|cu|h)\b", line):
                    yield Finding(path, number, "sources are listed, never globbed")


def lists(tree, folder, path):
    cmake = "CMakeLists.txt" if folder == Path(".") else f"{folder.as_posix()}/CMakeLists.txt"
    if cmake not in tree.paths:
        return False
    name = Path(path).relative_to(folder).as_posix()
    code = re.sub(r"#.*", "", tree.text(cmake))
    if folder == Path("."):  # cmake/*.cmake speaks for the root
        code += "".join(tree.text(other) for other in tree.with_suffix({".cmake"}))
    return re.search(rf'(?<![\w./-]){re.escape(name)}(?![\w.-])', code) is not None


def check_pragma_once(tree):
    for path in tree.with_suffix({".h", ".cuh"}):
        if "#pragma once" not in tree.text(path):
            yield Finding(path, 1, "header without #pragma once")


def check_own_header_first(tree):
    """So that a header which lacks an include does not compile in its own source."""
    headers = set(tree.with_suffix({".h"}))
    for path in tree.with_suffix({".cc"}):
        own = path.removesuffix(".cc") + ".h"
        first = next((match for match in map(INCLUDE.match, tree.text(path).splitlines()) if match), None)
        if own in headers and (first is None or first.group(2) != own):
            yield Finding(path, 1, f"its own header is not what it includes first ({own})")


def check_skips(tree):
    """A test is skipped for a missing capability, with its reason, or not at all."""
    for path in tree.with_suffix(CPP):
        if path == "tests/support/require.h":
            continue
        for number, line in enumerate(without_comments_and_strings(tree.text(path)).splitlines(), 1):
            if re.search(r"\bGTEST_SKIP\b", line):
                yield Finding(path, number, "skip with MOTLEY_SKIP_WITHOUT (tests/support/require.h)")
            if re.search(r"\bTEST\w*\(.*\bDISABLED_", line):
                yield Finding(path, number, "a test runs or is deleted")


RULES = (check_includes, check_functions, check_file_sizes, check_names, check_getenv, check_machine_paths, check_listed,
         check_pragma_once, check_own_header_first, check_skips)


def format_findings(tree):
    files = [path for path in tree.with_suffix(CPP) if top_folder(path) in CODE_FOLDERS]
    yield from tool_findings(tree, ["clang-format", "--dry-run", "--Werror"], files,
                             r"(?P<path>[^:\n]+):(?P<line>\d+):\d+: error: (?P<text>.*)")


def shell_findings(tree):
    scripts = [path for path in tree.paths if tree.text(path).startswith(("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/sh"))]
    yield from tool_findings(tree, ["shellcheck", "--external-sources", "--format=gcc"], scripts,
                             r"(?P<path>[^:\n]+):(?P<line>\d+):\d+: (?P<text>.*)")


def tool_findings(tree, command, files, pattern):
    if not files:
        return
    run = subprocess.run([*command, *files], cwd=tree.root, capture_output=True, text=True)
    found = {}  # one finding a file: the tool's own output has the rest
    for match in re.finditer(pattern, run.stdout + run.stderr):
        found.setdefault(match["path"], Finding(match["path"], int(match["line"]), f"{command[0]}: {match['text']}"))
    if run.returncode != 0 and not found:
        found[""] = Finding(command[0], 0, (run.stdout + run.stderr).strip() or f"exit code {run.returncode}")
    yield from found.values()


TOOLS = (("clang-format", format_findings), ("shellcheck", shell_findings))


def run_rules(root):
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def run_tools(root):
    tree = Tree(root)
    findings, missing = [], []
    required = os.environ.get("MOTLEY_REQUIRE", "").split(",")
    for tool, check in TOOLS:
        if shutil.which(tool):
            findings += check(tree)
        elif tool in required:
            findings.append(Finding(tool, 0, "required, but not installed"))
        else:
            missing.append(tool)
    return findings, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parents[2])
    parser.add_argument("--without-tools", action="store_true", help="leave out clang-format and shellcheck")
    options = parser.parse_args()
    findings = run_rules(options.root)
    missing = []
    if not options.without_tools:
        more, missing = run_tools(options.root)
        findings += more
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.text}")
    if findings:
        return 1
    if missing:
        print(f"skipped: {', '.join(missing)} not installed (deploy/install_dependencies.sh --tests)")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
