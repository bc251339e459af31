//! `trunkline-insight`: the verbs that keep records of calls and say what is in them (tools/insight), started by
//! `trunkline` for them.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    trunkline_insight_verbs::run()
}
