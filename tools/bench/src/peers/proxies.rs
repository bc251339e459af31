//! Proxies between gRPC client and server, set up as a frugal sidecar is (`peers/proxies/`): HTTP/2 in clear on both
//! sides, one route, no log, no filter, no time-out. Every filter a mesh adds costs more.

use crate::harness::children::{Child, Failure, Serving, free_port, text, wait_until_it_listens};
use crate::harness::shell::output;
use crate::harness::work::FORBIDDEN;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls at once on one connection: more than any driver here has outstanding.
const STREAMS_MAX: &str = "1024";

/// Whom a proxy calls, and how it chooses among them.
#[derive(Clone, Copy, Debug)]
pub struct Upstreams<'a> {
    pub servers: &'a [String],
    /// A line of the proxy's own language; empty for what it does by itself.
    pub rule: &'a str,
    /// Words behind each server.
    pub each: &'a str,
}

/// A configuration, with what stands between `@` in its template.
fn filled(template: &str, values: &[(&str, &str)]) -> String {
    let streams = template.replace("@streams@", STREAMS_MAX);
    values.iter().fold(streams, |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

/// Starts Envoy in front of the first of `upstreams`, with a worker for each core as it does by itself; with the rule
/// `filter` it looks at messages.
pub fn envoy(program: &Path, dir: &Path, name: &str, upstreams: Upstreams<'_>) -> Result<Serving, Failure> {
    let (listens_at, config) = (free_port()?, dir.join(format!("{name}.json")));
    let upstream = upstreams.servers.first().ok_or("nobody to call")?.parse()?;
    std::fs::write(&config, envoy_config(listens_at, upstream, upstreams.rule == "filter")?)?;
    let mut envoy = Command::new(program);
    envoy.args(["--config-path", text(&config), "--disable-hot-restart", "--log-level", "error"]);
    wait_until_it_listens(Child::start(&mut envoy)?, listens_at)
}

fn envoy_config(listens_at: SocketAddr, upstream: SocketAddr, filters: bool) -> Result<String, Failure> {
    let code = filled(include_str!("../../peers/proxies/filter.lua"), &[("forbidden", FORBIDDEN)]);
    let code = serde_json::to_string(&code)?;
    let filter = filled(include_str!("../../peers/proxies/filter.json"), &[("code", &code)]);
    let (listen, upstream) = (listens_at.port().to_string(), upstream.port().to_string());
    let filter = if filters { filter.as_str() } else { "" };
    let values = [("listen", listen.as_str()), ("upstream", &upstream), ("filter", filter)];
    Ok(filled(include_str!("../../peers/proxies/envoy.json"), &values))
}

/// Starts nginx in front of `upstreams`: one worker, connections to the servers kept.
pub fn nginx(program: &Path, dir: &Path, name: &str, upstreams: Upstreams<'_>) -> Result<Serving, Failure> {
    let (listens_at, prefix) = (free_port()?, dir.join(name));
    std::fs::create_dir_all(&prefix)?;
    let config = prefix.join("nginx.conf");
    let servers: String = upstreams.servers.iter().map(|server| format!("server {server}; ")).collect();
    let listen = listens_at.to_string();
    let values = [("name", name), ("rule", upstreams.rule), ("servers", &servers), ("listen", &listen)];
    std::fs::write(&config, filled(include_str!("../../peers/proxies/nginx.conf"), &values))?;
    let mut nginx = unpacked(program);
    nginx.args(["-p", text(&prefix), "-c", text(&config)]);
    wait_until_it_listens(Child::start(&mut nginx)?, listens_at)
}

/// Starts HAProxy in front of `upstreams`.
pub fn haproxy(program: &Path, dir: &Path, name: &str, upstreams: Upstreams<'_>) -> Result<Serving, Failure> {
    let (listens_at, config) = (free_port()?, dir.join(format!("{name}.cfg")));
    let Upstreams { servers, rule, each } = upstreams;
    let server = |(index, server)| format!("  server s{index} {server} proto h2 {each}\n");
    let servers: String = servers.iter().enumerate().map(server).collect();
    let values = [("rule", rule), ("servers", &*servers), ("listen", &*listens_at.to_string())];
    std::fs::write(&config, filled(include_str!("../../peers/proxies/haproxy.cfg"), &values))?;
    let mut haproxy = unpacked(program);
    haproxy.args(["-db", "-q", "-f", text(&config)]);
    wait_until_it_listens(Child::start(&mut haproxy)?, listens_at)
}

/// How a program is started that lies with its libraries in an unpacked package.
pub fn unpacked(program: &Path) -> Command {
    let root = program.ancestors().nth(3).unwrap_or(Path::new("/"));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", libraries(root));
    command
}

/// Where libraries are below a folder that is `/` to them, as the loader wants it.
pub fn libraries(root: &Path) -> String {
    ["x86_64", "aarch64"].map(|machine| format!("{}/usr/lib/{machine}-linux-gnu", text(root))).join(":")
}

/// Where the package has put the program.
pub fn envoy_program(environment: &Path) -> Result<PathBuf, Failure> {
    let found = output("find", &[text(environment), "-type", "f", "-name", "envoy", "-size", "+1M"])?;
    if found.is_empty() { Err("its package has no program".into()) } else { Ok(found.into()) }
}

/// What a proxy of Debian's says of itself; nginx says it on standard error.
pub fn said_version(program: &Path) -> String {
    let Ok(done) = unpacked(program).arg("-v").output() else { return String::new() };
    let said = if done.stdout.is_empty() { done.stderr } else { done.stdout };
    String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    //! Shows where Envoy is told to listen and whom to call; that it understands the rest, a run shows.
    use super::*;
    use serde_json::Value;

    #[test]
    fn envoy_stands_where_it_is_told() {
        let [listen, upstream] = ["127.0.0.1:1001", "127.0.0.1:1002"].map(|at| at.parse().unwrap());
        for (filters, wanted) in [(false, 1), (true, 2)] {
            let config: Value =
                serde_json::from_str(&envoy_config(listen, upstream, filters).unwrap()).unwrap();
            let of = |path: &str| config.pointer(path).unwrap_or_else(|| panic!("{path}: {config}"));
            let listener = "/static_resources/listeners/0/address/socket_address/port_value";
            let endpoint = "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint";
            assert_eq!(of(listener), 1001);
            assert_eq!(of(&format!("{endpoint}/address/socket_address/port_value")), 1002);
            let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
            assert_eq!(of(filters).as_array().unwrap().len(), wanted);
            let code = of(filters).pointer("/0/typed_config/default_source_code/inline_string");
            assert!(wanted == 1 || code.unwrap().as_str().unwrap().contains("~= \"mallory\""), "{config}");
        }
    }

    #[test]
    fn unpacked_programs_find_their_libraries() {
        let command = unpacked(Path::new("/peers/haproxy/usr/sbin/haproxy"));
        let (_, libraries) = command.get_envs().next().unwrap();
        assert!(libraries.unwrap().to_str().unwrap().starts_with("/peers/haproxy/usr/lib/x86_64-linux-gnu:"));
    }
}
