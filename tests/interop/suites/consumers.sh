# Those for whom figures, spans and exports are meant: Prometheus's parsers and PromQL, Grafana's model of a dashboard, an
# OpenTelemetry collector over HTTP and over TLS with certificates on both sides, and Jaeger's model of its JSON. The
# collector runs as whole as somebody would put one together, from its own modules.

trap stop_all EXIT
scene=$TOOLS/consumers
mkdir -p "$scene/go/jaeger"
metrics=$(free_port)
plain=$(free_port)
secure=$(free_port)

command -v go > /dev/null || { missing consumers "all" "there is no go"; return 0; }
# Away from the work tree, so that nothing is written there.
cp tests/interop/consumers/*.go tests/interop/consumers/go.mod "$scene/go/"
cp tests/interop/consumers/jaeger/main.go tests/interop/consumers/jaeger/go.mod "$scene/go/jaeger/"
for module in . jaeger; do
    (cd "$scene/go/$module" && GOFLAGS=-mod=mod go build -o "$scene/$(basename "$PWD")-consumer" .) \
        >> "$LOGS/consumers-build.log" 2>&1 || missing consumers "$module" "its modules could not be fetched"
done

# reads LOG COMMAND...: a program that prints `passed CASE` and `FAILED CASE: why`; each line is a case.
reads() {
    local log=$LOGS/$1 line
    shift
    timeout 120 "$@" > "$log" 2>&1 || grep -q '^FAILED' "$log" || echo "FAILED to run: $(tail -1 "$log")" >> "$log"
    while read -r line; do
        case $line in
            passed*) record consumers "$(cut -d: -f1 <<< "${line#passed }")" 1 0 ;;
            FAILED*) record consumers "$(cut -d: -f1 <<< "${line#FAILED }")" 0 1 "$(cut -c1-120 <<< "$line")" ;;
        esac
    done < "$log"
}

# calls_through NAME OTLP...: a daemon with these lines of [otlp], a service, and calls until it is stopped.
calls_through() {
    local name=$1 line
    shift
    {
        printf '[metrics]\nlisten = ["tcp://127.0.0.1:%s"]\n[recorder]\ntraces = true\nsample = 1.0\n' "$metrics"
        printf '[otlp]\nsample = 1.0\ninterval_s = 1\n'
        for line in "$@"; do printf '%s\n' "$line"; done
    } > "$scene/$name.toml"
    start_daemon "$name" --socket "$scene/$name.sock" daemon --config "$scene/$name.toml"
    wait_for_port "$metrics" || return 1
    start "$name-server" "$BIN/search-server" --socket "$scene/$name.sock" "$PWD/core/call"
    wait_for_text "$LOGS/$name-server.log" "serving" || return 1
    start "$name-calls" "$BIN/trunkline" --socket "$scene/$name.sock" bench Search/Query -d '{"query": "ring"}' \
        --rate 100 --duration 120s
}

consumer=$scene/go-consumer
if [ -x "$consumer" ]; then
    reads consumers-grafana.log "$consumer" grafana packaging/grafana/trunkline.json
    calls_through consumers-plain "endpoint = \"http://127.0.0.1:$plain\"" || return 1
    reads consumers-collector.log "$consumer" collector "127.0.0.1:$plain"
    reads consumers-prometheus.log "$consumer" prometheus "http://127.0.0.1:$metrics/metrics"
    if [ -x "$scene/jaeger-consumer" ]; then
        rm -f "$scene/calls.rec"
        "$BIN/trunkline" --socket "$scene/consumers-plain.sock" record -o "$scene/calls.rec" --for 2s --traces 1e9/s \
            > "$LOGS/consumers-record.log" 2>&1
        "$BIN/trunkline" export --jaeger "$scene/calls.rec" > "$scene/jaeger.json"
        reads consumers-jaeger.log "$scene/jaeger-consumer" "$scene/jaeger.json"
    fi
    stop_all
    if certificates "$scene/keys"; then
        keys=$scene/keys
        calls_through consumers-secure "endpoint = \"https://localhost:$secure\"" "ca = \"$keys/ca.pem\"" \
            "certificate = \"$keys/server.pem\"" "key = \"$keys/server.key\"" || return 1
        reads consumers-collector-tls.log "$consumer" collector "127.0.0.1:$secure" "$keys/server.pem" "$keys/server.key" \
            "$keys/ca.pem"
    else
        missing consumers "the collector over TLS" "openssl could not make certificates"
    fi
fi
