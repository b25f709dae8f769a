#!/usr/bin/env bash
# tests/gpu/bundle.sh [--built BUILD] [DIRECTORY [CMAKE-OPTION...]]: packs the check of a GPU into DIRECTORY/gpu-check.tar.xz
# (default: build), for a machine that has a GPU, CUDA's run-time libraries and Python with torch, and nothing else. There:
#
#   tar xf gpu-check.tar.xz && bash gpu-check/tests/gpu/run.sh correct|speed
#
# With --built the programs of a build that is there are packed, even one without CUDA.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly limit=$((40 << 20))
build=
if [[ ${1:-} == --built ]]; then build=$2; shift 2; fi
directory=${1:-build}

if [[ -z $build ]]; then
  build=build/bundle
  {
    cmake --preset cuda -B "$build" -DMOTLEY_TESTS=ON -DMOTLEY_STATIC_CXX=ON "${@:2}" | grep -E '^-- Motley'
    cmake --build "$build" --target motley_gpu_check -- --quiet
  } >&2
  [[ -f $build/lib/motley_cuda.so ]] || { echo "no $build/lib/motley_cuda.so was built" >&2; exit 1; }
fi

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
bundle=$staging/gpu-check
programs=$bundle/build/release
mkdir -p "$programs/bin/tests" "$programs/lib" "$bundle/tests"
cp "$build/bin/motley" "$build/bin/motley-worker" "$programs/bin"
for name in device_ops_test device_memory_test gpu_curve_test cuts_test reshard_test resume_test motley_engine_export motley_kernel_speed; do
  cp "$build/bin/tests/$name" "$programs/bin/tests"
done
if [[ -f $build/lib/motley_cuda.so ]]; then cp "$build/lib/motley_cuda.so" "$programs/lib"; fi
mapfile -t built < <(find "$programs" -type f)
cp -r tests/gpu tests/oracle tests/support "$bundle/tests"

# What Debian has and the other machine may not: all but glibc and the driver's and the toolkit's own.
readonly system='/(ld-linux|libc|libm|libdl|libpthread|librt|libcuda|libcublas|libcublasLt|libcudart|libcudnn|libnccl)[.-]'
libraries() { ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -Ev "$system"; }
mapfile -t carried < <(libraries "${built[@]}")
openblas=$(ldconfig -p | awk '$1 == "libopenblas.so.0" && !found++ {print $NF}')
mapfile -t -O "${#carried[@]}" carried < <(echo "$openblas"; libraries "$openblas")
for library in "${carried[@]}"; do cp -nL "$library" "$programs/lib"; done
find "$programs" -type f -exec strip --strip-unneeded {} +

mkdir -p "$directory"
XZ_OPT=-T0 tar -C "$staging" -cJf "$directory/gpu-check.tar.xz" gpu-check
size=$(stat -c %s "$directory/gpu-check.tar.xz")
echo "$directory/gpu-check.tar.xz: $((size >> 20)) MiB"
((size <= limit)) || { echo "more than the $((limit >> 20)) MiB that may be carried" >&2; exit 1; }
