#!/usr/bin/env bash
# The check of a GPU: tests/gpu/run.sh correct|speed [--only CHECK]... [--jobs N] [--seconds N] [--json]. On a machine with a GPU, CUDA's run-time
# libraries and Python with torch; nothing else. Runs what lies beside it in build/release, as in a bundle made by bundle.sh, or in
# $MOTLEY_TEST_BIN_DIR. It prints a table, a line as each check ends, with --json rows at the end. Both are also kept, as they come,
# in $OUT or the working directory: results_PART.md (the text for RESULTS.md) and rows_PART.json. A goal that is missed is no error,
# nor is a check that was not reached in the time there is. MOTLEY_TEST_SEED repeats the inputs of another run, which has told its own.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/check.py" "$@"
