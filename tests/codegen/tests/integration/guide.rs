//! Shows that the page about generated code shows code that runs.

use trunkline_codegen_tests::shop::v1::order::{Paid, PaidView};
use trunkline_codegen_tests::shop::v1::{Order, State};
use trunkline_message::{AlignedBuf, BuildError, Built, Message};

#[test]
fn a_struct() {
    let order = Order { customer: "Ada".to_owned(), paid: Some(Paid::Card(4711)), ..Order::default() };
    assert_eq!(order.state, State::Unspecified);
}

fn built(extent: AlignedBuf) -> Result<Built<AlignedBuf>, BuildError> {
    Order::build(extent, |order| {
        order.set_customer("Ada").set_state(State::Packed);
        order.add_items().set_article("ink").set_amount(2);
        order.prices_mut(2).copy_from_slice(&[120, 95]);
        order.label_mut(1 << 20).fill(0xff);
        order.insert_notes("door", "blue").set_card(4711);
    })
}

#[test]
fn a_builder_and_a_view() {
    let built = built(AlignedBuf::new()).unwrap();
    let bytes = built.bytes();
    let order = Order::view(bytes);
    assert_eq!((order.customer(), order.state()), ("Ada", State::Packed));
    assert_eq!(order.prices(), [120, 95]);
    assert_eq!(order.items().iter().map(|item| item.amount()).sum::<i32>(), 2);
    assert!(matches!(order.paid(), Some(PaidView::Card(4711))));
    let owned = Order::from(order);
    assert_eq!((owned.label.len(), owned.notes["door"].as_str()), (1 << 20, "blue"));
}

#[test]
fn the_page_shows_the_code_above() {
    let page = include_str!("../../../../docs/generated-code.md");
    let code: Vec<&str> = include_str!("guide.rs").lines().map(str::trim).collect();
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let lines: Vec<&str> = block.lines().map(str::trim).collect();
        assert!(code.windows(lines.len()).any(|window| window == lines), "not here:\n{block}");
    }
}
