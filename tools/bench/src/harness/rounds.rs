//! Rounds: whoever is measured runs at the same time and takes turns, so that whatever else the machine does meets all
//! of them. One mechanism for every study.

use super::children::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use trunkline_measure::short;

/// How long and how often, and who.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plan {
    pub rounds: usize,
    pub round_millis: u64,
    /// Pieces of a round, between which the others have theirs.
    pub slices: usize,
    pub warm_up_millis: u64,
    /// Names of those wanted; all if empty.
    pub only: Vec<String>,
    /// Of `idle`: how long it is watched.
    pub idle_seconds: u64,
    /// Of `connections`: how many are held.
    pub connections: usize,
    /// Of `r2p2`: mean service time, its distributions (all if empty), percent of what the workers can do.
    pub mean_us: u64,
    pub services: Vec<String>,
    pub percents: Vec<u32>,
    /// Of `r2p2`: a round during which the host gave away more of the processors is measured again.
    pub stolen_percent_max: Option<f64>,
}

impl Plan {
    /// Whether somebody of this name was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Somebody who is not in a study although they should be.
#[derive(Clone, Debug, Serialize)]
pub struct Absent {
    pub study: String,
    pub name: String,
    pub reason: String,
}

/// Somebody who is measured.
pub struct Entrant<S> {
    pub name: String,
    pub stage: S,
}

/// Somebody's values: by column, and there by round.
pub type Measured = (String, Vec<Vec<f64>>);

/// The turns of one study.
pub struct Turns<'p> {
    study: String,
    plan: &'p Plan,
    pub absent: Vec<Absent>,
}

impl<'p> Turns<'p> {
    /// Nobody has had one yet.
    pub fn new(study: &str, plan: &'p Plan) -> Self {
        Self { study: study.to_owned(), plan, absent: Vec::new() }
    }

    /// Starts those of `all` that are wanted, by name, of what stands beside it. Who cannot be started is absent, with
    /// the reason.
    pub fn start<N: Into<String>, T, S>(
        &mut self,
        all: impl IntoIterator<Item = (N, T)>,
        mut start: impl FnMut(T) -> Result<S, Failure>,
    ) -> Vec<Entrant<S>> {
        let mut entrants = Vec::new();
        let all = all.into_iter().map(|(name, of)| (name.into(), of));
        for (name, of) in all.filter(|(name, _)| self.plan.wants(name)) {
            match start(of) {
                Ok(stage) => entrants.push(Entrant { name, stage }),
                Err(why) => self.lack(&name, &why),
            }
        }
        entrants
    }

    /// Says that somebody is absent.
    pub fn lack(&mut self, name: &str, why: &Failure) {
        eprintln!("{}: {name} is absent: {why}", self.study);
        let (study, name, reason) = (self.study.clone(), name.to_owned(), why.to_string());
        self.absent.push(Absent { study, name, reason });
    }

    /// One turn for everybody. Who fails is absent from then on; the next pass begins with another, because whoever
    /// comes behind a heavy one must not be the same every time.
    pub fn pass<S, R>(
        &mut self,
        entrants: &mut Vec<Entrant<S>>,
        mut turn: impl FnMut(&mut S) -> Result<R, Failure>,
    ) -> Vec<(String, R)> {
        let mut taken = Vec::new();
        entrants.retain_mut(|entrant| match turn(&mut entrant.stage) {
            Ok(result) => {
                taken.push((entrant.name.clone(), result));
                true
            }
            Err(why) => {
                self.lack(&entrant.name, &why);
                false
            }
        });
        if !entrants.is_empty() {
            entrants.rotate_left(1);
        }
        taken
    }

    /// All rounds of everybody, in the order in which they were started. `turn` is told the round, counted from one,
    /// and `joined` makes values of the pieces of a round, in the order of `columns`.
    pub fn rounds<S, R>(
        &mut self,
        slices: usize,
        columns: &[String],
        entrants: &mut Vec<Entrant<S>>,
        mut turn: impl FnMut(&mut S, usize) -> Result<R, Failure>,
        joined: impl Fn(Vec<R>) -> Vec<f64>,
    ) -> Vec<Measured> {
        let empty = |entrant: &Entrant<S>| (entrant.name.clone(), vec![Vec::new(); columns.len()]);
        let mut all: Vec<Measured> = entrants.iter().map(empty).collect();
        for round in 1..=self.plan.rounds {
            let mut taken: BTreeMap<String, Vec<R>> = BTreeMap::new();
            for _ in 0..slices.max(1) {
                for (name, piece) in self.pass(entrants, |stage| turn(stage, round)) {
                    taken.entry(name).or_default().push(piece);
                }
            }
            for (name, values) in &mut all {
                let Some(pieces) = taken.remove(name) else { continue };
                let round_values = joined(pieces);
                let shown =
                    columns.iter().zip(&round_values).map(|(c, value)| format!("{c} {}", short(*value)));
                let shown: Vec<String> = shown.collect();
                eprintln!("{} round {round}, {name}: {}", self.study, shown.join(", "));
                values.iter_mut().zip(round_values).for_each(|(values, value)| values.push(value));
            }
        }
        all.retain(|(_, values)| values.iter().any(|values| !values.is_empty()));
        all
    }

    /// The same where a turn is a round.
    pub fn whole_rounds<S>(
        &mut self,
        columns: &[String],
        entrants: &mut Vec<Entrant<S>>,
        turn: impl FnMut(&mut S, usize) -> Result<Vec<f64>, Failure>,
    ) -> Vec<Measured> {
        self.rounds(1, columns, entrants, turn, |pieces| pieces.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    //! Turns rotate, values stay with whose they are, and who fails keeps what it had and is named.
    use super::*;

    #[test]
    fn everybody_has_a_turn() {
        let plan = Plan { rounds: 2, ..Plan::default() };
        let mut turns = Turns::new("test", &plan);
        let mut all = turns.start([("a", Ok(1.0)), ("b", Ok(2.0)), ("c", Err("not here".into()))], |of| of);
        let mut order = Vec::new();
        let turn = |stage: &mut f64, round: usize| {
            order.push(*stage as u32);
            if *stage == 2.0 && round == 2 { Err("gone".into()) } else { Ok(*stage * round as f64) }
        };
        let sum = |pieces: Vec<f64>| vec![pieces.iter().sum::<f64>()];
        let measured = turns.rounds(2, &["x".to_owned()], &mut all, turn, sum);
        assert_eq!(measured, [("a".to_owned(), vec![vec![2.0, 4.0]]), ("b".to_owned(), vec![vec![4.0]])]);
        assert_eq!(order, [1, 2, 2, 1, 1, 2, 1]);
        let absent: Vec<_> = turns.absent.iter().map(|of| (of.name.as_str(), of.reason.as_str())).collect();
        assert_eq!(absent, [("c", "not here"), ("b", "gone")]);
    }
}
