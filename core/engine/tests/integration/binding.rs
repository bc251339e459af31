//! Shows what a bind may ask for: so many routes, counted before any of them is made. Every service a session serves
//! has one at least, also without methods, and one that is served as a whole has one, however often that is said.

use crate::world;

use std::sync::Arc;
use trunkline_engine::{BindError, BindRequest, Binding, BoundSchema, Limits, SessionKey, Turn};
use trunkline_schema::Schema;
use world::{Host, World};

const ROUTES: usize = 8;

const PROTO: &str = r#"
    syntax = "proto3";
    package bind;
    message M {}
    service Three { rpc A(M) returns (M); rpc B(M) returns (M); rpc C(M) returns (M); }
    service None {}
"#;

fn world() -> (World, SessionKey, Arc<BoundSchema>) {
    let mut world = World::with_limits(Limits { routes_per_session: ROUTES, ..Limits::default() });
    let session = world.hosts[0].engine.attach("a[1]".into(), 0);
    let schema = BoundSchema::new(Schema::from_proto_source("bind.proto", PROTO).unwrap());
    (world, session, Arc::new(schema))
}

fn bind(
    world: &mut World,
    session: SessionKey,
    schema: Option<&Arc<BoundSchema>>,
    serves: &[&str],
    calls: &[&str],
) -> Result<Binding, BindError> {
    let serves: Vec<String> = serves.iter().map(|name| (*name).to_owned()).collect();
    let calls: Vec<_> = calls.iter().map(|path| ((*path).to_owned(), None)).collect();
    world.hosts[0]
        .engine
        .bind(session, &BindRequest { schema, serves: &serves, calls: &calls, permitted: &[] })
}

/// What there is no room for is refused by its number: no path of it has been looked at.
#[test]
fn too_many_routes_are_refused_before_any_is_made() {
    let (mut world, session, schema) = world();
    let refused =
        bind(&mut world, session, Some(&schema), &[], &["/no.Such/Method"; ROUTES + 1]).unwrap_err();
    assert_eq!(refused, BindError::Routes(ROUTES));
    assert!(refused.to_string().contains("limits.routes_per_session"), "{refused}");
    // Each of these has three methods.
    let refused = bind(&mut world, session, Some(&schema), &["bind.Three"; 3], &["/no.Such/Method"]);
    assert_eq!(refused, Err(BindError::Routes(ROUTES)));
    assert!(world.hosts[0].engine.standing_of(session).2.is_empty());
    let bound = bind(&mut world, session, Some(&schema), &["bind.Three"; 2], &["/bind.Three/C"; 2]).unwrap();
    assert_eq!((bound.serves.len(), bound.calls.len()), (6, 2));
}

#[test]
fn a_service_without_methods_counts_as_a_route() {
    let (mut world, session, schema) = world();
    for _ in 0..ROUTES {
        assert_eq!(bind(&mut world, session, Some(&schema), &["bind.None"], &[]), Ok(Binding::default()));
    }
    let refused = bind(&mut world, session, Some(&schema), &["bind.None"], &[]);
    assert_eq!(refused, Err(BindError::Routes(ROUTES)));
    let (.., services) = world.hosts[0].engine.standing_of(session);
    assert_eq!(services, [Box::from("bind.None")], "it is served, once");
}

#[test]
fn the_routes_of_a_user_are_counted_over_its_sessions_and_leave_with_them() {
    let limits = Limits { routes_per_session: ROUTES, routes_per_user: 12, ..Limits::default() };
    let mut world = World::with_limits(limits);
    let [first, second, other] =
        [("a[1]", "uid:1"), ("a[2]", "uid:1"), ("b[3]", "uid:2")].map(|(label, user)| {
            let session = world.hosts[0].engine.attach(label.into(), 0);
            world.hosts[0].engine.identify(session, user, "");
            session
        });
    bind(&mut world, first, None, &[], &["/bind.Other/A"; ROUTES]).unwrap();
    bind(&mut world, second, None, &[], &["/bind.Other/A"; 4]).unwrap();
    let refused = bind(&mut world, second, None, &[], &["/bind.Other/A"]).unwrap_err().to_string();
    assert!(refused.contains("uid:1") && refused.contains("limits.routes_per_user"), "{refused}");
    bind(&mut world, other, None, &[], &["/bind.Other/A"; ROUTES]).unwrap();
    let Host { engine, heaps } = &mut world.hosts[0];
    engine.detach(&mut Turn { now: world.now, heaps }, first);
    bind(&mut world, second, None, &[], &["/bind.Other/A"]).unwrap();
}

/// No other session of the user can leave room for it.
#[test]
fn a_session_that_wants_more_than_its_user_may_have_is_told_so() {
    let mut world = World::with_limits(Limits { routes_per_user: 3, ..Limits::default() });
    let session = world.hosts[0].engine.attach("a[1]".into(), 0);
    bind(&mut world, session, None, &[], &["/bind.Other/A"; 3]).unwrap();
    let refused = bind(&mut world, session, None, &["bind.Third"], &[]).unwrap_err();
    assert_eq!(refused, BindError::RoutesForUser(3));
    assert!(refused.to_string().contains("limits.routes_per_user"), "{refused}");
}

/// Whoever serves a service as a whole is among the servers of each of its methods: once, however often it says so.
#[test]
fn a_service_that_is_served_as_a_whole_already_has_the_route_it_had() {
    let (mut world, session, _) = world();
    let first = bind(&mut world, session, None, &["bind.Whole"], &["/bind.Whole/A"]).unwrap();
    for _ in 0..ROUTES {
        let again = bind(&mut world, session, None, &["bind.Whole"], &[]).unwrap();
        assert_eq!(again.serves, first.serves);
    }
    bind(&mut world, session, None, &["bind.Other"], &["/bind.Whole/A"; ROUTES - 3]).unwrap();
    assert_eq!(bind(&mut world, session, None, &["bind.Third"], &[]), Err(BindError::Routes(ROUTES)));
}
