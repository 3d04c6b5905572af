#!/usr/bin/env bash
# Runs a program in a control group of its own that has one limit:
#
#     limit.sh memory BYTES PROGRAM [ARGUMENT]...
#     limit.sh cpu THOUSANDTHS-OF-A-PROCESSOR PROGRAM [ARGUMENT]...
#     limit.sh pids PROCESSES-AND-THREADS PROGRAM [ARGUMENT]...
#
# Groups of both versions will do. It exits 125 where none can be made.
set -u
controller=$1 value=$2
shift 2

cannot() {
    rmdir "$group" 2>/dev/null
    exit 125
}

set_limit() {
    echo "$2" 2>/dev/null >"$group/$1" || cannot
}

root=/sys/fs/cgroup
if [ -e "$root/cgroup.controllers" ]; then
    group=$root/breakeven-$$
    grep -qw "$controller" "$root/cgroup.subtree_control" || echo "+$controller" 2>/dev/null >"$root/cgroup.subtree_control" || cannot
else
    group=$root/$controller/breakeven-$$
fi
mkdir "$group" 2>/dev/null || cannot
period=100000
case $controller in
memory)
    if [ -e "$group/memory.max" ]; then
        set_limit memory.max "$value"
    else
        set_limit memory.limit_in_bytes "$value"
    fi
    ;;
pids) set_limit pids.max "$value" ;;
cpu)
    if [ -e "$group/cpu.max" ]; then
        set_limit cpu.max "$((value * period / 1000)) $period"
    else
        set_limit cpu.cfs_period_us "$period"
        set_limit cpu.cfs_quota_us "$((value * period / 1000))"
    fi
    ;;
esac
(
    echo "$BASHPID" >"$group/cgroup.procs" || exit 125
    exec "$@"
)
code=$?
# Who still runs in it keeps it.
rmdir "$group" 2>/dev/null
exit "$code"
