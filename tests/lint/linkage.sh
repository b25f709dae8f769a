#!/usr/bin/env bash
# What the programs may not need at run time: `motley` runs on a login node, `motley-worker` on a bare compute node, and both
# start where MPI, CUDA or a driver is missing.
set -euo pipefail
bin=${MOTLEY_TEST_BIN_DIR:?run by ctest}

failed=0
must_not_need() {  # PROGRAM PATTERN
  local program=$1 pattern=$2 needed
  [[ -x $bin/$program ]] || return 0  # not part of this tree yet
  needed=$(readelf --dynamic "$bin/$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
  if grep -E "$pattern" <<<"$needed"; then
    echo "$program is linked with the libraries above; it must not need them to start" >&2
    failed=1
  fi
}

must_not_need motley 'libmpi|libopen-|libcuda|libcublas|libcudart|libnccl|libopenblas|libblas'
must_not_need motley-worker 'libmpi|libopen-|libcuda|libcublas|libcudart|libnccl|libyaml-cpp|libboost|libsqlite3'
exit "$failed"
