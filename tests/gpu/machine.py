"""What the check of a GPU knows about the machine it runs on."""

import functools
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Dense bf16 of data sheets, by words of the card's name; the first that is found counts.
REDUCED_FLOPS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H200 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12}


class Machine:
    """A device under test, "cuda" or "cpu", and the programs that compute on it; `tiny`: the check itself is tried out."""

    def __init__(self, device, programs, tiny):
        self.device, self.programs, self.tiny = device, programs, tiny
        self.seed = os.environ.get("MOTLEY_TEST_SEED") or str(random.SystemRandom().getrandbits(32))

    def environment(self, ours=True, cudnn=True):
        """Of a program of ours, which needs to find its libraries, or of a tool that brings its own. Without `cudnn`, ours uses
        none."""
        words = {**os.environ, "MOTLEY_TEST_DEVICE": self.device, "MOTLEY_TEST_SEED": self.seed,
                 "MOTLEY_REQUIRE": "torch,gpu" if self.device == "cuda" else "torch"}
        if ours:
            words["LD_LIBRARY_PATH"] = self.libraries()
        if not cudnn:
            words["MOTLEY_CUDNN"] = "none"
        return words

    def libraries(self):
        """What a bundle carries, and where the toolkit's and PyTorch's CUDA libraries lie: the loader need not know them."""
        found = [str(self.programs.parent / "lib"), str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64")]
        for place in filter(None, sys.path):
            found += map(str, sorted(Path(place).glob("nvidia/*/lib")))
        return ":".join([os.environ.get("LD_LIBRARY_PATH", ""), *found]).strip(":")

    def test(self, name):
        return str(self.programs / "tests" / name)

    def worker(self, *arguments):
        """What motley-worker prints; CalledProcessError or OSError where it does not."""
        command = [str(self.programs / "motley-worker"), *map(str, arguments)]
        return subprocess.run(command, env=self.environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout

    def gpus(self):
        """Those that ours may use, in CUDA's order, and why there is none."""
        said = json.loads(self.worker("devices", "--json"))
        return [found for found in said["devices"] if found.get("kind") == "cuda"], said.get("note")

    def fleet(self, devices, **pace):
        """fleet.json of devices of which only some members are told: the others are as in a fleet that ours has written."""
        written = json.loads(self.worker("devices", "--json"))["fleet"]
        common = {**written["devices"][0], "host": "localhost", "uuid": "", "threads": 1, "memory": None, "paced": None}
        return {**written, "source": "", **pace, "devices": [{**common, **told} for told in devices]}

    @functools.cached_property
    def gpu(self):
        """The first of CUDA's, which ours and PyTorch compute on; empty where none is under test."""
        return self.gpus()[0][0] if self.device == "cuda" else {}

    def memory(self):
        """Bytes of the device; where something tiny is tried, enough for that."""
        return 1 << 33 if self.tiny else self.gpu["memory"]

    def version(self):
        try:
            return self.worker("version").strip()
        except (OSError, subprocess.SubprocessError):
            return "unknown version"

    def name(self):
        if not self.gpu:
            return f"no NVIDIA GPU, device {self.device}"
        return smi("name,driver_version,memory.total", uuid=self.gpu["uuid"]) or self.gpu["name"]

    def data_sheet_flops(self):
        return next((flops for word, flops in REDUCED_FLOPS.items() if word in self.gpu.get("name", "")), None)

    def memory_used(self, pid):
        """Bytes in use: on the GPU by all processes (None where nobody tells), of the CPU at most by process `pid`."""
        if self.device == "cuda":
            said = smi("memory.used", ",nounits", uuid=self.gpu["uuid"])
            return int(said) << 20 if said and said.isdigit() else None
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            return None
        return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM")), None)


def smi(what, form="", uuid=None):
    """What nvidia-smi says of this GPU, else of the first in its own order; nothing where there is none. Its order is not CUDA's,
    and CUDA_VISIBLE_DEVICES means nothing to it."""
    asked = ["nvidia-smi", f"--query-gpu={what}", f"--format=csv,noheader{form}", *(["-i", uuid] if uuid else [])]
    try:
        done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if lines else None


def find_sanitizer():
    beside_nvcc = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin/compute-sanitizer"
    return shutil.which("compute-sanitizer") or str(beside_nvcc)
