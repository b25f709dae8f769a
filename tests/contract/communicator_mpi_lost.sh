#!/usr/bin/env bash
# communicator_mpi_lost.sh MPIEXEC PROGRAM: a rank that is lost ends the waiting for sends that it never received, long before
# the communicator's timeout where it died, and mpirun's status says why.
set -euo pipefail
mpiexec=$1 program=$2
failed=0

expect() {  # WAY STATUS OUTPUT
  local way=$1 status=0 output
  output=$(timeout 60 "$mpiexec" --bind-to none -n 2 "$program" "$way" 2>"$errors") || status=$?
  if [[ $status != "$2" || $output != "$3" ]]; then
    printf '%s: status %s, wanted %s; output "%s", wanted "%s"\n' "$way" "$status" "$2" "$output" "$3" >&2
    cat "$errors" >&2
    failed=1
  fi
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
expect dies 137 ""
expect gives_up 42 ""
expect silent 1 "rank 1 did not answer in complete"
# Nobody but its own watch notices that a rank is stuck inside the library.
MOTLEY_FAILPOINT=mpi_call_sticks expect silent 1 ""
if ! grep -q "rank [01]: MPI_Testsome has not returned for 2 s in " "$errors"; then
  echo "a call that is stuck has not been named:" >&2
  cat "$errors" >&2
  failed=1
fi
exit "$failed"
