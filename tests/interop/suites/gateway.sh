# gRPC's interoperability tests through the gateway: clients of grpc-go, grpc-java, grpcio and gRPC C++, which know
# nothing of Trunkline, over one daemon to servers of their own, over two daemons to ours, and over two that show each
# other certificates (mutual TLS). Go's and Java's are gRPC's programs; Python's and C++'s are clients/python/interop.py
# and clients/cpp/interop.cc, as nobody packages gRPC's; over Unix sockets Java's is clients/java/UnixClient.java.
#
# A case counts if it passes between the same client and server without a daemon; so the cases that a client or a server
# does not know are left out, and nothing else is.

version=v1.85.0
go_cases="empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server
    cancel_after_begin cancel_after_first_response status_code_and_message special_status_message custom_metadata
    unimplemented_method unimplemented_service rpc_soak channel_soak orca_per_rpc orca_oob"
java_cases="empty_unary large_unary client_compressed_unary server_compressed_unary client_streaming
    client_compressed_streaming server_streaming server_compressed_streaming ping_pong empty_stream custom_metadata
    status_code_and_message special_status_message unimplemented_method unimplemented_service cancel_after_begin
    cancel_after_first_response timeout_on_sleeping_server very_large_request rpc_soak channel_soak orca_per_rpc orca_oob"
# Those of java_cases that clients/java/UnixClient.java plays.
java_unix_cases="empty_unary large_unary client_streaming server_streaming ping_pong empty_stream custom_metadata
    status_code_and_message special_status_message unimplemented_method unimplemented_service cancel_after_begin
    cancel_after_first_response timeout_on_sleeping_server"
python_cases="empty_unary large_unary client_streaming server_streaming ping_pong empty_stream
    cancel_after_begin cancel_after_first_response timeout_on_sleeping_server status_code_and_message
    special_status_message custom_metadata unimplemented_method unimplemented_service"
cpp_cases="empty_unary large_unary client_compressed_unary server_compressed_unary client_streaming
    client_compressed_streaming server_streaming server_compressed_streaming slow_consumer half_duplex ping_pong empty_stream
    cancel_after_begin cancel_after_first_response timeout_on_sleeping_server status_code_and_message
    special_status_message custom_metadata unimplemented_method unimplemented_service"
# What makes clients look at load reports.
balancer='{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}'

trap stop_all EXIT
scene=$TOOLS/gateway
mkdir -p "$scene"
go_client=$(go_tool interop-client "google.golang.org/grpc/interop/client@$version") || go_client=
go_server=$(go_tool interop-server "google.golang.org/grpc/interop/server@$version") || go_server=

# java_programs: has Maven put them into $scene/java, once.
java_programs() {
    local pom=tests/interop/clients/java/pom.xml
    command -v java > /dev/null && command -v mvn > /dev/null || return 1
    cmp -s "$pom" "$scene/java/pom.xml" && return 0
    mkdir -p "$scene/java"
    mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$scene/java" > "$LOGS/mvn.log" 2>&1 &&
        cp "$pom" "$scene/java/pom.xml"
}

# python_stubs: what it imports. grpcio is a package `grpc` itself, so the files are in a folder of another name.
python_stubs() {
    local file
    mkdir -p "$scene/python/testing"
    for file in messages test; do
        sed 's|"grpc/testing/|"testing/|' "tests/interop/proto/grpc/testing/$file.proto" > "$scene/python/testing/$file.proto"
    done
    "$TOOLS/python/bin/python" -m grpc_tools.protoc -I"$scene/python" --python_out="$scene/python" \
        --grpc_python_out="$scene/python" testing/messages.proto testing/test.proto
}

# cpp_program: builds it with Debian's gRPC C++.
cpp_program() {
    local root
    command -v make > /dev/null && command -v c++ > /dev/null || return 1
    root=$(debian grpc-cpp usr/bin/grpc_cpp_plugin \
        libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc) || return 1
    make -s -C tests/interop/clients/cpp OUT="$scene/cpp" ROOT="$root" CXX=c++ > "$LOGS/cpp-build.log" 2>&1
}

# client LANGUAGE PORT CASE: plays a case. Unix sockets (unix:PATH) are taken for ports, too. No client is told what the
# authority is there.
client() {
    local config= host=127.0.0.1 port=$2
    case $3 in orca_*) config=$balancer ;; esac
    case $2 in unix:*) host=$2 port=0 ;; esac
    if [ "$1" = go ]; then
        timeout 60 "$go_client" --server_host="$host" --server_port="$port" --test_case="$3" \
            ${config:+--service_config_json="$config"}
    elif [ "$1" = python ]; then
        timeout 60 "$TOOLS/python/bin/python" tests/interop/clients/python/interop.py play "$2" "$3"
    elif [ "$1" = cpp ]; then
        timeout 60 "$scene/cpp/interop" play "$2" "$3"
    elif [ "$port" = 0 ]; then
        timeout 60 java -XX:TieredStopAtLevel=1 -cp "$scene/java/*" tests/interop/clients/java/UnixClient.java \
            "${2#unix:}" "$3"
    else
        timeout 60 java -XX:TieredStopAtLevel=1 -cp "$scene/java/*" io.grpc.testing.integration.TestServiceClient \
            --server_host="$host" --server_port="$port" --test_case="$3" --use_tls=false \
            ${config:+--service_config_json="$config"}
    fi
}

# plays LANGUAGE PORT CASES LOG: a line for each case.
plays() {
    local case
    : > "$4"
    for case in $3; do
        if client "$1" "$2" "$case" > "$4.case" 2>&1; then
            echo "passed $case"
        else
            echo "FAILED $case: $(grep -v '^\s*at ' "$4.case" | tail -1)"
        fi >> "$4"
    done
}

# known LANGUAGE PORT CASES NAME: those of the cases that pass without a daemon.
known() {
    plays "$1" "$2" "$3" "$LOGS/$4-direct.log"
    sed -n 's/^passed //p' "$LOGS/$4-direct.log" | tr '\n' ' '
}

# through WHAT LANGUAGE PORT CASES NAME
through() {
    local log=$LOGS/$5.log
    plays "$2" "$3" "$4" "$log"
    record gateway "$1" "$(grep -c '^passed' "$log")" "$(grep -c '^FAILED' "$log")" \
        "$(grep '^FAILED' "$log" | head -1 | cut -c1-80)"
}

# gateway NAME PORT ENDPOINT [LINE]...: a daemon whose gateway leads to the endpoint, from the port and from
# $scene/NAME-gateway.sock.
gateway() {
    local name=$1 port=$2 endpoint=$3
    shift 3
    {
        printf '[daemon]\nnode = "%s"\n' "$name"
        # A case of grpc-java's sends more than 4 MiB.
        printf '[limits]\ngrpc_message_bytes = "16 MiB"\n'
        printf '[gateway]\nlisten = ["tcp://127.0.0.1:%s", "unix:%s"]\n' "$port" "$scene/$name-gateway.sock"
        printf '[services."grpc.testing.TestService"]\nendpoints = ["%s"]\n' "$endpoint"
        printf '[services."xds.service.orca.v3.OpenRcaService"]\nendpoints = ["%s"]\n' "$endpoint"
        printf '%s\n' "$@"
    } > "$scene/$name.toml"
    start_daemon "$name" --socket "$scene/$name.sock" daemon --config "$scene/$name.toml"
    wait_for_port "$port"
}

# to_ours LANGUAGE CASES: over two daemons, which find out that both speak the native protocol.
to_ours() {
    local language=$1 cases=$2 port=$our_port
    [ -n "$gateway_to_ours" ] || {
        gateway_to_ours=$(free_port)
        gateway to-ours "$gateway_to_ours" "tcp://127.0.0.1:$port" || return 1
        gateway_over_tls=$(free_port)
        gateway over-tls "$gateway_over_tls" "tls://127.0.0.1:$our_secure_port" '[tls]' "ca = \"$scene/keys/ca.pem\"" \
            "certificate = \"$scene/keys/server.pem\"" "key = \"$scene/keys/server.key\""
    } || return 1
    through "${language/cpp/C++}'s client, two daemons, our server" "$language" "$gateway_to_ours" "$cases" "$language-to-ours"
    through "the same, mutual TLS between the daemons" "$language" "$gateway_over_tls" "$cases" "$language-over-tls"
}

certificates "$scene/keys" || return 1
our_port=$(free_port)
start our-server "$BIN/interop-server" --port "$our_port"
our_secure_port=$(free_port)
start our-secure-server "$BIN/interop-server" --port "$our_secure_port" --use_tls=true \
    --tls_cert_file="$scene/keys/server.pem" --tls_key_file="$scene/keys/server.key" \
    --tls_client_ca_file="$scene/keys/ca.pem"
wait_for_text "$LOGS/our-server.log" "serving on" && wait_for_text "$LOGS/our-secure-server.log" "serving on" || return 1
gateway_to_ours=

if [ -n "$go_client" ] && [ -n "$go_server" ]; then
    port=$(free_port)
    start go-server "$go_server" --port="$port"
    wait_for_port "$port" || return 1
    go_known=$(known go "$port" "$go_cases" go)
    entrance=$(free_port)
    gateway to-go "$entrance" "tcp://127.0.0.1:$port" || return 1
    through "grpc-go's client, a daemon, grpc-go's server" go "$entrance" "$go_known" go-to-go
    through "the same, the client over a Unix socket" go "unix:$scene/to-go-gateway.sock" "$go_known" go-over-unix
    to_ours go "$go_known"
else
    missing gateway "grpc-go" "go install google.golang.org/grpc/interop/client@$version failed"
fi

if python_environment && python_stubs; then
    export PYTHONPATH=$scene/python
    port=$(free_port)
    start python-server "$TOOLS/python/bin/python" tests/interop/clients/python/interop.py serve "$port"
    wait_for_port "$port" || return 1
    python_known=$(known python "$port" "$python_cases" python)
    entrance=$(free_port)
    gateway to-python "$entrance" "tcp://127.0.0.1:$port" || return 1
    through "grpcio's client, a daemon, grpcio's server" python "$entrance" "$python_known" python-to-python
    through "the same, the client over a Unix socket" python "unix:$scene/to-python-gateway.sock" "$python_known" python-over-unix
    to_ours python "$python_known"
else
    missing gateway "grpcio" "pip could not install it"
fi

if cpp_program; then
    port=$(free_port)
    start cpp-server "$scene/cpp/interop" serve "$port"
    wait_for_port "$port" || return 1
    cpp_known=$(known cpp "$port" "$cpp_cases" cpp)
    entrance=$(free_port)
    gateway to-cpp "$entrance" "tcp://127.0.0.1:$port" || return 1
    through "gRPC C++'s client, a daemon, its server" cpp "$entrance" "$cpp_known" cpp-to-cpp
    through "the same, the client over a Unix socket" cpp "unix:$scene/to-cpp-gateway.sock" "$cpp_known" cpp-over-unix
    to_ours cpp "$(known cpp "$our_port" "$cpp_known" cpp-ours)"
else
    missing gateway "gRPC C++" "there is no C++ compiler with make, or Debian's packages could not be fetched"
fi

if java_programs; then
    port=$(free_port)
    start java-server java -cp "$scene/java/*" io.grpc.testing.integration.TestServiceServer --port="$port" --use_tls=false
    wait_for_port "$port" 60 || return 1
    java_known=$(known java "$port" "$java_cases" java)
    entrance=$(free_port)
    gateway to-java "$entrance" "tcp://127.0.0.1:$port" || return 1
    through "grpc-java's client, a daemon, its server" java "$entrance" "$java_known" java-to-java
    # A compiler is needed, and the cases that are methods without arguments.
    if command -v javac > /dev/null; then
        through "the same, the client over a Unix socket" java "unix:$scene/to-java-gateway.sock" "$java_unix_cases" java-over-unix
    else
        missing gateway "grpc-java over a Unix socket" "there is no Java compiler"
    fi
    to_ours java "$(known java "$our_port" "$java_known" java-ours)"
else
    missing gateway "grpc-java" "there is no Java with Maven, or it could not fetch them"
fi
