#!/usr/bin/env bash
# The check of a GPU: tests/gpu/run.sh correct|speed [--only CHECK]... [--seconds N] [--json]. On a machine with a GPU, CUDA's run-time
# libraries and Python with torch; nothing else. Runs what lies beside it (a bundle made by bundle.sh), else build/release. It
# prints a table, a line as each check ends, with --json rows at the end. Both are also kept, as they come, in $OUT or the
# working directory: results_PART.md (the text for RESULTS.md) and rows_PART.json. A goal that is missed is no error.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/check.py" "$@"
