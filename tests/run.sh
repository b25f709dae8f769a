#!/usr/bin/env bash
# Builds and runs the tests; ends with one ctest summary over all builds.
#
#   tests/run.sh            release (end-to-end, faults, and what else should be seen optimised; where nvcc is found CUDA for
#                           the oldest GPUs and the newest), dev (unit, contract, sim under ASan and UBSan), tsan (threads)
#   tests/run.sh --quick    release only, without the slow and fault tiers, CUDA for one GPU
#
# A test that cannot run here is skipped with its reason, except for what the packages installed below provide; name more
# in MOTLEY_REQUIRE (mpi,torch,root,gpu) to turn those skips into failures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=false
case "$*" in
  "") ;;
  --quick) quick=true ;;
  *) echo "usage: tests/run.sh [--quick]" >&2; exit 2 ;;
esac

export MOTLEY_REQUIRE=${MOTLEY_REQUIRE-mpi,torch,clang-format,shellcheck,glpk,promtool,slurm}
# Builds share what they can, also with other clones.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR:-1}
# shellcheck source=tests/support/mpi_environment.sh
source tests/support/mpi_environment.sh

phase() { printf '== [%3d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*"; }

# build PRESET TARGET [cmake options]
build() {
  local preset=$1 target=$2
  shift 2
  phase "configure $preset"
  cmake --preset "$preset" -DMOTLEY_TESTS=ON "$@" | grep -E '^-- Motley' || {
    echo "configuring $preset failed" >&2
    exit 1
  }
  phase "build $preset"
  cmake --build --preset "$preset" --target "$target" -- --quiet
}

phase "packages"
bash deploy/install_dependencies.sh --tests

builds=(release)
if $quick; then
  build release motley_suite -DMOTLEY_CUDA=AUTO -DCMAKE_CUDA_ARCHITECTURES=90 -DMOTLEY_SUITE='^(lint|unit|contract|sim|e2e)$'
else
  builds+=(dev tsan)
  build release motley_suite -DMOTLEY_CUDA=AUTO '-DCMAKE_CUDA_ARCHITECTURES=75-real;120' \
    -DMOTLEY_SUITE='^(lint|optimised|e2e|fault|slow)$'
  build dev motley_suite
  phase "headers without a source compile alone"
  cmake --build --preset dev --target all_verify_interface_header_sets -- --quiet
  build tsan motley_suite
fi

# One ctest over all builds: each marks what belongs to its share with the label `suite`.
mkdir -p build/suite
for preset in "${builds[@]}"; do echo "subdirs(../$preset)"; done >build/suite/CTestTestfile.cmake
selection=(--label-regex '^suite$')
# g++ 12's thread sanitizer cannot map its shadow under more address randomisation than this.
plain_addresses=()
random_bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)
if ((random_bits > 28)) && setarch --addr-no-randomize true 2>/dev/null; then
  plain_addresses=(setarch --addr-no-randomize)
fi
phase "test ${builds[*]}"
exec "${plain_addresses[@]}" ctest --test-dir build/suite "${selection[@]}" --parallel "$(nproc)" --output-on-failure --no-tests=error
