//! The targets that applications have bound: whose they are, and when nobody has them any more.
//!
//! An endpoint that only bound targets brought up belongs to the users whose sessions have a route to it. Each user may
//! have so many (`limits.endpoints_per_user`), and with the last route an endpoint goes, its connections with it. How
//! many routes a user has in all is counted here, too (`limits.routes_per_user`).

use crate::RemoteKey;
use crate::cluster::ClusterKey;
use std::collections::HashMap;

/// How many routes lead to which targets. Bounded by the routes of the sessions that are attached.
#[derive(Debug, Default)]
pub(crate) struct BoundTargets {
    of_user: HashMap<Box<str>, UserTargets>,
    endpoints: HashMap<RemoteKey, usize>,
    clusters: HashMap<ClusterKey, usize>,
}

/// What the sessions of a user have routes to.
#[derive(Debug, Default)]
struct UserTargets {
    /// To whatever they lead.
    routes: usize,
    endpoints: HashMap<RemoteKey, usize>,
    clusters: HashMap<ClusterKey, usize>,
}

/// What has no route any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unbound {
    pub cluster: Option<ClusterKey>,
    pub endpoint: Option<RemoteKey>,
}

impl BoundTargets {
    /// How many routes a user's sessions have.
    pub fn routes_of(&self, user: &str) -> usize {
        self.of_user.get(user).map_or(0, |own| own.routes)
    }

    /// Sessions of a user have so many routes more.
    pub fn add_routes(&mut self, user: &str, more: usize) {
        if more > 0 {
            self.of(user).routes += more;
        }
    }

    /// They have so many less.
    pub fn remove_routes(&mut self, user: &str, less: usize) {
        if let Some(own) = self.of_user.get_mut(user) {
            own.routes = own.routes.saturating_sub(less);
            self.forget(user);
        }
    }

    fn of(&mut self, user: &str) -> &mut UserTargets {
        self.of_user.entry(user.into()).or_default()
    }

    /// A user without anything is not kept.
    fn forget(&mut self, user: &str) {
        if self.of_user.get(user).is_some_and(|own| own.routes == 0 && own.endpoints.is_empty()) {
            self.of_user.remove(user);
        }
    }

    /// How many endpoints a user has, but for this one.
    pub fn others_of(&self, user: &str, endpoint: Option<RemoteKey>) -> usize {
        let Some(UserTargets { endpoints, .. }) = self.of_user.get(user) else { return 0 };
        endpoints.len() - usize::from(endpoint.is_some_and(|key| endpoints.contains_key(&key)))
    }

    /// How many services a user calls at its endpoints, but for this one.
    pub fn other_services_of(&self, user: &str, cluster: ClusterKey) -> usize {
        let Some(UserTargets { clusters, .. }) = self.of_user.get(user) else { return 0 };
        clusters.len() - usize::from(clusters.contains_key(&cluster))
    }

    /// The users who have a route to an endpoint.
    pub fn users_of(&self, endpoint: RemoteKey) -> impl Iterator<Item = &str> {
        let users = self.of_user.iter().filter(move |(_, own)| own.endpoints.contains_key(&endpoint));
        users.map(|(user, _)| &**user)
    }

    /// Whether any route leads to an endpoint.
    pub fn has(&self, endpoint: RemoteKey) -> bool {
        self.endpoints.contains_key(&endpoint)
    }

    /// A session of this user has a route to the target from now on.
    pub fn hold(&mut self, user: &str, endpoint: RemoteKey, cluster: ClusterKey) {
        let own = self.of(user);
        *own.endpoints.entry(endpoint).or_default() += 1;
        *own.clusters.entry(cluster).or_default() += 1;
        *self.endpoints.entry(endpoint).or_default() += 1;
        *self.clusters.entry(cluster).or_default() += 1;
    }

    /// It has one less.
    pub fn release(&mut self, user: &str, endpoint: RemoteKey, cluster: ClusterKey) -> Unbound {
        if let Some(own) = self.of_user.get_mut(user) {
            less_one(&mut own.endpoints, endpoint);
            less_one(&mut own.clusters, cluster);
            self.forget(user);
        }
        less_one(&mut self.clusters, cluster);
        less_one(&mut self.endpoints, endpoint);
        self.unbound(endpoint, Some(cluster))
    }

    /// What of these has no route.
    pub fn unbound(&self, endpoint: RemoteKey, cluster: Option<ClusterKey>) -> Unbound {
        Unbound {
            cluster: cluster.filter(|cluster| !self.clusters.contains_key(cluster)),
            endpoint: (!self.has(endpoint)).then_some(endpoint),
        }
    }
}

fn less_one<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    //! Shows whose endpoints are counted, and that nothing is kept when the last route has gone.
    use super::*;

    #[test]
    fn the_last_route_takes_its_target_along() {
        let mut targets = BoundTargets::default();
        let [one, other] = [1, 2].map(RemoteKey::from_bits);
        let [cluster, second] = [1, 2].map(ClusterKey::from_bits);
        targets.hold("uid:1", one, cluster);
        targets.hold("uid:1", one, second);
        targets.hold("uid:2", one, cluster);
        targets.hold("uid:1", other, cluster);
        assert_eq!((targets.others_of("uid:1", None), targets.others_of("uid:1", Some(one))), (2, 1));
        assert_eq!((targets.others_of("uid:2", Some(other)), targets.others_of("uid:3", None)), (1, 0));
        assert_eq!(targets.users_of(other).collect::<Vec<_>>(), ["uid:1"]);
        assert_eq!(targets.users_of(one).count(), 2);
        assert_eq!(targets.other_services_of("uid:1", second), 1);
        assert_eq!(targets.other_services_of("uid:2", second), 1);
        assert_eq!(targets.release("uid:1", one, cluster), Unbound::default());
        let last = targets.release("uid:1", one, second);
        assert_eq!(last, Unbound { cluster: Some(second), endpoint: None });
        assert!(targets.has(one));
        let last = targets.release("uid:2", one, cluster);
        assert_eq!(last, Unbound { cluster: None, endpoint: Some(one) });
        let last = targets.release("uid:1", other, cluster);
        assert_eq!(last, Unbound { cluster: Some(cluster), endpoint: Some(other) });
        targets.add_routes("uid:1", 3);
        targets.add_routes("uid:2", 0);
        targets.remove_routes("uid:1", 2);
        assert_eq!((targets.routes_of("uid:1"), targets.routes_of("uid:2")), (1, 0));
        targets.remove_routes("uid:1", 1);
        assert!(targets.of_user.is_empty() && targets.endpoints.is_empty() && targets.clusters.is_empty());
        assert!(!targets.has(one));
        let nothing = Unbound { cluster: Some(cluster), endpoint: Some(one) };
        assert_eq!(targets.release("uid:1", one, cluster), nothing, "what nobody had");
    }
}
