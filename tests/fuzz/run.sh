#!/usr/bin/env bash
# Feeds the fuzzers with mutations of valid inputs.
#
#   tests/fuzz/run.sh [NAME…] [--seconds N]    these, or all, each for so long (60 s), led by what the inputs reach: libFuzzer,
#                                              built with clang in build/fuzz, where build/fuzz/corpus keeps what was found
#   tests/fuzz/run.sh NAME… --runs N --in DIR  a number of inputs, the same ones in every run, with the fuzzers of DIR
#
# All begin with what lies in tests/fuzz/inputs/NAME: inputs that did harm once. The one that does harm now is named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

names=() seconds=60 runs="" bin=build/fuzz/bin/tests
while (($#)); do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --runs) runs=$2; shift ;;
    --in) bin=$2; shift ;;
    -*) echo "usage: tests/fuzz/run.sh [NAME…] [--seconds N | --runs N --in DIR]" >&2; exit 2 ;;
    *) names+=("$1") ;;
  esac
  shift
done

if [[ -z $runs ]]; then
  command -v clang++ >/dev/null || { echo "tests/fuzz/run.sh: clang++ is missing: apt-get install clang" >&2; exit 78; }
  export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz
fi
if ((${#names[@]} == 0)); then
  for source in tests/fuzz/*_fuzz.cc; do
    name=$(basename "$source" _fuzz.cc)
    names+=("$name")
  done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in "${names[@]}"; do
  known=tests/fuzz/inputs/$name
  [[ -d $known ]] || known=
  "$bin/fuzz_$name" --seeds "$work/$name"
  if [[ -n $runs ]]; then
    kept=$bin/fuzz_$name.
    "$bin/fuzz_$name" -runs="$runs" -seed=1 -artifact_prefix="$kept" "$work/$name" ${known:+"$known"} ||
      { echo "fuzz_$name: the input lies in $kept…" >&2; exit 1; }
  else
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    "$bin/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="$corpus." "$corpus" "$work/$name" ${known:+"$known"}
  fi
done
