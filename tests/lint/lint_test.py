#!/usr/bin/env python3
"""Plants one violation of each rule of lint.py in a tree that has none, and wants exactly that one reported."""

import shutil
import tempfile
import unittest
from pathlib import Path

import lint
from cpp_functions import find_functions


class PlantedViolations(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.listed = {}

    def plant(self, path, text, listed=True):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if listed and file.suffix in lint.CPP:
            names = self.listed.setdefault(file.parent, [])
            names.append(file.name)
            (file.parent / "CMakeLists.txt").write_text(f"motley_library(NAME n SOURCES {' '.join(names)})\n")

    def findings(self):
        return [f"{finding.path}:{finding.line}: {finding.text}" for finding in lint.run_rules(self.root)]

    def assert_only(self, expected):
        self.assertEqual([expected in found for found in self.findings()], [True], self.findings())

    def test_a_good_tree_is_silent(self):
        self.plant("core/clock.h", "#pragma once\n#include <chrono>\n")
        self.plant("scheduler/run.cc", '#include <boost/asio.hpp>\n#include "core/clock.h"\n#include "planner/plain/search.h"\n')
        self.plant("comm/nccl.cc", '#include <nccl.h>\n#include <cuda_runtime.h>\n#include "kernels/buffer.h"\n')
        self.plant("tests/unit/core/clock_test.cc", '#include "core/clock.h"\n#include "worker/x.h"\n#include <mpi.h>\n')
        self.assertEqual(self.findings(), [])

    def test_every_forbidden_pair_of_folders(self):
        for folder, allowed in lint.MAY_INCLUDE.items():
            for target in set(lint.CODE_FOLDERS) - set(allowed) - {folder}:
                with self.subTest(folder=folder, target=target):
                    self.plant(f"{folder}/a.cc", f'\n#include "{target}/b.h"\n')
                    self.assert_only(f"{folder}/a.cc:2: {folder}/ may not include {target}/")
                    self.plant(f"{folder}/a.cc", "", listed=False)

    def test_confined_headers(self):
        for folder, header in (("worker", "mpi.h"), ("worker", "nccl.h"), ("kernels", "cuda_runtime.h"),
                               ("comm", "cuda.h"), ("kernels", "cublasLt.h"), ("core", "yaml-cpp/yaml.h"),
                               ("worker", "boost/asio.hpp")):
            with self.subTest(header=header):
                self.plant(f"{folder}/a.cc", f"#include <{header}>\n")
                self.assert_only(f"{header} is included only in")
                self.plant(f"{folder}/a.cc", "", listed=False)
        self.plant("kernels/a.cu", "#include <cuda_runtime.h>\n")
        self.assertEqual(self.findings(), [])

    def test_include_style(self):
        self.plant("core/a.cc", '#include "a.h"\n')
        self.assert_only("not rooted at the repository")
        self.plant("core/a.cc", "#include <core/b.h>\n", listed=False)
        self.assert_only("with quotes")

    def test_function_length(self):
        def function(lines):
            return "void f(int a) {\n" + "  g();\n" * (lines - 2) + "}\n"
        self.plant("core/a.cc", function(70))
        self.assertEqual(self.findings(), [])
        self.plant("core/a.cc", "\n" + function(71), listed=False)
        self.assert_only("core/a.cc:2: function of 71 lines")
        self.plant("core/a.cc", "", listed=False)
        self.plant("kernels/a.cc", "// Long because the tail is unrolled.\n" + function(100))
        self.assertEqual(self.findings(), [])
        self.plant("kernels/a.cc", function(100), listed=False)
        self.assert_only("Long because")
        self.plant("kernels/a.cc", "// Long because.\n" + function(101), listed=False)
        self.assert_only("the limit is 100")

    def test_ratchet_on_a_folder(self):
        small, large = "void f() { g(); }\n", "void f() {\n" + "  g();\n" * 48 + "}\n"
        self.plant("core/a.cc", small * 27 + large * 3)
        self.assert_only("a tenth of the functions of core/ have 50 lines")
        self.plant("core/a.cc", small * 28 + large * 2, listed=False)
        self.assertEqual(self.findings(), [])

    def test_parameter_count(self):
        self.plant("core/a.cc", "void f(int a, int b, int c, std::map<int, int> d, int e, int g, int h) {}\n")
        self.assert_only("function of 7 parameters")
        self.plant("core/a.cc", "void f(int a, int b, int c, std::map<int, int> d, int e, int g) { h(1, 2, 3); }\n", listed=False)
        self.assertEqual(self.findings(), [])

    def test_file_size(self):
        self.plant("core/a.cc", "int a;\n" * 801)
        self.assert_only("file of 801 lines")

    def test_names(self):
        self.plant("core/string_utils.h", "#pragma once\n")
        self.assert_only("says nothing")
        (self.root / "core/string_utils.h").unlink()
        self.plant("deploy/helpers/a.sh", "")
        self.assert_only("'helpers' says nothing")
        (self.root / "deploy/helpers/a.sh").unlink()
        self.plant("core/commonwealth.h", "#pragma once\n")
        self.assertEqual(self.findings(), [])

    def test_getenv(self):
        self.plant("core/debug_env.cc", 'auto x = std::getenv("A");\n')
        self.plant("comm/launch_env.cc", 'auto x = getenv("A");\n')
        self.plant("worker/a.cc", '// getenv("A") in a comment\n')
        self.assertEqual(self.findings(), [])
        self.plant("worker/a.cc", '\nauto x = std::getenv("A");\n', listed=False)
        self.assert_only("worker/a.cc:2: environment variables")

    def test_machine_paths(self):
        for path in ("/" + "work/a", "/" + "home/me/a", "/" + "root/a"):
            self.plant("configs/job.yaml", f"name: a\ntext: [{path}]\n")
            self.assert_only("configs/job.yaml:2: path of one machine")
        self.plant("configs/job.yaml", "text: [~/data/a, /usr/share/a, net/work/a]\n")
        self.assertEqual(self.findings(), [])

    def test_unlisted_sources(self):
        self.plant("core/CMakeLists.txt", "motley_library(NAME n SOURCES spec/a.cc)\n")
        self.plant("core/spec/a.cc", "", listed=False)
        self.assertEqual(self.findings(), [])
        self.plant("core/a.cc", "", listed=False)
        self.assert_only("core/a.cc:1: listed in no CMakeLists.txt")

    def test_globbed_sources(self):
        self.plant("core/CMakeLists.txt", "file(GLOB sources *.cc)\n")
        self.assert_only("never globbed")

    def test_own_header_first(self):
        self.plant("core/clock.h", "#pragma once\n")
        self.plant("core/clock.cc", '#include <chrono>\n#include "core/clock.h"\n')
        self.assert_only("its own header is not what it includes first (core/clock.h)")

    def test_pragma_once(self):
        self.plant("core/a.h", "int a();\n")
        self.assert_only("without #pragma once")

    def test_skips(self):
        self.plant("tests/unit/core/a_test.cc", "TEST(A, B) { GTEST_SKIP(); }\n")
        self.assert_only("MOTLEY_SKIP_WITHOUT")
        self.plant("tests/unit/core/a_test.cc", "TEST(A, DISABLED_B) {}\n", listed=False)
        self.assert_only("runs or is deleted")

    @unittest.skipUnless(shutil.which("clang-format"), "clang-format is not installed")
    def test_format(self):
        self.plant("core/a.cc", "int  a;\n")
        self.plant(".clang-format", "BasedOnStyle: Google\n")
        findings = list(lint.format_findings(lint.Tree(self.root)))
        self.assertEqual([(finding.path, finding.line) for finding in findings], [("core/a.cc", 1)])


class FunctionsOfAFile(unittest.TestCase):
    def assert_functions(self, text, expected):
        self.assertEqual([tuple(function) for function in find_functions(text)], expected)

    def test_scopes_are_not_functions(self):
        self.assert_functions("namespace a {\nclass B : public C<int> {\n public:\n  int d() const {\n    return 1;\n  }\n};\n}\n",
                              [(4, 6, 0)])

    def test_initialisers_are_not_functions(self):
        self.assert_functions("constexpr Table kTable{.a = f(1), .b = {2}};\nint x[] = {1, 2};\nauto y = f({1}, 2);\n", [])

    def test_constructor_with_initialiser_list(self):
        self.assert_functions("A::A(int b)\n    : b_{b},\n      c_(b) {\n  d();\n}\nA::A(int b) : b_{b} {}\n",
                              [(1, 5, 1), (6, 6, 1)])

    def test_templates_operators_and_trailing_returns(self):
        self.assert_functions("template <class T, class U>\nauto f(T a, U b) -> std::map<T, U> {\n}\n", [(1, 3, 2)])
        self.assert_functions("bool operator<(const A& a, const A& b) { return a.x < b.x; }\n", [(1, 1, 2)])
        self.assert_functions("int F::operator()(int a) const { return a; }\n", [(1, 1, 1)])

    def test_lambdas_belong_to_their_function(self):
        self.assert_functions("void f() {\n  auto g = [](int a) {\n    return a;\n  };\n}\n", [(1, 5, 0)])

    def test_default_arguments_and_literals(self):
        self.assert_functions('void f(A a = {}, char c = \'{\') {\n  s = "{";  // {\n  n = 1\'000;\n  r = R"({)";\n}\nint x;\n',
                              [(1, 5, 2)])

    def test_macros_and_kernels(self):
        self.assert_functions("#define X(a) {\nTEST(A, B) {\n}\n", [(2, 3, 2)])
        self.assert_functions("__global__ void __launch_bounds__(256) k(float* a, int n) {\n}\n", [(1, 2, 2)])
        self.assert_functions('extern "C" {\nvoid f() {\n}\n}\nextern "C" void g(int) {}\n', [(2, 3, 0), (5, 5, 1)])


if __name__ == "__main__":
    unittest.main()
