//! The loop of the full screen: pictures, keys and sizes come in, lines go out.

use super::key::{Keystroke, keys};
use super::picture::Picture;
use super::screen::{Screen, Wish};
use super::stream::PictureStream;
use super::terminal::Terminal;
use crate::admin::proto::admin_client::AdminClient;
use crate::explain::explanations;
use crate::operator::reason;
use std::io::{self, Read as _};
use std::sync::mpsc::{Sender, channel};
use trunkline::Status;
use trunkline_telemetry::render;

/// What comes.
enum Event {
    Picture(Picture),
    Keys(Vec<Keystroke>),
    Size,
    /// No more pictures come, and why.
    End(Status),
}

/// Shows pictures until the person leaves; methods' pages are asked of `pages`.
///
/// # Errors
/// The call's.
pub fn show(pages: &AdminClient, pictures: PictureStream) -> Result<(), Status> {
    let (events, coming) = channel();
    let (of_keys, of_sizes) = (events.clone(), events.clone());
    let terminal = Terminal::take(move || drop(of_sizes.send(Event::Size)));
    std::thread::spawn(move || read_keys(&of_keys));
    std::thread::spawn(move || take_pictures(&pictures, &events));
    let mut screen = Screen::default();
    while let Ok(first) = coming.recv() {
        // What has come meanwhile counts at once: keys do not wait for pictures that nobody has seen.
        let wish = take_in(&mut screen, std::iter::once(first).chain(coming.try_iter()))?;
        match wish {
            Wish::Nothing => {}
            Wish::Leave => return Ok(()),
            Wish::Page(method) => {
                let text = match explanations(pages, &method) {
                    Ok(all) => all.iter().map(render::explanation).collect::<Vec<_>>().join("\n"),
                    Err(status) => reason(&status),
                };
                screen.show_page(&method, &text);
            }
        }
        let (lines, columns) = Terminal::size();
        if terminal.show(&screen.draw(lines, columns)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Takes in what has come: all keys, and the last picture. What is wanted then; or how it ends.
fn take_in(screen: &mut Screen, events: impl Iterator<Item = Event>) -> Result<Wish, Status> {
    let (mut wish, mut last) = (Wish::Nothing, None);
    for event in events {
        match event {
            Event::Picture(picture) => last = Some(picture),
            Event::Size => {}
            Event::End(end) => return Err(end),
            Event::Keys(keys) => {
                for key in keys {
                    // Out of a page that is not there yet.
                    if matches!(wish, Wish::Page(_))
                        && matches!(key, Keystroke::Escape | Keystroke::Backspace)
                    {
                        wish = Wish::Nothing;
                        continue;
                    }
                    let wanted = screen.press(key);
                    if wanted == Wish::Leave {
                        return Ok(wanted);
                    }
                    wish = if wanted == Wish::Nothing { wish } else { wanted };
                }
            }
        }
    }
    let fresh = last.map_or(Wish::Nothing, |picture| screen.take(picture));
    Ok(if wish == Wish::Nothing { fresh } else { wish })
}

fn read_keys(events: &Sender<Event>) {
    let mut bytes = [0; 64];
    loop {
        let read = match io::stdin().lock().read(&mut bytes) {
            Ok(0) | Err(_) => vec![Keystroke::Leave],
            Ok(count) => keys(&bytes[..count]),
        };
        let is_over = read.contains(&Keystroke::Leave);
        if events.send(Event::Keys(read)).is_err() || is_over {
            return;
        }
    }
}

fn take_pictures(pictures: &PictureStream, events: &Sender<Event>) {
    loop {
        let event = pictures.next().map_or_else(Event::End, Event::Picture);
        let is_over = matches!(event, Event::End(_));
        if events.send(event).is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Shows what keys want that come together.
    use super::*;
    use trunkline_telemetry::{Side, TopRow};

    #[test]
    fn who_leaves_a_page_before_it_is_there_does_not_see_it() {
        let mut screen = Screen::default();
        let row = TopRow {
            side: Side::Made,
            method: "/a.B/C".into(),
            calls: 1,
            rate: 1.0,
            errors: 0,
            p50_ns: 1,
            p99_ns: 1,
            biggest: None,
            biggest_percent: 0.0,
        };
        let rows = vec![row];
        let wish = take_in(&mut screen, [Event::Picture(Picture { rows, ..Picture::default() })].into_iter());
        assert_eq!(wish, Ok(Wish::Nothing));
        let mut pressed = |keys: &[Keystroke]| take_in(&mut screen, [Event::Keys(keys.to_vec())].into_iter());
        assert_eq!(pressed(&[Keystroke::Enter]), Ok(Wish::Page("/a.B/C".into())));
        assert_eq!(pressed(&[Keystroke::Enter, Keystroke::Escape]), Ok(Wish::Nothing));
        assert_eq!(pressed(&[Keystroke::Enter, Keystroke::Escape, Keystroke::Char('q')]), Ok(Wish::Leave));
    }
}
