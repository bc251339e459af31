//! Services and their methods.

use crate::MessageIndex;
use std::cmp::Ordering;

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Package included, without a leading dot.
    pub full_name: String,
    /// In order of declaration.
    pub methods: Vec<Method>,
}

/// A method of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// As written in the `.proto` file.
    pub name: String,
    /// `/package.Service/Method`, as gRPC writes it in `:path`.
    pub path: String,
    /// The request's type.
    pub input: MessageIndex,
    /// The reply's type.
    pub output: MessageIndex,
    /// The client sends any number of requests.
    pub client_streaming: bool,
    /// The server sends any number of replies.
    pub server_streaming: bool,
    /// Declared `idempotency_level = IDEMPOTENT` or `NO_SIDE_EFFECTS`: sending it twice is sound.
    pub idempotent: bool,
    /// Declared `NO_SIDE_EFFECTS`: it may also be answered from a cache.
    pub no_side_effects: bool,
}

/// Services and methods in the order of their names, so that looking for one takes a few comparisons, whatever the
/// number of all: applications send descriptor sets of tens of thousands of services, and binds that name a thousand.
#[derive(Clone, Debug)]
pub(crate) struct ServiceIndex {
    /// Positions of services, by full name.
    services: Vec<u32>,
    /// A service's position and that of one of its methods, by the first and the method's name.
    methods: Vec<(u32, u32)>,
}

impl ServiceIndex {
    /// Of services and methods whose names are all different.
    pub fn new(all: &[Service]) -> Self {
        let name = |at: &u32| all.get(*at as usize).map_or("", |service| service.full_name.as_str());
        let mut services: Vec<u32> = (0..all.len() as u32).collect();
        services.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        let of_service = |(at, service): (u32, &Service)| {
            (0..service.methods.len() as u32).map(move |method| (at, method))
        };
        let mut methods: Vec<(u32, u32)> = (0..).zip(all).flat_map(of_service).collect();
        methods.sort_unstable_by(|one, other| {
            one.0.cmp(&other.0).then_with(|| method_name(all, *one).cmp(method_name(all, *other)))
        });
        Self { services, methods }
    }

    /// The position of the service with a full name.
    pub fn service(&self, all: &[Service], full_name: &str) -> Option<usize> {
        let named = |at: &u32| all.get(*at as usize).map_or("", |service| service.full_name.as_str());
        let at = self.services.binary_search_by(|at| compared(named(at).cmp(full_name))).ok()?;
        self.services.get(at).map(|at| *at as usize)
    }

    /// The position of a method of the service at a position.
    pub fn method(&self, all: &[Service], service: usize, name: &str) -> Option<usize> {
        let order = |known: &(u32, u32)| {
            let of_service = (known.0 as usize).cmp(&service);
            of_service.then_with(|| compared(method_name(all, *known).cmp(name)))
        };
        let at = self.methods.binary_search_by(order).ok()?;
        self.methods.get(at).map(|(_, method)| *method as usize)
    }
}

fn method_name(all: &[Service], (service, method): (u32, u32)) -> &str {
    let methods = all.get(service as usize).map_or(&[][..], |service| &service.methods);
    methods.get(method as usize).map_or("", |method| method.name.as_str())
}

/// Counts comparisons of names in tests.
fn compared(order: Ordering) -> Ordering {
    #[cfg(test)]
    tests::COMPARED.with(|compared| compared.set(compared.get() + 1));
    order
}

#[cfg(test)]
mod tests {
    //! Shows that names are found, and by how many comparisons.
    use super::*;
    use std::cell::Cell;

    thread_local! {
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    fn method(service: &str, name: &str) -> Method {
        Method {
            name: name.to_owned(),
            path: format!("/{service}/{name}"),
            input: MessageIndex(0),
            output: MessageIndex(0),
            client_streaming: false,
            server_streaming: false,
            idempotent: false,
            no_side_effects: false,
        }
    }

    fn service(full_name: &str, methods: &[&str]) -> Service {
        let methods = methods.iter().map(|name| method(full_name, name)).collect();
        Service { full_name: full_name.to_owned(), methods }
    }

    #[test]
    fn every_name_is_found_where_it_was_declared_and_no_other() {
        let all = [
            service("b.S", &["Z", "A", "M"]),
            service("a.S", &[]),
            service("b.S.T", &["A"]),
            service("b", &["S", "A"]),
        ];
        let index = ServiceIndex::new(&all);
        for (at, declared) in all.iter().enumerate() {
            assert_eq!(index.service(&all, &declared.full_name), Some(at));
            for (method_at, method) in declared.methods.iter().enumerate() {
                assert_eq!(index.method(&all, at, &method.name), Some(method_at));
            }
            assert_eq!(index.method(&all, at, "B"), None);
        }
        assert_eq!((index.service(&all, "b.T"), index.service(&all, "")), (None, None));
        assert_eq!(ServiceIndex::new(&[]).service(&[], "a"), None);
    }

    #[test]
    fn a_name_takes_a_few_comparisons_among_very_many() {
        let all: Vec<Service> = (0..1 << 14).map(|n| service(&format!("a.S{n}"), &["M", "N"])).collect();
        let index = ServiceIndex::new(&all);
        for name in ["a.S16383", "a.S0", "a.S777", "a.None"] {
            COMPARED.set(0);
            let found = index.service(&all, name).and_then(|at| index.method(&all, at, "M"));
            assert_eq!(found.is_some(), name != "a.None");
            assert!((1..=2 * 16).contains(&COMPARED.get()), "{name}: {}", COMPARED.get());
        }
    }
}
