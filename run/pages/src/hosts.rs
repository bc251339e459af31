//! Under which names pages are served. A web page can have a name of its own lead to an address of this host (DNS
//! rebinding); the browser then takes what is here for that page's own. It says that name in `host`, and hears 421.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A name that is longer is no name (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;

/// Names a server answers under, beside those that lead nowhere else: addresses, `localhost`, the host's own name.
#[derive(Clone, Debug)]
pub struct HostNames {
    names: Vec<String>,
    key: &'static str,
}

impl HostNames {
    /// `name`, `*.name` for every name below it, `*` for whatever a reader says; where it is refused, it hears that
    /// `key` is where they are written.
    pub fn new(names: &[String], key: &'static str) -> Self {
        Self { names: names.iter().map(|name| plain(name)).collect(), key }
    }

    /// What a reader hears who asks under a name that is none of these: `name`, or `name:port`.
    pub(crate) fn refusal(&self, authority: &str) -> Option<String> {
        let host = without_port(authority);
        if is_address(host) || self.has(&plain(host)) {
            return None;
        }
        let key = self.key;
        if !is_name(host) {
            return Some(format!("this server does not answer under that name; {key} lists names it does\n"));
        }
        Some(format!(
            "this server does not answer under the name {host}, for a web page could have it lead here; if it is this \
             host's, add \"{host}\" to {key}, or ask by address\n"
        ))
    }

    fn has(&self, host: &str) -> bool {
        let is_named = |name: &String| match name.strip_prefix('*') {
            Some(rest) => host.len() > rest.len() && host.ends_with(rest),
            None => name == host,
        };
        host == "localhost" || self.names.iter().any(is_named) || own_name().is_some_and(|own| own == host)
    }
}

/// The host's name as the kernel has it now: it may get another while this runs.
fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(plain(name.trim())).filter(|name| !name.is_empty())
}

/// Case and the root's dot say nothing.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// An address stays what it is, whoever has a name lead there.
fn is_address(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    bracketed.map_or_else(|| host.parse::<Ipv4Addr>().is_ok(), |inner| inner.parse::<Ipv6Addr>().is_ok())
}

fn is_name(host: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    host.len() <= NAME_BYTES_MAX && host.strip_suffix('.').unwrap_or(host).split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    //! Shows which names are answered under, and what is said to others.
    use super::*;

    fn names(names: &[&str]) -> HostNames {
        HostNames::new(&names.iter().map(|&name| name.into()).collect::<Vec<_>>(), "metrics.hosts")
    }

    #[test]
    fn addresses_and_this_hosts_names_are_answered_under_and_no_other() {
        let own = own_name().unwrap();
        let plain = names(&[]);
        let (with_port, loud) = (format!("{own}:9464"), own.to_uppercase());
        #[rustfmt::skip]
        let taken = [
            "127.0.0.1", "127.0.0.1:9464", "203.0.113.7:80", "[::1]", "[::1]:9464", "[2001:db8::7]:1", "localhost",
            "LocalHost:9464", "localhost.:1", "localhost:", &own, &with_port, &loud,
        ];
        for authority in taken {
            assert_eq!(plain.refusal(authority), None, "{authority}");
        }
        #[rustfmt::skip]
        let refused = [
            "evil.example", "evil.example:9464", "localhost.evil.example", "evil.localhost", "127.0.0.1.evil.example",
            "127.1", "0x7f000001", "::1", "[::1", "[::1].evil", "[evil]", "a@127.0.0.1", "127.0.0.1@a", "", ":1",
            "127.0.0.1:1:2", "localhost/evil", "localhost,evil", ".", "localhost..",
        ];
        for authority in refused {
            assert!(plain.refusal(authority).is_some(), "{authority}");
        }
        let own_below = format!("{own}.evil.example");
        assert!(plain.refusal(&own_below).is_some(), "a name below another's");
    }

    #[test]
    fn names_that_are_written_down_are_answered_under() {
        let table: [(&[&str], &str, bool); 11] = [
            (&["a.example"], "a.example:9464", true),
            (&["A.example."], "a.EXAMPLE", true),
            (&["a.example"], "b.a.example", false),
            (&["a.example"], "xa.example", false),
            (&["*.a.example"], "b.a.example", true),
            (&["*.a.example"], "c.b.A.example.:1", true),
            (&["*.a.example"], "a.example", false),
            (&["*.a.example"], ".a.example", false),
            (&["*.a.example"], "xa.example", false),
            (&["*"], "evil.example", true),
            (&["b", "a.example"], "b", true),
        ];
        for (known, authority, is_taken) in table {
            assert_eq!(names(known).refusal(authority).is_none(), is_taken, "{known:?}: {authority}");
        }
    }

    #[test]
    fn who_is_refused_hears_what_to_write_and_nothing_that_is_no_name() {
        let said = names(&[]).refusal("scraped.example:9464").unwrap();
        assert!(said.contains("add \"scraped.example\" to metrics.hosts"), "{said}");
        let said = names(&[]).refusal("<script>alert(1)</script>").unwrap();
        assert!(!said.contains('<') && said.contains("metrics.hosts"), "{said}");
        assert!(names(&[]).refusal(&"a.".repeat(4000)).unwrap().len() < 200);
    }
}
