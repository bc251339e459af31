//! Shows that what a chain is compiled to is shared: by all methods that the same policies apply to, whatever their
//! paths and whoever has them, and across types by policies that ask for none.

use crate::support;

use std::collections::HashSet;
use std::sync::Arc;
use support::{SCHEMA, order};
use trunkline_policy::{Chain, Definition, Kind, Plan, PolicyError, Side, Subject};
use trunkline_schema::{MessageIndex, Schema};

/// Ten ordinary policies, of which none asks for a type.
fn ordinary() -> Vec<Definition> {
    let denied = |index: usize| Definition {
        name: format!("deny{index}"),
        kind: Kind::Access,
        deny: Some(format!(
            "metadata.tenant.matches('^test-[0-9]{{{index}}}-(a|b|c)+$') && caller.uid != {index}"
        )),
        ..Definition::default()
    };
    (1..=10).map(denied).collect()
}

fn reading(expression: &str) -> Definition {
    let deny = Some(expression.to_owned());
    Definition { name: "reads".into(), kind: Kind::Access, deny, ..Definition::default() }
}

fn plan(
    chain: &mut Chain,
    path: &str,
    request: Option<(&Arc<Schema>, MessageIndex)>,
) -> (Arc<Plan>, Option<PolicyError>) {
    let subject = Subject { side: Side::default(), application: path, path, request, client_streams: false };
    let (plan, misfit) = chain.plan(&subject);
    (plan.expect("something applies"), misfit)
}

fn distinct(plans: &[Arc<Plan>]) -> usize {
    plans.iter().map(Arc::as_ptr).collect::<HashSet<_>>().len()
}

/// As a descriptor set that an application sends, `count` types that have one field.
fn types(count: usize) -> Arc<Schema> {
    let messages: String =
        (0..count).map(|i| format!("message M{i} {{ string tenant = {}; }}", i + 1)).collect();
    Arc::new(Schema::from_proto_source("m.proto", &format!("syntax = \"proto3\"; {messages}")).unwrap())
}

#[test]
fn methods_share_a_plan_whatever_their_paths_and_types() {
    let mut chain = Chain::build(&ordinary()).unwrap();
    let schema = types(100);
    let plans: Vec<_> = (0..1000)
        .map(|i| {
            let request = (i % 3 > 0).then_some((&schema, MessageIndex(i % 100)));
            plan(&mut chain, &format!("/shop.v1.Shop{i}/Buy{i}"), request).0
        })
        .collect();
    assert_eq!(distinct(&plans), 1);
}

#[test]
fn a_policy_that_reads_messages_has_a_plan_for_each_type() {
    let definitions = [ordinary(), vec![reading("request.tenant == 'x'")]].concat();
    let mut chain = Chain::build(&definitions).unwrap();
    let schema = types(10);
    let of = |chain: &mut Chain, i: u32| {
        plan(chain, &format!("/s.S/M{i}"), Some((&schema, MessageIndex(i % 10)))).0
    };
    let plans: Vec<_> = (0..1000).map(|i| of(&mut chain, i)).collect();
    assert_eq!(distinct(&plans), 10);
    // What nobody has any more is compiled anew, and so is the same type of another descriptor set.
    let known = Arc::downgrade(&plans[3]);
    drop(plans);
    assert!(known.upgrade().is_none(), "nobody has it");
    let again = [of(&mut chain, 3), plan(&mut chain, "/s.S/M3", Some((&types(10), MessageIndex(3)))).0];
    assert_eq!(distinct(&again), 2);
}

/// A descriptor set may come to lie where another was that is gone.
#[test]
fn a_type_is_never_taken_for_another_that_was_there_before() {
    let mut chain = Chain::build(&[reading("request.tenant == 'x'")]).unwrap();
    let mut held = Vec::new();
    for round in 0..200 {
        let field = if round % 2 == 0 { "tenant" } else { "other" };
        let text = format!("syntax = \"proto3\"; message M {{ string {field} = 1; }}");
        let schema = Arc::new(Schema::from_proto_source("m.proto", &text).unwrap());
        let (plan, misfit) = plan(&mut chain, "/s.S/M", Some((&schema, MessageIndex(0))));
        assert_eq!(misfit.is_some(), round % 2 == 1, "round {round}");
        held.push(plan);
    }
}

#[test]
fn who_shares_a_plan_that_does_not_fit_is_told_its_own_path() {
    let mut chain = Chain::build(&[reading("request.nothing == 1")]).unwrap();
    let mut told = |path: &str| plan(&mut chain, path, Some((&SCHEMA, order())));
    let (one, other) = (told("/s.S/One"), told("/s.S/Other"));
    assert!(Arc::ptr_eq(&one.0, &other.0));
    assert!(one.1.unwrap().problem.ends_with("(for /s.S/One)"));
    assert!(other.1.unwrap().problem.ends_with("(for /s.S/Other)"));
}

/// Plans are of the policies at work: another shard's, or those of the next chain, are others.
#[test]
fn a_copy_of_a_chain_has_plans_of_its_own() {
    let mut chain = Chain::build(&ordinary()).unwrap();
    let own = plan(&mut chain, "/s.S/One", None).0;
    assert!(!Arc::ptr_eq(&own, &plan(&mut chain.clone(), "/s.S/One", None).0));
    assert!(Arc::ptr_eq(&own, &plan(&mut chain, "/s.S/Two", None).0));
}

#[test]
fn calls_whose_methods_are_not_told_apart_find_their_plan_again() {
    let for_method = |index: usize| Definition {
        name: format!("only{index}"),
        service: Some("s.S".into()),
        method: Some(format!("M{index}")),
        ..reading("metadata.tenant == 'x'")
    };
    let mut chain = Chain::build(&[ordinary(), (0..100).map(for_method).collect()].concat()).unwrap();
    let plans = |chain: &mut Chain| {
        let of = |i: usize| Arc::downgrade(&plan(chain, &format!("/s.S/M{i}"), None).0);
        (0..100).map(of).collect::<Vec<_>>()
    };
    let (first, again) = (plans(&mut chain), plans(&mut chain));
    assert!(first.iter().zip(&again).all(|(one, other)| one.ptr_eq(other) && one.strong_count() > 0));
}
