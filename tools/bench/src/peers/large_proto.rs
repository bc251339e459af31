//! The schema of HPRPC's LargeData: messages of 128 to 8192 integers, each a member of its own, and a service that
//! sends them back. It is written when it is needed and not kept: sixteen thousand lines that say the same. The build
//! script compiles this very file.

/// Members of the messages: HPRPC's seven.
pub const MEMBERS: [usize; 7] = [128, 256, 512, 1024, 2048, 4096, 8192];
/// Name of the file.
pub const FILE: &str = "large.proto";

/// Those of the messages with at most so many.
pub fn members(most: Option<usize>) -> Vec<usize> {
    MEMBERS.into_iter().filter(|members| most.is_none_or(|most| *members <= most)).collect()
}

/// The schema of messages with so many members, for protox and protoc alike.
pub fn proto(messages: &[usize]) -> String {
    let mut proto = "syntax = \"proto3\";\npackage large.v1;\n".to_owned();
    for members in messages {
        proto += &format!("message LargeData{members} {{\n");
        (1..=*members).for_each(|member| proto += &format!("  int32 m{member} = {member};\n"));
        proto += "}\n";
    }
    proto += "service Large {\n";
    for members in messages {
        proto += &format!("  rpc SendRcv{members}(LargeData{members}) returns (LargeData{members});\n");
    }
    proto + "}\n"
}
