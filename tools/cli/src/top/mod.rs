//! `trunkline top`: which methods run now.
//!
//! On a terminal it fills the screen: `screen.rs` is what is shown and what keys do to it, without a terminal in it,
//! `key.rs` reads keys, `terminal.rs` has the terminal. Elsewhere, and with `--once`, pictures are plain text, or JSON.
//! `picture.rs` is one of them; `stream.rs` gets them from whichever daemon is there.

mod key;
mod live;
mod picture;
mod screen;
mod stream;
mod terminal;

use crate::admin::proto::GetUpgradeRequest;
use crate::admin::proto::admin_client::AdminClient;
use crate::args::TopArgs;
use std::io::{self, IsTerminal};
use stream::PictureStream;
use trunkline::{Status, Wait};

/// Shows pictures until the person leaves, or one. Methods' pages are asked of `pages`.
///
/// # Errors
/// The call's; that no daemon answers any more.
pub fn top(client: AdminClient, pages: &AdminClient, args: &TopArgs) -> Result<(), Status> {
    let interval_ms = u32::try_from(args.interval.as_millis()).unwrap_or(u32::MAX);
    // Without a daemon, or one that does not answer, the screen is not taken.
    pages.get_upgrade(GetUpgradeRequest::default()).wait()?;
    let pictures = PictureStream::of(client, interval_ms);
    if !args.once && !args.json && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return live::show(pages, pictures);
    }
    loop {
        let picture = pictures.next()?;
        print!("{}", if args.json { picture.json() } else { picture.text() });
        if args.once {
            return Ok(());
        }
    }
}
