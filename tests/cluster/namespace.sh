#!/usr/bin/env bash
# namespace.sh COMMAND...: runs COMMAND where the only network interface is lo, so that no daemon of a test can
# listen on, or reach, another machine. The processes it leaves behind end with it: they live in a process
# namespace whose first process is the shell below, and the kernel kills them all when that shell ends.
# 127.0.0.2 is there because getaddrinfo(hostname) fails on a machine that has 127.0.0.1 alone.
# Needs util-linux and iproute2, and root or the right to make user namespaces.
set -euo pipefail

lacks() {
    echo "namespace.sh: $1" >&2
    exit 3
}

[ $# -gt 0 ] || lacks "name a command to run"
command -v unshare >/dev/null || lacks "unshare is missing: apt-get install util-linux"
command -v ip >/dev/null || lacks "ip is missing: apt-get install iproute2"

own=(--net --mount --pid --fork --kill-child --mount-proc)
[ "$(id -u)" = 0 ] || own+=(--user --map-root-user)
refusal=$(unshare "${own[@]}" true 2>&1) ||
    lacks "this system allows no network namespace ($refusal): run as root, in a container with
--cap-add=SYS_ADMIN, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"

# The inner shell must not exec COMMAND: as first process it reaps what COMMAND's daemons leave behind.
exec unshare "${own[@]}" bash -c '
    ip link set lo up && ip address add 127.0.0.2/8 dev lo || exit 3
    "$@"
    exit $?' namespace "$@"
