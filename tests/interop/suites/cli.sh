# `trunkline call` and `trunkline bench` written as grpcurl and ghz are, against servers that are not ours: grpc-go's with a
# .proto file, grpcio's by reflection (v1alpha, since it knows no other). No daemon runs.

trap stop_all EXIT
scene=$TOOLS/cli
mkdir -p "$scene/empty"
include=tests/interop/proto
test=(-import-path "$include" -proto "$include/grpc/testing/test.proto")

# says WHAT PATTERN VERB...: one case, which must print the pattern.
passed=0
failed=0
said=
says() {
    local pattern=$1
    shift
    if XDG_RUNTIME_DIR=$scene/empty timeout 60 "$BIN/trunkline" "$@" > "$LOGS/cli.log" 2>&1 && grep -q -- "$pattern" "$LOGS/cli.log"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        said=${said:-$(tail -1 "$LOGS/cli.log" | cut -c1-80)}
    fi
}

# done_with WHAT: writes down what there was since the last time.
done_with() {
    record cli "$1" "$passed" "$failed" "$said"
    passed=0
    failed=0
    said=
}

# asks_go WHAT ADDRESS [FLAG]...
asks_go() {
    local what=$1 address=$2
    shift 2
    says '"body":' call "$@" "${test[@]}" -d '{"responseSize": 1000}' "$address" grpc.testing.TestService/UnaryCall
    says 'responses 3' call "$@" "${test[@]}" -v -d '{"responseParameters": [{"size": 1}, {"size": 2}, {"size": 3}]}' \
        "$address" TestService/StreamingOutputCall
    says '"aggregatedPayloadSize":6' call "$@" "${test[@]}" -d '{"payload": {"body": "AAAA"}} {"payload": {"body": "AAAA"}}' \
        "$address" TestService/StreamingInputCall
    says '200 OK' bench "$@" "${test[@]}" --rate 200 -n 200 -d '{"responseSize": 10}' "$address" TestService/UnaryCall
    done_with "$what"
}

# asks_reflecting WHAT ADDRESS [FLAG]...
asks_reflecting() {
    local what=$1 address=$2
    shift 2
    says '^grpc.health.v1.Health$' call "$@" "$address" list
    says '^grpc.health.v1.Health/Check$' call "$@" "$address" list grpc.health.v1.Health
    says 'string service = 1;' call "$@" "$address" describe grpc.health.v1.HealthCheckRequest
    says '"SERVING"' call "$@" -d '{}' "$address" grpc.health.v1.Health/Check
    done_with "$what"
}

certified=
certificates "$scene/keys" && certified=yes || missing cli "TLS" "openssl could not make certificates"

server=$(go_tool interop-server "google.golang.org/grpc/interop/server@v1.85.0")
if [ -n "$server" ]; then
    port=$(free_port)
    start cli-go-server "$server" --port="$port"
    wait_for_port "$port" && asks_go "grpc-go's server" "127.0.0.1:$port" -plaintext
    if [ -n "$certified" ]; then
        port=$(free_port)
        start cli-go-server-tls "$server" --port="$port" --use_tls=true \
            --tls_cert_file="$scene/keys/server.pem" --tls_key_file="$scene/keys/server.key"
        wait_for_port "$port" && asks_go "grpc-go's server, TLS" "localhost:$port" -cacert "$scene/keys/ca.pem"
    fi
else
    missing cli "grpc-go's server" "go install google.golang.org/grpc/interop/server@v1.85.0 failed"
fi

if python_environment; then
    port=$(free_port)
    start cli-reflecting "$TOOLS/python/bin/python" tests/interop/clients/python/reflecting.py "$port"
    wait_for_port "$port" && asks_reflecting "grpcio's reflection" "127.0.0.1:$port" -plaintext
    if [ -n "$certified" ]; then
        port=$(free_port)
        start cli-reflecting-tls "$TOOLS/python/bin/python" tests/interop/clients/python/reflecting.py "$port" \
            "$scene/keys/server.pem" "$scene/keys/server.key"
        wait_for_port "$port" && asks_reflecting "grpcio's reflection, TLS" "localhost:$port" -cacert "$scene/keys/ca.pem"
    fi
else
    missing cli "grpcio's reflection" "pip could not install it"
fi
