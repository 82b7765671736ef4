# shellcheck shell=bash
# For docs-test.sh, after lib.sh: reads the marks of a Markdown page, which are HTML comments and
# not shown, and writes what the page's test does, as files.
#
#   <!-- docs-test: page user=U NAME=VALUE ... -->
#       First. The user who runs the blocks, and what a placeholder of the page (DIR) stands for.
#       version=15: the number 15 in commands stands for the major version under test.
#   <!-- docs-test: run [user=U] [status=N] [db=D] [cwd=DIR] [time=SECONDS] -->
#       The next block is run: by psql if it is SQL, else by bash, in DIR ("tree": the source tree).
#       Each command must succeed, or the last one must end with the status N. Lines before "-->":
#           excused WORDS: REASON     commands that begin with WORDS are not run
#           sed SCRIPT                what the page leaves open in this block (host names, "...")
#           types TEXT                this line is typed on a terminal; for a question
#           prints TEXT               the output has this text
#           ends N: WORDS             the command that begins with WORDS ends with the status N
#   <!-- docs-test: output -->
#       The next block is what the last one printed, line by line; "..." stands for anything.
#   <!-- docs-test: file PATH [user=U] [mode=M] -->, <!-- docs-test: append PATH -->
#       The next block is a file, or the end of one.
#   <!-- docs-test: hidden [user=U] [...]
#   commands
#   -->
#       Commands that are not shown: set-up, and checks of what the blocks did.
#   <!-- docs-test: excused REASON -->
#       The next block cannot be run, for this reason.

# A step of a page is a line of PAGE.steps: its number, line, kind and options. Its commands are in
# NUMBER.block, its directives in NUMBER.directives.

# read_page PAGE DIR: writes the steps of PAGE into DIR, and a line for each fault to DIR/faults.
read_page() {
    local page=$1 dir=$2 line number=0 step=0 kind='' options='' mark_line=0 fence='' lang='' state=text text=''
    mkdir -p "$dir"
    : >"$dir/steps"
    : >"$dir/faults"
    fault() { say "$page:$number: $*" >>"$dir/faults"; }
    add_step() { # KIND OPTIONS LINE
        step=$((step + 1))
        printf '%s\t%s\t%s\t%s\n' "$step" "$3" "$1" "$2" >>"$dir/steps"
        : >"$dir/$step.block"
        : >"$dir/$step.directives"
    }
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        case "$state" in
        text)
            case "$line" in
            '<!-- docs-test: '*)
                [ -z "$kind" ] || fault "two marks and no block between them"
                text=${line#<!-- docs-test: } mark_line=$number
                if [[ $line == *'-->' ]]; then
                    text=${text%-->}
                    state=text
                else
                    state=mark
                fi
                kind=${text%% *} options=${text#"$kind"}
                options=${options# } options=${options% }
                case "$kind" in
                page | hidden)
                    add_step "$kind" "$options" "$number"
                    [ "$state" = mark ] || kind=
                    ;;
                run | output | file | append)
                    add_step "$kind" "$options" "$number" ;;
                excused)
                    add_step "$kind" "$options" "$number"
                    ;;
                *) fault "no such mark: $kind" ;;
                esac
                ;;
            *)
                if [[ $line =~ ^\ *(\`\`\`+|~~~+)([a-z]*) ]]; then
                    fence=${BASH_REMATCH[1]} lang=${BASH_REMATCH[2]} state=block
                    if [ -z "$kind" ]; then
                        fault "this block has no mark: is it run, a file, output, or excused?"
                        add_step unmarked '' "$number"
                    fi
                    say "$lang" >"$dir/$step.lang"
                elif [ -n "$kind" ] && [ -n "$line" ]; then
                    fault "the mark of line $mark_line has no block behind it"
                    kind=
                fi
                ;;
            esac
            ;;
        mark)
            if [ "$line" = '-->' ]; then
                state=text
                case "$kind" in page | hidden) kind= ;; esac
            else
                case "$kind" in
                page | hidden) printf '%s\n' "$line" >>"$dir/$step.block" ;;
                excused) sed -i "${step}s/\$/ ${line//\//\\/}/" "$dir/steps" ;;
                *) printf '%s\n' "$line" >>"$dir/$step.directives" ;;
                esac
            fi
            ;;
        block)
            if [[ $line =~ ^\ *"$fence"\ *$ ]]; then
                state=text kind=
            else
                printf '%s\n' "$line" >>"$dir/$step.block"
            fi
            ;;
        esac
    done <"$page"
    [ "$state" = text ] || fault "the page ends within a $state"
    check_marks "$page" "$dir"
}

# The directives that a mark can have.
check_marks() {
    local page=$1 dir=$2 step at kind options line
    while IFS=$'\t' read -r step at kind options; do
        case "$kind" in
        excused) [ -n "$options" ] || say "$page:$at: excused, but for which reason?" >>"$dir/faults" ;;
        file | append) [[ $options == /* ]] || say "$page:$at: which file? give its path" >>"$dir/faults" ;;
        esac
        # A test that a reason names is there.
        while IFS= read -r line; do
            [ -n "$(find tests crates -name "$line" -path '*/[st]*s/*' -print -quit)" ] ||
                say "$page:$at: there is no test $line" >>"$dir/faults"
        done < <({ [ "$kind" != excused ] || say "$options"; sed -n 's/^excused //p' "$dir/$step.directives"; } |
            grep -oE '[a-z0-9_]+\.rs' || true)
        while IFS= read -r line; do
            case "$line" in
            'excused '*': '* | 'ends '*': '* | 'sed '* | 'types '* | 'prints '*) ;;
            *) say "$page:$at: no such directive: $line" >>"$dir/faults" ;;
            esac
        done <"$dir/$step.directives"
    done <"$dir/steps"
}

# unknown_commands MANDIR PAGE...: prints each command of pgseal in the text or in a block whose
# subcommand or option the manual pages do not have, and at last how many commands there were.
unknown_commands() {
    local man=$1
    shift
    awk '
        function check(text, words, n, i, command, word) {
            sub(/^sudo (-u [a-z]+ )?/, "", text)
            while (text ~ /^[A-Z_]+=[^ ]+ /) sub(/^[^ ]+ /, "", text)
            if (text !~ /^pgseal [a-z]/) return
            n = split(text, words, " ")
            command = "pgseal"
            for (i = 2; i <= n && (command "-" words[i]) in known; i++) command = command "-" words[i]
            # These have programs or options of their own.
            if (words[2] ~ /^(lab|advise|helper|help)$/) return
            number++
            if (command == "pgseal") { print FILENAME ": there is no pgseal " words[2] ": " text; return }
            for (; i <= n && words[i] != "--" && words[i] !~ /^[#|&;]/; i++) {
                word = words[i]
                gsub(/[][(),.:;]/, "", word)
                sub(/=.*/, "", word)
                if (word ~ /^--[a-z]/ && !((command, word) in options)) print FILENAME ": " command " has no " word ": " text
            }
        }
        FILENAME ~ /\.1$/ {
            name = FILENAME
            sub(/.*\//, "", name); sub(/\.1$/, "", name)
            known[name] = 1
            gsub(/\\-/, "-")
            while (match($0, /--[a-z][a-z0-9-]*/)) {
                options[name, substr($0, RSTART, RLENGTH)] = 1
                $0 = substr($0, RSTART + RLENGTH)
            }
            next
        }
        FNR == 1 { fence = 0; open = "" }
        /^ *```/ { fence = !fence; open = ""; next }
        fence { sub(/^ */, ""); check($0); next }
        /^ *$/ { open = ""; next }
        {
            # A span of code may go on in the next line.
            line = open == "" ? $0 : open " " $0
            open = ""
            n = split(line, part, "`")
            for (i = 2; i <= n - (n % 2 == 0); i += 2) check(part[i])
            if (n % 2 == 0) open = "`" part[n]
        }
        END { print number }' "$man"/pgseal*.1 "$@"
}

# option NAME OPTIONS DEFAULT: prints the value of NAME=VALUE among the options.
option() {
    local word
    for word in $2; do
        case "$word" in "$1"=*)
            say "${word#*=}"
            return
            ;;
        esac
    done
    say "$3"
}

# commands_of BLOCK LANG: prints the commands of a block, one for each output line: a number of its
# first line, a tab, of its last line, a tab, and its first line of text. A command goes on after a
# backslash, within a here-document and within braces, quotes and loops (bash says when it is
# whole).
commands_of() {
    local block=$1 lang=$2 line number=0 first=0 text=''
    while IFS= read -r line; do
        number=$((number + 1))
        if [ -z "$text" ]; then
            [[ $line =~ ^[[:space:]]*(#|--|$) ]] && continue
            first=$number
        fi
        text+=$line$'\n'
        if [ "$lang" = sql ]; then
            local bare=${line%%--*}
            [[ $bare =~ \;[[:space:]]*$ || $line == \\* ]] || continue
        else
            [[ $line != *\\ && $line != *'|' && $line != *'&&' ]] || continue
            # An open here-document is only a warning of bash.
            [ -z "$(bash -n <<<"$text" 2>&1)" ] || continue
        fi
        printf '%s\t%s\t%s\n' "$first" "$number" "${text%%$'\n'*}"
        text=
    done <"$block"
    [ -z "$text" ] || printf '%s\t%s\t%s\n' "$first" "$number" "${text%%$'\n'*}"
}
