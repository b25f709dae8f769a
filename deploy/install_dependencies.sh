#!/usr/bin/env bash
# Installs the Debian packages Motley is built from. Quick and silent when nothing is missing.
#
#   deploy/install_dependencies.sh [--tests] [--peers]
#
# --tests: also what the tests and developers need; --peers: also what benchmarks compare with
#
# CUDA, NCCL and cuDNN are not installed here: they are used when the machine has them.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache
  libopenmpi-dev openmpi-bin openssh-client
  libopenblas-dev libboost-dev libssl-dev libsqlite3-dev
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libexpected-dev libxxhash-dev
)
test_packages=(
  libgtest-dev libgmock-dev librapidcheck-dev
  python3 python3-torch python3-numpy
  clang clang-format shellcheck lld git iproute2 procps glpk-utils dpkg-dev prometheus slurm-wlm munge
)
peer_packages=(libgloo-dev)

fail() {
  echo "install_dependencies.sh: $*" >&2
  exit 78
}

for option; do
  case $option in
    --tests) packages+=("${test_packages[@]}") ;;
    --peers) packages+=("${peer_packages[@]}") ;;
    *) echo "usage: install_dependencies.sh [--tests] [--peers]" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this is not a Debian system; install by hand what corresponds to: ${packages[*]}"
fi

# dpkg-query fails when it has never heard of one of them, and still prints the others.
installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  grep -qx "$package installed" <<<"$installed" || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "not root and no sudo; ask an administrator for: apt-get install ${missing[*]}"
  as_root=(sudo)
fi

echo "Installing ${#missing[@]} packages: ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null >"$log" 2>&1
}
# A package list that is out of date only matters if a package is not found, so the update may fail.
apt -qq update || echo "apt-get update failed; trying with the package lists at hand" >&2
if ! apt install --yes --no-install-recommends "${missing[@]}"; then
  tail -n 20 "$log" >&2
  fail "apt-get install failed (its last lines are above)"
fi
