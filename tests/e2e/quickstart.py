"""The quickstart as it is shipped, on the clock it is shipped with, keeps what it promises."""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import MOTLEY, Sandbox, expect, expect_equal, expect_exit  # noqa: E402

UNTRUSTWORTHY = "motley: rehearsal not trustworthy"
STEPS = 40


def run(sandbox):
    """The shipped job, shortened; its own devices, measured and rehearsed in real time."""
    return subprocess.run([MOTLEY, "run", "configs/jobs/quickstart.yaml", "--set", f"train.steps={STEPS}", "--fresh", "--json"],
                          env=sandbox.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=270)


def trusted_run(sandbox):
    """A machine that was busy with other things says so, and gets one more chance."""
    result = run(sandbox)
    if result.returncode == 1 and UNTRUSTWORTHY in result.stderr:
        print(f"once more: {result.stderr.strip().splitlines()[-1]}")
        result = run(sandbox)
    expect_exit(result, 0)
    return json.loads(result.stdout)


def main():
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    sandbox = Sandbox(name="quickstart")
    final = trusted_run(sandbox)
    expect_equal((final["state"], final["steps"]), ("finished", STEPS), "state and steps")
    expect(final["final_loss"] < final["first_loss"] - 0.5, f"nothing was learned: {final}")
    expect(final["efficiency"] >= 0.93, f"efficiency {final['efficiency']:.3f}")
    gain = final["samples_per_second"] / final["equal_split_samples_per_second"]
    expect(gain >= 1.7, f"{gain:.2f}x the equal split")
    error = final["actual_step_seconds"] / final["predicted_step_seconds"] - 1
    expect(abs(error) <= 0.10, f"the step took {error:+.1%} of what was predicted")
    print(f"ok: quickstart: {final['efficiency']:.1%} of the solo sum, {gain:.2f}x the equal split, prediction {error:+.1%} off")


if __name__ == "__main__":
    main()
