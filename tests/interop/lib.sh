# What the suites share: where things are, how they are fetched, how counts are kept. Sourced, never run.

TARGET=${CARGO_TARGET_DIR:-$PWD/target}
TOOLS=$TARGET/conformance
LOGS=$TOOLS/logs
RESULTS=$TOOLS/results.tsv
# With its assertions, unless told otherwise (PROFILE=release).
PROFILE=${PROFILE:-debug}
BIN=$TARGET/$PROFILE
export TRUNKLINE_PROGRAM=$BIN/trunkline
unset TRUNKLINE_SOCKET TRUNKLINE_CONFIG
# Logs of daemons, one file each: a panic or an ERROR line in one fails its suite (examine_logs).
export TRUNKLINE_INTEROP_LOGS=$LOGS/daemons
mkdir -p "$TOOLS" "$LOGS" "$TRUNKLINE_INTEROP_LOGS"

say() { printf '\n── %s\n' "$*"; }

# record SUITE WHAT PASSED FAILED [REMARK]
record() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" "${5:-}" >> "$RESULTS"
    printf '   %-14s %-44s %6s passed %4s failed  %s\n' "$1" "$2" "$3" "$4" "${5:-}"
}

# missing SUITE WHAT WHY: what cannot be had here.
missing() {
    printf '%s\t%s\t-\t-\tnot to be had: %s\n' "$1" "$2" "$3" >> "$RESULTS"
    printf '   %-14s %-44s not to be had: %s\n' "$1" "$2" "$3"
}

build() {
    local profile=()
    [ "$PROFILE" = debug ] || profile=(--profile "$PROFILE")
    say "build"
    cargo build --locked "${profile[@]}" -p trunkline-cli -p trunkline-interop -p trunkline-example-search || exit 2
}

# go_tool NAME MODULE@VERSION: installs a Go program as $TOOLS/go/NAME/…, and prints its path.
go_tool() {
    local name=$1 module=$2 folder=$TOOLS/go/$1
    if [ ! -f "$folder/version" ] || [ "$(cat "$folder/version")" != "$module" ]; then
        command -v go > /dev/null || return 1
        GOBIN=$folder GOFLAGS=-trimpath go install "$module" > "$LOGS/go-$name.log" 2>&1 ||
            go_build "$name" "$module" >> "$LOGS/go-$name.log" 2>&1 || return 1
        echo "$module" > "$folder/version"
    fi
    find "$folder" -type f -perm -u+x | head -1
}

# go_build NAME MODULE@VERSION: builds the program at a module's root without asking for the module's other versions, as go
# install does: some proxies have one and not the others.
go_build() {
    local folder=$TOOLS/go/$1 source
    source=$(go mod download -json "$2" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    [ -n "$source" ] && mkdir -p "$folder" && (cd "$source" && go build -trimpath -o "$folder/$1" .)
}

# python_environment: makes $TOOLS/python once, with what the scripts import.
python_environment() {
    local wanted="grpcio==1.76.0 grpcio-tools==1.76.0 grpcio-health-checking==1.76.0 grpcio-reflection==1.76.0"
    if [ "$(cat "$TOOLS/python/wanted" 2> /dev/null)" != "$wanted" ]; then
        python3 -m venv "$TOOLS/python" || return 1
        # shellcheck disable=SC2086  # a list of words
        "$TOOLS/python/bin/pip" install --quiet --disable-pip-version-check $wanted > "$LOGS/pip.log" 2>&1 || return 1
        echo "$wanted" > "$TOOLS/python/wanted"
    fi
}

# debian NAME FILE PACKAGE...: prints the folder that is / to packages of Debian's: / where the file is installed, else
# $TOOLS/NAME, where they are unpacked with what they need, which takes no right.
debian() {
    local folder=$TOOLS/$1 file=$2 wanted
    shift 2
    [ ! -e "/$file" ] || { echo /; return 0; }
    if [ "$(cat "$folder/unpacked" 2> /dev/null)" != "$*" ]; then
        command -v apt-get > /dev/null && command -v dpkg > /dev/null && mkdir -p "$folder" || return 1
        wanted=$(LC_ALL=C apt-get --simulate --no-install-recommends install "$@" 2>> "$LOGS/debian.log" |
            sed -n 's/^Inst \([^ ]*\).*/\1/p') || return 1
        # shellcheck disable=SC2086  # a list of words
        (cd "$folder" && apt-get download $wanted "$@" && for deb in *.deb; do dpkg -x "$deb" . && rm "$deb"; done) \
            >> "$LOGS/debian.log" 2>&1 || return 1
        echo "$*" > "$folder/unpacked"
    fi
    [ -e "$folder/$file" ] && echo "$folder"
}

# certificates FOLDER: a CA (ca.pem) and a server of its own, 127.0.0.1 and localhost (server.pem, server.key).
certificates() {
    local folder=$1
    [ -f "$folder/server.pem" ] && openssl x509 -checkend 86400 -noout -in "$folder/server.pem" > /dev/null && return 0
    mkdir -p "$folder"
    {
        openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=conformance CA" \
            -keyout "$folder/ca.key" -out "$folder/ca.pem" &&
        openssl req -newkey rsa:2048 -nodes -subj "/CN=localhost" \
            -keyout "$folder/server.key" -out "$folder/server.csr" &&
        openssl x509 -req -in "$folder/server.csr" -CA "$folder/ca.pem" -CAkey "$folder/ca.key" -CAcreateserial -days 30 \
            -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") -out "$folder/server.pem"
    } > "$LOGS/openssl.log" 2>&1
}

# A port nobody listens at.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for_port PORT [SECONDS]
wait_for_port() {
    local until=$((SECONDS + ${2:-30}))
    while ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; do
        [ $SECONDS -lt $until ] || { echo "nobody listens at port $1" >&2; return 1; }
        sleep 0.1
    done
}

# wait_for_text FILE TEXT [SECONDS]
wait_for_text() {
    local until=$((SECONDS + ${3:-30}))
    until grep -q -- "$2" "$1" 2> /dev/null; do
        [ $SECONDS -lt $until ] || { echo "$1 never said $2" >&2; tail -5 "$1" >&2; return 1; }
        sleep 0.1
    done
}

# Processes of one suite, ended with it. start NAME COMMAND...: in the background, its output in $LOGS/NAME.log.
CHILDREN=()
start() {
    local name=$1
    shift
    "$@" > "$LOGS/$name.log" 2>&1 < /dev/null &
    CHILDREN+=($!)
}

# start_daemon NAME FLAG...: a daemon, with its log where examine_logs looks.
start_daemon() {
    local name=$1
    shift
    "$BIN/trunkline" "$@" > "$TRUNKLINE_INTEROP_LOGS/$name.log" 2>&1 < /dev/null &
    CHILDREN+=($!)
}

# expect_log TEXT WHY: a daemon of this suite may log a line with that text, because of that.
expect_log() {
    printf '%s\n' "$1" >> "$TRUNKLINE_INTEROP_LOGS/expected"
}

# forget_logs: before a suite.
forget_logs() {
    rm -f "$TRUNKLINE_INTEROP_LOGS"/*
    : > "$TRUNKLINE_INTEROP_LOGS/expected"
}

# examine_logs SUITE: after it, fails it for every line in its daemons' logs that tells of a fault nobody has foreseen.
examine_logs() {
    local faults
    faults=$(cat "$TRUNKLINE_INTEROP_LOGS"/*.log 2> /dev/null |
        grep -E " ERROR |\"level\":\"ERROR\"|^thread '.* panicked at |fatal runtime error" |
        grep -vFf "$TRUNKLINE_INTEROP_LOGS/expected")
    [ -z "$faults" ] && return
    printf '%s\n' "$faults" > "$LOGS/$1-faults.log"
    record "$1" "its daemons' logs" 0 "$(wc -l <<< "$faults")" "$(head -1 <<< "$faults" | cut -c1-80)"
}

stop_all() {
    local child
    for child in "${CHILDREN[@]}"; do kill "$child" 2> /dev/null; done
    for child in "${CHILDREN[@]}"; do wait "$child" 2> /dev/null; done
    CHILDREN=()
}

summary() {
    local failed early missing
    say "summary"
    {
        printf 'suite\twhat\tpassed\tfailed\tremark\n'
        cat "$RESULTS"
    } | awk -F'\t' '{ printf "%-14s %-44s %7s %7s  %s\n", $1, $2, $3, $4, $5 }'
    failed=$(awk -F'\t' '$4 ~ /^[0-9]+$/ { n += $4 } END { print n + 0 }' "$RESULTS")
    passed=$(awk -F'\t' '$3 ~ /^[0-9]+$/ { n += $3 } END { print n + 0 }' "$RESULTS")
    early=$(grep -c $'\tended early\t' "$RESULTS")
    missing=$(grep -c $'\tnot to be had' "$RESULTS")
    printf '\n%s passed, %s failed\n' "$passed" "$failed"
    [ "$missing" -eq 0 ] || echo "$missing not to be had, named above"
    [ "$early" -eq 0 ] || exit 2
    [ "$failed" -eq 0 ] || exit 1
    [ "$missing" -eq 0 ] || exit 3
}
