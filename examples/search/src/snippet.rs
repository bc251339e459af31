//! The passage of a text that shows best why it was found.

use crate::text::{Words, term};
use std::ops::Range;

/// A passage with what to highlight in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snippet {
    /// Line of the text it begins in, from 1.
    pub line: u32,
    /// The passage on one line: breaks and tabs are blanks.
    pub text: String,
    /// Byte ranges of `text`.
    pub marks: Vec<Range<u32>>,
}

/// Most words of interest looked at in one text: a word that occurs more often than this shows nothing new.
const SIGHTINGS_MAX: usize = 4096;

/// What it costs a passage to spread its words over all its room: less than half, so that two words apart beat one.
const SPREAD_COST: f32 = 0.3;

struct Sighting {
    range: Range<usize>,
    /// Which of the wanted terms.
    which: usize,
}

/// The passage of about `bytes_max` bytes that brings the most weight of `wanted` terms close together; the earliest of
/// equals.
pub fn snippet(text: &str, wanted: &[(&str, f32)], bytes_max: usize) -> Snippet {
    let sightings = sightings(text, wanted);
    let best = heaviest(&sightings, wanted, bytes_max);
    let passage = passage(text, &sightings[best], bytes_max);
    let inside = |range: &Range<usize>| passage.start <= range.start && range.end <= passage.end;
    let marks = sightings.iter().map(|sighting| &sighting.range).filter(|range| inside(range));
    Snippet {
        line: text[..passage.start].matches('\n').count() as u32 + 1,
        marks: marks
            .map(|range| (range.start - passage.start) as u32..(range.end - passage.start) as u32)
            .collect(),
        // One byte for one byte, so that the marks stay where they are.
        text: text[passage].replace(['\n', '\r', '\t'], " "),
    }
}

fn sightings(text: &str, wanted: &[(&str, f32)]) -> Vec<Sighting> {
    Words::of(text)
        .filter_map(|range| {
            let term = term(&text[range.clone()]);
            let which = wanted.iter().position(|(name, _)| *name == term)?;
            Some(Sighting { range, which })
        })
        .take(SIGHTINGS_MAX)
        .collect()
}

/// The shortest run of sightings within `bytes_max` bytes that weighs most.
fn heaviest(sightings: &[Sighting], wanted: &[(&str, f32)], bytes_max: usize) -> Range<usize> {
    let mut best = (0.0, 0..0);
    let mut counts = vec![0_u32; wanted.len()];
    let mut start = 0;
    for (end, sighting) in sightings.iter().enumerate() {
        counts[sighting.which] += 1;
        let span = |start: usize| sighting.range.end - sightings[start].range.start;
        // What comes again later in the run is not needed at its start.
        while start < end && (span(start) > bytes_max || counts[sightings[start].which] > 1) {
            counts[sightings[start].which] -= 1;
            start += 1;
        }
        let terms = counts.iter().zip(wanted).filter(|(count, _)| **count > 0);
        let spread = span(start) as f32 / bytes_max.max(1) as f32;
        let weight =
            terms.map(|(_, (_, weight))| weight).sum::<f32>() * (1.0 - SPREAD_COST * spread.min(1.0));
        if weight > best.0 {
            best = (weight, start..end + 1);
        }
    }
    best.1
}

/// The bytes to show around some sightings (or the beginning, if there are none).
fn passage(text: &str, shown: &[Sighting], bytes_max: usize) -> Range<usize> {
    let (first, last) = match shown {
        [] => (0, 0),
        [first, .., last] => (first.range.start, last.range.end),
        [only] => (only.range.start, only.range.end),
    };
    let spare = bytes_max.saturating_sub(last - first);
    let line_start = text[..first].rfind('\n').map_or(0, |newline| newline + 1);
    // From the beginning of the line if that leaves half of the room behind the words; else from a word nearby.
    let start =
        if first - line_start <= spare / 2 { line_start } else { word_start(text, first - spare / 2, first) };
    let end = word_end(text, last, (start + bytes_max).clamp(last, text.len()));
    let indent = text[start..end].len() - text[start..end].trim_start().len();
    start + indent..(start + text[start..end].trim_end().len()).max(start + indent)
}

/// The first place after a blank in `from..to`, or `to`.
fn word_start(text: &str, from: usize, to: usize) -> usize {
    let from = ceil_boundary(text, from);
    text[from..to].find(char::is_whitespace).map_or(to, |blank| ceil_boundary(text, from + blank + 1))
}

/// `to` if no word goes on there, else the last blank in `from..to`.
fn word_end(text: &str, from: usize, to: usize) -> usize {
    let to = ceil_boundary(text, to);
    if text[to..].chars().next().is_none_or(char::is_whitespace) {
        return to;
    }
    text[from..to].rfind(char::is_whitespace).map_or(to, |blank| from + blank)
}

fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    //! Shows which passage is chosen, what is marked, and that any text can be cut anywhere.
    use super::*;
    use proptest::prelude::*;

    fn show(snippet: &Snippet) -> String {
        let mut shown = snippet.text.clone();
        for mark in snippet.marks.iter().rev() {
            shown.insert(mark.end as usize, ']');
            shown.insert(mark.start as usize, '[');
        }
        format!("{}: {shown}", snippet.line)
    }

    #[test]
    fn different_words_beat_repeated_ones() {
        let text = "ring ring ring\nnothing here\n\n  the doorbell of a ring is rung\nend";
        let wanted = [("ring", 1.0), ("doorbell", 1.0)];
        assert_eq!(show(&snippet(text, &wanted, 40)), "4: the [doorbell] of a [ring] is rung end");
        assert_eq!(show(&snippet(text, &wanted[..1], 14)), "1: [ring] [ring] [ring]");
        assert_eq!(show(&snippet(text, &[], 18)), "1: ring ring ring");
    }

    #[test]
    fn long_lines_are_cut_between_words() {
        let text = format!("{} needle {}", "hay ".repeat(50), "straw ".repeat(50));
        let found = snippet(&text, &[("needle", 1.0)], 40);
        assert_eq!(show(&found), "1: hay hay hay  [needle] straw straw straw");
    }

    proptest! {
        #[test]
        fn any_text_can_be_cut(text in "[a-c ä日\n]{0,200}", bytes_max in 0..80usize) {
            let found = snippet(&text, &[("a", 1.0), ("ab", 2.0), ("日", 1.0)], bytes_max);
            for mark in &found.marks {
                prop_assert!(found.text.get(mark.start as usize..mark.end as usize).is_some());
            }
            prop_assert!(!found.text.contains('\n'));
        }
    }
}
