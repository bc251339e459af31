//! Where the daemon has a file, told from the kernel's table of its mounts. No path is walked: a file system that its
//! user serves, or one whose server does not answer, would hold the control thread.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::File;
use std::io::{self, Read, Seek};

const TABLE: &str = "/proc/self/mountinfo";
/// Some 20,000 mounts, which are read in a few dozen milliseconds. Containers make them, the daemon does not.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// The mounts of the daemon's own namespace below its root, read when they have changed.
#[derive(Debug, Default)]
pub(crate) struct OwnMounts {
    /// Open for as long as `table` is what was read last: the kernel tells by it when mounts change.
    opened: Option<File>,
    table: MountTable,
}

/// What was read of them.
#[derive(Debug, Default)]
struct MountTable {
    mounts: Vec<Mount>,
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    /// What it is mounted on.
    parent: u64,
    /// Where, by its path from the daemon's root.
    point: Box<[u8]>,
}

impl OwnMounts {
    /// Whether the daemon comes by `path` to what the mount `id` has there; `None` if that is none of its mounts. The
    /// path is the one that the kernel has given for a file of that mount, which is open: a number is given to
    /// another mount when the last file is closed.
    ///
    /// # Errors
    /// The table cannot be read, or is too long.
    pub fn lead_to(&mut self, id: u64, path: &str) -> io::Result<Option<bool>> {
        let root = statx(CWD, "/", AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID)?.stx_mnt_id;
        let is_fresh = self.refresh()?;
        let mut leads = self.table.leads_to(root, id, path.as_bytes());
        // A folder above a mount that was renamed changes the table, and nobody tells.
        if leads == Some(false) && !is_fresh {
            self.opened = None;
            self.refresh()?;
            leads = self.table.leads_to(root, id, path.as_bytes());
        }
        Ok(leads)
    }

    /// Reads the table if it is not the last one. Whether it was.
    fn refresh(&mut self) -> io::Result<bool> {
        let mut file = match self.opened.take() {
            None => File::open(TABLE)?,
            // Before it is read: what changes meanwhile is told the next time.
            Some(file) if !has_changed(&file) => {
                self.opened = Some(file);
                return Ok(false);
            }
            Some(file) => file,
        };
        file.rewind()?;
        let mut text = Vec::new();
        (&file).take(TABLE_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > TABLE_BYTES_MAX {
            self.table = MountTable::default();
            return Err(io::Error::other(format!("has more than {} MiB", TABLE_BYTES_MAX >> 20)));
        }
        self.table = MountTable::of(&text);
        self.opened = Some(file);
        Ok(true)
    }
}

/// Whether mounts were made, moved or taken away since this was opened, or asked.
fn has_changed(table: &File) -> bool {
    let mut asked = [PollFd::new(table, PollFlags::PRI)];
    let looked = poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    looked.is_err() || asked[0].revents().intersects(PollFlags::PRI | PollFlags::ERR)
}

impl MountTable {
    /// By `proc_pid_mountinfo(5)`. A line that is none is left out.
    fn of(text: &[u8]) -> Self {
        Self { mounts: text.split(|byte| *byte == b'\n').filter_map(Mount::of).collect() }
    }

    /// Whether a walk of this path from the root, which is that mount's, ends in the mount `id`; `None` if that is not
    /// here. It does not where another is mounted over it, or where the file was moved out of a subtree that is
    /// mounted by itself: its path is then that inside of the file system.
    fn leads_to(&self, root: u64, id: u64, path: &[u8]) -> Option<bool> {
        self.mounts.iter().find(|mount| mount.id == id)?;
        let mut on_the_way: Vec<&Mount> = self.mounts.iter().filter(|mount| mount.is_above(path)).collect();
        // The kernel crosses at the shortest path first. What lies on the root itself is under those who have it.
        on_the_way.sort_by_key(|mount| mount.point.len());
        let mut at = root;
        while let Some(next) = on_the_way.iter().position(|mount| mount.parent == at) {
            at = on_the_way[next].id;
            // At one path one lies upon the other, in any order of lines; what is passed is not come by again.
            let passed = on_the_way[next].point.len();
            on_the_way.retain(|mount| mount.point.len() >= passed && mount.id != at);
        }
        Some(at == id)
    }
}

impl Mount {
    fn of(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        Some(Self { id, parent, point: unescaped(fields.nth(2)?) })
    }

    /// Whether a walk of this path comes by its mount point.
    fn is_above(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(&*self.point);
        self.point.len() > 1 && rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }
}

/// Blanks, ends of lines and backslashes are three octal digits behind a backslash.
fn unescaped(text: &[u8]) -> Box<[u8]> {
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        plain.push(digits.unwrap_or(*first));
        rest = if digits.is_some() { &behind[3..] } else { behind };
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    //! Shows to which mount a path leads, and that the table is that of now.
    use super::*;

    const TEXT: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 254:1 / /home rw - ext4 /dev/vdb rw
41 40 254:2 / /home/alice/bin rw - ext4 /dev/vdc rw
42 40 254:3 / /home/bob rw - ext4 /dev/vdd rw
44 43 254:5 / /home/bob rw - ext4 /dev/vdf rw
43 42 254:4 / /home/bob rw - ext4 /dev/vde rw
50 27 254:0 /srv/payd /usr/sbin/payd rw - ext4 /dev/vda rw
60 27 254:6 / /mnt/two\\040words\\134 rw master:1 - ext4 /dev/vdg rw
70 27 0:99 / / rw - tmpfs none rw
80 27 254:7 / /mnt rw - ext4 /dev/vdh rw
no line of a mount
";

    #[test]
    fn a_path_leads_to_the_mount_that_is_on_top_there() {
        let table = MountTable::of(TEXT.as_bytes());
        assert_eq!(table.mounts.len(), 11);
        let leads = |id, path: &str| table.leads_to(27, id, path.as_bytes());
        for (path, id) in [
            ("/usr/sbin/cron", 27),
            ("/usr/sbin/payd", 50),
            ("/usr/sbin/payd2", 27),
            ("/home/alice/till", 40),
            ("/home/alice/bin/till", 41),
            ("/home/bob/till", 44),
            ("/procs", 27),
        ] {
            assert_eq!(leads(id, path), Some(true), "{path}");
            let others = table.mounts.iter().filter(|mount| mount.id != id);
            others.for_each(|other| assert_eq!(leads(other.id, path), Some(false), "{path} {}", other.id));
        }
        // What lies over the root is seen by nobody whose root that is, and over what is mounted below /mnt lies /mnt.
        assert_eq!((leads(70, "/till"), leads(60, "/mnt/two words\\/till")), (Some(false), Some(false)));
        assert_eq!(leads(99, "/usr/sbin/payd"), None, "another namespace's");
        // In a folder that is a process's root, and no mount, there are the mounts below it only.
        assert_eq!(table.leads_to(10, 27, b"/usr/sbin/cron"), Some(false));
    }

    #[test]
    fn names_are_as_the_kernel_writes_them() {
        for (written, plain) in [
            ("/two\\040words\\134", "/two words\\"),
            ("/a\\", "/a\\"),
            ("/a\\01", "/a\\01"),
            ("/a\\999", "/a\\999"),
            ("/a\\400", "/a\\400"),
        ] {
            assert_eq!(&*unescaped(written.as_bytes()), plain.as_bytes());
        }
    }

    /// Of the test's own process: where its folders lie on mounts of their own, those.
    #[test]
    fn the_table_of_this_process_leads_to_its_program() {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let mount = statx(CWD, &program, AtFlags::empty(), StatxFlags::MNT_ID).unwrap().stx_mnt_id;
        let mut mounts = OwnMounts::default();
        let path = program.to_str().unwrap();
        for _ in 0..2 {
            assert_eq!(mounts.lead_to(mount, path).unwrap(), Some(true));
            assert!(!mounts.refresh().unwrap() || mounts.opened.is_some());
        }
        assert_eq!(mounts.lead_to(u64::MAX, path).unwrap(), None);
        let proc = statx(CWD, "/proc/self", AtFlags::empty(), StatxFlags::MNT_ID).unwrap().stx_mnt_id;
        assert_eq!(mounts.lead_to(proc, path).unwrap(), Some(false));
        assert_eq!(mounts.lead_to(proc, "/proc/self/exe").unwrap(), Some(true));
    }
}
