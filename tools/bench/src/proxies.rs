//! Proxies between gRPC client and server, set up as a frugal sidecar is: HTTP/2 in clear on both sides, one route, no
//! log, no filter, no time-out. Every filter a mesh adds costs more.

use crate::children::{Child, Failure, START_LOOKS, START_PAUSE, text};
use crate::foreign::{Serving, output};
use crate::work::FORBIDDEN;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls at once on one connection: more than any driver here has outstanding.
const STREAMS_MAX: u32 = 1024;

/// Whom a proxy calls, and how it chooses among them.
#[derive(Clone, Copy, Debug)]
pub struct Upstreams<'a> {
    pub servers: &'a [String],
    /// A line of the proxy's own language; empty for what it does by itself.
    pub rule: &'a str,
    /// Words behind each server.
    pub each: &'a str,
}

impl<'a> Upstreams<'a> {
    /// Those there are, as the proxy does by itself.
    pub fn of(servers: &'a [String]) -> Self {
        Self { servers, rule: "", each: "" }
    }

    fn lines(&self, line: impl Fn(usize, &str) -> String) -> String {
        self.servers.iter().enumerate().map(|(index, server)| line(index, server)).collect()
    }
}

/// Starts Envoy in front of `upstream`, with a worker for each core as it does by itself. The one named `filter` looks
/// at messages.
pub fn envoy(program: &Path, dir: &Path, name: &str, upstream: &str) -> Result<Serving, Failure> {
    let (listens_at, upstream) = (free_port()?, upstream.parse()?);
    let config = dir.join(format!("{name}.json"));
    std::fs::write(&config, envoy_config(listens_at, upstream, name == "filter").to_string())?;
    let mut envoy = Command::new(program);
    envoy.args(["--config-path", text(&config), "--disable-hot-restart", "--log-level", "error"]);
    wait_until_it_listens(Child::start(&mut envoy)?, listens_at)
}

/// Starts nginx in front of `upstreams`: one worker, connections to the servers kept.
pub fn nginx(program: &Path, dir: &Path, name: &str, upstreams: Upstreams<'_>) -> Result<Serving, Failure> {
    let listens_at = free_port()?;
    let prefix = dir.join(name);
    std::fs::create_dir_all(&prefix)?;
    let config = prefix.join("nginx.conf");
    let servers = upstreams.lines(|_, server| format!("server {server}; "));
    let rule = upstreams.rule;
    let text_of = format!(
        "daemon off; master_process off; pid {name}.pid; error_log stderr error;\n\
         events {{ worker_connections 20000; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; http2_max_concurrent_streams {STREAMS_MAX};\n\
         client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;\n\
         scgi_temp_path scgi;\n\
         upstream out {{ {rule} {servers} keepalive 128; keepalive_requests 1000000000; }}\n\
         server {{ listen {listens_at} http2; location / {{ grpc_pass grpc://out; }} }} }}\n"
    );
    std::fs::write(&config, text_of)?;
    let mut nginx = unpacked(program);
    nginx.args(["-p", text(&prefix), "-c", text(&config)]);
    wait_until_it_listens(Child::start(&mut nginx)?, listens_at)
}

/// Starts HAProxy in front of `upstreams`.
pub fn haproxy(program: &Path, dir: &Path, name: &str, upstreams: Upstreams<'_>) -> Result<Serving, Failure> {
    let listens_at = free_port()?;
    let config = dir.join(format!("{name}.cfg"));
    let Upstreams { rule, each, .. } = upstreams;
    let servers = upstreams.lines(|index, server| format!("  server s{index} {server} proto h2 {each}\n"));
    let text_of = format!(
        "global\n  tune.h2.max-concurrent-streams {STREAMS_MAX}\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         frontend in\n  bind {listens_at} proto h2\n  default_backend out\n\
         backend out\n  {rule}\n  http-reuse always\n{servers}"
    );
    std::fs::write(&config, text_of)?;
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

/// Refuses calls of [`FORBIDDEN`]: reads the whole message, and in it the string of field 1. Its name is short, so that
/// its length is one byte; behind it, as far as this filter reads, may be anything.
fn content_filter() -> Value {
    let code = format!(
        "function envoy_on_request(handle)\n\
         local body = handle:body()\n\
         if body == nil or body:length() < 7 then return end\n\
         local message = body:getBytes(5, body:length() - 5)\n\
         if message:byte(1) ~= 10 then return end\n\
         if message:sub(3, 2 + message:byte(2)) ~= \"{FORBIDDEN}\" then return end\n\
         handle:respond({{[\":status\"] = \"200\", [\"content-type\"] = \"application/grpc\", \
         [\"grpc-status\"] = \"7\", [\"grpc-message\"] = \"refused\"}}, \"\")\n\
         end\n"
    );
    json!({
        "name": "envoy.filters.http.lua",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
            "default_source_code": { "inline_string": code },
        },
    })
}

fn envoy_config(listens_at: SocketAddr, upstream: SocketAddr, filters: bool) -> Value {
    const TYPES: &str = "type.googleapis.com/envoy.extensions";
    const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let at = |socket: SocketAddr| {
        let (address, port) = (socket.ip().to_string(), socket.port());
        json!({ "socket_address": { "address": address, "port_value": port } })
    };
    let routes = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "out", "timeout": "0s" } }]);
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": format!("{TYPES}.filters.http.router.v3.Router") },
    });
    let http_filters = if filters { json!([content_filter(), router]) } else { json!([router]) };
    let manager = json!({
        "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "in",
        "codec_type": "HTTP2",
        "http2_protocol_options": { "max_concurrent_streams": STREAMS_MAX },
        "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes }] },
        "http_filters": http_filters,
    });
    let filter = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    });
    let options = json!({
        "@type": format!("type.googleapis.com/{OPTIONS}"),
        "explicit_http_config": { "http2_protocol_options": {} },
    });
    let endpoint = json!({ "endpoint": { "address": at(upstream) } });
    json!({ "static_resources": {
        "listeners": [{ "address": at(listens_at), "filter_chains": [{ "filters": [filter] }] }],
        "clusters": [{
            "name": "out",
            "type": "STATIC",
            "typed_extension_protocol_options": { OPTIONS: options },
            "load_assignment": { "cluster_name": "out", "endpoints": [{ "lb_endpoints": [endpoint] }] },
        }],
    } })
}

/// A port nobody listens at just now; none of these programs says which one it chose itself.
/// A port nobody listens at.
pub fn free_port() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// Waits for a process that is to listen there.
pub fn wait_until_it_listens(mut proxy: Child, at: SocketAddr) -> Result<Serving, Failure> {
    for _ in 0..START_LOOKS {
        if TcpStream::connect(at).is_ok() {
            return Ok((proxy, at.to_string()));
        }
        if let Some(status) = proxy.ended() {
            return Err(format!("it ended at once: {status}").into());
        }
        std::thread::sleep(START_PAUSE);
    }
    Err(format!("it does not listen at {at}").into())
}

#[cfg(test)]
mod tests {
    //! Shows where Envoy is told to listen and whom to call; that it understands the rest, a run shows.
    use super::*;

    #[test]
    fn envoy_stands_where_it_is_told() {
        let config =
            envoy_config("127.0.0.1:1001".parse().unwrap(), "127.0.0.1:1002".parse().unwrap(), false);
        let port = |path: &str| config.pointer(path).and_then(Value::as_u64);
        let listener = "/static_resources/listeners/0/address/socket_address/port_value";
        let endpoint = "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint";
        assert_eq!(port(listener), Some(1001));
        assert_eq!(port(&format!("{endpoint}/address/socket_address/port_value")), Some(1002));
    }

    #[test]
    fn unpacked_programs_find_their_libraries() {
        let command = unpacked(Path::new("/peers/haproxy/usr/sbin/haproxy"));
        let (_, libraries) = command.get_envs().next().unwrap();
        assert!(libraries.unwrap().to_str().unwrap().starts_with("/peers/haproxy/usr/lib/x86_64-linux-gnu:"));
    }
}
