# gRPC's interoperability tests: grpc-go's client and server, each against ours, in cleartext and over TLS; ours against
# ours; and both clients against a server without the service, to show which cases prove something.

version=v1.85.0
# pick_first_unary wants a server id, which no server gives; the credentials cases want a cloud.
cases="empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server
    cancel_after_begin cancel_after_first_response status_code_and_message special_status_message custom_metadata
    unimplemented_method unimplemented_service rpc_soak channel_soak orca_per_rpc orca_oob"
# The deadline of one millisecond may pass before any answer comes.
anywhere="cancel_after_begin unimplemented_method unimplemented_service timeout_on_sleeping_server"
# What makes grpc-go's client look at load reports.
balancer='{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}'

go_client=$(go_tool interop-client "google.golang.org/grpc/interop/client@$version") || go_client=
go_server=$(go_tool interop-server "google.golang.org/grpc/interop/server@$version") || go_server=
# The module's own certificates, of its own CA.
certificates=$(go env GOMODCACHE 2> /dev/null)/google.golang.org/grpc@$version/testdata
tls="--use_tls=true --use_test_ca=true --ca_file=$certificates/ca.pem --server_host_override=x.test.youtube.com"
trap stop_all EXIT

# our_server PORT [FLAG]...
our_server() {
    local port=$1 name="our-server-$1"
    shift
    start "$name" "$BIN/interop-server" --port "$port" "$@"
    wait_for_text "$LOGS/$name.log" "serving on"
}

# count WHAT LOG: lines of a log that say passed, and those that say FAILED.
count() {
    record testservice "$1" "$(grep -c '^passed' "$2")" "$(grep -c '^FAILED' "$2")" "$(grep '^FAILED' "$2" | head -1 | cut -c1-80)"
}

# our_client WHAT PORT CASES [FLAG]...
our_client() {
    local what=$1 port=$2 cases=$3 log="$LOGS/our-client-$2.log"
    shift 3
    "$BIN/interop-client" --server_port "$port" --test_case "$(tr -s ' \n' ',' <<< "$cases" | sed 's/,$//')" "$@" > "$log" 2>&1
    count "$what" "$log"
}

# gos_client PORT LOG [FLAG]...: plays every case, a process each.
gos_client() {
    local port=$1 log=$2 case config
    shift 2
    : > "$log"
    for case in $cases; do
        config=
        case $case in orca_*) config=$balancer ;; esac
        if timeout 60 "$go_client" --server_host=127.0.0.1 --server_port="$port" --test_case="$case" \
            ${config:+--service_config_json="$config"} "$@" \
            > "$LOGS/go-client.log" 2>&1; then
            echo "passed $case"
        else
            echo "FAILED $case: $(tail -1 "$LOGS/go-client.log")"
        fi >> "$log"
    done
}

port=$(free_port)
our_server "$port" || return 1
# Between two daemons the native protocol is found, where a service that nobody serves may yet be attached: unavailable.
native=${cases/unimplemented_service/}
our_client "ours to ours" "$port" "$native"
if [ -n "$go_client" ]; then
    gos_client "$port" "$LOGS/go-to-ours.log"
    count "grpc-go's client to ours" "$LOGS/go-to-ours.log"
    secure=$(free_port)
    our_server "$secure" --use_tls=true --tls_cert_file="$certificates/server1.pem" --tls_key_file="$certificates/server1.key"
    # shellcheck disable=SC2086  # a list of flags
    gos_client "$secure" "$LOGS/go-to-ours-tls.log" $tls
    count "grpc-go's client to ours, TLS" "$LOGS/go-to-ours-tls.log"
    # shellcheck disable=SC2086
    our_client "ours to ours, TLS" "$secure" "$native" $tls

    # Without the service nothing may pass but what passes against anything.
    bare=$(free_port)
    our_server "$bare" --without_service
    gos_client "$bare" "$LOGS/go-to-bare.log"
    surprises=$(grep '^passed' "$LOGS/go-to-bare.log" | cut -d' ' -f2 | grep -vxF "$(tr -s ' ' '\n' <<< "$anywhere")" | wc -l)
    failed=$(grep -c '^FAILED' "$LOGS/go-to-bare.log")
    record testservice "cases that fail without the service" "$failed" "$surprises" "all but $anywhere"
else
    missing testservice "grpc-go's client" "go install google.golang.org/grpc/interop/client@$version failed"
fi
if [ -n "$go_server" ]; then
    port=$(free_port)
    start go-server "$go_server" --port="$port"
    wait_for_port "$port" && our_client "ours to grpc-go's server" "$port" "$cases"
    secure=$(free_port)
    start go-server-tls "$go_server" --port="$secure" --use_tls=true \
        --tls_cert_file="$certificates/server1.pem" --tls_key_file="$certificates/server1.key"
    # shellcheck disable=SC2086
    wait_for_port "$secure" && our_client "ours to grpc-go's server, TLS" "$secure" "$cases" $tls
else
    missing testservice "grpc-go's server" "go install google.golang.org/grpc/interop/server@$version failed"
fi
