# The services users expect of any server, asked with their own tools: health (grpc-health-probe, grpcio), reflection v1
# and v1alpha (grpcio; grpcurl is in the suite `clients`).

trap stop_all EXIT
port=$(free_port)
scene=$TOOLS/services
mkdir -p "$scene"
printf '[daemon]\nlisten = ["tcp://127.0.0.1:%s"]\n' "$port" > "$scene/daemon.toml"
start services-daemon "$BIN/trunkline" --socket "$scene/sock" daemon --config "$scene/daemon.toml"
wait_for_port "$port" || return 1
"$BIN/search-server" --socket "$scene/sock" "$PWD/docs" > "$LOGS/services-search.log" 2>&1 < /dev/null &
search=$!
CHILDREN+=("$search")
wait_for_text "$LOGS/services-search.log" "serving" || return 1

if python_environment; then
    "$TOOLS/python/bin/python" tests/interop/clients/python/services.py "127.0.0.1:$port" search.v1.Search \
        > "$LOGS/services-python.log" 2>&1
    record services "health and reflection, by grpcio" "$(grep -c '^passed' "$LOGS/services-python.log")" \
        "$(grep -c '^FAILED' "$LOGS/services-python.log")" "$(grep '^FAILED' "$LOGS/services-python.log" | head -1 | cut -c1-80)"
else
    missing services "grpcio" "pip could not install it"
fi

probe=$(go_tool grpc-health-probe github.com/grpc-ecosystem/grpc-health-probe@v0.4.38)
if [ -n "$probe" ]; then
    passed=0
    "$probe" -addr "127.0.0.1:$port" > "$LOGS/probe.log" 2>&1 && passed=$((passed + 1))
    "$probe" -addr "127.0.0.1:$port" -service search.v1.Search >> "$LOGS/probe.log" 2>&1 && passed=$((passed + 1))
    # A server that is gone is not healthy, and the daemon knows at once.
    kill -9 "$search"
    wait "$search" 2> /dev/null
    sleep 1
    "$probe" -addr "127.0.0.1:$port" -service search.v1.Search >> "$LOGS/probe.log" 2>&1 || passed=$((passed + 1))
    record services "grpc-health-probe" "$passed" $((3 - passed)) "healthy, healthy, gone"
else
    missing services "grpc-health-probe" "go install failed"
fi
