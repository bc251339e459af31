# h2spec against the daemon's port. nghttpd reaches 144 of 145 cases, nginx 118, grpc-go 114.

h2spec=$(go_tool h2spec 'github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible')
if [ -z "$h2spec" ]; then
    missing h2spec "h2spec" "go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible failed"
    return 0
fi
trap stop_all EXIT
port=$(free_port)
# h2spec opens one stream more than the server allows, and gives up where that would be a thousand.
start h2spec-server "$BIN/interop-server" --port "$port" --max_concurrent_streams 100
wait_for_text "$LOGS/h2spec-server.log" "serving on" || return 1
"$h2spec" --host 127.0.0.1 --port "$port" --timeout 5 --path /grpc.testing.TestService/EmptyCall \
    --max-header-length 4000 > "$LOGS/h2spec.log" 2>&1
line=$(grep -E '^[0-9]+ tests, ' "$LOGS/h2spec.log") || return 1
passed=$(sed -E 's/.* ([0-9]+) passed.*/\1/' <<< "$line")
all=${line%% *}
record h2spec "cases" "$passed" "$((all - passed))" "of $all"
# The daemon serves on.
if "$BIN/interop-client" --server_port "$port" --test_case empty_unary > "$LOGS/h2spec-after.log" 2>&1; then
    record h2spec "a call afterwards" 1 0
else
    record h2spec "a call afterwards" 0 1
fi
