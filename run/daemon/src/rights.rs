//! What an application may bind: who it is by the kernel's word, held against the configuration.

use crate::config::{Config, ServiceRule};
use trunkline_call::Code;
use trunkline_control::CallMethod;
use trunkline_engine::{BindError, Bound, DeniedChange, is_own_service, is_reading};
use trunkline_net::Target;
use trunkline_shm::PeerCredentials;

/// Why nothing of a bind took effect, for the application.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub code: Code,
    pub why: String,
}

/// The rights of one application.
pub(crate) struct Rights<'a> {
    pub config: &'a Config,
    pub peer: PeerCredentials,
    /// Whom its certificate names, if a relay has attached it: it has none of the relay's own rights.
    pub identity: Option<&'a str>,
}

/// Paths to call, each with its target in the form all applications share.
pub(crate) type Calls = Vec<(String, Option<String>)>;

impl Rights<'_> {
    /// Whether an application may keep what it has bound, by rules that may be others by now.
    pub fn keeps(&self, bound: &Bound) -> Result<(), Refused> {
        self.serves(&bound.serves)?;
        bound.calls.iter().try_for_each(|(path, target)| self.one_call(path, target).map(drop))
    }

    /// Those of these services that a rule says this application may serve, whoever else does.
    pub fn serves(&self, services: &[String]) -> Result<Vec<String>, Refused> {
        let mut by_rule = Vec::new();
        for service in services {
            if self.is_own_process() {
                continue;
            }
            if is_own_service(service) {
                let why = format!("{service} is the daemon's own: no application may serve it");
                return Err(Refused { code: Code::FailedPrecondition, why });
            }
            if let Some(identity) = self.identity {
                self.identity_serves(identity, service)?;
                by_rule.push(service.clone());
                continue;
            }
            let rule = ServiceRule::of(&self.config.serve, service);
            by_rule.extend(self.obey("serve", service, rule)?.then(|| service.clone()));
        }
        Ok(by_rule)
    }

    /// The calls of a bind.
    pub fn calls(&self, calls: Vec<CallMethod>) -> Result<Calls, Refused> {
        let one = |call: CallMethod| {
            let target = self.one_call(&call.path, &call.target)?;
            Ok((call.path, target))
        };
        calls.into_iter().map(one).collect()
    }

    /// The change of the daemon among the calls of a bind that this application may not ask for; the service, if they
    /// are several: which of them it would have called is not known.
    pub fn denied(&self, calls: &[CallMethod]) -> Option<DeniedChange> {
        let is_change = |path: &&str| is_own_service(path.trim_start_matches('/')) && !is_reading(path);
        let mut changes = calls.iter().map(|call| call.path.as_str()).filter(is_change);
        let path = changes.next().filter(|_| !self.is_own_process())?;
        let PeerCredentials { uid, gid, .. } = self.peer;
        let why = match self.identity {
            Some(_) => self.may_call(path).err()?.why,
            None => self.config.admin.permit(false, uid, gid).err()?,
        };
        let service = path.rsplit_once('/').map_or(path, |(service, _)| service);
        let change = if changes.next().is_some() { service } else { path };
        let identity = self.identity.map_or_else(|| format!("uid:{uid}"), str::to_owned);
        Some(DeniedChange::new(&identity, change, &why))
    }

    fn one_call(&self, path: &str, target: &str) -> Result<Option<String>, Refused> {
        if self.is_own_process() {
            return self.target(target, None);
        }
        let rule = self.may_call(path)?;
        self.target(target, rule)
    }

    /// The rule for the service a path names, if there is one and it permits.
    fn may_call(&self, path: &str) -> Result<Option<&ServiceRule>, Refused> {
        let service = path.trim_start_matches('/');
        if let Some(identity) = self.identity {
            return self.identity_calls(identity, service);
        }
        if is_own_service(service) {
            let PeerCredentials { uid, gid, .. } = self.peer;
            let permitted = self.config.admin.permit(is_reading(path), uid, gid);
            return permitted.map(|()| None).map_err(|why| denied(format!("{path}: {why}")));
        }
        let service = service.split_once('/').map_or(service, |(service, _)| service);
        let rule = ServiceRule::of(&self.config.call, service);
        self.obey("call", service, rule)?;
        Ok(rule)
    }

    /// Of an application that a relay has attached: what no rule lets it serve, it may not.
    fn identity_serves(&self, identity: &str, service: &str) -> Result<(), Refused> {
        let rule = ServiceRule::of_peers(&self.config.serve, service);
        if rule.is_some_and(|rule| rule.covers_identity(identity)) {
            return Ok(());
        }
        Err(denied(format!(
            "{identity} may not serve {service}: peers of a [[serve]] rule in the daemon's configuration say which \
             identities may"
        )))
    }

    /// The rule for a service such an application calls, if there is one and it permits.
    fn identity_calls(&self, identity: &str, service: &str) -> Result<Option<&ServiceRule>, Refused> {
        if is_own_service(service) {
            return Err(denied(format!(
                "{identity} may not call {service}: it is for users of the daemon's host"
            )));
        }
        let service = service.split_once('/').map_or(service, |(service, _)| service);
        match ServiceRule::of_peers(&self.config.call, service) {
            Some(rule) if !rule.covers_identity(identity) => Err(denied(format!(
                "{identity} may not call {service}: [[call]] for {:?} in the daemon's configuration says which \
                 identities may (peers)",
                rule.service
            ))),
            rule => Ok(rule),
        }
    }

    /// Whether there is a rule, if it permits.
    fn obey(&self, key: &str, service: &str, rule: Option<&ServiceRule>) -> Result<bool, Refused> {
        let Some(rule) = rule else { return Ok(false) };
        let PeerCredentials { uid, gid, .. } = self.peer;
        if rule.covers(uid, gid) {
            return Ok(true);
        }
        Err(denied(format!(
            "uid {uid}, gid {gid} may not {key} {service}: [[{key}]] for {:?} in the daemon's configuration says who \
             may",
            rule.service
        )))
    }

    /// An empty target means *whoever serves it*; anything else must be endpoints we can dial, or a name we can look
    /// up, and the servers the rule of the service wants. It goes on in one form, so that all applications that mean
    /// the same share connections.
    fn target(&self, target: &str, rule: Option<&ServiceRule>) -> Result<Option<String>, Refused> {
        if target.is_empty() {
            return Ok(None);
        }
        let parsed = target.parse::<Target>().map_err(|error| Refused {
            code: Code::FailedPrecondition,
            why: format!("target {target:?}: {error}"),
        })?;
        // An embedded daemon has the rights of its application.
        if !self.is_own_process() {
            let PeerCredentials { uid, gid, .. } = self.peer;
            let permitted = match self.identity {
                Some(identity) => self.config.egress.permit_all(&parsed, identity),
                None => self.config.egress.permit(&parsed, uid, gid),
            };
            permitted.map_err(denied)?;
        }
        rule.map_or(Ok(()), |rule| rule.permits_servers(&parsed)).map_err(denied)?;
        Ok(Some(parsed.to_string()))
    }

    /// Whether the application is of the process this daemon runs in. The number of the process alone does not say so:
    /// it may be that of one which connected, left its connection to others and ended, before this daemon was started
    /// to go on with that connection.
    fn is_own_process(&self) -> bool {
        self.identity.is_none()
            && self.peer.pid == std::process::id()
            && self.peer.uid == rustix::process::geteuid().as_raw()
    }
}

impl From<BindError> for Refused {
    fn from(error: BindError) -> Self {
        let code = match error {
            BindError::Owned { .. } => Code::PermissionDenied,
            // Others may let go of what they have.
            BindError::RoutesOfUser { .. } | BindError::Endpoints(_) | BindError::EndpointsOfUser { .. } => {
                Code::ResourceExhausted
            }
            // Of the routes that one session has, it alone lets go, when it ends.
            BindError::Routes(_)
            | BindError::RoutesForUser(_)
            | BindError::NoService(_)
            | BindError::NoMethod(_)
            | BindError::Path(_)
            | BindError::Service(_)
            | BindError::Gone => Code::FailedPrecondition,
        };
        Self { code, why: error.to_string() }
    }
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self { code: Code::FailedPrecondition, why }
    }
}

fn denied(why: String) -> Refused {
    Refused { code: Code::PermissionDenied, why }
}

#[cfg(test)]
mod tests {
    //! Shows who counts as the daemon's own process, and which refusals may be over later.
    use super::*;

    #[test]
    fn a_limit_is_no_word_for_good_where_others_can_leave_room() {
        let user = || "uid:7".to_owned();
        for (error, code) in [
            (BindError::Owned { service: "a.B".into(), owner: user() }, Code::PermissionDenied),
            (BindError::Routes(1), Code::FailedPrecondition),
            (BindError::RoutesForUser(1), Code::FailedPrecondition),
            (BindError::RoutesOfUser { user: user(), limit: 1 }, Code::ResourceExhausted),
            (BindError::Endpoints(1), Code::ResourceExhausted),
            (BindError::EndpointsOfUser { user: user(), limit: 1 }, Code::ResourceExhausted),
            (BindError::NoService("a.B".into()), Code::FailedPrecondition),
            (BindError::Path("/".into()), Code::FailedPrecondition),
        ] {
            assert_eq!(Refused::from(error).code, code);
        }
    }

    #[test]
    fn a_process_of_another_user_that_had_this_number_is_not_this_one() {
        let own = rustix::process::geteuid().as_raw();
        let config = Config::default();
        let of = |uid| Rights {
            config: &config,
            peer: PeerCredentials { pid: std::process::id(), uid, gid: uid },
            identity: None,
        };
        let serves = ["trunkline.admin.v1.Admin".into()];
        assert_eq!(of(own).serves(&serves), Ok(Vec::new()));
        assert_eq!(of(own).target("tcp://127.0.0.1:1", None), Ok(Some("tcp://127.0.0.1:1".into())));
        let stranger = of(own + 1);
        assert_eq!(stranger.serves(&serves).unwrap_err().code, Code::FailedPrecondition);
        assert_eq!(stranger.target("tcp://127.0.0.1:1", None).unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn an_identity_has_the_rights_that_rules_give_it_and_none_of_its_relay() {
        let rules = r#"
            [egress]
            allow = ["10.0.0.7:80"]
            [[serve]]
            service = "pay.v1.*"
            who = ["owner"]
            [[serve]]
            service = "pay.v1.Pay"
            who = []
            peers = ["spiffe://corp/pay-*"]
            [[call]]
            service = "pay.v1.Admin"
            who = ["*"]
            peers = ["spiffe://corp/office"]
        "#;
        let config = Config::from_toml(rules, "d.toml").unwrap();
        let own = rustix::process::geteuid().as_raw();
        let peer = PeerCredentials { pid: std::process::id(), uid: own, gid: own };
        let of = |identity| Rights { config: &config, peer, identity: Some(identity) };
        let (pay, office) = (of("spiffe://corp/pay-1"), of("spiffe://corp/office"));
        let code = |refused: Result<Vec<String>, Refused>| refused.unwrap_err().code;
        assert_eq!(pay.serves(&["pay.v1.Pay".into()]), Ok(vec!["pay.v1.Pay".into()]));
        assert_eq!(code(pay.serves(&["pay.v1.Admin".into()])), Code::PermissionDenied);
        assert_eq!(code(office.serves(&["pay.v1.Pay".into()])), Code::PermissionDenied);
        assert_eq!(code(pay.serves(&["trunkline.admin.v1.Admin".into()])), Code::FailedPrecondition);
        assert_eq!(pay.one_call("/pay.v1.Pay/Charge", ""), Ok(None));
        assert_eq!(office.one_call("/pay.v1.Admin/Close", ""), Ok(None));
        assert!(pay.one_call("/pay.v1.Admin/Close", "").is_err());
        assert!(office.one_call("/trunkline.admin.v1.Admin/List", "").is_err());
        assert!(pay.one_call("/pay.v1.Pay/Charge", "tcp://10.0.0.7:80").is_ok());
        let why = pay.one_call("/pay.v1.Pay/Charge", "tcp://10.0.0.7:81").unwrap_err().why;
        assert!(why.contains("is not for spiffe://corp/pay-1") && why.contains("egress.allow"), "{why}");
    }
}
