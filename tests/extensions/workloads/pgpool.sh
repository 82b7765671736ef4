#!/bin/bash
exec 2>&1
mkdir -p "$SCRATCH/p"
cat >"$SCRATCH/p/conf" <<CONF
listen_addresses = ''
port = 6433
socket_dir = '$SCRATCH/p'
pcp_socket_dir = '$SCRATCH/p'
pcp_port = 6434
wd_ipc_socket_dir = '$SCRATCH/p'
pid_file_name = '$SCRATCH/p/pid'
logdir = '$SCRATCH/p'
memqcache_oiddir = '$SCRATCH/p/oid'
backend_clustering_mode = 'raw'
backend_hostname0 = '$PGHOST'
backend_port0 = $PGPORT
num_init_children = 10
max_pool = 2
memory_cache_enabled = on
memqcache_total_size = 8MB
memqcache_max_num_cache = 1000
enable_pool_hba = off
CONF
touch "$SCRATCH/p/none"
pgpool -n -f "$SCRATCH/p/conf" -F "$SCRATCH/p/none" -a "$SCRATCH/p/none" >"$SCRATCH/p/log" 2>&1 &
pool=$!
there="-h $SCRATCH/p -p 6433"
for _ in $(seq 200); do psql -X -q $there -d w -c '' 2>/dev/null && break; sleep 0.1; done
if [ "$1" = load ]; then
    pgbench $there -i -q -s 1 w >/dev/null 2>&1
    pgbench $there -n -c 8 -j 2 -t 100 w 2>&1 | grep 'number of transactions'
    pgbench $there -n -c 4 -j 2 -t 50 -C -M extended w 2>&1 | grep 'number of transactions'
    psql -X -q $there -d w -c "INSERT INTO t (v) SELECT 'canary-pgpool-Zq7x ' || g FROM generate_series(1, 500) g"
else
    for _ in 1 2 3; do psql -X -A -t $there -d w -c "SELECT count(*) FROM t"; done
fi
kill -INT $pool
wait $pool
