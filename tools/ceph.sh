#!/usr/bin/env bash
# A real S3 server for tests: a Ceph monitor, an OSD that keeps its objects in memory, and a RADOS Gateway, on loopback only.
#
#   tools/ceph.sh start FOLDER [PORT]   starts it; prints the endpoint
#   tools/ceph.sh stop FOLDER           ends the three processes
#
# Access key: AKTEST, secret key: SKTEST, bucket: test. PORT is the gateway's port, PORT + 1 the monitor's; by default, two free ports are
# chosen. Needs ceph-mon, ceph-osd, radosgw, ceph-common and curl, and a folder with a short path, because it holds sockets.
set -euo pipefail

verb=${1:?start or stop}
run=$(realpath -m "${2:?a folder for the state of the server}")
port=${3:-}
export CEPH_CONF=$run/ceph.conf

stop() {
    local file
    for file in "$run"/*.pid; do
        [[ -f $file ]] && kill "$(cat "$file")" 2>/dev/null
    done
    return 0
}

# free PORT: succeeds if no process listens on it.
free() { ! (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# choose_port: sets the port, the first of a free pair below the system's ephemeral ports.
choose_port() {
    local from=$((RANDOM % 1000)) i
    for ((i = 0; i < 1000; i++)); do
        port=$((7480 + (from + i) % 1000 * 2))
        free "$port" && free "$((port + 1))" && return
    done
    echo "ceph.sh: no ports are free" >&2
    return 1
}

# wait_for WHAT COMMAND...
wait_for() {
    local what=$1
    shift
    for ((i = 0; i < 240; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    echo "ceph.sh: $what did not come up; see $run/*.log" >&2
    return 1
}

configuration() {
    cat <<EOF
[global]
fsid = $1
mon_host = v1:127.0.0.1:$((port + 1))
mon_initial_members = a
ms_bind_msgr2 = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = $run
crash_dir = $run
log_file = $run/\$name.log
pid_file = $run/\$name.pid
admin_socket = $run/\$name.asok
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
[mon]
mon_data = $run/mon
mon_data_avail_warn = 0
mon_data_avail_crit = 0
[osd]
osd_data = $run/osd
osd_objectstore = memstore
memstore_device_bytes = 4294967296
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:$port
rgw_enable_apis = s3, admin
EOF
}

# The OSD gives up if it asks the monitor before the monitor knows its cluster.
start_osd() {
    for ((i = 0; i < 20; i++)); do
        ceph-osd -i 0 && return
        sleep 0.5
    done
    echo "ceph.sh: the OSD did not start; see $run/osd.0.log" >&2
    return 1
}

osd_is_up() { ceph osd stat | grep -q "1 up"; }

start() {
    local fsid osd
    mkdir -p "$run/mon" "$run/osd"
    fsid=$(cat /proc/sys/kernel/random/uuid)
    osd=$(cat /proc/sys/kernel/random/uuid)
    configuration "$fsid" >"$CEPH_CONF"
    monmaptool --create --fsid "$fsid" --addv a "v1:127.0.0.1:$((port + 1))" "$run/monmap"
    ceph-mon -i a --mkfs --monmap "$run/monmap"
    ceph-mon -i a
    # Refused until the monitor has set up its authentication.
    wait_for "the monitor" timeout 10 ceph osd new "$osd"
    ceph-osd -i 0 --mkfs --osd-uuid "$osd"
    start_osd
    wait_for "the OSD" osd_is_up
    radosgw -n client.rgw
    wait_for "the gateway" curl -fs "http://127.0.0.1:$port/"
    timeout 60 radosgw-admin -n client.rgw --admin-socket= user create --uid=test --display-name=test --access-key=AKTEST --secret-key=SKTEST
    # curl signs the request that makes a bucket, but not every version sends the hash of its empty body.
    curl -fsS -X PUT --aws-sigv4 aws:amz:us-east-1:s3 \
        -H "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" \
        --user AKTEST:SKTEST "http://127.0.0.1:$port/test"
}

case $verb in
    start)
        rm -rf "$run"
        mkdir -p "$run"
        # Holds a lock, so that no other run chooses the same ports before the server listens on them.
        exec 8>"${TMPDIR:-/tmp}/lmc-ceph-$UID.lock"
        flock -w 300 8
        # A port that is free may be taken before the server listens on it: other ports are tried.
        attempts=3
        [[ -z $port ]] || attempts=1
        for ((attempt = 1; ; attempt++)); do
            ((attempts == 1)) || choose_port
            # Not after `||` or in `if`: `set -e` has no effect there.
            set +e
            (set -e; start) >"$run/start.log" 2>&1 8>&-
            status=$?
            set -e
            ((status != 0)) || break
            tail -n 20 "$run"/*.log >&2
            df -h "$run" >&2
            stop
            ((attempt < attempts)) || exit 1
            sleep 2
            rm -rf "${run:?}"/*
        done
        echo "http://127.0.0.1:$port"
        ;;
    stop) stop ;;
    *) echo "ceph.sh: start or stop, not $verb" >&2; exit 2 ;;
esac
