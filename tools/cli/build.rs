//! Generates the admin API, and what tests ask a daemon's health with.

fn main() -> Result<(), trunkline_build::BuildError> {
    let protos = ["../../proto/trunkline/admin/v1/admin.proto", "../../proto/grpc/health/v1/health.proto"];
    trunkline_build::compile_protos(&protos, &["../../proto"])
}
