# The services users expect of any server, asked with their own tools, in cleartext and over TLS: health
# (grpc-health-probe, grpcio), reflection v1 and v1alpha (grpcio; grpcurl is in the suite `clients`).

trap stop_all EXIT
port=$(free_port)
scene=$TOOLS/services
mkdir -p "$scene"
printf '[daemon]\nlisten = ["tcp://127.0.0.1:%s"]\n' "$port" > "$scene/daemon.toml"
ca=
if certificates "$scene/keys"; then
    ca=$scene/keys/ca.pem
    printf '[tls]\ncertificate = "%s"\nkey = "%s"\n' "$scene/keys/server.pem" "$scene/keys/server.key" >> "$scene/daemon.toml"
else
    missing services "TLS" "openssl could not make certificates"
fi
start_daemon services-daemon --socket "$scene/sock" daemon --config "$scene/daemon.toml"
wait_for_port "$port" || return 1
"$BIN/search-server" --socket "$scene/sock" "$PWD/docs" > "$LOGS/services-search.log" 2>&1 < /dev/null &
search=$!
CHILDREN+=("$search")
wait_for_text "$LOGS/services-search.log" "serving" || return 1

# asks WHAT LOG [CA]: the daemon's services, with grpcio.
asks() {
    local what=$1 log=$LOGS/$2
    shift 2
    "$TOOLS/python/bin/python" tests/interop/clients/python/services.py "127.0.0.1:$port" search.v1.Search "$@" > "$log" 2>&1 ||
        grep -q '^FAILED' "$log" || echo "FAILED to run: $(tail -1 "$log")" >> "$log"
    record services "$what" "$(grep -c '^passed' "$log")" "$(grep -c '^FAILED' "$log")" \
        "$(grep '^FAILED' "$log" | head -1 | cut -c1-80)"
}

if python_environment; then
    asks "health and reflection, by grpcio" services-python.log
    [ -z "$ca" ] || asks "health and reflection, by grpcio, TLS" services-python-tls.log "$ca"
else
    missing services "grpcio" "pip could not install it"
fi

probe=$(go_tool grpc-health-probe github.com/grpc-ecosystem/grpc-health-probe@v0.4.38)
if [ -n "$probe" ]; then
    : > "$LOGS/probe.log"
    passed=0
    asked=0
    # probes HEALTHY [FLAG]...: one probe, which must find what it should.
    probes() {
        local healthy=$1 found=no
        shift
        "$probe" -addr "127.0.0.1:$port" "$@" >> "$LOGS/probe.log" 2>&1 && found=yes
        asked=$((asked + 1))
        [ "$found" != "$healthy" ] || passed=$((passed + 1))
    }
    probes yes
    probes yes -service search.v1.Search
    probes no -service no.such.Service
    [ -z "$ca" ] || probes yes -tls -tls-ca-cert "$ca" -tls-server-name localhost -service search.v1.Search
    # A server that is gone is not healthy, and the daemon knows at once.
    kill -9 "$search"
    wait "$search" 2> /dev/null
    sleep 1
    probes no -service search.v1.Search
    probes yes
    record services "grpc-health-probe" "$passed" $((asked - passed)) "served; nobody's; served over TLS; gone"
else
    missing services "grpc-health-probe" "go install failed"
fi
