# connectrpc's conformance runner, gRPC over cleartext HTTP/2: our server and our client, each behind a daemon of its own.
# Played ten times, for what is wrong once in a while; the timeouts, which would be the first to be, are counted apart, too.

runner=$(go_tool connectconformance connectrpc.com/conformance/cmd/connectconformance@v1.0.6)
if [ -z "$runner" ]; then
    missing connect "connectconformance" "go install connectrpc.com/conformance/cmd/connectconformance@v1.0.6 failed"
    return 0
fi
repeats=${REPEATS:-10}

# plays MODE ALL PROGRAM [ARGUMENT]...: as often as wanted, into $passed and $failed. There are so many cases in all; what was
# not played counts as failed.
plays() {
    local mode=$1 all=$2 program=$3 log line count repeat
    shift 3
    passed=0
    failed=0
    for repeat in $(seq "$repeats"); do
        log=$LOGS/connect-$mode-$all-$repeat.log
        "$runner" --conf tests/interop/connect.yaml --mode "$mode" "$@" -- "$program" > "$log" 2>&1
        line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log")
        count=${line%% *}
        passed=$((passed + ${count:-0}))
        failed=$((failed + all - ${count:-0}))
    done
}

plays server 374 "$BIN/connect-server"
record connect "server, 374 cases" "$passed" "$failed" "$repeats times"
plays client 409 "$BIN/connect-client"
record connect "client, 409 cases" "$passed" "$failed" "$repeats times"
plays server 20 "$BIN/connect-server" --run 'Timeouts/**'
record connect "server, 20 timeouts" "$passed" "$failed" "$repeats times more"
