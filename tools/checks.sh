# shellcheck shell=bash
# How ./test counts and reports checks.

# The part that runs, a folder for the output of its checks, and how many ran and failed.
part='' logs='' ran=0 failed=0

# log_name NAME: a file for the output of a step.
log_name() { echo "$logs/$part.${1//[^A-Za-z0-9]/-}.log"; }

# report NAME RESULT STARTED: a line of the table, with the seconds that it took.
report() { printf '  %-8s %-50s %-12s %5s s\n' "$part" "$1" "$2" $((SECONDS - $3)); }

# step NAME COMMAND...: one check; its output is shown when it fails.
step() {
    local name=$1 log started=$SECONDS
    log=$(log_name "$name")
    shift
    ran=$((ran + 1))
    if "$@" >"$log" 2>&1 </dev/null; then
        report "$name" ok "$started"
    else
        failed=$((failed + 1))
        report "$name" "FAILED: $*" "$started"
        cat "$log"
    fi
}

# behind NAME COMMAND...: starts a command in the background; `joined NAME` waits for it and counts it as a check.
declare -A jobs_behind=()
behind() {
    # shellcheck disable=SC2154 # ./test opens it.
    "${@:2}" >"$logs/$part.behind.$1.log" 2>&1 </dev/null {lock}>&- &
    jobs_behind[$1]=$!
}
joined() { step "$1" end_of "$1"; }
end_of() {
    local status=0
    wait "${jobs_behind[$1]}" || status=$?
    cat "$logs/$part.behind.$1.log"
    return $status
}

# counted NAME STARTED STATUS OK BAD COMMAND...: counts the results that a test program reported in the log of NAME.
counted() {
    local name=$1 started=$2 status=$3 ok=$4 bad=$5
    shift 5
    ((status != 0 && bad == 0)) && bad=1
    ran=$((ran + ok + bad)) failed=$((failed + bad))
    if ((bad == 0)); then
        report "$name" "$ok passed" "$started"
    else
        report "$name" "FAILED: $ok passed, $bad not: $*" "$started"
        cat "$(log_name "$name")"
    fi
}

# suite NAME COMMAND...: runs `cargo test` and counts its results. An ignored test is a failure: it never runs.
suite() {
    local name=$1 log status=0 ok=0 bad=0 started=$SECONDS a b c
    log=$(log_name "$name")
    "${@:2}" >"$log" 2>&1 </dev/null || status=$?
    while read -r a b c; do
        ok=$((ok + a)) bad=$((bad + b + c))
    done < <(sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*/\1 \2 \3/p' "$log")
    counted "$name" "$started" "$status" "$ok" "$bad" "${@:2}"
}

# pytests NAME COMMAND...: runs pytest and counts its results. A test that is skipped, or expected to fail, is a failure.
pytests() {
    local name=$1 log status=0 ok=0 bad=0 started=$SECONDS count what
    log=$(log_name "$name")
    "${@:2}" >"$log" 2>&1 </dev/null || status=$?
    while read -r count what; do
        case $what in
            passed) ok=$count ;;
            failed | error | errors | skipped | xfailed | xpassed) ((bad += count)) ;;
        esac
    done < <(tail -n 1 "$log" | grep -oE '[0-9]+ [a-z]+')
    counted "$name" "$started" "$status" "$ok" "$bad" "${@:2}"
}
