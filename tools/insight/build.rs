//! Generates the admin API.

fn main() -> Result<(), trunkline_build::BuildError> {
    trunkline_build::compile_protos(&["../../proto/trunkline/admin/v1/admin.proto"], &["../../proto"])
}
