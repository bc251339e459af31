# Everybody's clients call examples/search through a daemon, in cleartext and over TLS: grpc-go, grpcio (sync and asyncio),
# tonic, grpcurl and ghz. The daemon has one port for all of them.

trap stop_all EXIT
port=$(free_port)
scene=$TOOLS/clients
protos=$PWD/examples/search/proto
mkdir -p "$scene"
printf '[daemon]\nlisten = ["tcp://127.0.0.1:%s"]\n' "$port" > "$scene/daemon.toml"
ca=
if certificates "$scene/keys"; then
    ca=$scene/keys/ca.pem
    printf '[tls]\ncertificate = "%s"\nkey = "%s"\n' "$scene/keys/server.pem" "$scene/keys/server.key" >> "$scene/daemon.toml"
else
    missing clients "TLS" "openssl could not make certificates"
fi
start_daemon search-daemon --socket "$scene/sock" daemon --config "$scene/daemon.toml"
wait_for_port "$port" || return 1
start search-server "$BIN/search-server" --socket "$scene/sock" "$PWD/core"
wait_for_text "$LOGS/search-server.log" "serving" || return 1

# plays WHAT LOG COMMAND...: a program that prints `passed CASE` and `FAILED CASE: why`.
plays() {
    local what=$1 log=$LOGS/$2
    shift 2
    if ! timeout 300 "$@" > "$log" 2>&1 && ! grep -q '^FAILED' "$log"; then
        echo "FAILED to run: $(tail -1 "$log")" >> "$log"
    fi
    record clients "$what" "$(grep -c '^passed' "$log")" "$(grep -c '^FAILED' "$log")" \
        "$(grep '^FAILED' "$log" | head -1 | cut -c1-80)"
}

if python_environment; then
    stubs=$scene/python
    mkdir -p "$stubs"
    "$TOOLS/python/bin/python" -m grpc_tools.protoc -I"$protos" --python_out="$stubs" --grpc_python_out="$stubs" \
        search/v1/search.proto
    for kind in sync asyncio; do
        script=tests/interop/clients/python/search_$kind.py
        PYTHONPATH=$stubs plays "grpcio, $kind" "python-$kind.log" "$TOOLS/python/bin/python" "$script" "127.0.0.1:$port"
        [ -z "$ca" ] || PYTHONPATH=$stubs plays "grpcio, $kind, TLS" "python-$kind-tls.log" \
            "$TOOLS/python/bin/python" "$script" "127.0.0.1:$port" "$ca"
    done
else
    missing clients "grpcio" "pip could not install it"
fi

if command -v go > /dev/null; then
    # Away from the work tree, so that nothing is written there.
    mkdir -p "$scene/go"
    cp tests/interop/clients/go/* "$scene/go/"
    if (cd "$scene/go" && GOFLAGS=-mod=mod go build -o search .) > "$LOGS/go-search-build.log" 2>&1; then
        plays "grpc-go" go-search.log "$scene/go/search" "127.0.0.1:$port" "$protos"
        [ -z "$ca" ] || plays "grpc-go, TLS" go-search-tls.log "$scene/go/search" "127.0.0.1:$port" "$protos" "$ca"
    else
        missing clients "grpc-go" "its modules could not be fetched"
    fi
else
    missing clients "grpc-go" "there is no go"
fi

if CARGO_TARGET_DIR=$scene/tonic cargo build --locked --manifest-path tests/interop/clients/tonic/Cargo.toml \
    > "$LOGS/tonic-build.log" 2>&1; then
    plays "tonic" tonic.log "$scene/tonic/debug/search-tonic" "http://127.0.0.1:$port"
else
    missing clients "tonic" "it could not be built"
fi

# says WHAT LOG PATTERN COMMAND...: one case, which must print the pattern.
says() {
    local what=$1 log=$LOGS/$2 pattern=$3
    shift 3
    if timeout 120 "$@" > "$log" 2>&1 && grep -q -- "$pattern" "$log"; then
        record clients "$what" 1 0
    else
        record clients "$what" 0 1 "$(tail -1 "$log" | cut -c1-80)"
    fi
}

grpcurl=$(go_tool grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3)
if [ -n "$grpcurl" ]; then
    described=(-plaintext -import-path "$protos" -proto search/v1/search.proto)
    says "grpcurl, with the .proto file" grpcurl.log '"hits"' \
        "$grpcurl" "${described[@]}" -d '{"query": "daemon"}' "127.0.0.1:$port" search.v1.Search/Query
    says "grpcurl, a stream of answers" grpcurl-stream.log '"rank": 10' \
        "$grpcurl" "${described[@]}" -d '{"query": "the"}' "127.0.0.1:$port" search.v1.Search/Results
    says "grpcurl, by reflection" grpcurl-reflection.log '"hits"' \
        "$grpcurl" -plaintext -d '{"query": "daemon"}' "127.0.0.1:$port" search.v1.Search/Query
    says "grpcurl list" grpcurl-list.log 'search.v1.Search' "$grpcurl" -plaintext "127.0.0.1:$port" list
    says "grpcurl describe" grpcurl-describe.log 'rpc Query' \
        "$grpcurl" -plaintext "127.0.0.1:$port" describe search.v1.Search
    [ -z "$ca" ] || says "grpcurl, by reflection, TLS" grpcurl-tls.log '"hits"' \
        "$grpcurl" -cacert "$ca" -d '{"query": "daemon"}' "127.0.0.1:$port" search.v1.Search/Query
else
    missing clients "grpcurl" "go install failed"
fi

ghz=$(go_tool ghz github.com/bojand/ghz/cmd/ghz@v0.121.0)
if [ -n "$ghz" ]; then
    says "ghz, 2000 calls over 50 streams" ghz.log 'OK.*2000 responses' \
        "$ghz" --insecure --import-paths "$protos" --proto search/v1/search.proto --call search.v1.Search.Query \
        -d '{"query": "daemon", "limit": 1}' -n 2000 -c 50 --connections 5 "127.0.0.1:$port"
    [ -z "$ca" ] || says "ghz, 2000 calls over 50 streams, TLS" ghz-tls.log 'OK.*2000 responses' \
        "$ghz" --cacert "$ca" --import-paths "$protos" --proto search/v1/search.proto --call search.v1.Search.Query \
        -d '{"query": "daemon", "limit": 1}' -n 2000 -c 50 --connections 5 "127.0.0.1:$port"
else
    missing clients "ghz" "go install failed"
fi
