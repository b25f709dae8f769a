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

# Only for the GPUs that are here, which takes a fraction of the time; deploy/install.sh builds for all of them.
architectures=${CUDAARCHS-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  sed -nE 's/^([0-9]+)\.([0-9]+)$/\1\2-real/p' | sort -u | paste -sd ';' || true)}
cuda=(-DMOTLEY_CUDA=OFF)
if [[ -n $architectures ]]; then cuda=(-DMOTLEY_CUDA=AUTO "-DCMAKE_CUDA_ARCHITECTURES=$architectures"); fi

say "Configuring build/release"
mkdir -p build
logged build/configure.log cmake --preset release "${cuda[@]}"
if grep -q '^MOTLEY_FOUND_CUDA:INTERNAL=ON' build/release/CMakeCache.txt; then
  say "CUDA toolkit found: building for CPUs and GPUs ($architectures)"
elif [[ -n $architectures ]]; then
  say "No CUDA toolkit found: CPU-only build (put nvcc in PATH and run this again for GPUs)"
else
  say "No NVIDIA GPU here: CPU-only build (CUDAARCHS=80 before this builds for GPUs of other machines)"
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
