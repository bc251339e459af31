//! Methods and services of which only the application knows the types.
//!
//! An application that binds without a descriptor set (a channel under code somebody else generated) has its messages
//! in shared memory as protobuf. Its ends have a path and may stream both ways, and nothing else is known of them.
//! `convert.rs` has the rows: protobuf goes from opaque end to opaque end as it is and unread; towards a typed end it
//! is decoded by the schema of that end, so that nothing unchecked reaches a typed application.
//!
//! Such an application serves a service as a whole, since it alone knows the methods. Its one route is bound under
//! `/package.Service/*`, and every delivered call says its own path before its metadata.

/// Longest path that can be bound: what the native protocol's SCHEMA frame takes.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

/// Longest name of a service: leaves room for two slashes and a method of some length in a path.
pub(crate) const SERVICE_BYTES_MAX: usize = 512;

/// What a delivered call of a service served as a whole says of itself: its path, then its metadata.
pub(crate) fn named(path: &str, metadata: &[u8]) -> Vec<u8> {
    let mut named = Vec::with_capacity(2 + path.len() + metadata.len());
    named.extend_from_slice(&(path.len() as u16).to_le_bytes());
    named.extend_from_slice(path.as_bytes());
    named.extend_from_slice(metadata);
    named
}

/// Whether this is `/service/method`, printable and not too long.
pub(crate) fn is_path(path: &str) -> bool {
    let parts = path.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    path.len() <= PATH_BYTES_MAX
        && parts.is_some_and(|(service, method)| is_service(service) && is_method(method))
}

/// Whether this can be the full name of a service.
pub(crate) fn is_service(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'*';
    (1..=SERVICE_BYTES_MAX).contains(&name.len()) && name.bytes().all(legal)
}

/// The beginning of a name, to be shown to whoever sent it.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Longer than protobuf's rules, which only the application's own schema language is bound by.
fn is_method(name: &str) -> bool {
    !name.is_empty() && name != "*" && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

#[cfg(test)]
mod tests {
    //! Lists what can be called and served without a descriptor set.
    use super::*;

    #[test]
    fn names_are_checked() {
        for path in ["/a.B/C", "/a/b", "/grpc.health.v1.Health/Check"] {
            assert!(is_path(path), "{path}");
        }
        let long = format!("/a.B/{}", "C".repeat(PATH_BYTES_MAX));
        for path in ["", "/", "a.B/C", "/a.B", "/a.B/", "//C", "/a.B/C/D", "/a B/C", "/a.B/*", "/ä/C", &long]
        {
            assert!(!is_path(path), "{path}");
        }
        assert!(is_service("a.B") && !is_service("") && !is_service("a/B") && !is_service("a.*"));
    }
}
