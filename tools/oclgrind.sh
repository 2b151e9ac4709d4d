#!/bin/sh
# Runs a command on Oclgrind's simulated device. Fails if Oclgrind reports anything: accesses
# outside buffers, data races, uninitialised values, wrong API calls.
#   tools/oclgrind.sh COMMAND...
set -u
if [ $# -eq 0 ]; then
    echo "usage: $(basename "$0") COMMAND..." >&2
    exit 2
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT INT TERM
oclgrind --data-races --uninitialized --check-api --max-errors 20 --log "$log" "$@"
status=$?
if [ -s "$log" ]; then
    echo "Oclgrind reports:" >&2
    cat "$log" >&2
    exit 1
fi
# The plans that the test found right (tests/ops/harness/settled.h) count now, because there is no report.
if [ $status -eq 0 ] && [ -f "${CLT_TEST_SETTLED-}.new" ]; then
    mv "$CLT_TEST_SETTLED.new" "$CLT_TEST_SETTLED"
fi
exit $status
