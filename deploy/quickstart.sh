#!/usr/bin/env bash
# From a bare Debian 12 to a model trained on a mixed fleet: installs, builds, runs configs/jobs/quickstart.yaml. Running it
# again only does what is left to do. Arguments are handed to `motley run`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*" >&2; }

# logged LOG COMMAND...: the output goes to LOG; its end is shown if the command fails.
logged() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    say "failed: $* (all of it in $log)"
    exit 78
  fi
}

say "Packages"
bash deploy/install_dependencies.sh

say "Configuring build/release"
mkdir -p build
logged build/configure.log cmake --preset release
if grep -q '^MOTLEY_FOUND_CUDA:INTERNAL=ON' build/release/CMakeCache.txt; then
  say "CUDA toolkit found: building for NVIDIA GPUs and CPUs"
else
  say "No CUDA toolkit found: CPU-only build (put nvcc in PATH and run this again for GPUs)"
fi

say "Building (some minutes the first time)"
if [[ -t 2 ]]; then
  NINJA_STATUS='   [%f/%t] ' cmake --build --preset release --target motley_programs >&2
else
  logged build/build.log cmake --build --preset release --target motley_programs
fi

# What it trains on are the files of this clone, so its runs are this clone's own.
export XDG_STATE_HOME=$PWD/build/state
say "Training: build/release/bin/motley run configs/jobs/quickstart.yaml (its runs are kept in XDG_STATE_HOME=$XDG_STATE_HOME; run this again to continue)"
exec build/release/bin/motley run configs/jobs/quickstart.yaml --fresh-if-changed "$@"
