#!/usr/bin/env bash
# tests/bench/run.sh NAME [--json] [--peers] [options of the benchmark]: builds the release program bench_NAME, or what
# tests/bench/NAME_bench.py starts, and runs it; a NAME may be two words: `planner accuracy`. The table is for people; with
# --json stdout holds only a list of rows (DESIGN.md §6). --peers installs what it compares with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

names() { sed -nE 's/^motley_(script_)?bench\(NAME ([a-z_]*).*/\2/p' tests/bench/CMakeLists.txt | paste -sd' '; }
name=${1:-}
if [[ -n ${2:-} && " $(names) " == *" ${1}_$2 "* ]]; then
  name=${1}_$2
  shift
fi
[[ " $(names) " == *" $name "* && -n $name ]] || {
  echo "usage: tests/bench/run.sh NAME [--json] ...; NAME: $(names)" >&2
  exit 2
}
shift

{
  if [[ " $* " == *" --peers "* ]]; then bash deploy/install_dependencies.sh --peers; fi
  cmake --preset release -DMOTLEY_TESTS=ON | grep -E '^-- Motley'
  cmake --build --preset release --target "bench_$name" -- --quiet
} >&2
if [[ -f tests/bench/${name}_bench.py ]]; then
  exec /usr/bin/python3 "tests/bench/${name}_bench.py" "$@"
fi
exec "build/release/bin/bench/bench_$name" "$@"
