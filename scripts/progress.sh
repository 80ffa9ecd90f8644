# Numbered steps with their times. Sourced, not run; the sourcing script sets STEPS, the total.
# shellcheck shell=bash
# shellcheck disable=SC2153  # STEPS is not a misspelt STEP.

STEP=0
SUMMARY=()
TICKER=

now_us() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }

# since START: the time passed, as `3.1 s`.
since() {
    local tenths=$((($(now_us) - $1) / 100000))
    printf '%d.%d s' $((tenths / 10)) $((tenths % 10))
}

start_ticker() {
    # Without the set-up's lock: the last sleep may outlive it.
    while sleep 5 >/dev/null 2>&1; do printf '. '; done 9>&- &
    TICKER=$!
}

stop_ticker() {
    [[ -z $TICKER ]] && return
    kill "$TICKER" 2>/dev/null || true
    wait "$TICKER" 2>/dev/null || true
    TICKER=
}
trap stop_ticker EXIT

# quietly TITLE SCRIPT [ARGS...]: a set-up step on one line; its output is shown only if it fails.
quietly() {
    local title=$1 log start code=0
    shift
    STEP=$((STEP + 1))
    log=$LOGS/$(basename "$1" .sh).log
    start=$(now_us)
    printf '[%d/%d] %s … ' "$STEP" "$STEPS" "$title"
    start_ticker
    bash "$@" >"$log" 2>&1 </dev/null || code=$?
    stop_ticker
    case $code in
    0) printf 'done (%s)\n' "$(since "$start")" ;;
    "$ALREADY_DONE") printf 'already done\n' ;;
    *)
        printf 'failed (%s)\n' "$(since "$start")"
        tail -n 20 "$log" >&2
        exit 1
        ;;
    esac
}

# openly TITLE COMMAND...: a stage whose output is shown as it comes.
openly() {
    local title=$1 start time code=0
    shift
    STEP=$((STEP + 1))
    start=$(now_us)
    printf '[%d/%d] %s …\n' "$STEP" "$STEPS" "$title"
    "$@" || code=$?
    time=$(since "$start")
    if [[ $code -ne 0 ]]; then
        printf '[%d/%d] %s … failed (%s)\n' "$STEP" "$STEPS" "$title" "$time"
        printf 'error: stopped at "%s"; to run it alone: %s\n' "$title" "$*" >&2
        exit 1
    fi
    printf '[%d/%d] %s … done (%s)\n' "$STEP" "$STEPS" "$title" "$time"
    SUMMARY+=("$title $time")
}
