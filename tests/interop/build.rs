//! Generates messages and stubs of the services the suites speak.

fn main() -> Result<(), trunkline_build::BuildError> {
    trunkline_build::compile_protos(
        &[
            "proto/grpc/testing/test.proto",
            "proto/google/rpc/status.proto",
            "proto/xds/service/orca/v3/orca.proto",
            "proto/connectrpc/conformance/v1/client_compat.proto",
            "proto/connectrpc/conformance/v1/server_compat.proto",
        ],
        &["proto"],
    )
}
