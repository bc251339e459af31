//! A line a call.

use super::columns::{Cell, Column};
use crate::fleet::Fleet;
use std::io::{self, Write};

/// Writes one line a call, names first.
///
/// # Errors
/// What writing says.
pub fn csv(fleet: &Fleet, to: &mut impl Write) -> io::Result<()> {
    let columns = Column::all();
    let names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    writeln!(to, "{}", names.join(","))?;
    for call in &fleet.calls {
        let cells: Vec<String> = columns.iter().map(|column| written(&column.cell(fleet, call))).collect();
        writeln!(to, "{}", cells.join(","))?;
    }
    Ok(())
}

fn written(cell: &Cell) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Text(text) => quoted(text),
        Cell::Whole(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Flag(flag) => flag.to_string(),
    }
}

/// As RFC 4180 has it.
fn quoted(text: &str) -> String {
    let is_plain = !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Shows that CSV has every call, with its ids if it belongs to a trace.
    use super::*;
    use crate::block::tests::block;
    use crate::trees::tests::tree;

    pub(crate) fn fleet() -> Fleet {
        let mut one = block("a,\"b\"", 3);
        one.head.began_unix_ms = 1_700_000_000_000;
        for call in &mut one.rows {
            call.row.components.ns = [1_000, 2_000, 0, 0, 30_000, 0, 0, 4_000, 5_000];
        }
        let mut fleet = Fleet::default();
        fleet.add(one);
        fleet
    }

    fn lines(fleet: &Fleet) -> String {
        let mut text = Vec::new();
        csv(fleet, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn csv_has_a_line_a_call() {
        let text = lines(&fleet());
        let lines: Vec<&str> = text.lines().collect();
        let head: Vec<&str> = lines[0].split(',').collect();
        assert_eq!(lines.len(), 4);
        let rest = lines[1].strip_prefix("\"a,\"\"b\"\"\",").expect("a name with commas is quoted");
        let cells: Vec<&str> = rest.split(',').collect();
        assert_eq!(cells.len() + 1, head.len(), "{text}");
        let cell = |name: &str| cells[head.iter().position(|other| *other == name).unwrap() - 1];
        assert_eq!((cell("method"), cell("total_ns"), cell("code")), ("/a.B/C", "42000", "OK"));
        assert_eq!((cell("server_application_ns"), cell("subtree")), ("30000", ""));
        assert_eq!(cell("ended_unix_us"), "1700000000000001");
    }

    #[test]
    fn csv_says_which_calls_stream() {
        let mut fleet = fleet();
        fleet.calls[1].row.is_stream = true;
        let text = lines(&fleet);
        let place = text.lines().next().unwrap().split(',').position(|name| name == "stream").unwrap();
        // The host's name has a comma.
        let cells: Vec<_> =
            text.lines().skip(1).map(|line| line.split(',').nth(place + 1).unwrap()).collect();
        assert_eq!(cells, ["false", "true", "false"], "{text}");
    }

    #[test]
    fn csv_has_ids_and_stamps_of_traces() {
        let text = lines(&tree());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
        let cell =
            |line: usize, name: &str| lines[line][lines[0].iter().position(|other| *other == name).unwrap()];
        assert_eq!(
            (cell(1, "trace"), cell(1, "span")),
            ("00000000000000000000000000000007", "0000000000000001")
        );
        assert_eq!((cell(1, "a0_ns"), cell(1, "k7_ns"), cell(3, "k7_ns")), ("1000", "", "1001010"));
    }
}
