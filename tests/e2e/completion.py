"""What bash offers at each place of the command line."""

import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

# words typed so far, the last one incomplete: what is offered
CASES = [
    (["res"], ["resume"]),
    (["completion", ""], ["bash", "zsh", "fish"]),
    (["export", "ho"], ["hostfile"]),
    (["report", ""], ["first", "second"]),
    (["sample", "f"], ["first"]),
    (["resume", "--st"], ["--step"]),
    (["wor"], ["worth"]),
    (["plan", "job.yaml", "--objective", ""], ["throughput", "cost"]),
    (["worth", "--pro"], ["--profile"]),
    (["run", ""], []),
    (["sim"], ["simulate"]),
    (["simulate", "--sv"], ["--svg"]),
    (["fi"], ["fit"]),
    (["to"], ["top", "token"]),
    (["logs", "--ra"], ["--rank"]),
    (["fit", "gpt2-1"], ["gpt2-124m", "gpt2-1558m"]),
    (["fit", "--cat"], ["--catalog"]),
]


def offered(sandbox, script, words):
    line = " ".join(f"'{word}'" for word in ["motley", *words])
    text = f"{script}\nCOMP_WORDS=({line})\nCOMP_CWORD={len(words)}\n_motley\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
    result = subprocess.run(["bash", "-c", text], env=sandbox.environment, capture_output=True, text=True, timeout=60)
    expect_equal(result.stderr, "", f"complaints of bash at {words}")
    return result.stdout.split()


def main():
    sandbox = Sandbox()
    for name in ("first", "second"):
        (sandbox.home / "state" / "motley" / "runs" / name).mkdir(parents=True)
    result = sandbox.run("completion", "bash")
    expect_exit(result, 0)
    for words, expected in CASES:
        expect_equal(offered(sandbox, result.stdout, words), expected, f"offered at {words}")
    fish = sandbox.run("completion", "fish").stdout
    expect("__fish_seen_subcommand_from export' -a 'hostfile job slurm trace'" in fish, "fish offers no formats")
    print("ok")


if __name__ == "__main__":
    run_test(main)
