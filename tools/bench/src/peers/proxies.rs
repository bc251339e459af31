//! Proxies between gRPC client and server, set up as a frugal sidecar is (`peers/proxies/`): HTTP/2 in clear on both
//! sides, one route, no log, no filter, no time-out. Every filter a mesh adds costs more.

use super::debian::SOURCES;
use super::foreign::{Foreign, Library, library};
use crate::harness::children::{Child, Failure, Serving, free_port, text, wait_until_it_listens};
use crate::harness::work::filled;
use std::net::SocketAddr;
use std::path::Path;

/// Calls at once on one connection: more than any driver here has outstanding.
const STREAMS_MAX: &str = "1024";
/// The rule by which Envoy looks at messages.
const FILTER: &str = "filter";

/// Whom a proxy calls, and how it chooses among them.
#[derive(Clone, Copy, Debug)]
pub struct Upstreams<'a> {
    pub servers: &'a [String],
    /// A line of the proxy's own language, or [`FILTER`]; empty for what it does by itself.
    pub rule: &'a str,
    /// Words behind each server.
    pub each: &'a str,
}

/// Starts a proxy in front of servers; `folder` tells it from others in `dir`.
pub fn start(
    foreign: &Foreign,
    name: &str,
    dir: &Path,
    folder: &str,
    upstreams: Upstreams<'_>,
) -> Result<Serving, Failure> {
    let proxy = library(name)?;
    let (listens_at, folder) = (free_port()?, dir.join(folder));
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("config"), config(proxy, listens_at, upstreams)?)?;
    let mut command = foreign.command(name, &proxy.proxy, &[("folder", text(&folder))])?;
    wait_until_it_listens(Child::start(&mut command)?, listens_at)
}

fn config(proxy: &Library, listens_at: SocketAddr, upstreams: Upstreams<'_>) -> Result<String, Failure> {
    let read = |file: &str| std::fs::read_to_string(format!("{SOURCES}/proxies/{file}"));
    let Upstreams { servers, rule, each } = upstreams;
    let upstream = |server: &String| {
        let (_, port) = server.rsplit_once(':').unwrap_or_default();
        filled(&proxy.upstream, &[("server", server), ("port", port), ("each", each)])
    };
    let servers: String = servers.iter().map(upstream).collect();
    let rule =
        if rule == FILTER { filled(&read("filter.json")?, &[("sources", SOURCES)]) } else { rule.into() };
    let (listen, port) = (listens_at.to_string(), listens_at.port().to_string());
    let values = [
        ("streams", STREAMS_MAX),
        ("listen", &listen),
        ("port", &port),
        ("rule", &rule),
        ("servers", &servers),
    ];
    Ok(filled(&read(&proxy.template)?, &values))
}

#[cfg(test)]
mod tests {
    //! Shows where proxies are told to listen and whom to call; that they understand the rest, a run shows.
    use super::*;
    use crate::harness::work::FORBIDDEN;
    use serde_json::Value;

    fn of(name: &str, rule: &str, each: &str) -> String {
        let servers = ["127.0.0.1:1002", "127.0.0.1:1003"].map(str::to_owned);
        let servers = if name == "envoy" { &servers[..1] } else { &servers };
        let upstreams = Upstreams { servers, rule, each };
        config(library(name).unwrap(), "127.0.0.1:1001".parse().unwrap(), upstreams).unwrap()
    }

    #[test]
    fn envoy_stands_where_it_is_told() {
        for (rule, wanted) in [("", 1), (FILTER, 2)] {
            let config: Value = serde_json::from_str(&of("envoy", rule, "")).unwrap();
            let of = |path: &str| config.pointer(path).unwrap_or_else(|| panic!("{path}: {config}"));
            let listener = "/static_resources/listeners/0/address/socket_address/port_value";
            let endpoint = "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint";
            assert_eq!(of(listener), 1001);
            assert_eq!(of(&format!("{endpoint}/address/socket_address/port_value")), 1002);
            let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
            assert_eq!(of(filters).as_array().unwrap().len(), wanted);
            let code = of(filters).pointer("/0/typed_config/default_source_code/filename");
            let code = code.map(|file| std::fs::read_to_string(file.as_str().unwrap()).unwrap());
            assert!(code.is_none_or(|code| code.contains(&format!("~= \"{FORBIDDEN}\""))), "{config}");
        }
    }

    #[test]
    fn others_are_told_every_server() {
        let nginx = of("nginx", "least_conn;", "");
        assert!(
            nginx.contains("{ least_conn; server 127.0.0.1:1002; server 127.0.0.1:1003;  keepalive"),
            "{nginx}"
        );
        let haproxy = of("haproxy", "balance leastconn", "maxconn 1");
        assert!(haproxy.contains("bind 127.0.0.1:1001 proto h2") && haproxy.contains("balance leastconn"));
        assert!(haproxy.contains("server s1003 127.0.0.1:1003 proto h2 maxconn 1\n"), "{haproxy}");
    }
}
