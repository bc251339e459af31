//! Shows what the codec does where its parts meet, a file for each matter. They are one program, since linking one
//! takes longer than to compile most of them.

mod building;
mod check_refuses;
mod linear_page;
mod random_messages;
mod support;
mod transcode_agreement;
mod transcode_conformance;
mod transcode_hostile;
mod transcode_payloads;
mod transcode_support;
mod unknown_runs;
