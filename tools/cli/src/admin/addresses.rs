//! Where this host is, from proc(5): its addresses, of which the kernel's own table of IPv4 routes has those that are
//! delivered here, its machine, and its network namespace.

use std::net::Ipv4Addr;

/// Longest file that is read: a host has some ten addresses, one with a thousand containers some thousand routes.
const TABLE_BYTES_MAX: u64 = 4 << 20;
/// Most addresses that are told.
const ADDRESSES_MAX: usize = 1024;

/// IPv4 addresses of the network namespace this process is in, each once, without loopback; none where the kernel does
/// not tell.
pub fn own_addresses() -> Vec<String> {
    let mut table = String::new();
    let read = std::fs::File::open("/proc/self/net/fib_trie").and_then(|file| {
        std::io::Read::read_to_string(&mut std::io::Read::take(file, TABLE_BYTES_MAX), &mut table)
    });
    if read.is_ok() { local(&table) } else { Vec::new() }
}

/// The kernel's boot id, in which all daemons of a machine agree; empty where it does not tell.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The network namespace this process is in, as the machine's kernel names it; empty where it does not tell.
pub fn network_namespace() -> String {
    let name = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What of a table is a host's own: a line with the address, and one that says what it is.
fn local(table: &str) -> Vec<String> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut address = None;
    for line in table.lines().map(str::trim) {
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf.parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL") {
            found.extend(address.filter(|address| !address.is_loopback() && !address.is_unspecified()));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.iter().take(ADDRESSES_MAX).map(Ipv4Addr::to_string).collect()
}

#[cfg(test)]
mod tests {
    //! Shows what is read of the kernel's table.
    use super::*;

    const TABLE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.0.0.0/24 2 0 2
        |-- 10.0.0.0
           /24 link UNICAST
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 10.0.0.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
Local:
        |-- 10.0.0.7
           /32 host LOCAL
        |-- 172.17.0.1
           /32 host LOCAL
";

    #[test]
    fn own_addresses_are_told_from_routes() {
        assert_eq!(local(TABLE), ["10.0.0.7", "172.17.0.1"]);
        assert!(local("").is_empty() && local("/32 host LOCAL\n|-- x\n/32 host LOCAL").is_empty());
        // Of whatever host this is.
        assert!(own_addresses().iter().all(|address| !address.starts_with("127.")));
        assert!(boot_id().len() == 36 && network_namespace().starts_with("net:["));
    }
}
