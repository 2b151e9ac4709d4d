#!/bin/bash
# Runs a program on two ranks in two network namespaces, which only a pair of virtual network
# devices connects. So the ranks are two nodes, and everything between them goes over TCP:
#   namespaces.sh MPIEXEC PROGRAM [ARGUMENT...]
# Exit 77 (skipped) without the right to make namespaces, or with another mpiexec than MPICH's. No
# test runs this: MPI_Finalize of MPICH 4.0 with UCX sometimes hangs here, after all tests.
set -euo pipefail

skip() {
    echo "skipped: $*"
    exit 77
}

if [ -z "${CLT_IN_NAMESPACE:-}" ]; then
    "$1" --version 2>/dev/null | grep -q HYDRA || skip "$1 is not MPICH's mpiexec"
    enter=(unshare --user --map-root-user --net --mount)
    "${enter[@]}" ip link add v0 type veth peer name v1 2>/dev/null ||
        skip "no right to make network namespaces, or no ip (Debian: iproute2)"
    CLT_IN_NAMESPACE=1 exec "${enter[@]}" "$0" "$@"
fi

folder=$(mktemp -d)
other=
trap 'kill $other 2>/dev/null; rm -rf "$folder"' EXIT
mount -t sysfs none /sys
unshare --net --mount bash -c "mount -t sysfs none /sys; touch $folder/made; exec sleep infinity" &
other=$!
for _ in $(seq 100); do
    [ -e "$folder/made" ] && break
    sleep 0.1
done
there=(nsenter --target "$other" --net --mount)

# Both ends have one name, because UCX gets the device's name from a variable of all ranks.
ip link add v0 type veth peer name v0 netns "$other"
ip addr add 10.97.0.1/24 dev v0
"${there[@]}" ip addr add 10.97.0.2/24 dev v0
for device in lo v0; do
    ip link set $device up
    "${there[@]}" ip link set $device up
done
up() {
    [ "$("$@" cat /sys/class/net/v0/operstate)" = up ]
}
for _ in $(seq 100); do
    { up env && up "${there[@]}"; } && break
    sleep 0.1
done

# mpiexec calls this instead of ssh: options, host, command.
cat >"$folder/rsh" <<END
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
shift
exec ${there[@]} bash -c "\$*"
END
chmod +x "$folder/rsh"

mpiexec=$1
shift
UCX_NET_DEVICES=v0 UCX_TLS=tcp,self FI_PROVIDER=tcp "$mpiexec" -launcher-exec "$folder/rsh" -iface v0 \
    -hosts 10.97.0.1,10.97.0.2 -n 2 "$@"
bytes=$(cat /sys/class/net/v0/statistics/tx_bytes)
echo "rank 0 sent $bytes bytes over TCP"
[ "$bytes" -gt 100000 ]
