#!/usr/bin/env python3
"""That every CUDA source compiles for the GPUs of the preset of this machine's toolkit: no GPU is needed for that.

For the oldest and the newest; with MOTLEY_ALL_ARCHITECTURES=1 for every one, which takes long. The build is kept in
build/architectures, so that only what has changed is compiled again.
"""

import json
import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path("build/architectures")
# Machine code for each, PTX of the last, by the toolkit's major version.
GPUS = {"12": [70, 75, 80, 86, 89, 90], "13": [75, 80, 86, 89, 90, 100, 120]}


def run(*command: str) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}\n{result.stdout[-8000:]}")


class Architectures(unittest.TestCase):
    def test_every_source_compiles_for_every_gpu(self) -> None:
        major = os.environ["MOTLEY_CUDA_VERSION"].partition(".")[0]
        gpus = GPUS.get(major, GPUS["13"])
        if not os.environ.get("MOTLEY_ALL_ARCHITECTURES"):
            gpus = [gpus[0], gpus[-1]]
        wanted = ";".join([f"{gpu}-real" for gpu in gpus[:-1]] + [str(gpus[-1])])
        preset = {"12": "cuda12"}.get(major, "cuda")
        run("cmake", "--preset", preset, "-B", str(BUILD), "-DMOTLEY_TESTS=OFF",
            f"-DCMAKE_CUDA_ARCHITECTURES={wanted}")
        run("cmake", "--build", str(BUILD), "--target", "motley_cuda")

        commands = json.loads((BUILD / "compile_commands.json").read_text())
        sources = {pathlib.Path(entry["file"]).name: entry["command"] for entry in commands
                   if entry["file"].endswith(".cu")}
        self.assertEqual(set(sources), {path.name for path in pathlib.Path("kernels").rglob("*.cu")})
        for name, command in sources.items():
            for gpu in gpus:
                self.assertRegex(command, rf"arch=compute_{gpu},code=\[.*?\bsm_{gpu}\]", name)
            self.assertIn(f"code=[compute_{gpus[-1]},sm_{gpus[-1]}]", command, name)
        self.assertTrue((BUILD / "lib/motley_cuda.so").is_file())


if __name__ == "__main__":
    unittest.main()
