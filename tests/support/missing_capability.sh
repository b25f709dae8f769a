#!/usr/bin/env bash
# missing_capability.sh CAPABILITY REASON: the end of a test that cannot run here. Skips (77), or fails if MOTLEY_REQUIRE,
# a list separated by commas, names the capability.
set -euo pipefail
capability=$1 reason=$2
case ",${MOTLEY_REQUIRE:-}," in
  *",$capability,"*) echo "required capability '$capability' is missing: $reason" >&2; exit 1 ;;
esac
echo "skipped, no $capability: $reason"
exit 77
