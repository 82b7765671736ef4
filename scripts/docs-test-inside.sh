#!/usr/bin/env bash
# For docs-test.sh: runs the steps of one page, in /docs-test/page, as the first process of the
# page's own machine. Each user has one shell from the first block to the last, as on a terminal.
set -euo pipefail
. /docs-test/lib.sh
. /docs-test/pages.sh
cd /docs-test/page

page=$(cat page)
major=$(cat major)
: >counts
bindir=/usr/lib/postgresql/$major/bin

fail() {
    say "$page:$1: $2"
    [ ! -s "${3:-/dev/null}" ] || {
        say "it printed:"
        tail -n 30 "$3"
    }
    exit 1
}

# What a machine that the pages speak of has: a directory for sockets, sudo for the server's user.
install -d -o postgres -g postgres -m 2775 /run/postgresql
printf 'Defaults !lecture,env_keep += "PGDATA"\nALL ALL=(ALL) NOPASSWD: ALL\n' >/etc/sudoers.d/docs-test
printf '127.0.0.1 localhost pg primary\n::1 localhost\n' >/etc/hosts
rm -rf /etc/pgseal /var/lib/pgseal "/etc/postgresql/$major" "/var/lib/postgresql/$major" /etc/postgresql/15 /var/lib/postgresql/15
# The programs of this major version, and of no other, are in PATH.
for program in "$bindir"/*; do
    rm -f "/usr/local/bin/${program##*/}"
done
[ "$("$bindir/postgres" --version | sed -E 's/.*\) ([0-9]+).*/\1/')" = "$major" ] || fail 0 "$bindir has another version"
install -d -o postgres -g postgres /home/postgres /docs-test/run
chmod 1777 /docs-test/run
usermod --home /home/postgres postgres 2>/dev/null || sed -i -E 's#^(postgres:.*):[^:]*:([^:]*)$#\1:/home/postgres:\2#' /etc/passwd

# Functions of hidden blocks.
cat >/docs-test/functions.sh <<'END'
# sealed DIR [OPTION...]: makes a sealed cluster with the key /etc/pgseal/main.key, and does not
# start it.
sealed() {
    local dir=$1
    shift
    sudo install -d -o "$(id -un)" -m 755 "$(dirname "$dir")"
    sudo install -d /etc/pgseal
    [ -e /etc/pgseal/main.key ] || sudo pgseal key new -o /etc/pgseal/main.key
    sudo chown postgres: /etc/pgseal/main.key
    pgseal initdb -k -K file:/etc/pgseal/main.key -D "$dir" ${SEALED_OPTIONS:-} -- -A trust -U postgres --no-sync >/dev/null
}
start() { pgseal run -- pg_ctl -s -w -D "$1" -l "$1.log" "${@:2}" start || { tail "$1.log"; return 1; }; }
stop() { pgseal run -- pg_ctl -s -w -m fast -D "$1" stop; }
plain() {
    local dir=$1
    sudo install -d -o "$(id -un)" -m 755 "$(dirname "$dir")"
    initdb -k -D "$dir" -A trust -U postgres --no-sync >/dev/null
}
ask() { psql -X -A -t -q -v ON_ERROR_STOP=1 "${@:2}" -c "$1" postgres; }
is() { [ "$1" = "$2" ] || { echo "found \"$1\" instead of \"$2\""; return 1; }; }
# Types the lines of BASE.in, each after a prompt.
type_lines() {
    local seen=0 size=0 typed
    while IFS= read -r typed; do
        until size=$(stat -c %s "$1.terminal" 2>/dev/null || echo 0)
            [ "$size" -gt "$seen" ] && [[ $(tail -c 20 "$1.terminal" | tr -d '\0') == *[]:]' ' ]]; do sleep 0.2; done
        seen=$size
        sleep 1
        printf '%s\n' "$typed"
    done <"$1.in"
}
fails() { if "$@"; then echo "this should have failed: $*"; return 1; fi; }
# Until a command succeeds, for a minute.
until_true() { local n; for n in $(seq 300); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.2; done; "$@"; }
END

# The shell of a user. It reads the name of a script from its pipe, runs it, and answers.
cat >/docs-test/loop.sh <<'END'
user=$1
. /docs-test/functions.sh
cd "$HOME"
shopt -s expand_aliases
trap 'echo "exit $?" >/docs-test/run/out-$user' EXIT
set -o pipefail
while :; do
    # Who wrote the last name may close the pipe only now: then there is nothing to read.
    read -r block <"/docs-test/run/in-$user" || continue
    [ "$block" != end ] || break
    [ -e "$block.any" ] || { set -eE; trap 'echo "$BASH_COMMAND" >"$block.failed"' ERR; }
    . "$block.sh" <"$block.in" >"$block.out" 2>&1
    status=$?
    trap - ERR
    set +eE
    echo "done $status" >"/docs-test/run/out-$user"
done
END

declare -A shells=()
shell_of() {
    local user=$1 home
    [ -z "${shells[$user]:-}" ] || return 0
    home=$(getent passwd "$user" | cut -d : -f 6)
    [ -n "$home" ] || fail 0 "there is no user $user"
    mkfifo "/docs-test/run/in-$user" "/docs-test/run/out-$user"
    chmod 666 "/docs-test/run/in-$user" "/docs-test/run/out-$user"
    setsid setpriv --reuid="$(id -u "$user")" --regid="$(id -g "$user")" --init-groups -- \
        env -i HOME="$home" USER="$user" LOGNAME="$user" LC_ALL=C.UTF-8 TZ=UTC TERM=dumb \
        PATH="$bindir:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        bash --norc --noprofile /docs-test/loop.sh "$user" </dev/null >"/docs-test/run/shell-$user.log" 2>&1 9<&- &
    shells[$user]=$!
}

# run_block USER NAME LIMIT-S: runs NAME.sh; prints nothing; the answer is in $answer.
run_block() {
    local user=$1 name=$2 limit=$3
    shell_of "$user"
    exec 5<>"/docs-test/run/out-$user"
    echo "$name" >"/docs-test/run/in-$user"
    answer=
    read -r -t "$limit" answer <&5 || answer="no end within $limit s"
    exec 5<&-
}

places=(-e '') # sed scripts for the placeholders of the page
page_user=postgres
last=
while IFS=$'\t' read -r step at kind options <&9; do
    user=$(option user "$options" "$page_user")
    base=/docs-test/run/$step
    lang=$(cat "$step.lang" 2>/dev/null || true)
    case "$kind" in
    page)
        page_user=$user
        for word in $options; do
            [[ $word =~ ^([A-Z][A-Z_0-9]*)=(.*)$ ]] || continue
            places+=(-e "s#(^|[^A-Za-z0-9_\$/.])${BASH_REMATCH[1]}\\b([^=]|\$)#\\1${BASH_REMATCH[2]}\\2#g"
                -e "s#(^|[^A-Za-z0-9_\$/.])${BASH_REMATCH[1]}\\b([^=]|\$)#\\1${BASH_REMATCH[2]}\\2#g")
        done
        if [ "$(option version "$options" '')" = 15 ]; then
            places+=(-e "s#\\b15\\b#$major#g")
        fi
        user=root
        kind=hidden
        ;;
    esac
    case "$kind" in
    excused)
        case "$lang" in ini | yaml | python | json | hcl)
            printf 'file\t%s\t%s\t%s\n' "$page" "$options" "$at" >>counts
            continue
            ;;
        esac
        while IFS=$'\t' read -r first _ text; do
            printf 'excused\t%s\t%s\t%s\n' "$page" "$options" "$at:$first:$text" >>counts
        done < <(if [ -s "$step.block" ]; then commands_of "$step.block" "$lang"; fi)
        continue
        ;;
    output)
        [ -n "$last" ] || fail "$at" "output, but of which block?"
        # Each line that is shown was printed, in this order.
        if ! sed -E 's/^\.\.\.$//' "$step.block" | sed -E "${places[@]}" | awk -v shown=/dev/stdin '
            BEGIN {
                while ((getline line < shown) > 0) if (line != "") {
                    gsub(/[][\\.^$*+?(){}|]/, "\\\\&", line)
                    gsub(/\\\.\\\.\\\./, ".*", line)
                    gsub(/ +/, " +", line)
                    want[++n] = "^" line " *$"
                    was[n] = line
                }
                at = 1
            }
            at <= n && $0 ~ want[at] { at++ }
            END { if (at <= n) { print "this line was not printed, or in another place: " was[at]; exit 1 } }' \
            "$last.out" >difference; then
            fail "$at" "$(cat difference)" "$last.out"
        fi
        printf 'compared\t%s:%s\n' "$page" "$at" >>counts
        continue
        ;;
    file | append)
        path=$(sed -E "${places[@]}" <<<"${options%% *}")
        mkdir -p "$(dirname "$path")"
        sed -E "${places[@]}" "$step.block" >"$step.text"
        while IFS= read -r line; do
            case "$line" in 'sed '*) sed -i -E "${line#sed }" "$step.text" ;; esac
        done <"$step.directives"
        if [ "$kind" = file ]; then
            install -o "$user" -m "$(option mode "$options" 644)" "$step.text" "$path"
        else
            cat "$step.text" >>"$path"
        fi
        printf 'written\t%s:%s\n' "$page" "$at" >>counts
        continue
        ;;
    esac

    # Commands. Lines that are excused become empty; line numbers stay.
    cp "$step.block" "$base.text"
    scripts=()
    types=()
    prints=()
    while IFS= read -r line; do
        case "$line" in
        'excused '*)
            words=${line#excused } reason=${line#*: } words=${words%%: *} hits=0
            while IFS=$'\t' read -r first to text; do
                [[ ${text#"${text%%[! ]*}"} == "$words"* ]] || continue
                hits=$((hits + 1))
                sed -i "${first},${to}s/.*//" "$base.text"
                printf 'excused\t%s\t%s\t%s\n' "$page" "$reason" "$at:$first:$text" >>counts
            done < <(commands_of "$base.text" "$lang")
            [ "$hits" -gt 0 ] || fail "$at" "no command begins with \"$words\""
            ;;
        'ends '*)
            words=${line#*: } number=${line#ends } hits=0
            while IFS=$'\t' read -r _ to text; do
                [[ ${text#"${text%%[! ]*}"} == "$words"* ]] || continue
                hits=$((hits + 1))
                sed -i -E "${to}s/( +#.*)?\$/ || [ \$? = ${number%%:*} ]/" "$base.text"
                break
            done < <(commands_of "$step.block" "$lang")
            [ "$hits" -gt 0 ] || fail "$at" "no command begins with \"$words\""
            ;;
        'sed '*) scripts+=(-e "${line#sed }") ;;
        'types '*) types+=("${line#types }") ;;
        'prints '*) prints+=("${line#prints }") ;;
        esac
    done <"$step.directives"
    sed -E "${places[@]}" "$base.text" >"$base.placed"
    if [ ${#scripts[@]} -gt 0 ]; then
        sed -E "${scripts[@]}" "$base.placed" >"$base.user"
        ! cmp -s "$base.placed" "$base.user" || fail "$at" "the sed scripts change nothing"
    else
        cp "$base.placed" "$base.user"
    fi
    if [ "$kind" = run ]; then
        while IFS=$'\t' read -r first _ text; do
            changed=
            [ "$(sed -n "${first}p" "$base.placed")" = "$(sed -n "${first}p" "$base.user")" ] || changed=changed
            printf 'run\t%s\t%s\t%s\n' "$page:$((at + first))" "$text" "$changed" >>counts
        done < <(commands_of "$base.text" "$lang")
    fi
    : >"$base.in"
    if [ "$lang" = sql ] && [ "$kind" = run ]; then
        printf "psql -X -q -v ON_ERROR_STOP=1 -d '%s' -f %s\n" "$(option db "$options" postgres)" "$base.user" >"$base.sh"
    elif [ ${#types[@]} -gt 0 ]; then
        # On a terminal of its own, at which somebody types. The variables are those of the shell.
        printf '%s\n' "${types[@]}" >"$base.in"
        {
            printf 'type_lines %q | script -qefc "bash -e %s" %q\n' "$base" "$base.user" "$base.terminal"
        } >"$base.sh"
    else
        cwd=$(option cwd "$options" '')
        [ "$cwd" != tree ] || cwd=$(cat tree)
        { [ -z "$cwd" ] || printf 'cd %q\n' "$cwd"; } >"$base.sh"
        cat "$base.user" >>"$base.sh"
    fi
    chmod 644 "$base".*
    wanted=$(option status "$options" 0)
    [ "$wanted" = 0 ] || : >"$base.any"
    run_block "$user" "$base" "$(option time "$options" 300)"
    [ "$answer" = "done $wanted" ] ||
        fail "$at" "as $user: $answer instead of \"done $wanted\"; the command: $(cat "$base.failed" 2>/dev/null || echo "?")" "$base.out"
    tr -d '\r' <"$base.out" >"$base.printed"
    mv "$base.printed" "$base.out"
    for text in ${prints[@]+"${prints[@]}"}; do
        grep -qF -- "$text" "$base.out" || fail "$at" "this was not printed: $text" "$base.out"
    done
    [ "$kind" != run ] || last=$base
done 9<steps
say "$page: all did what the page says"
