#!/usr/bin/env bash
# tests/bench/run.sh NAME [--json] [options of the benchmark]: builds the release program bench_NAME and runs it.
# The table is for people; with --json stdout holds only a list of rows (DESIGN.md §6).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

names() { sed -n 's/^motley_bench(NAME \([a-z_]*\).*/\1/p' tests/bench/CMakeLists.txt | paste -sd' '; }
name=${1:-}
[[ " $(names) " == *" $name "* && -n $name ]] || {
  echo "usage: tests/bench/run.sh NAME [--json] ...; NAME: $(names)" >&2
  exit 2
}
shift

{
  cmake --preset release -DMOTLEY_TESTS=ON | grep -E '^-- Motley'
  cmake --build --preset release --target "bench_$name" -- --quiet
} >&2
exec "build/release/bin/bench/bench_$name" "$@"
