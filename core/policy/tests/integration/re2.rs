//! Shows that patterns of `matches` are RE2's: which are patterns at all, what they match, and, for random ones, that
//! they match what RE2's rules say, written down here as a matcher of a page that knows no library. The tables are what
//! RE2 itself answers.

use crate::support;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeSet;
use support::{build, compile, inputs};
use trunkline_message::{Value, View};

/// Whether the pattern is found in the text; the complaint if it is no pattern.
fn found(pattern: &str, text: &str) -> Result<bool, String> {
    let program = compile(&format!("request.tenant.matches(r'''{pattern}''')"))?;
    let built = build(|message| message.set_named("tenant", Value::String(text.as_bytes())));
    program.test(&inputs(View::root(built.bytes()), &[])).map_err(|error| error.to_string())
}

#[test]
fn what_is_a_pattern() {
    let patterns = [
        r"\<",
        r"\_",
        r"a(?i)*",
        "^*",
        "a{2}?",
        "a{,5}",
        "{",
        "a{",
        "a{x",
        "(a{500}){2}",
        "a{0}",
        "[+--]",
        "[a&&b]",
        "[[a]",
        "[[:alpha:]]",
        "[:alpha:]",
        "[[:^alpha:]]",
        "[]a]",
        "[^]a]",
        r"[\d-z]",
        "[a-b-c]",
        r"\z",
        r"\A",
        r"\b{start}",
        r"\B",
        r"\C",
        r"\Qa.b\E",
        r"\Qa.b",
        r"\Qab\E*",
        r"\12",
        r"\0",
        r"\08",
        r"\777",
        r"\x41",
        r"\x{41}",
        r"\x{d800}",
        "(?U)a",
        "(?)",
        "(?i-i)a",
        "(?ii)a",
        "(?P<n>a)",
        "(?<n>a)",
        "(?P<1>a)",
        "(?P<é>a)",
        "()",
        "|",
        "a||b",
        r"\p{Greek}",
        r"\p{^Greek}",
        r"\P{^Greek}",
        r"\pL",
        r"\p{Lu}",
        r"\p{Any}",
        r"\p{Cs}",
        r"\p{C}",
        r"\p{Old_Italic}",
        r"[\pL]",
        r"[\x41-\x43]",
        r"[\101]",
        r"[\-]",
        "[a-]",
        "[-a]",
        "[[:digit:]-z]",
        "[[.a.]]",
        "[[:alpha]",
        "(?i)(?s)a",
        "(?:)*",
        r"\b*",
        "$*",
        r"\a\f\t\n\r\v",
        "(?s:.)",
        "(.{10}){100}",
        r"\d{3,",
        "a{ 2}",
        "a{02}",
        "a{99999999999}",
        "a*(?i)*",
        r"[\x{d800}-\x{dfff}]",
        r"\pN{2}",
    ];
    for pattern in patterns {
        assert!(found(pattern, "").is_ok(), "{pattern}: {:?}", found(pattern, ""));
    }
}

#[test]
fn what_is_none() {
    let table = [
        (r"\é", "invalid escape sequence: \\é"),
        ("(?i)*", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator"),
        ("a{2}{3}", "bad repetition operator"),
        ("a*??", "bad repetition operator"),
        ("x?+", "bad repetition operator"),
        ("{2}", "no argument for repetition operator: {2}"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(a{500}){3}", "invalid repetition size: {3}"),
        ("a{2,1}", "invalid repetition size: {2,1}"),
        ("((a{100}){100}){0}", "invalid repetition size: {100}"),
        ("[a--b]", "invalid character class range: a--"),
        ("[[:foo:]]", "invalid character class range: [:foo:]"),
        ("[]", "missing ]: []"),
        ("[a", "missing ]: [a"),
        ("[[:", "missing ]: [[:"),
        (r"[a-\d]", r"invalid escape sequence: \d"),
        ("[z-a]", "invalid character class range: z-a"),
        ("[a-[:digit:]]", "invalid character class range: a-["),
        (r"\Z", r"invalid escape sequence: \Z"),
        (r"\Q\E*", "no argument for repetition operator: *"),
        (r"a\E", r"invalid escape sequence: \E"),
        (r"\1", r"invalid escape sequence: \1"),
        (r"\8", r"invalid escape sequence: \8"),
        (r"\x4", r"invalid escape sequence: \x"),
        (r"\x{110000}", r"invalid escape sequence: \x{110000}"),
        (r"\x{}", r"invalid escape sequence: \x{}"),
        (r"\u0041", r"invalid escape sequence: \u"),
        (r"\h", r"invalid escape sequence: \h"),
        ("(?x)a", "invalid perl operator: (?x"),
        ("(?u)a", "invalid perl operator: (?u"),
        ("(?R)a", "invalid perl operator: (?R"),
        ("(?-)", "invalid perl operator: (?-)"),
        ("(?i-)", "invalid perl operator: (?i-)"),
        ("(?i--s)a", "invalid perl operator: (?i--"),
        ("(?P<>a)", "invalid named capture group: (?P<>"),
        ("(?P<n.m>a)", "invalid named capture group: (?P<n.m>"),
        ("(?P<a²>x)", "invalid named capture group: (?P<a²>"),
        ("(?P<n", "invalid named capture group"),
        ("(?P=n)", "invalid perl operator: (?P"),
        ("(?=a)", "invalid perl operator: (?="),
        ("(?<=a)", "invalid perl operator: (?<="),
        ("(?<!a)", "invalid perl operator: (?<!"),
        ("(?#a)", "invalid perl operator: (?#"),
        ("(?", "invalid perl operator: (?"),
        ("(?:a", "missing ): (?:a"),
        ("a)", "unexpected ): a)"),
        (r"\p{greek}", r"invalid character class range: \p{greek}"),
        (r"\pl", r"invalid character class range: \pl"),
        (r"\p{Letter}", r"invalid character class range: \p{Letter}"),
        (r"\p{Cn}", r"invalid character class range: \p{Cn}"),
        (r"\p{Alphabetic}", r"invalid character class range: \p{Alphabetic}"),
        (r"\p{Script=Greek}", r"invalid character class range: \p{Script=Greek}"),
        (r"\p{", r"invalid character class range: \p{"),
        (r"\p", r"invalid character class range: \p"),
        ("\\", r"trailing \"),
        (r"[\b]", r"invalid escape sequence: \b"),
        (r"[\Q]\E]", r"invalid escape sequence: \Q"),
        ("(*a)", "no argument for repetition operator: *"),
        ("a|*", "no argument for repetition operator: *"),
        (r"\cA", r"invalid escape sequence: \c"),
    ];
    for (pattern, problem) in table {
        let complaint = found(pattern, "").expect_err(pattern);
        assert!(complaint.contains(&format!("bad pattern: {problem}")), "{pattern}: {complaint}");
        assert!(
            complaint.ends_with("patterns are those of RE2: no look-around, no back-references"),
            "{complaint}"
        );
    }
}

#[test]
fn what_patterns_match() {
    let table: [(&str, &[&str], &[&str]); 47] = [
        (r"^\d+$", &["3", "007"], &["٣", "3٣", "３", ""]),
        (r"^\D$", &["٣", "a"], &["3"]),
        (r"^\w$", &["a", "_", "Z"], &["é", "ſ", "\u{212a}", "٣"]),
        (r"(?i)^\w$", &["ſ", "\u{212a}", "a"], &["é"]),
        (r"(?i)^\W$", &["é"], &["ſ", "\u{212a}"]),
        (r"^\s$", &[" ", "\t", "\u{c}"], &["\u{b}", "\u{a0}", "\u{2003}"]),
        ("^[[:space:]]$", &["\u{b}", " "], &["\u{2003}"]),
        ("^[[:word:]]$", &["_"], &["é"]),
        ("(?i)^[[:upper:]]$", &["a", "ſ", "\u{212a}"], &["é"]),
        ("(?i)^[[:^upper:]]$", &["1"], &["a", "A", "ſ"]),
        ("(?i)^[^k]$", &["x"], &["k", "K", "\u{212a}"]),
        ("(?i)^k$", &["\u{212a}"], &["ſ"]),
        ("(?i)^straße$", &["STRAßE", "STRAẞE"], &["STRASSE"]),
        ("(?i)^ς$", &["σ", "Σ"], &["s"]),
        ("(?i)^İ$", &["İ"], &["i"]),
        (r"\bé", &["aé"], &["é", " é"]),
        (r"é\B", &["é", "é "], &["éa"]),
        ("^.$", &["é", "\r"], &["\n", "ab"]),
        ("(?s)^.$", &["\n"], &[]),
        ("a$", &["a"], &["a\n"]),
        ("(?m)^b$", &["a\nb\nc"], &["ab"]),
        ("^[^a]$", &["\n", "b"], &["a"]),
        (r"^\pC$", &["\u{e000}", "\u{1}"], &["\u{378}", "a"]),
        (r"^[^\pC]$", &["\u{378}", "a"], &["\u{1}"]),
        (r"(?i)^\p{Lu}$", &["a", "A"], &["1"]),
        (r"(?i)^\P{Lu}$", &["1"], &["a", "A"]),
        (r"(?i)^[^\p{Lu}]$", &["1"], &["a", "A"]),
        (r"^\p{^Greek}$", &["a"], &["σ"]),
        (r"^\P{^Greek}$", &["σ"], &["a"]),
        (r"^\p{Cs}$", &[], &["a"]),
        (r"^[^\p{Cs}\x{d800}]$", &["a"], &[]),
        ("^[a&&b]+$", &["a&b"], &["c"]),
        ("^[+--]+$", &["+,-"], &["."]),
        ("^[[a]+$", &["[a"], &["b"]),
        ("^[[:alpha]$", &["[", ":", "h"], &["b"]),
        ("^a{02}$", &["a{02}"], &["aa"]),
        ("^a{,2}$", &["a{,2}"], &["", "aa"]),
        ("^a{0}$", &[""], &["a"]),
        (r"^\Qa.b\E+$", &["a.bb"], &["axb"]),
        (r"^\x41\101\x{1F9ED}\0$", &["AA🧭\0"], &["AA"]),
        (r"\<", &["<"], &["a"]),
        (r"^\C\C$", &["é"], &["a"]),
        ("(a(?i)b)c", &["aBc"], &["aBC"]),
        ("a(?i)b|c", &["C"], &["B"]),
        ("^a(?i)*b$", &["aaB", "b"], &["AAb"]),
        ("^a{1,3}(?i)?b$", &["aB", "b"], &["A"]),
        ("^(?U)a+$", &["aa"], &["b"]),
    ];
    for (pattern, yes, no) in table {
        for (text, expected) in yes.iter().map(|text| (text, true)).chain(no.iter().map(|text| (text, false)))
        {
            assert_eq!(found(pattern, text), Ok(expected), "{pattern} in {text:?}");
        }
    }
}

#[test]
fn patterns_are_bounded() {
    assert!(found(r"\pL{1000}", "").unwrap_err().contains("it takes more than 1048576 bytes"));
    let deep = ["(".repeat(5000), ")".repeat(5000)].concat();
    assert!(found(&deep, "").unwrap_err().contains("nest"));
    assert!(found(&"a|".repeat(20_000), "").is_ok());
}

/// A pattern as a tree.
#[derive(Clone, Debug)]
enum Part {
    Char(char),
    Any,
    /// `\d`, or one of its kind.
    Perl(char),
    /// In brackets.
    Class(bool, Vec<Member>),
    Start,
    End,
    Boundary(bool),
    All(Vec<Part>),
    Either(Vec<Part>),
    Repeated(Box<Part>, u32, Option<u32>),
    Folded(Box<Part>),
}

#[derive(Clone, Debug)]
enum Member {
    Range(char, char),
    Perl(char),
    Upper(bool),
}

const LETTERS: [char; 20] = [
    'a', 'k', 'K', '\u{212a}', 's', 'S', 'ſ', 'é', 'É', '1', '٣', ' ', '\u{b}', '\n', '_', '-', '&', '[',
    '.', '\u{a0}',
];

/// Simple case folding, for the letters there are.
fn forms(c: char, fold: bool) -> Vec<char> {
    let orbits: [&[char]; 4] = [&['a', 'A'], &['k', 'K', '\u{212a}'], &['s', 'S', 'ſ'], &['é', 'É']];
    let orbit = orbits.into_iter().find(|orbit| orbit.contains(&c));
    if fold { orbit.map_or(vec![c], <[char]>::to_vec) } else { vec![c] }
}

/// RE2: "Perl character classes (all ASCII-only)".
fn perl(class: char, c: char, fold: bool) -> bool {
    let is = |c: char| match class.to_ascii_lowercase() {
        'd' => c.is_ascii_digit(),
        's' => matches!(c, '\t' | '\n' | '\u{c}' | '\r' | ' '),
        _ => c.is_ascii_alphanumeric() || c == '_',
    };
    forms(c, fold).into_iter().any(is) == class.is_ascii_lowercase()
}

fn is_word(byte: Option<&u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

impl Member {
    fn has(&self, c: char, fold: bool) -> bool {
        match *self {
            Self::Range(low, high) => forms(c, fold).into_iter().any(|c| (low..=high).contains(&c)),
            Self::Perl(class) => perl(class, c, fold),
            Self::Upper(yes) => forms(c, fold).into_iter().any(|c| c.is_ascii_uppercase()) == yes,
        }
    }

    fn written(&self) -> String {
        let c = |c: char| format!("\\x{{{:x}}}", u32::from(c));
        match *self {
            Self::Range(low, high) => format!("{}-{}", c(low), c(high)),
            Self::Perl(class) => format!("\\{class}"),
            Self::Upper(yes) => format!("[:{}upper:]", if yes { "" } else { "^" }),
        }
    }
}

impl Part {
    /// Where a match that begins at byte `at` may end. Characters begin where they do; what matches nothing may match
    /// it between a character's bytes, too.
    fn ends(&self, text: &str, at: usize, fold: bool) -> BTreeSet<usize> {
        let next = text.get(at..).and_then(|rest| rest.chars().next());
        let one = |yes: bool| {
            if yes { BTreeSet::from([at + next.map_or(0, char::len_utf8)]) } else { BTreeSet::new() }
        };
        let here = |yes: bool| if yes { BTreeSet::from([at]) } else { BTreeSet::new() };
        match self {
            Self::Char(wanted) => one(next.is_some_and(|c| forms(c, fold).contains(wanted))),
            Self::Any => one(next.is_some_and(|c| c != '\n')),
            Self::Perl(class) => one(next.is_some_and(|c| perl(*class, c, fold))),
            Self::Class(negated, members) => {
                one(next.is_some_and(|c| members.iter().any(|member| member.has(c, fold)) != *negated))
            }
            Self::Start => here(at == 0),
            Self::End => here(at == text.len()),
            Self::Boundary(yes) => {
                let byte = |at: usize| is_word(text.as_bytes().get(at));
                here((at.checked_sub(1).is_some_and(byte) != byte(at)) == *yes)
            }
            Self::All(parts) => parts.iter().fold(BTreeSet::from([at]), |starts, part| {
                starts.into_iter().flat_map(|start| part.ends(text, start, fold)).collect()
            }),
            Self::Either(parts) => parts.iter().flat_map(|part| part.ends(text, at, fold)).collect(),
            Self::Repeated(part, least, most) => {
                let mut found = if *least == 0 { BTreeSet::from([at]) } else { BTreeSet::new() };
                let mut starts = BTreeSet::from([at]);
                for times in 1..=most.unwrap_or(*least + text.len() as u32 + 1) {
                    starts = starts.into_iter().flat_map(|start| part.ends(text, start, fold)).collect();
                    if times >= *least {
                        found.extend(&starts);
                    }
                }
                found
            }
            Self::Folded(part) => part.ends(text, at, true),
        }
    }

    fn written(&self) -> String {
        match self {
            Self::Char(c @ ('.' | '[')) => format!("\\{c}"),
            Self::Char(c) => c.to_string(),
            Self::Any => ".".to_owned(),
            Self::Perl(class) => format!("\\{class}"),
            Self::Class(negated, members) => {
                let members: String = members.iter().map(Member::written).collect();
                format!("[{}{members}]", if *negated { "^" } else { "" })
            }
            Self::Start => "^".to_owned(),
            Self::End => "$".to_owned(),
            Self::Boundary(yes) => if *yes { r"\b" } else { r"\B" }.to_owned(),
            Self::All(parts) => parts.iter().map(|part| format!("(?:{})", part.written())).collect(),
            Self::Either(parts) => parts.iter().map(Self::written).collect::<Vec<_>>().join("|"),
            Self::Repeated(part, least, most) => {
                let most = most.map_or(String::new(), |most| most.to_string());
                format!("({}){{{least},{most}}}", part.written())
            }
            Self::Folded(part) => format!("(?i:{})", part.written()),
        }
    }
}

fn a_letter() -> impl Strategy<Value = char> {
    prop::sample::select(LETTERS.to_vec())
}

fn a_perl_class() -> impl Strategy<Value = char> {
    prop::sample::select("dDsSwW".chars().collect::<Vec<_>>())
}

fn a_member() -> impl Strategy<Value = Member> {
    prop_oneof![
        3 => (a_letter(), a_letter()).prop_map(|(a, b)| Member::Range(a.min(b), a.max(b))),
        1 => a_perl_class().prop_map(Member::Perl),
        1 => any::<bool>().prop_map(Member::Upper),
    ]
}

fn a_part() -> impl Strategy<Value = Part> {
    let leaf = prop_oneof![
        5 => a_letter().prop_map(Part::Char),
        1 => Just(Part::Any),
        2 => a_perl_class().prop_map(Part::Perl),
        3 => (any::<bool>(), prop::collection::vec(a_member(), 1..4)).prop_map(|(no, of)| Part::Class(no, of)),
        1 => Just(Part::Start),
        1 => Just(Part::End),
        1 => any::<bool>().prop_map(Part::Boundary),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..4).prop_map(Part::All),
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(Part::Either),
            2 => (inner.clone(), 0u32..3, prop::option::of(0u32..3))
                .prop_map(|(part, least, more)| Part::Repeated(part.into(), least, more.map(|more| least + more))),
            2 => inner.prop_map(|part| Part::Folded(part.into())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn patterns_match_what_the_rules_say(part in a_part(), text in prop::collection::vec(a_letter(), 0..6)) {
        let pattern = part.written();
        let text: String = text.into_iter().collect();
        let expected = (0..=text.len()).any(|at| !part.ends(&text, at, false).is_empty());
        prop_assert_eq!(found(&pattern, &text), Ok(expected), "{} in {:?}", pattern, text);
    }

    /// What is read as a pattern compiles: nothing is left for the library to complain about but size.
    #[test]
    fn every_complaint_is_ours(tokens in prop::collection::vec(prop::sample::select(vec![
        "a", "(", ")", "[", "]", "{", "}", "?", "*", "+", "|", "^", "$", ".", "\\", "-", "&&", "~~", "--", ":", "<",
        ">", "[:", ":]", "\\d", "\\p", "{L}", "P", "Q", "E", "i", "s", "m", "U", "x", "1", "2", ",", "\\x",
        "\\b", "é", "#",
        " ", "=", "!", "7", "0", "{2}", "{1,3}", "(?i)", "(?:", "alpha", "\\Q", "\\E", "Greek", "^", "\\C",
    ]), 0..16)) {
        let pattern = tokens.concat();
        if let Err(complaint) = found(&pattern, "a") {
            let ours = ["missing", "unexpected", "invalid", "bad repetition", "no argument", "trailing", "it takes"];
            let said = complaint.split_once("bad pattern: ").map_or("", |(_, said)| said);
            prop_assert!(ours.iter().any(|known| said.starts_with(known)), "{}: {}", pattern, complaint);
        }
    }
}
