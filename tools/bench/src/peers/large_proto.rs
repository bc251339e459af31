//! The schema of HPRPC's LargeData: messages of 128 to 8192 integers, each a member of its own, and a service that
//! sends them back. It is written when it is needed and not kept: sixteen thousand lines that say the same. The build
//! script compiles this very file.

use std::fmt::Write;

/// Members of the messages: HPRPC's seven.
pub const MEMBERS: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];
/// Those that the generated code of protobuf C++ is compiled for: 2048 members take a compiler a minute, 8192 more than
/// six, and templates nested deeper than compilers allow unless told.
#[allow(dead_code, reason = "the build script has no use for it")]
pub const MEMBERS_OF_CPP: &[usize] = &[128, 256, 512, 1024, 2048];
/// Name of the file.
pub const FILE: &str = "large.proto";

/// The schema of messages with so many members, for protox and protoc alike.
pub fn proto(messages: &[usize]) -> String {
    let mut proto = "syntax = \"proto3\";\npackage large.v1;\n".to_owned();
    for members in messages {
        line(&mut proto, format_args!("message LargeData{members} {{"));
        for member in 1..=*members {
            line(&mut proto, format_args!("  int32 m{member} = {member};"));
        }
        line(&mut proto, format_args!("}}"));
    }
    line(&mut proto, format_args!("service Large {{"));
    for members in messages {
        line(
            &mut proto,
            format_args!("  rpc SendRcv{members}(LargeData{members}) returns (LargeData{members});"),
        );
    }
    line(&mut proto, format_args!("}}"));
    proto
}

/// Writing to a string does not fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}
