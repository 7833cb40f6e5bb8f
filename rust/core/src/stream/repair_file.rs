//! A capture file repaired in place: under its lock, the old one kept.

use std::fs::{File, OpenOptions, hard_link, remove_file, rename};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::repair::{Record, Verdict, repair_line};
use crate::error::{Error, Result};
use crate::store::{Held, LockMode, acquire};

/// What a repair did, or would do.
#[derive(Debug, Default)]
pub struct Report {
    /// Records that could be read.
    pub records: usize,
    /// Lines that could not; they stay byte by byte.
    pub unreadable: usize,
    /// Line numbers from 1 with the records that are not [`Verdict::Good`].
    pub changes: Vec<(usize, Record)>,
    /// Where the file as it was is now, where it was replaced.
    pub kept_as: Option<PathBuf>,
}

impl Report {
    /// How many records got another response.
    #[must_use]
    pub fn repaired(&self) -> usize {
        let repaired = |verdict: &Verdict| matches!(verdict, Verdict::Filled | Verdict::Enriched);
        self.changes
            .iter()
            .filter(|(_, record)| repaired(&record.verdict))
            .count()
    }
}

/// Repairs the file at `path` under its exclusive lock, for which it waits `lock_wait` at
/// most. A repaired file takes the old one's place in one rename; writers that waited on
/// the old one's lock look at the path again (contract, section 3).
///
/// # Errors
/// The file cannot be read, its directory not be written, or its lock not be had: a file
/// that others may be appending to is never replaced.
pub fn repair_file(path: &Path, dry_run: bool, lock_wait: Duration) -> Result<Report> {
    let mut file = locked(path, dry_run, lock_wait)?;
    let mut old = Vec::new();
    file.read_to_end(&mut old)
        .map_err(|error| Error::io("read", path, error))?;
    let mut report = Report::default();
    let mut new = Vec::with_capacity(old.len());
    for (number, line) in old.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let text = content(line, number == 0);
        if text.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) && !line.contains(&0) {
            new.extend_from_slice(line);
            continue;
        }
        let Some((anew, records)) = repair_line(text) else {
            report.unreadable += 1;
            new.extend_from_slice(line);
            continue;
        };
        report.records += records.len();
        let bad = records
            .into_iter()
            .filter(|record| record.verdict != Verdict::Good);
        report
            .changes
            .extend(bad.map(|record| (number + 1, record)));
        match anew {
            None => new.extend_from_slice(line),
            Some(anew) => {
                new.extend_from_slice(&anew);
                if line.ends_with(b"\n") {
                    new.push(b'\n');
                }
            }
        }
    }
    if report.repaired() > 0 && !dry_run {
        report.kept_as = Some(replace(path, &file, &new)?);
    }
    Ok(report)
}

/// A line without what a reader drops: its end, padding, a byte order mark.
fn content(mut line: &[u8], first: bool) -> &[u8] {
    line = line.strip_suffix(b"\n").unwrap_or(line);
    if first {
        line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    }
    while let [0, rest @ ..] | [rest @ .., 0] = line {
        line = rest;
    }
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn locked(path: &Path, dry_run: bool, lock_wait: Duration) -> Result<File> {
    let at = |error| Error::io("open", path, error);
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(!dry_run)
            .open(path)
            .map_err(at)?;
        let mode = if dry_run {
            LockMode::Shared
        } else {
            LockMode::Exclusive
        };
        match acquire(&file, mode, lock_wait) {
            Held::Locked { .. } => {}
            _ if dry_run => return Ok(file),
            Held::TimedOut => {
                return Err(Error::io(
                    "lock",
                    path,
                    io::Error::from(io::ErrorKind::WouldBlock),
                ));
            }
            Held::Unavailable => {
                return Err(Error::io(
                    "lock",
                    path,
                    io::Error::from(io::ErrorKind::Unsupported),
                ));
            }
        }
        // A consumer may have taken the file while we waited.
        let ours = file.metadata().map_err(at)?;
        let there = path.metadata().map_err(at)?;
        if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
            return Ok(file);
        }
    }
}

/// Puts `new` at `path`; where the old file is now.
fn replace(path: &Path, old: &File, new: &[u8]) -> Result<PathBuf> {
    let temporary = beside(path, "repair");
    let write = || -> io::Result<()> {
        let old = old.metadata()?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(new)?;
        file.set_permissions(old.permissions())?;
        file.sync_all()
    };
    let failed = |error| {
        let _ = remove_file(&temporary);
        Error::io("write", &temporary, error)
    };
    write().map_err(failed)?;
    let kept = keep(path, old).map_err(failed)?;
    rename(&temporary, path).map_err(failed)?;
    if let Some(directory) = path.parent() {
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        // Some file systems cannot sync a directory; the files themselves are whole.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
    }
    Ok(kept)
}

/// Gives the file a second name that nothing has yet: `.orig`, `.orig.1`, …
fn keep(path: &Path, old: &File) -> io::Result<PathBuf> {
    let ours = old.metadata()?;
    for number in 0.. {
        let suffix = if number == 0 {
            "orig".to_owned()
        } else {
            format!("orig.{number}")
        };
        let kept = beside(path, &suffix);
        match hard_link(path, &kept) {
            Ok(()) => return Ok(kept),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Left by a repair that was killed between its two steps.
                if kept
                    .metadata()
                    .is_ok_and(|held| (held.dev(), held.ino()) == (ours.dev(), ours.ino()))
                {
                    return Ok(kept);
                }
            }
            // A file system without hard links: copied, then.
            Err(_) => {
                std::fs::copy(path, &kept)?;
                File::open(&kept)?.sync_all()?;
                return Ok(kept);
            }
        }
    }
    unreachable!("some number is free")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}
