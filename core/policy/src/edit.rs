//! Changes to a list of definitions, and what a change amounts to.

use crate::definition::Definition;

/// A change an operator asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// These and no others, in this order.
    Apply(Vec<Definition>),
    /// These as well: before the named one, or at the end.
    Add(Vec<Definition>, Option<String>),
    /// These in the places of those that have their names.
    Set(Vec<Definition>),
    /// Without those of these names.
    Remove(Vec<String>),
}

/// Why a change cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Named, and not there.
    #[error("there is no policy {name:?}; {}", listed(.known))]
    Missing {
        /// The name.
        name: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// Added, and there already.
    #[error("there is a policy {0:?} already; `set` replaces it, or choose another name")]
    Exists(String),
}

/// How one list differs from another, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// New ones.
    pub added: Vec<String>,
    /// Those whose definition has changed.
    pub changed: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
}

impl Edit {
    /// Names of the policies that are written with it.
    pub fn written(&self) -> Vec<String> {
        let names = |of: &[Definition]| of.iter().map(|definition| definition.name.clone()).collect();
        match self {
            Self::Apply(new) | Self::Add(new, _) | Self::Set(new) => names(new),
            Self::Remove(_) => Vec::new(),
        }
    }

    /// The list after the change.
    ///
    /// # Errors
    /// [`EditError`] names the policy at fault.
    pub fn of(self, current: &[Definition]) -> Result<Vec<Definition>, EditError> {
        let mut list = current.to_vec();
        match self {
            Self::Apply(new) => return Ok(new),
            Self::Add(new, before) => {
                if let Some(known) = new.iter().find(|new| place(current, &new.name).is_ok()) {
                    return Err(EditError::Exists(known.name.clone()));
                }
                let at = before.map_or(Ok(list.len()), |name| place(current, &name))?;
                list.splice(at..at, new);
            }
            Self::Set(new) => {
                for definition in new {
                    let at = place(current, &definition.name)?;
                    list[at] = definition;
                }
            }
            Self::Remove(names) => {
                for name in &names {
                    place(current, name)?;
                }
                list.retain(|definition| !names.contains(&definition.name));
            }
        }
        Ok(list)
    }
}

impl Difference {
    /// From one list to the other.
    pub fn between(old: &[Definition], new: &[Definition]) -> Self {
        let names = |of: &[Definition], wanted: &dyn Fn(&Definition) -> bool| {
            of.iter()
                .filter(|definition| wanted(definition))
                .map(|definition| definition.name.clone())
                .collect()
        };
        let at = |of: &[Definition], name: &str| place(of, name).ok();
        Self {
            added: names(new, &|definition| at(old, &definition.name).is_none()),
            changed: names(new, &|definition| {
                at(old, &definition.name).is_some_and(|index| old[index] != *definition)
            }),
            removed: names(old, &|definition| at(new, &definition.name).is_none()),
        }
    }
}

fn place(of: &[Definition], name: &str) -> Result<usize, EditError> {
    let missing = || {
        let known = of.iter().map(|definition| definition.name.clone()).collect();
        EditError::Missing { name: name.to_owned(), known }
    };
    of.iter().position(|definition| definition.name == name).ok_or_else(missing)
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "the chain is empty".into() } else { format!("there are: {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    //! Shows each change, what it is refused for, and what it amounts to.
    use super::*;

    fn list(names: &[&str]) -> Vec<Definition> {
        names.iter().map(|name| Definition { name: (*name).into(), ..Definition::default() }).collect()
    }

    fn names(list: &[Definition]) -> Vec<&str> {
        list.iter().map(|definition| definition.name.as_str()).collect()
    }

    #[test]
    fn changes_keep_the_order_of_what_they_leave_alone() {
        let now = list(&["a", "b", "c"]);
        let after = |edit: Edit| edit.of(&now).map(|list| names(&list).join(""));
        assert_eq!(after(Edit::Add(list(&["x", "y"]), None)), Ok("abcxy".into()));
        assert_eq!(after(Edit::Add(list(&["x", "y"]), Some("b".into()))), Ok("axybc".into()));
        assert_eq!(after(Edit::Set(list(&["b"]))), Ok("abc".into()));
        assert_eq!(after(Edit::Remove(vec!["a".into(), "c".into()])), Ok("b".into()));
        assert_eq!(after(Edit::Apply(list(&["z"]))), Ok("z".into()));
        assert_eq!(after(Edit::Add(list(&["b"]), None)), Err(EditError::Exists("b".into())));
        for edit in [
            Edit::Set(list(&["x"])),
            Edit::Remove(vec!["x".into()]),
            Edit::Add(list(&["y"]), Some("x".into())),
        ] {
            let error = after(edit).unwrap_err().to_string();
            assert_eq!(error, "there is no policy \"x\"; there are: a, b, c");
        }
    }

    #[test]
    fn differences_are_by_name() {
        let old = list(&["a", "b", "c"]);
        let mut new = list(&["b", "c", "d"]);
        new[1].when = Some("true".into());
        let expected =
            Difference { added: vec!["d".into()], changed: vec!["c".into()], removed: vec!["a".into()] };
        assert_eq!(Difference::between(&old, &new), expected);
    }
}
