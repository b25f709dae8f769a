"""The check packed for another machine: it is small enough, it brings the libraries it needs, and it runs from where it was unpacked."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUNDLE = Path(__file__).with_name("bundle.sh")
BUILD = Path(os.environ["MOTLEY_TEST_BIN_DIR"]).parent
MOST_BYTES = 40 << 20
# Of the other machine: glibc and what comes with a driver and CUDA.
THERE = re.compile(r"(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libcuda|libcublas|libcublasLt|libcudart|libcudnn.*|libnccl)\.so.*")


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.directory = Path(scratch.name)
        subprocess.run(["bash", BUNDLE, "--built", BUILD, cls.directory], check=True, stdout=subprocess.PIPE)
        cls.packed = cls.directory / "gpu-check.tar.xz"
        subprocess.run(["tar", "-C", cls.directory, "-xf", cls.packed], check=True)
        cls.root = cls.directory / "gpu-check"

    def test_it_can_be_carried(self):
        self.assertLessEqual(self.packed.stat().st_size, MOST_BYTES)

    def test_it_brings_what_it_needs(self):
        library = self.root / "build/release/lib"
        for program in filter(Path.is_file, (self.root / "build/release").rglob("*")):
            shown = subprocess.run(["ldd", program], env={"LD_LIBRARY_PATH": str(library), "PATH": os.environ["PATH"]}, text=True,
                                   stdout=subprocess.PIPE, check=True).stdout
            for line in shown.splitlines():
                name, _, place = line.strip().partition(" => ")
                name = Path(name.split()[0]).name
                if not THERE.fullmatch(name):
                    self.assertTrue(place.startswith(str(library)), f"{program.name}: {line}")

    def test_it_runs_there(self):
        for part, check in (("speed", "kernels"), ("correct", "unlike devices")):
            done = subprocess.run([sys.executable, self.root / "tests/gpu/check.py", part, "--device", "cpu", "--only", check],
                                  cwd=self.directory, env={"PATH": os.environ["PATH"]}, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue((self.directory / f"results_{part}.md").exists())


if __name__ == "__main__":
    unittest.main()
