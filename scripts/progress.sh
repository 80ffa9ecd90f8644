# Numbered steps with their times, and about how long the rest takes. Sourced, not run; the sourcing script sets PLAN, the titles of its
# steps in order.
# shellcheck shell=bash
# shellcheck disable=SC2153  # PLAN is not a misspelt name.

STEP=0
SUMMARY=()
TICKER=
# `SECONDS CPU-SECONDS TITLE` of each step: of a first run, as scripts/first-minutes.sh measured it, and of the last run in this checkout.
readonly FIRST_TIMES=scripts/first-times.txt
readonly LAST_TIMES=$LOGS/times
# How far a step is, from those that can tell: `DONE TOTAL PERMILLE WHAT`, where the third is the share of the time.
readonly COUNT=$LOGS/count

now_us() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }
START=$(now_us)

# spoken SECONDS: `40 s`, `3 min 20 s`.
spoken() {
    if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %d s' $(($1 / 60)) $(($1 % 60)); fi
}

# since START: the time passed, as `3.1 s` or `3 min 20 s`.
since() {
    local tenths=$((($(now_us) - $1) / 100000))
    if ((tenths < 600)); then printf '%d.%d s' $((tenths / 10)) $((tenths % 10)); else spoken $((tenths / 10)); fi
}

# cpu_seconds: sets CPU to what all processes that have ended took so far.
cpu_seconds() {
    # Not in a subshell, whose times are its own.
    times >"$LOGS/cpu"
    CPU=$(awk -F '[ms ]+' '{ sum += ($1 + $3) * 60 + $2 + $4 } END { printf "%d", sum }' "$LOGS/cpu")
}

# expected TITLE: the seconds that a step takes, 0 if nobody knows. The last line with the title counts.
expected() {
    local seconds=0 file s title
    for file in "$FIRST_TIMES" "$LAST_TIMES"; do
        [[ -f $file ]] || continue
        while read -r s _ title; do
            if [[ $title == "$1" ]]; then seconds=$s; fi
        done <"$file"
    done
    printf '%d' "$seconds"
}

# left ELAPSED: `, about 3 min 20 s left` for the current step, which has run for ELAPSED seconds, and those after it. Nothing if nobody knows.
left() {
    local elapsed=$1 current sum=0 i permille=0
    current=$(expected "${PLAN[STEP - 1]}")
    [[ -s $COUNT ]] && read -r _ _ permille _ <"$COUNT"
    # What this run has done tells more than what others took, once there is enough of it.
    if ((permille >= 50)); then current=$((elapsed * 1000 / permille)); fi
    if ((current > elapsed)); then sum=$((current - elapsed)); fi
    for ((i = STEP; i < ${#PLAN[@]}; i++)); do sum=$((sum + $(expected "${PLAN[i]}"))); done
    # In steps of five seconds: it is no more exact than that.
    if ((sum >= 5)); then printf ', about %s left' "$(spoken $(((sum + 4) / 5 * 5)))"; fi
}

# how_far START: `87 of 143 crates, 1 min 12 s, about 1 min 40 s left`.
how_far() {
    local elapsed=$((($(now_us) - $1) / 1000000)) count total what
    if [[ -s $COUNT ]]; then
        read -r count total _ what <"$COUNT"
        printf '%d of %d %s, ' "$count" "$total" "$what"
    fi
    printf '%s%s' "$(spoken "$elapsed")" "$(left "$elapsed")"
}

# title_line: `[3/6] Python environment … `.
title_line() { printf '[%d/%d] %s … ' "$STEP" "${#PLAN[@]}" "${PLAN[STEP - 1]}"; }

# The line of a terminal changes every second; elsewhere there is a new one now and then.
start_ticker() {
    local start=$1 pause=30
    [[ -t 1 ]] && pause=1
    # Without the set-up's lock: the last sleep may outlive it.
    while sleep "$pause" >/dev/null 2>&1; do
        if [[ -t 1 ]]; then
            printf '\r\033[K%s%s' "$(title_line)" "$(how_far "$start")"
        else
            printf '%s\n      ' "$(how_far "$start")"
        fi
    done 9>&- &
    TICKER=$!
}

stop_ticker() {
    [[ -z $TICKER ]] && return
    kill "$TICKER" 2>/dev/null || true
    wait "$TICKER" 2>/dev/null || true
    TICKER=
    if [[ -t 1 ]]; then printf '\r\033[K%s' "$(title_line)"; fi
}
trap stop_ticker EXIT

# begin TITLE: the next step, which must be the next of the plan.
begin() {
    [[ ${PLAN[STEP]:-} == "$1" ]] || die "step $((STEP + 1)) of the plan is '${PLAN[STEP]:-}', and not '$1'."
    STEP=$((STEP + 1))
    rm -f "$COUNT"
    cpu_seconds
    CPU_BEFORE=$CPU
}

# remember START: keeps how long the step took.
remember() {
    local title=${PLAN[STEP - 1]} seconds=$((($(now_us) - $1) / 1000000)) others=
    cpu_seconds
    [[ -f $LAST_TIMES ]] && others=$(awk -v title="$title" '{ t = $0; sub(/^[0-9]+ [0-9]+ /, "", t) } t != title' "$LAST_TIMES")
    printf '%s\n%d %d %s\n' "$others" "$seconds" $((CPU - CPU_BEFORE)) "$title" | sed '/^$/d' >"$LAST_TIMES.new"
    mv -f "$LAST_TIMES.new" "$LAST_TIMES"
}

# finish START: says how long the step took and about how long the rest takes.
finish() {
    printf 'done (%s)' "$(since "$1")"
    if ((STEP < ${#PLAN[@]})); then
        printf '; %s so far%s' "$(spoken $((($(now_us) - START) / 1000000)))" "$(left 1000000)"
    fi
    printf '\n'
    SUMMARY+=("${PLAN[STEP - 1]} $(since "$1")")
    remember "$1"
}

# quietly TITLE SCRIPT [ARGS...]: a step on one line; its output is shown only if it fails.
quietly() {
    local log start code=0
    begin "$1"
    shift
    log=$LOGS/$(basename "$1" .sh).log
    start=$(now_us)
    title_line
    start_ticker "$start"
    TESSERA_COUNT=$COUNT bash "$@" >"$log" 2>&1 </dev/null || code=$?
    stop_ticker
    rm -f "$COUNT"
    case $code in
    0) finish "$start" ;;
    "$ALREADY_DONE")
        remember "$start"
        printf 'already done\n'
        ;;
    *)
        printf 'failed (%s)\n' "$(since "$start")"
        tail -n 20 "$log" >&2
        exit 1
        ;;
    esac
}

# openly TITLE COMMAND...: a step whose output is shown as it comes.
openly() {
    local title=$1 start code=0
    begin "$title"
    shift
    start=$(now_us)
    title_line
    printf '\n'
    "$@" || code=$?
    title_line
    if [[ $code -ne 0 ]]; then
        printf 'failed (%s)\n' "$(since "$start")"
        printf 'error: stopped at "%s"; to run it alone: %s\n' "$title" "$*" >&2
        exit 1
    fi
    finish "$start"
}
