//! An interactive search: every question builds on the ones before it.

use crate::found::{Found, Hit};
use crate::index::Collection;
use crate::query::{Query, QueryError};
use crate::suggest::completions;

/// Hits on a page.
const PAGE_HITS: usize = 5;
/// Suggestions beside a page.
const SUGGESTIONS_MAX: usize = 5;
/// Words offered for a beginning.
const COMPLETIONS_MAX: usize = 8;
/// Refinements that can be taken back; the oldest are forgotten.
const HISTORY_MAX: usize = 64;

/// What a person asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Starts over.
    Query(String),
    /// Narrows the present query.
    Refine(String),
    /// Takes the last refinement back.
    Undo,
    /// The next page.
    More,
    /// Words that begin like this.
    Complete(String),
    /// The text of the hit with this rank.
    Open(u32),
}

/// What comes back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Hits.
    Page(Page),
    /// Words.
    Completions(Vec<String>),
    /// Name and text of a document.
    Document(String, String),
    /// What was wrong with the question.
    Complaint(String),
}

/// Some hits of the query as it now stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The query.
    pub query: String,
    /// Its next hits.
    pub hits: Vec<Hit>,
    /// Documents that match.
    pub matches: usize,
    /// Words that would narrow it well.
    pub suggestions: Vec<String>,
    /// The query as it may have been meant.
    pub did_you_mean: Option<String>,
}

/// One person's search. Pages of one query come from one moment of the collection.
#[derive(Debug, Default)]
pub struct Conversation {
    present: Option<Present>,
    history: Vec<Query>,
}

#[derive(Debug)]
struct Present {
    found: Found,
    shown: usize,
}

impl Question {
    /// Reads a line as a person types it: `words`, `+words` to refine, `:more`, `:undo`, `:open RANK`,
    /// `:complete BEGINNING`.
    ///
    /// # Errors
    /// What could have been meant.
    pub fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim();
        if let Some(words) = line.strip_prefix('+') {
            return Ok(Self::Refine(words.to_owned()));
        }
        let Some(command) = line.strip_prefix(':') else { return Ok(Self::Query(line.to_owned())) };
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match (verb, rest.trim().parse()) {
            ("more", _) => Ok(Self::More),
            ("undo", _) => Ok(Self::Undo),
            ("complete", _) => Ok(Self::Complete(rest.to_owned())),
            ("open", Ok(rank)) => Ok(Self::Open(rank)),
            ("open", Err(_)) => Err("write :open and the number before a hit".into()),
            _ => Err(format!("{verb:?} is none of :more, :undo, :open RANK, :complete BEGINNING")),
        }
    }
}

impl Conversation {
    /// Answers a question.
    pub fn answer(&mut self, collection: &Collection, question: Question) -> Reply {
        match question {
            Question::Query(text) => self.start(collection, &text),
            Question::Refine(text) => self.refine(collection, &text),
            Question::Undo => self.undo(collection),
            Question::More => self.page(),
            Question::Complete(prefix) => {
                Reply::Completions(completions(&collection.index(), &prefix, COMPLETIONS_MAX))
            }
            Question::Open(rank) => self.open(rank),
        }
    }

    fn start(&mut self, collection: &Collection, text: &str) -> Reply {
        match Query::parse(text) {
            Ok(query) => {
                self.history.clear();
                self.search(collection, query)
            }
            Err(error) => Reply::Complaint(error.to_string()),
        }
    }

    fn refine(&mut self, collection: &Collection, text: &str) -> Reply {
        let Some(present) = &self.present else { return nothing_asked() };
        match present.found.query().refined(text) {
            Ok(query) => {
                if self.history.len() == HISTORY_MAX {
                    self.history.remove(0);
                }
                self.history.push(present.found.query().clone());
                self.search(collection, query)
            }
            Err(QueryError::Empty) => Reply::Complaint("that adds nothing to the query".into()),
            Err(error) => Reply::Complaint(error.to_string()),
        }
    }

    fn undo(&mut self, collection: &Collection) -> Reply {
        match self.history.pop() {
            Some(query) => self.search(collection, query),
            None => Reply::Complaint("there is no refinement to take back".into()),
        }
    }

    fn open(&self, rank: u32) -> Reply {
        let Some(present) = &self.present else { return nothing_asked() };
        match present.found.text(rank) {
            Some((name, text)) => Reply::Document(name.to_owned(), text.to_owned()),
            None => Reply::Complaint(format!("there is no hit {rank}; there are {}", present.found.len())),
        }
    }

    fn search(&mut self, collection: &Collection, query: Query) -> Reply {
        self.present = Some(Present { found: Found::search(collection.index(), query), shown: 0 });
        self.page()
    }

    fn page(&mut self) -> Reply {
        let Some(Present { found, shown }) = &mut self.present else { return nothing_asked() };
        let hits: Vec<Hit> = found.hits(*shown, PAGE_HITS).collect();
        *shown += hits.len();
        Reply::Page(Page {
            query: found.query().to_string(),
            hits,
            matches: found.len(),
            suggestions: found.suggestions(SUGGESTIONS_MAX),
            did_you_mean: found.did_you_mean().map(|query| query.to_string()),
        })
    }
}

fn nothing_asked() -> Reply {
    Reply::Complaint("ask a query first".into())
}

#[cfg(test)]
mod tests {
    //! Plays a conversation.
    use super::*;
    use crate::segment::Document;

    fn collection() -> Collection {
        let collection = Collection::default();
        let kind = |i: usize| if i.is_multiple_of(2) { "even daemon" } else { "odd daemon" };
        let document = |i| Document { name: format!("d{i:02}"), text: format!("{} number{i}", kind(i)) };
        collection.add((0..12).map(document).collect());
        collection
    }

    fn page(reply: Reply) -> Page {
        match reply {
            Reply::Page(page) => page,
            other => panic!("not a page: {other:?}"),
        }
    }

    #[test]
    fn questions_build_on_each_other() {
        let (collection, mut talk) = (collection(), Conversation::default());
        let mut ask = |question| talk.answer(&collection, question);

        assert_eq!(ask(Question::More), nothing_asked());
        let first = page(ask(Question::Query("daemon".into())));
        assert_eq!((first.matches, first.hits.len(), first.hits[0].rank), (12, 5, 1));
        assert_eq!(page(ask(Question::More)).hits[0].rank, 6);

        let narrowed = page(ask(Question::Refine("-odd".into())));
        assert_eq!((narrowed.query.as_str(), narrowed.matches), ("daemon -odd", 6));
        assert_eq!(ask(Question::Open(1)), Reply::Document("d00".into(), "even daemon number0".into()));
        assert!(matches!(ask(Question::Open(7)), Reply::Complaint(why) if why.contains("there are 6")));
        assert!(matches!(ask(Question::Refine(" ".into())), Reply::Complaint(_)));

        let back = page(ask(Question::Undo));
        assert_eq!((back.query.as_str(), back.matches), ("daemon", 12));
        assert!(matches!(ask(Question::Undo), Reply::Complaint(_)));
        assert_eq!(ask(Question::Complete("dae".into())), Reply::Completions(vec!["daemon".into()]));
        assert_eq!(page(ask(Question::Query("deamon".into()))).did_you_mean.as_deref(), Some("daemon"));
    }

    #[test]
    fn lines_are_questions() {
        for (line, question) in [
            (" turn loop", Ok(Question::Query("turn loop".into()))),
            ("+-odd", Ok(Question::Refine("-odd".into()))),
            (":more", Ok(Question::More)),
            (":undo ", Ok(Question::Undo)),
            (":open 3", Ok(Question::Open(3))),
            (":complete dae", Ok(Question::Complete("dae".into()))),
            (":open x", Err("write :open and the number before a hit".into())),
            (":opne 3", Err("\"opne\" is none of :more, :undo, :open RANK, :complete BEGINNING".into())),
        ] {
            assert_eq!(Question::parse(line), question);
        }
    }

    #[test]
    fn pages_come_from_one_moment() {
        let (collection, mut talk) = (collection(), Conversation::default());
        talk.answer(&collection, Question::Query("daemon".into()));
        collection.add(vec![Document { name: "a".into(), text: "daemon".into() }]);
        assert_eq!(page(talk.answer(&collection, Question::More)).matches, 12);
        assert_eq!(page(talk.answer(&collection, Question::Query("daemon".into()))).matches, 13);
    }
}
