#!/bin/bash
# Tests what a new user meets: makes a bare Debian 12 in a folder (debootstrap, no compiler), clones
# this repository's last commit into it, and runs the README's commands there. Needs root and
# debootstrap.
#   tools/fresh-check.sh DIR [COMMAND...]    COMMAND: default tools/quickstart, then tools/test
# DIR must not exist. It is kept for inspection (rm -rf DIR when done).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=tools/setup.sh
. tools/setup.sh

[ $# -ge 1 ] || fail "usage: $(basename "$0") DIR [COMMAND...]"
[ "$(id -u)" -eq 0 ] || fail "run as root: a chroot needs it"
command -v debootstrap >/dev/null || fail "debootstrap is missing (Debian: debootstrap)"
[ ! -e "$1" ] || fail "$1 exists"
dir=$(realpath -m "$1")
shift
[ $# -gt 0 ] || set -- tools/quickstart tools/test

unmount() {
    local folder
    for folder in dev/shm dev/pts dev sys proc; do
        ! mountpoint -q "$dir/$folder" || umount "$dir/$folder"
    done
}
trap unmount EXIT

say "A bare Debian 12 in $dir"
debootstrap --variant=minbase bookworm "$dir" >"$dir.log" 2>&1 || fail "debootstrap: see $dir.log"
# The new system uses this machine's resolver, certificates and package sources for security.
cp /etc/resolv.conf "$dir/etc/resolv.conf"
# This is not the system's own bundle, because installing ca-certificates overwrites that one.
cp -L /etc/ssl/certs/ca-certificates.crt "$dir/root/host-certificates.crt"
[ ! -e /etc/apt/sources.list.d/debian.sources ] ||
    cp /etc/apt/sources.list.d/debian.sources "$dir/etc/apt/sources.list.d/"
mount -t proc proc "$dir/proc"
mount --bind /sys "$dir/sys"
mount --bind /dev "$dir/dev"
mount --bind /dev/pts "$dir/dev/pts"
mount -t tmpfs tmpfs "$dir/dev/shm"
git clone -q --no-hardlinks . "$dir/root/cltrain"
[ ! -e "$dir/usr/bin/cc" ] || fail "the bare system has a compiler"

mapfile -t network < <(env | grep -iE '^[a-z]+_proxy=' || true)
network+=(PIP_CERT=/root/host-certificates.crt)
for command in "$@"; do
    say "$command, in the fresh clone"
    start=$SECONDS
    chroot "$dir" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${network[@]}" \
        bash -c "cd /root/cltrain && $command"
    say "$command: $((SECONDS - start)) seconds"
done
