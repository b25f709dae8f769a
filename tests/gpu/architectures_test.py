#!/usr/bin/env python3
"""That every CUDA source compiles for the GPUs of the preset of this machine's toolkit: no GPU is needed for that.

For the oldest and the newest; with MOTLEY_ALL_ARCHITECTURES=1 for every one, which takes long. Where the build under test
was not made for these, one of its own is, kept in build/architectures.
"""

import json
import os
import pathlib
import re
import subprocess
import unittest

TESTED = pathlib.Path(os.environ.get("MOTLEY_TEST_BIN_DIR", "build/release/bin")).parent
OWN = pathlib.Path("build/architectures")
# Machine code for each, PTX of the last, by the toolkit's major version.
GPUS = {"12": [70, 75, 80, 86, 89, 90], "13": [75, 80, 86, 89, 90, 100, 120]}


def run(*command: str) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{result.stdout[-8000:]}")


def nvcc_commands(build: pathlib.Path) -> dict[str, str]:
    """By the name of the source."""
    commands = json.loads((build / "compile_commands.json").read_text())
    return {pathlib.Path(entry["file"]).name: entry["command"] for entry in commands
            if entry["file"].endswith(".cu") and "nvcc" in entry["command"]}


def compiles_for(command: str, gpus: list[int]) -> bool:
    """Machine code for each, PTX of the last."""
    return (all(re.search(rf"arch=compute_{gpu},code=\[.*?\bsm_{gpu}\]", command) for gpu in gpus) and
            f"code=[compute_{gpus[-1]},sm_{gpus[-1]}]" in command)


def build_for(gpus: list[int], preset: str) -> None:
    wanted = ";".join([f"{gpu}-real" for gpu in gpus[:-1]] + [str(gpus[-1])])
    run("cmake", "--preset", preset, "-B", str(OWN), "-DMOTLEY_TESTS=OFF", f"-DCMAKE_CUDA_ARCHITECTURES={wanted}")
    run("cmake", "--build", str(OWN), "--target", "motley_cuda")


class Architectures(unittest.TestCase):
    def test_every_source_compiles_for_every_gpu(self) -> None:
        major = os.environ["MOTLEY_CUDA_VERSION"].partition(".")[0]
        gpus = GPUS.get(major, GPUS["13"])
        if not os.environ.get("MOTLEY_ALL_ARCHITECTURES"):
            gpus = [gpus[0], gpus[-1]]
        build = TESTED
        if not all(compiles_for(command, gpus) for command in nvcc_commands(build).values()):
            build = OWN
            build_for(gpus, {"12": "cuda12"}.get(major, "cuda"))
        sources = nvcc_commands(build)
        self.assertEqual(set(sources), {path.name for path in pathlib.Path("kernels").rglob("*.cu")})
        for name, command in sources.items():
            self.assertTrue(compiles_for(command, gpus), name)
        self.assertTrue((build / "lib/motley_cuda.so").is_file())


if __name__ == "__main__":
    unittest.main()
