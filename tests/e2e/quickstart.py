"""The quickstart as it is shipped keeps what it promises."""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from sandbox import MOTLEY, Sandbox, expect, expect_equal, expect_exit, run_test  # noqa: E402

STEPS = 40


def run(sandbox):
    """The shipped job, shortened, its devices measured and rehearsed; on the logical clock, as a busy machine decides no test."""
    fleet = pathlib.Path("configs/fleets/quickstart.yaml").read_text()
    expect_equal(fleet.count("clock: sleep"), 1, "clocks of the fleet")
    path = sandbox.write("shipped.yaml", fleet.replace("clock: sleep", "clock: virtual"))
    result = subprocess.run([MOTLEY, "run", "configs/jobs/quickstart.yaml", "--fleet", path,
                             "--set", f"train.steps={STEPS}", "--fresh", "--json"],
                            env=sandbox.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=500)
    expect_exit(result, 0)
    return json.loads(result.stdout)


def main():
    os.chdir(pathlib.Path(__file__).resolve().parents[2])
    sandbox = Sandbox(name="quickstart")
    final = run(sandbox)
    expect_equal((final["state"], final["steps"]), ("finished", STEPS), "state and steps")
    expect(final["final_loss"] < final["first_loss"] - 0.5, f"nothing was learned: {final}")
    expect(final["efficiency"] >= 0.93, f"efficiency {final['efficiency']:.3f}")
    gain = final["samples_per_second"] / final["equal_split_samples_per_second"]
    expect(gain >= 1.7, f"{gain:.2f}x the equal split")
    error = final["actual_step_seconds"] / final["predicted_step_seconds"] - 1
    expect(abs(error) <= 0.10, f"the step took {error:+.1%} of what was predicted")
    print(f"ok: quickstart: {final['efficiency']:.1%} of the solo sum, {gain:.2f}x the equal split, prediction {error:+.1%} off")


if __name__ == "__main__":
    run_test(main)
