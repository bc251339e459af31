//! Generates the services and their clients.

const PROTOS: [&str; 6] = [
    "proto/grpc/health/v1/health.proto",
    "proto/grpc/reflection/v1/reflection.proto",
    "proto/grpc/reflection/v1alpha/reflection.proto",
    "proto/grpc/channelz/v1/channelz.proto",
    "proto/xds/data/orca/v3/orca_load_report.proto",
    "proto/xds/service/orca/v3/orca.proto",
];

fn main() -> Result<(), trunkline_build::BuildError> {
    trunkline_build::compile_protos(&PROTOS, &["proto"])
}
