# connectrpc's conformance runner, gRPC over cleartext HTTP/2: our server and our client, each behind a daemon of its own.
# The timeouts are run ten times more, since they would be the first to be flaky.

runner=$(go_tool connectconformance connectrpc.com/conformance/cmd/connectconformance@v1.0.6)
if [ -z "$runner" ]; then
    missing connect "connectconformance" "go install connectrpc.com/conformance/cmd/connectconformance@v1.0.6 failed"
    return 0
fi
repeats=${REPEATS:-10}

# runs WHAT LOG ARGUMENT...
runs() {
    local what=$1 log=$2 line
    shift 2
    "$runner" --conf tests/interop/connect.yaml "$@" > "$log" 2>&1
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log") || return 1
    record connect "$what" "${line%% *}" "$(sed -E 's/.*, ([0-9]+) failed.*/\1/' <<< "$line")" \
        "$(grep -oE 'Another [0-9]+ failed as expected' "$log")"
}

runs "server" "$LOGS/connect-server.log" --mode server -- "$BIN/connect-server" || return 1
runs "client" "$LOGS/connect-client.log" --mode client -- "$BIN/connect-client" || return 1
passed=0
failed=0
for repeat in $(seq "$repeats"); do
    "$runner" --conf tests/interop/connect.yaml --mode server --run 'Timeouts/**' -- "$BIN/connect-server" \
        > "$LOGS/connect-timeouts-$repeat.log" 2>&1
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$LOGS/connect-timeouts-$repeat.log") || return 1
    passed=$((passed + ${line%% *}))
    failed=$((failed + $(sed -E 's/.*, ([0-9]+) failed.*/\1/' <<< "$line")))
done
record connect "server, timeouts, $repeats times" "$passed" "$failed"
