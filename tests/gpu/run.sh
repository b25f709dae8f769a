#!/usr/bin/env bash
# The check of a GPU: tests/gpu/run.sh correct [--json]. On a machine with a GPU, CUDA's run-time libraries and Python with
# torch; nothing else. Runs what lies beside it (a bundle made by bundle.sh), else build/release. It prints one table, with
# --json rows; the text for RESULTS.md goes to results.md in $OUT, or in the working directory.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/check.py" "$@"
