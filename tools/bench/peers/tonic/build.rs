fn main() -> Result<(), std::io::Error> {
    tonic_prost_build::configure().compile_protos(&["../../proto/bench.proto"], &["../../proto"])
}
