//! Policies that fit nothing that is there: they are taken, for it may come, and who wrote them is told.

use super::host::Host;
use std::collections::{BTreeMap, BTreeSet};
use trunkline_daemon::nearest;
use trunkline_policy::Definition;
use trunkline_telemetry::Ask;

/// Warnings about one change; a person reads no more.
const WARNINGS_MAX: usize = 20;
/// Names that are compared with one that is not known.
const NAMES_MAX: usize = 4096;
/// What policies call the application of calls through the gateway.
const GATEWAY: &str = "gateway";

/// What policies can fit at present.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Services by name, with those of their methods that are known.
    services: BTreeMap<String, BTreeSet<String>>,
    applications: BTreeSet<String>,
}

impl Known {
    /// What is served, configured and attached at a host.
    pub fn at(host: &impl Host) -> Self {
        let configured = host.facts().services.into_iter().map(|service| (service, BTreeSet::new()));
        let mut known = Self { services: configured.collect(), applications: [GATEWAY.to_owned()].into() };
        for shard in host.observe(&Ask::default()) {
            for row in shard.snapshot.services {
                known.services.entry(row.name).or_default().extend(row.methods);
            }
            let labels = shard.snapshot.sessions.into_iter().map(|row| row.label);
            known.applications.extend(labels.map(|label| application(&label).to_owned()));
        }
        known
    }

    /// What to say of policies that fit nothing.
    pub fn warnings<'d>(&self, policies: impl Iterator<Item = &'d Definition>) -> Vec<String> {
        let warnings = policies.filter_map(|policy| {
            let unknown = self.unknown(policy)?;
            Some(format!("policy {:?}: {unknown}; it holds once there is one", policy.name))
        });
        warnings.take(WARNINGS_MAX).collect()
    }

    fn unknown(&self, policy: &Definition) -> Option<String> {
        if let Some(application) = &policy.application
            && !self.applications.contains(application)
        {
            let near = near(application, self.applications.iter());
            return Some(format!("no application {application:?} is attached at present{near}"));
        }
        let service = policy.service.as_ref()?;
        let Some(methods) = self.services.get(service) else {
            let near = near(service, self.services.keys());
            return Some(format!("no service {service:?} is served or configured here at present{near}"));
        };
        let method = policy.method.as_ref()?;
        (!methods.is_empty() && !methods.contains(method)).then(|| {
            let near = near(method, methods.iter());
            format!("the service {service} has no method {method:?} at present{near}")
        })
    }
}

/// The application of a session's label, without the process.
fn application(label: &str) -> &str {
    label.rsplit_once('[').map_or(label, |(name, _)| name)
}

fn near<'k>(found: &str, known: impl Iterator<Item = &'k String>) -> String {
    let known: Vec<&str> = known.map(String::as_str).take(NAMES_MAX).collect();
    nearest(found, &known).map_or_else(String::new, |near| format!(" (did you mean {near:?}?)"))
}

#[cfg(test)]
mod tests {
    //! Shows which policies are taken for slips, and what is said of each.
    use super::*;
    use trunkline_daemon::Config;

    #[test]
    fn what_fits_nothing_is_told() {
        let known = Known {
            services: [
                ("search.v1.Search".into(), ["Query".into(), "Results".into()].into()),
                ("far.Away".into(), BTreeSet::new()),
            ]
            .into(),
            applications: [GATEWAY.into(), "search-server".into(), application("a[b][7]").into()].into(),
        };
        for (scope, wanted) in [
            ("service = \"search.v1.Search\"\nmethod = \"Query\"", None),
            ("application = \"gateway\"", None),
            ("application = \"a[b]\"", None),
            ("service = \"far.Away\"\nmethod = \"Any\"", None),
            ("", None),
            (
                "service = \"search.v1.Serch\"",
                Some(
                    "no service \"search.v1.Serch\" is served or configured here at present (did you mean \
                     \"search.v1.Search\"?)",
                ),
            ),
            (
                "service = \"search.v1.Search\"\nmethod = \"Qery\"",
                Some(
                    "the service search.v1.Search has no method \"Qery\" at present (did you mean \"Query\"?)",
                ),
            ),
            ("application = \"xyzzy\"", Some("no application \"xyzzy\" is attached at present")),
        ] {
            let text = format!(
                "[[policy]]\nname = \"p\"\nkind = \"access\"\nside = \"client\"\ndeny = \"false\"\n{scope}"
            );
            let policies = Config::policies_from_toml(&text, "test").unwrap();
            let wanted: Vec<_> = wanted
                .map(|wanted| format!("policy \"p\": {wanted}; it holds once there is one"))
                .into_iter()
                .collect();
            assert_eq!(known.warnings(policies.iter()), wanted, "{scope}");
            let many = std::iter::repeat_n(&policies[0], 1000);
            assert!(known.warnings(many).len() <= WARNINGS_MAX);
        }
    }
}
