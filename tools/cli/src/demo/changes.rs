//! The act in which everything changes while calls are in flight: a rule, a module, both daemons.

use super::error::DemoError;
use super::load::{Load, Tally};
use super::script::{Play, say, title};
use crate::table::count;
use std::path::{Path, PathBuf};
use trunkline::Channel;

/// Calls between two changes.
const CALLS: u64 = 500;
/// How the build calls the two versions of the example module.
const MODULES: [&str; 2] =
    ["libtrunkline_example_token_bucket_1.so", "libtrunkline_example_token_bucket_2.so"];

const RULE: &str = r#"[[policy]]
name = "no-secrets"
kind = "access"
side = "server"
service = "search.v1.Search"
method = "Query"
deny = 'request.query == "secret"'
message = "nobody asks for that here"
"#;

impl Play<'_> {
    /// Changes rules, modules and daemons under load.
    pub(super) fn changes(&self) -> Result<(), DemoError> {
        title("Everything changes while calls are in flight")?;
        let channel = Channel::builder().name("demo callers").socket(&self.alpha.socket).connect_lazy();
        let load = Load::start(&channel);
        self.stands("two callers, no pause", load.after(CALLS))?;
        self.rule()?;
        self.stands("a rule added at beta", load.after(CALLS))?;
        if self.module()? {
            self.stands("a module loaded and upgraded at beta", load.after(CALLS))?;
        }
        for host in [&self.alpha, &self.beta] {
            self.trunkline_at(host, &["upgrade"], 0)?;
            self.stands(&format!("daemon {} replaced", host.node), load.after(CALLS))?;
        }
        self.trunkline_at(&self.beta, &["policy", "list"], 0)?;
        let end = load.after(0);
        match end.failed {
            0 => say(&format!("  {} answered, 0 failed.", count(end.answered, "call"))),
            failed => {
                let output = format!("{failed} of {} failed", count(end.answered + failed, "call"));
                Err(DemoError::Act { act: "changing everything under load".into(), output })
            }
        }
    }

    /// The running count.
    fn stands(&self, after: &str, tally: Tally) -> Result<(), DemoError> {
        let Tally { answered, failed, longest_us } = tally;
        let longest_ms = longest_us as f64 / 1000.0;
        say(&format!(
            "  ▸ {after:<38} {answered:>7} answered  {failed} failed  longest call {longest_ms:.1} ms\n"
        ))
    }

    /// A rule about a field of the request.
    fn rule(&self) -> Result<(), DemoError> {
        let rule = self.file("no-secrets.toml", RULE)?;
        self.trunkline_at(&self.beta, &["policy", "add", &rule], 0)?;
        let proto = self.proto()?;
        self.trunkline(&["call", "--proto", &proto, "Search/Query", r#"{"query": "secret"}"#], 64 + 7)
    }

    /// A module, and its next version with the state of the first. `false` if nobody has built them.
    fn module(&self) -> Result<bool, DemoError> {
        let Some([first, second]) = self.modules()? else {
            say("  (the example modules were not built; `make demo` builds them)\n")?;
            return Ok(false);
        };
        let policy = |path: &Path| {
            format!(
                "[[policy]]\nname = \"fair-share\"\nkind = \"module\"\nside = \"server\"\n\
                 service = \"search.v1.Search\"\npath = {path:?}\n\
                 config = {{ calls_per_second = 1000000.0, burst = 1000000 }}\n"
            )
        };
        for (verb, version, module) in [("add", "1", first), ("set", "2", second)] {
            let file = self.file(&format!("fair-share-{version}.toml"), &policy(&module))?;
            self.trunkline_at(&self.beta, &["policy", verb, &file], 0)?;
        }
        Ok(true)
    }

    /// Copies of both versions that belong to nobody else: a daemon loads no others.
    fn modules(&self) -> Result<Option<[PathBuf; 2]>, DemoError> {
        use std::os::unix::fs::PermissionsExt;
        let [first, second] = MODULES.map(|name| (self.stage.programs().join(name), name));
        if !(first.0.is_file() && second.0.is_file()) {
            return Ok(None);
        }
        let copy = |(from, name): (PathBuf, &str)| -> std::io::Result<PathBuf> {
            let to = self.stage.folder().join(name);
            std::fs::copy(from, &to)?;
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644))?;
            Ok(to)
        };
        Ok(Some([copy(first)?, copy(second)?]))
    }

    fn file(&self, name: &str, text: &str) -> Result<String, DemoError> {
        let path = self.stage.folder().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }
}
