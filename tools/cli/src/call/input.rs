//! Standard input, read as a stream of requests whose writer may wait for a response.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What follows in the input, as far as that is known without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// Something that is no blank.
    More,
    /// Nothing: it has ended, or cannot be read.
    End,
    /// It may come later.
    Unknown,
}

/// Standard input; clones read on where the others have stopped.
#[derive(Clone, Debug)]
pub struct StandardInput(Arc<Mutex<BufReader<File>>>);

impl StandardInput {
    /// That of this process.
    ///
    /// # Errors
    /// If the kernel has no descriptor to give.
    pub fn open() -> io::Result<Self> {
        Ok(Self::of(io::stdin().as_fd().try_clone_to_owned()?.into()))
    }

    fn of(file: File) -> Self {
        Self(Arc::new(Mutex::new(BufReader::new(file))))
    }

    fn lock(&self) -> MutexGuard<'_, BufReader<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What follows, behind blanks, which are taken.
    pub fn following(&self) -> Following {
        let mut input = self.lock();
        loop {
            let blanks = input.buffer().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            input.consume(blanks);
            if !input.buffer().is_empty() {
                return Following::More;
            }
            let mut ready = [PollFd::new(input.get_ref(), PollFlags::IN)];
            match poll(&mut ready, Some(&Timespec::default())) {
                Ok(0) | Err(_) => return Following::Unknown,
                Ok(_) => {}
            }
            if input.fill_buf().map_or(true, <[u8]>::is_empty) {
                return Following::End;
            }
        }
    }
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.lock().read(buffer)
    }
}

#[cfg(test)]
mod tests {
    //! Shows what is known of a pipe without waiting for its writer.
    use super::*;
    use std::io::Write;

    #[test]
    fn more_than_blanks_and_the_end_are_known_at_once() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = StandardInput::of(File::from(std::os::fd::OwnedFd::from(reader)));
        assert_eq!(input.following(), Following::Unknown);
        writer.write_all(b" \n\t").unwrap();
        assert_eq!(input.following(), Following::Unknown, "only blanks");
        writer.write_all(b"\n{").unwrap();
        assert_eq!(input.following(), Following::More);
        let mut byte = [0];
        assert_eq!((input.read(&mut byte).unwrap(), byte), (1, *b"{"), "what is no blank stays");
        assert_eq!(input.following(), Following::Unknown);
        writer.write_all(b"  ").unwrap();
        drop(writer);
        assert_eq!(input.following(), Following::End);
    }
}
