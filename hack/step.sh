# shellcheck shell=bash
# Long steps that show their progress. Sourced by settings.sh.
#
#   step NAME "Title" command args...          runs it and waits
#   step_start NAME "Title" command args...    runs it beside others
#   step_wait NAME...                          waits for them
#
# A step's output goes to .cluster/logs/NAME.log. A failed step ends the script with the tail of its log.
#
# A step writes its exit status and its seconds into a file, as it may end long before step_wait: then another process may have
# its process id, and bash no longer knows the status.

declare -A STEP_PID=() STEP_TITLE=() STEP_BEGAN=() STEP_RESULT=()
STEP_TAIL_LINES=30
STEP_REPORT_EVERY=15

if [[ -t 1 ]]; then STEP_ON_TTY=1; else STEP_ON_TTY=; fi

say() {
    [[ -z $STEP_ON_TTY ]] || printf '\r\033[K'
    printf '%s\n' "$*"
}

fail() {
    say "$*" >&2
    exit 1
}

step_start() {
    local name=$1 title=$2 result=$STATE/logs/$1.$$.status
    shift 2
    STEP_RESULT[$name]=$result
    STEP_TITLE[$name]=$title
    STEP_BEGAN[$name]=$SECONDS
    [[ -n $STEP_ON_TTY ]] || say "  ... $title"
    # With job control, the step has its own process group: Ctrl-C reaches only this script, which then ends the group.
    set -m
    (
        set +m +e
        trap - EXIT INT TERM
        (
            set -e
            "$@"
        )
        echo $? $((SECONDS - STEP_BEGAN[$name])) >"$result.partial"
        mv "$result.partial" "$result"
    ) >"$STATE/logs/$name.log" 2>&1 </dev/null &
    STEP_PID[$name]=$!
    set +m
}

step_runs() {
    [[ ! -e ${STEP_RESULT[$1]} ]] && kill -0 "${STEP_PID[$1]}" 2>/dev/null
}

step_wait() {
    local name reported=$SECONDS waiting=("$@") rest line
    while ((${#waiting[@]})); do
        rest=() line=
        for name in "${waiting[@]}"; do
            if step_runs "$name"; then
                rest+=("$name")
                line+="  ... ${STEP_TITLE[$name]}, $((SECONDS - STEP_BEGAN[$name])) s"
            else
                step_finish "$name"
            fi
        done
        waiting=("${rest[@]}")
        ((${#waiting[@]})) || break
        if [[ -n $STEP_ON_TTY ]]; then
            printf '\r\033[K%s' "${line:0:$((${COLUMNS:-$(tput cols 2>/dev/null || echo 80)} - 1))}"
        elif ((SECONDS - reported >= STEP_REPORT_EVERY)); then
            reported=$SECONDS
            say "$line"
        fi
        sleep 0.2
    done
}

step_finish() {
    local name=$1 seconds=$((SECONDS - STEP_BEGAN[$1])) log=$STATE/logs/$1.log status="" how="it was killed"
    [[ ! -e ${STEP_RESULT[$name]} ]] || read -r status seconds <"${STEP_RESULT[$name]}"
    rm -f "${STEP_RESULT[$name]}"
    unset "STEP_PID[$name]"
    if [[ $status == 0 ]]; then
        say "  ok  ${STEP_TITLE[$name]} ($seconds s)"
        return
    fi
    [[ -z $status ]] || how="exit status $status"
    {
        say "  FAILED after $seconds s: ${STEP_TITLE[$name]} ($how). Its last lines:"
        tail -n "$STEP_TAIL_LINES" "$log" | sed 's/^/      /'
        say "  The whole log: $log"
    } >&2
    exit 1
}

step() {
    step_start "$@"
    step_wait "$1"
}

check_python() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "This needs Python 3.11 or newer as python3.")'
}

# retry SECONDS COMMAND...: runs it each second until it succeeds; fails when the time is over.
retry() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || return 1
        sleep 1
    done
}

# Two makes would build and load the same things twice, so the second waits. A script that a holder of the lock starts has it.
one_at_a_time() {
    if [[ -n ${MAKE_LOCK_IS_HELD:-} ]] || ! command -v flock >/dev/null; then return 0; fi
    export MAKE_LOCK_IS_HELD=1
    exec 9>"$CACHE/lock"
    flock --nonblock 9 && return
    say "  ... Wait for another make on this machine"
    flock 9
}

end_running_steps() {
    local name
    for name in "${!STEP_PID[@]}"; do
        if step_runs "$name"; then kill -TERM -- "-${STEP_PID[$name]}" 2>/dev/null || true; fi
        rm -f "${STEP_RESULT[$name]}"
    done
}

trap end_running_steps EXIT
trap 'say "Interrupted."; exit 130' INT TERM
