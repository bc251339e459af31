//! Shows what is built in place and read in place, without a struct in between.

use std::collections::HashMap;

use trunkline_codegen_tests::legacy::{self, Defaults, Grouped, Mood};
use trunkline_codegen_tests::names::r#type::v1::{Keywords, Shout};
use trunkline_codegen_tests::shapes::v1::{
    Blob, Choice, Color, Lists, Maps, Optionals, Scalars, Tree, choice,
};
use trunkline_message::{AlignedBuf, BuildError, Built, Extent, Message};

fn build<M: Message>(fill: impl FnOnce(&mut M::Builder<'_, AlignedBuf>)) -> Built<AlignedBuf> {
    M::build(AlignedBuf::new(), fill).unwrap()
}

#[test]
fn setters_chain_and_absent_fields_read_as_defaults() {
    let built = build::<Scalars>(|b| {
        b.set_string_value("Ada").set_int64_value(-7).set_color(Color::Red);
    });
    let view = Scalars::view(built.bytes());
    assert_eq!((view.string_value(), view.int64_value(), view.color()), ("Ada", -7, Color::Red));
    assert_eq!((view.double_value(), view.bool_value(), view.bytes_value()), (0.0, false, &b""[..]));
    assert_eq!(format!("{view:?}"), format!("{:?}", Scalars::from(view)));
}

#[test]
fn presence_is_told_from_zero() {
    let built = build::<Optionals>(|b| {
        b.set_int32_value(0).set_string_value("");
        b.scalars();
    });
    let view = Optionals::view(built.bytes());
    assert!(view.has_int32_value() && view.has_string_value() && view.has_scalars());
    assert!(!view.has_int64_value() && !view.has_bytes_value());
    let owned = Optionals::from(view);
    assert_eq!(owned.int32_value, Some(0));
    assert_eq!(owned.scalars, Some(Scalars::default()));
    assert_eq!((owned.int32_value(), owned.int64_value(), owned.string_value()), (0, 0, ""));
}

#[test]
fn lists_are_slices_set_filled_and_added_to() {
    let built = build::<Lists>(|b| {
        b.set_int32s(&[1, 2, 3]);
        b.doubles_mut(2).copy_from_slice(&[0.5, 1.5]);
        b.add_fixed64s(u64::MAX).add_fixed64s(1);
        b.set_bools([true, false]).add_bools(true);
        b.set_strings(["a", "b"]).add_strings("c").set_strings(vec!["d".to_owned()]).add_strings("e");
        b.set_byte_strings([b"x".as_slice(), b""]);
        b.set_colors([Color::Green]).add_colors(Color::from(77));
        for n in 0..3 {
            b.add_scalars().set_int32_value(n);
        }
    });
    let view = Lists::view(built.bytes());
    assert_eq!(view.int32s(), [1, 2, 3]);
    assert_eq!(view.doubles(), [0.5, 1.5]);
    assert_eq!(view.fixed64s(), [u64::MAX, 1]);
    assert_eq!(view.bools().iter().collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(view.strings().iter().collect::<Vec<_>>(), ["d", "e"]);
    assert_eq!(view.byte_strings().iter().collect::<Vec<_>>(), [&b"x"[..], b""]);
    assert_eq!(view.colors().iter().collect::<Vec<_>>(), [Color::Green, Color::new(77)]);
    assert_eq!(view.scalars().iter().map(|s| s.int32_value()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(view.scalars().len(), 3);
    assert_eq!(view.scalars().get(1).map(|s| s.int32_value()), Some(1));
    assert!(view.floats().is_empty() && view.unpacked().is_empty());
}

#[test]
fn large_bytes_are_filled_where_they_stay() {
    let built = build::<Blob>(|b| {
        b.body_mut(1 << 20).fill(7);
        b.set_name("seven");
    });
    assert!(built.len_bytes() < (1 << 20) + 100, "one copy");
    let view = Blob::view(built.bytes());
    assert_eq!((view.name(), view.body().len()), ("seven", 1 << 20));
    assert!(view.body().iter().all(|&byte| byte == 7));
}

#[test]
fn maps_take_entries_and_the_last_one_wins() {
    let built = build::<Maps>(|b| {
        b.insert_strings("k", "old").insert_strings("k", "new").insert_strings("l", "");
        b.insert_flags(true, b"yes");
        b.insert_colors(9, Color::Red);
        b.insert_trees("oak").set_label("tall").left().set_label("twig");
        b.insert_trees("bare");
    });
    let view = Maps::view(built.bytes());
    assert_eq!(view.strings().collect::<Vec<_>>(), [("k", "old"), ("k", "new"), ("l", "")]);
    assert_eq!(
        view.trees().map(|(name, tree)| (name, tree.label())).collect::<Vec<_>>(),
        [("oak", "tall"), ("bare", "")]
    );
    let owned = Maps::from(view);
    assert_eq!(owned.strings, HashMap::from([("k".into(), "new".into()), ("l".into(), String::new())]));
    assert_eq!(owned.trees["oak"].left.as_ref().unwrap().label, "twig");
    assert_eq!((owned.flags[&true].as_slice(), owned.colors[&9]), (&b"yes"[..], Color::Crimson));
}

#[test]
fn a_oneof_holds_what_was_set_last() {
    let built = build::<Choice>(|b| {
        b.set_number(-1).set_blob(b"blob").set_flag(true).choice().set_before(3);
        b.set_text("chosen");
        b.set_large(u64::MAX).set_small(5);
    });
    let view = Choice::view(built.bytes());
    assert!(matches!(view.chosen(), Some(choice::ChosenView::Text("chosen"))));
    assert!(matches!(view.plain(), Some(choice::PlainView::Small(5))));
    let owned = Choice::from(view);
    assert_eq!(owned.chosen, Some(choice::Chosen::Text("chosen".into())));
    assert_eq!(owned.plain, Some(choice::Plain::Small(5)));
    assert!(Choice::view(build::<Choice>(|_| {}).bytes()).chosen().is_none());
}

#[test]
fn messages_are_built_once_and_replaced_whole() {
    let twig = Tree { label: "twig".into(), left: Some(Box::default()), ..Tree::default() };
    let built = build::<Tree>(|b| {
        b.left().set_label("first");
        b.left().right().set_label("second");
        b.set_right(&twig).right().set_label("renamed");
        b.set_right(&Tree { label: "bare".into(), ..Tree::default() });
    });
    let view = Tree::view(built.bytes());
    let left = view.left().unwrap();
    assert_eq!((left.label(), left.right().unwrap().label()), ("first", "second"));
    let right = view.right().unwrap();
    assert_eq!((right.label(), right.left().is_none()), ("bare", true));
}

#[test]
fn declared_defaults_stand_for_what_is_absent() {
    let built = build::<Defaults>(|_| {});
    let view = Defaults::view(built.bytes());
    assert_eq!((view.answer(), view.negative(), view.huge()), (42, -7, u64::MAX));
    assert_eq!((view.half(), view.endless(), view.below()), (0.5, f64::INFINITY, f64::NEG_INFINITY));
    assert!(view.nothing().is_nan() && view.yes());
    assert_eq!((view.text(), view.raw()), ("say \"hi\"\nä", &b"\0\xff\"\\"[..]));
    assert_eq!((view.mood(), view.first(), view.plain()), (Mood::Grumpy, Mood::Calm, ""));
    let owned = Defaults::default();
    assert_eq!((owned.answer(), owned.text(), owned.raw()), (42, "say \"hi\"\nä", &b"\0\xff\"\\"[..]));
    assert_eq!(
        (owned.mood(), owned.first(), owned.tiny(), owned.whole()),
        (Mood::Grumpy, Mood::Calm, 1e-30, 3.0)
    );
    assert_eq!(Defaults::view(build::<Defaults>(|b| _ = b.set_answer(0)).bytes()).answer(), 0);
}

#[test]
fn required_fields_begin_with_their_defaults() {
    let required = legacy::Required::default();
    assert_eq!((required.name.as_str(), required.ratio, required.mood), ("nobody", 0.25, Mood::Calm));
    let built = required.to_linear().unwrap();
    let view = legacy::Required::view(built.bytes());
    assert!(view.has_id() && view.has_name() && view.has_defaults() && !view.has_itself());
    let empty = build::<legacy::Required>(|_| {});
    assert_eq!(legacy::Required::from(legacy::Required::view(empty.bytes())), required);
}

#[test]
fn groups_are_messages() {
    let built = build::<Grouped>(|b| {
        b.single().set_a(1).again().single().set_a(2);
        b.add_many().set_b("b");
        b.chosen().set_c(true);
        b.insert_by_name("calm", Mood::Calm);
    });
    let view = Grouped::view(built.bytes());
    assert_eq!(view.single().unwrap().again().unwrap().single().unwrap().a(), 2);
    assert_eq!(view.many().get(0).unwrap().b(), "b");
    assert!(matches!(view.choice(), Some(legacy::grouped::ChoiceView::Chosen(c)) if c.c()));
}

#[test]
fn keywords_are_names_like_any_other() {
    let built = build::<Keywords>(|b| {
        b.set_type(1).set_self("me").set_super(b"s").set_crate(&[1]).set_async(true).set_try(4);
        b.r#match().set_union(2);
        b.insert_fn("f", 3);
    });
    let owned = Keywords::from(Keywords::view(built.bytes()));
    assert_eq!((owned.r#type, owned.self_.as_str(), owned.super_.as_slice()), (1, "me", &b"s"[..]));
    assert_eq!((owned.r#match.unwrap().union, owned.r#async), (2, Some(true)));
}

#[test]
fn enums_keep_numbers_they_do_not_know() {
    assert_eq!(Color::from_str_name("COLOR_CRIMSON"), Some(Color::Red));
    assert_eq!((Color::Red.as_str_name(), Color::new(9).as_str_name()), (Some("COLOR_RED"), None));
    assert_eq!(
        (format!("{:?}", Color::Below), format!("{:?}", Color::new(9))),
        ("COLOR_BELOW".into(), "9".into())
    );
    assert_eq!((Mood::default(), Mood::default().number(), i32::from(Mood::Grumpy)), (Mood::Calm, 3, -4));
    assert!(matches!(Shout::from(1), Shout::Shout2fast));
    assert!(!Color::new(9).is_known() && Color::Green.is_known());
    let read = match Color::new(2) {
        Color::Red => "red",
        Color::Green => "green",
        _ => "other",
    };
    assert_eq!(read, "green");
}

#[test]
fn what_does_not_fit_is_an_error_at_the_end() {
    let outcome = Blob::build(AlignedBuf::with_limit(256), |b| {
        b.set_name("small").set_body(&[1; 1000]);
        assert!(b.body_mut(1000).is_empty());
    });
    assert!(matches!(outcome, Err(BuildError::Limit(limit)) if limit.limit_bytes == 256));
}

#[test]
fn an_extent_is_used_again() {
    let first = build::<Blob>(|b| _ = b.body_mut(4096));
    let extent = first.into_extent();
    let capacity = extent.bytes().len();
    let second = Blob::build(extent, |b| _ = b.set_name("again")).unwrap();
    assert_eq!(Blob::view(second.bytes()).body(), b"");
    assert_eq!(second.into_extent().bytes().len(), capacity);
}
