#!/usr/bin/env bash
# run.sh: the Ansible role of packaging/ansible on real clusters of this machine, as an ordinary
# user, over the connection "local":
#   - three nodes: a new cluster with the key of the inventory, a new one with a key of its own and
#     a recipient, and a plain one that is sealed in place. --check changes nothing on the disk, the
#     first run changes, the second one nothing; the servers start; no key is in an argument, in the
#     output, or left in a temporary file
#   - what the role refuses: each ends the play, and changes nothing
#   - an inventory of HOSTS (300) nodes with a key each: the tasks that need no server (keys, units
#     of the metrics), by 16 at a time, twice; and pgseal doctor --fleet with as many lines for the
#     three clusters
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$PGSEAL_ROOT"

HOSTS=${HOSTS:-300}
ansible=$(ansible_dir)/bin/ansible-playbook
[ -x "$ansible" ] || die "no Ansible here; install it: scripts/setup.sh fleet"
bindir=$(dirname "$(pg_config_of "$(default_major)")")
pgseal=$PWD/target/release/pgseal
work=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
watcher=
clean() {
    local status=$?
    trap - EXIT
    [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
    stop_servers_below "$work"
    if [ "$status" = 0 ]; then rm -rf "$work"; else warn "what is left: $work"; fi
    exit "$status"
}
trap clean EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$work"
cd "$work"

export PATH=$bindir:/usr/local/bin:/usr/bin:/bin PGSEAL_CLUSTERS_DIR=$work/clusters.d
export ANSIBLE_ROLES_PATH=$PGSEAL_ROOT/packaging/ansible/roles ANSIBLE_LOCAL_TEMP=$work/temp ANSIBLE_REMOTE_TEMP=$work/temp
export ANSIBLE_NOCOLOR=1 ANSIBLE_RETRY_FILES_ENABLED=0 ANSIBLE_PYTHON_INTERPRETER=/usr/bin/python3 ANSIBLE_CONFIG=$work/ansible.cfg
export ANSIBLE_DEPRECATION_WARNINGS=0 ANSIBLE_HOME=$work/ansible
: >ansible.cfg
unset PGDATA PGSEAL_PROVIDER

key_of() { printf '%s' "$1" | sha256sum | cut -c 1-64; }
cat >play.yml <<'END'
- hosts: all
  gather_facts: false
  roles: [pgseal]
END
# The settings of all nodes. Keys are in the variables of hosts only.
cat >group.yml <<END
all:
  vars:
    ansible_connection: local
    pgseal_become: false
    pgseal_systemd: false
    pgseal_program: $pgseal
    pgseal_bindir: $bindir
    pgseal_user: $(id -un)
    pgseal_group: $(id -gn)
    pgseal_clusters_dir: $PGSEAL_CLUSTERS_DIR
    pgseal_data_dir: $work/{{ inventory_hostname }}/data
    pgseal_key_file: $work/{{ inventory_hostname }}/etc/main.key
    pgseal_drop_in: $work/{{ inventory_hostname }}/unit.d/pgseal.conf
    pgseal_metrics_unit_dir: $work/{{ inventory_hostname }}
    pgseal_initdb_options: [--auth=trust, --no-sync]
END
cat >three.yml <<END
all:
  hosts:
    created:
      pgseal_create: true
      pgseal_key: $(key_of created)
      pgseal_config_lock: true
    own:
      pgseal_create: true
      pgseal_recipients:
        - name: break-glass
          provider: file:$work/own/etc/break-glass.key
          key_file: $work/own/etc/break-glass.key
          key: $(key_of break-glass)
    converted:
      pgseal_convert: true
      pgseal_key: $(key_of converted)
END
mkdir -p created own converted/etc
for node in created own converted; do key_of "$node" >>secrets; done
key_of break-glass >>secrets

server() { # NODE: starts it, as its unit would with the drop-in
    local node=$1 port
    port=$((20000 + RANDOM % 20000))
    (
        while IFS= read -r line; do export "${line?}"; done < \
            <(sed -n 's/^Environment="\(.*\)"$/\1/p' "$node/unit.d/pgseal.conf" 2>/dev/null)
        pg_ctl -s -w -D "$node/data" -l "$node/log" -o "-p $port -k $work/$node -c listen_addresses=''" start
    ) || { cat "$node/log"; die "the server of $node does not start"; }
    echo "$port" >"$node/port"
}
stop() { env -u LD_PRELOAD "$pgseal" run -- pg_ctl -s -w -m fast -D "$1/data" stop; }
ask() { psql -X -A -t -q -v ON_ERROR_STOP=1 -h "$work/$1" -p "$(cat "$1/port")" -d postgres -c "$2"; }
state() { find "$@" -printf '%p %y %m %s %T@ %C@\n' 2>/dev/null | sort; }
# What the role writes. The data directories of running servers change by themselves, at a
# checkpoint.
written() { state created/etc own/etc converted/etc ./*/unit.d ./*/pgseal-metrics.* clusters.d ./*/data/{*.conf,pgseal/keyring} "$@"; }
# play INVENTORY OUTPUT [OPTION...]
play() {
    local inventory=$1 output=$2
    shift 2
    "$ansible" -i group.yml -i "$inventory" "$@" play.yml >"$output" 2>&1 || {
        tail -n 40 "$output"
        return 1
    }
}
changed() { grep -E ' changed=[1-9]' "$1" | grep -c ' : ok=' || true; }
# of_task NAME OUTPUT: what a play said in that task.
of_task() { awk -v task="$1" '/^(TASK|RUNNING HANDLER) /{ is_in = index($0, task) } is_in' "$2"; }
passed() { say "fleet: $*"; }

initdb -D converted/data -k -A trust --no-sync >/dev/null
server converted
ask converted "create table t as select 'canary-fleet-Zq7x ' || g as v from generate_series(1, 1000) g"
pg_ctl -s -w -m fast -D converted/data stop
grep -rq canary-fleet-Zq7x converted/data || die "the plain cluster shows no row: this test cannot fail"

# ---- check mode ----
before=$(state created own converted)
play three.yml check.log --check --diff
[ "$(state created own converted)" = "$before" ] || die "--check changed something on the disk"
[ ! -e clusters.d ] || die "--check registered a key"
[ "$(changed check.log)" = 3 ] || { cat check.log; die "--check does not say that all three would change"; }
for task in "Bring or make the keys" "Create a sealed cluster" "Seal the plain cluster in place" "Write the units"; do
    of_task "$task" check.log | grep -q '^changed' || die "--check does not name: $task"
done
# A key is made or brought on each node.
[ "$(of_task "Bring or make the keys" check.log | grep -c '^changed')" = 3 ] || die "--check does not bring three keys"
passed "--check changed nothing and named what it would do"

# ---- first run, with all that could show a key: no argument of any process may have one ----
control=$(key_of control)
{ cat secrets; echo "$control"; } >watched
: >seen
python3 "$PGSEAL_ROOT/tests/fleet/watch.py" watched seen &
watcher=$!
# Its own proof: a process with a secret in its arguments is found.
python3 -c 'import time; time.sleep(60)' "$control" &
control_pid=$!
for _ in $(seq 100); do [ -s seen ] && break; sleep 0.1; done
kill "$control_pid"
grep -q "$control" seen || die "the watcher sees no argument: this test cannot fail"
play three.yml first.log --diff -vvv
kill "$watcher"
watcher=
[ "$(changed first.log)" = 3 ] || { cat first.log; die "the first run did not change all three"; }
! grep -v "$control" seen || die "a key was in the arguments or the environment of a process"
! grep -qFf secrets first.log check.log || die "a key is in the output"
! grep -rlFf secrets --include='*' temp ansible 2>/dev/null | grep -q . || die "a key is left in a temporary file"
for key in created/etc/main.key own/etc/main.key own/etc/break-glass.key converted/etc/main.key; do
    [ "$(stat -c %a "$key")" = 600 ] || die "$key: mode $(stat -c %a "$key")"
done
[ "$(cat own/etc/main.key)" != "$(key_of own)" ] || die "the host made no key of its own"
passed "the first run made and sealed the clusters, and showed no key"

for node in created own converted; do server "$node"; done
[ "$(ask converted "select count(*) from t where v like 'canary-fleet%'")" = 1000 ] || die "rows are missing"
ask own "create table t as select 'canary-fleet-Zq7x ' || g as v from generate_series(1, 1000) g; checkpoint" >/dev/null
! grep -rlq canary-fleet-Zq7x converted/data own/data || die "rows are readable on the disk"
"$pgseal" key check own/data -K "file:$work/own/etc/break-glass.key" >/dev/null
"$pgseal" config status created/data >/dev/null || die "the configuration is not locked"
passed "the servers run with the drop-ins; rows are there, and not on the disk"

# ---- second run, with the servers running ----
before=$(written)
play three.yml second.log -vvv
[ "$(changed second.log)" = 0 ] || { grep -B5 ^changed second.log; die "the second run changed something"; }
play three.yml again.log --check
[ "$(changed again.log)" = 0 ] || { grep -B5 ^changed again.log; die "--check after it would change something"; }
[ "$(written)" = "$before" ] || die "the second run wrote a file"
# Most of the time of many hosts: eight on each, and one for the lock of "created".
modules=$(grep -c "Using module file" second.log) || true
[ "$modules" = 25 ] || { grep "Using module file" second.log; die "$modules modules ran on three hosts"; }
grep -q "WARN escrow" second.log || die "what doctor warns of is not shown"
passed "the second run changed nothing"

# ---- units: those of packaging/systemd, with other names ----
for unit in pgseal-metrics.service pgseal-metrics.timer; do
    sed -e "s#^User=.*#User=postgres#" -e "s#$pgseal#pgseal#; s#$work/created/data#/var/lib/postgresql/15/main#" \
        -e 's#f=/var/lib/prometheus/node-exporter/pgseal.prom; #d=/var/lib/prometheus/node-exporter; #' \
        -e 's#\$f.new#$d/pgseal.prom.new#g; s#\$f#$d/pgseal.prom#' "created/$unit" |
        diff - "$PGSEAL_ROOT/packaging/systemd/$unit" || die "$unit of the role differs from packaging/systemd"
done

# ---- guards: each ends the play and changes nothing ----
refused() { # WHAT WORDS OPTION...: the inventory bad.yml
    local before
    before=$(written bad)
    if "$ansible" -i group.yml -i bad.yml "${@:3}" play.yml >bad.log 2>&1; then die "not refused: $1"; fi
    grep -q "$2" bad.log || { cat bad.log; die "refused for another reason: $1"; }
    [ "$(written bad)" = "$before" ] || die "refused, and something was changed: $1"
    ! grep -qiFf secrets bad.log || die "a key is in the output: $1"
}
bad() { printf 'all:\n  hosts:\n    %s:\n' "$1" >bad.yml; printf '      %s\n' "${@:2}" >>bad.yml; }
mkdir -p bad/etc
for node in other bad; do key_of "$node" >>secrets; done
bad created "pgseal_key: $(key_of other)"
refused "another key than the one here" "another key than in the inventory" -vvv
bad bad "pgseal_key: $(key_of bad | tr a-f A-F)"
refused "a key of another form" "not 64 hexadecimal digits" -vvv
key_of bad >bad/etc/main.key
chmod 600 bad/etc/main.key
touch bad/pgseal-metrics.service
bad bad "pgseal_key: $(key_of bad)"
refused "no cluster, and none asked for" "Is the volume mounted"
initdb -D bad/data -A trust --no-sync >/dev/null
refused "a plain cluster, and no conversion asked for" "this cluster is plain"
bad bad "pgseal_convert: true"
refused "the only key on its host" "all data would be lost"
bad bad "pgseal_convert: true" "pgseal_key: $(key_of bad)"
server bad
before=$(find bad/data -type f -newer bad/port -name keyring)
if "$ansible" -i group.yml -i bad.yml play.yml >bad.log 2>&1; then die "a running server's files were sealed"; fi
grep -q "a server runs" bad.log || { cat bad.log; die "refused for another reason: a running server"; }
[ ! -e bad/data/pgseal ] || die "a running server's directory got a keyring"
pg_ctl -s -w -m fast -D bad/data stop
chmod 755 own/data
bad own "pgseal_recipients: [{name: break-glass, provider: 'file:$work/own/etc/break-glass.key'}]"
if "$ansible" -i group.yml -i bad.yml play.yml >bad.log 2>&1; then die "a failure of doctor did not end the play"; fi
grep -q "FAIL permissions" bad.log || { cat bad.log; die "doctor's failure is not shown"; }
passed "what has to be refused is refused"

# ---- doctor --fleet ----
for n in $(seq "$HOSTS"); do
    case $((n % 3)) in 0) echo "$work/created/data" ;; 1) echo "$work/own/data" ;; 2) echo "$work/converted/data" ;; esac
done >fleet.txt
start=$SECONDS status=0
"$pgseal" doctor --fleet fleet.txt --jobs 8 >fleet.log || status=$?
[ "$status" = 2 ] || { cat fleet.log; die "the exit status of the fleet is $status: not that of the worst"; }
# More than eight names are counted.
[ "$HOSTS" -le 24 ] || grep -q "^FAIL  permissions .* and $(($(grep -c own/data fleet.txt) - 8)) more$" fleet.log ||
    { cat fleet.log; die "a long list of clusters is not cut"; }
third=$(grep -c own/data fleet.txt)
grep -q "^FAIL  permissions .*on $third clusters: $work/own/data" fleet.log || { cat fleet.log; die "no table by check"; }
grep -q "^$HOSTS clusters: 0 ok, $((HOSTS - third)) with warnings, $third with failures, 0 without an answer" fleet.log ||
    { tail -n 3 fleet.log; die "no summary"; }
chmod 700 own/data
passed "doctor --fleet asked $HOSTS lines in $((SECONDS - start)) s"
for node in created own converted; do stop "$node"; done

# ---- many hosts ----
for n in $(seq "$HOSTS"); do
    mkdir -p "many/node$n"
    printf '    node%s: {pgseal_key: %s}\n' "$n" "$(key_of "node$n")"
done >many.hosts
{ printf 'all:\n  hosts:\n'; cat many.hosts; } >many.yml
sed "s#$work/{{#$work/many/{{#" group.yml >many-group.yml
# Without a file for each task of each host: half the time. The runs above, which look for keys in
# such files, have them.
export ANSIBLE_PIPELINING=1
for run in first second; do
    start=$SECONDS
    "$ansible" -i many-group.yml -i many.yml --forks 16 --tags pgseal_keys,pgseal_metrics play.yml >"many-$run.log" 2>&1 ||
        { tail -n 30 "many-$run.log"; die "the $run run on $HOSTS hosts failed"; }
    want=$HOSTS
    [ "$run" = first ] || want=0
    [ "$(changed "many-$run.log")" = "$want" ] || { tail -n 5 "many-$run.log"; die "not $want hosts changed in the $run run"; }
    passed "$run run on $HOSTS hosts: $((SECONDS - start)) s"
done
for n in $(seq "$HOSTS"); do
    [ "$(cat "many/node$n/etc/main.key")" = "$(key_of "node$n")" ] || die "node$n has not its own key"
    [ "$(stat -c %a "many/node$n/etc/main.key")" = 600 ] || die "node$n: the key can be read by others"
done
passed "all passed"
