#!/bin/sh
# Runs a command on Oclgrind's simulated device. Fails if Oclgrind reports anything: accesses
# outside buffers, data races, uninitialised values, wrong API calls.
#   tools/oclgrind.sh COMMAND...
# CLT_OCLGRIND_STORES=BUILD/tests/liboclgrind_stores.so avoids false reports of uninitialised values in
# programs that write, fill or copy parts of buffers, as training does. The library says why. Such
# programs also need OCLGRIND_BUILD_OPTIONS=-cl-opt-disable: the check does not know some
# instructions that the optimiser makes.
set -u
if [ $# -eq 0 ]; then
    echo "usage: $(basename "$0") COMMAND..." >&2
    exit 2
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT INT TERM
if [ -n "${CLT_OCLGRIND_STORES-}" ]; then
    # Oclgrind sets LD_PRELOAD for its child, and the library must come before Oclgrind's.
    set -- sh -c 'LD_PRELOAD=$CLT_OCLGRIND_STORES${LD_PRELOAD:+:$LD_PRELOAD} exec "$@"' sh "$@"
fi
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
