#!/usr/bin/env bash
# Builds Motley with what is here and installs it below a prefix; needs no root. For clusters whose libraries come as modules
# (`module load gcc cmake openmpi boost …` first) or lie below prefixes named in CMAKE_PREFIX_PATH.
#
#   deploy/install.sh --prefix DIR [--build DIR] [--jobs N] [-D NAME=VALUE]...
#
# --prefix: where to; bin/motley there is what one runs
# --build:  where to build (default: build/install of this clone)
# --jobs:   compilers at once (default: as many as processors)
# -D:       an option of the build, see HACKING.md; MOTLEY_CPU_ISA=native for the CPUs of this machine
#
# The MPI module is built against the MPI whose mpicxx is in PATH: run mpirun of the same one. What is missing is named, all
# of it at once, and nothing is installed; exit 78.
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '5s/^# *//p' deploy/install.sh >&2; exit 2; }
fail() { echo "install.sh: $*" >&2; exit 78; }

prefix='' build=$PWD/build/install jobs=$(nproc) options=()
while (($#)); do
  case $1 in
    -h|--help) sed -n '2,14s/^# \{0,1\}//p' deploy/install.sh; exit 0 ;;
    --prefix|--build|--jobs|-D) (($# >= 2)) || usage ;;&
    --prefix) prefix=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    -D) options+=("-D$2"); shift 2 ;;
    -D*) options+=("$1"); shift ;;
    *) usage ;;
  esac
done
[[ $prefix ]] || usage
[[ $prefix == /* ]] || prefix=$from/$prefix
[[ $build == /* ]] || build=$from/$build
if ! mkdir -p "$prefix" 2>/dev/null || [[ ! -w $prefix ]]; then
  fail "cannot write to $prefix: choose another --prefix"
fi

command -v cmake >/dev/null || fail "Missing: cmake, 3.25 or later"
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
mkdir -p "$build"

echo "Configuring (log: $build/install.log)" >&2
# The programs find the site's libraries where they were found now, whatever modules are loaded later.
if ! cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_UNITY_BUILD=ON -DMOTLEY_TESTS=OFF \
    -DMOTLEY_MPI=ON -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON "${options[@]}" \
    >"$build/install.log" 2>&1; then
  sed -n '/CMake Error/,/^Call Stack/{/^CMake Error/d; /^Call Stack/d; /^$/d; s/^  //; p}' "$build/install.log" >&2
  fail "nothing was installed (all that was said is in $build/install.log)"
fi
sed -n 's/^-- Motley/Motley/p' "$build/install.log" >&2

echo "Building, $jobs at once (minutes)" >&2
if ! cmake --build "$build" --target motley_programs --parallel "$jobs" >>"$build/install.log" 2>&1; then
  tail -n 30 "$build/install.log" >&2
  fail "the build failed (all of it in $build/install.log)"
fi
cmake --install "$build" >>"$build/install.log" || fail "installing failed, see $build/install.log"
"$prefix/bin/motley" --version >/dev/null || fail "$prefix/bin/motley does not start"
echo "Installed: $prefix/bin/motley (put $prefix/bin into PATH); 'motley doctor' says what this machine can do" >&2
