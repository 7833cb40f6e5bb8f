//! What a deletion takes, and what it leaves.

use super::*;

/// The writers of this process: enough for these tests.
fn writers(file: &fs::File) -> Writers {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let own = identity(file.metadata().unwrap());
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        // One that was closed meanwhile is no writer.
        let same = fs::metadata(entry.path()).is_ok_and(|found| identity(found) == own);
        let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
        let info = fs::read_to_string(info).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
        if same && flags.is_some_and(|flags| flags & 3 != 0) {
            return Writers::Some;
        }
    }
    Writers::None
}

#[test]
fn deletion_takes_what_was_read_and_only_that() {
    let scratch = Scratch::new();
    let dir = &scratch.0;
    let writer = scratch.writer();
    writer.append("r", &[b"A"]).unwrap();
    writer.mark_incomplete("r").unwrap();
    let (reading, _) = read_one(dir, "r");
    writer.append("r", &[b"B"]).unwrap();
    let kept = claim_and_delete(dir, "r", &reading, WAIT, writers).unwrap();
    assert_eq!(kept, Deletion::Kept(Kept::Grown));
    let (reading, _) = read_one(dir, "r");
    assert_eq!(
        claim_and_delete(dir, "r", &reading, WAIT, writers).unwrap(),
        Deletion::Deleted
    );
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
    assert_eq!(
        claim_and_delete(dir, "r", &reading, WAIT, writers).unwrap(),
        Deletion::Nothing
    );
}

#[test]
fn a_line_written_between_claim_and_end_stays_as_late() {
    let scratch = Scratch::new();
    let dir = &scratch.0;
    let writer = scratch.writer();
    writer.append("r", &[b"A"]).unwrap();
    // A writer that does not look where its file went, as foreign ones do not.
    let mut foreign = fs::OpenOptions::new()
        .append(true)
        .open(capture_path(dir, "r"))
        .unwrap();
    let (reading, _) = read_one(dir, "r");
    let Claimed::Pending(claim) = claim(dir, "r", &reading, WAIT).unwrap() else {
        panic!()
    };
    std::io::Write::write_all(&mut foreign, b"B\n").unwrap();
    writer.append("r", &[b"C"]).unwrap();
    assert_eq!(
        claim.finish(WAIT, writers).unwrap(),
        Deletion::Kept(Kept::Late)
    );
    let (reading, text) = read_one(dir, "r");
    assert_eq!((text.as_str(), reading.late_len), ("A\nB\nC\n", 4));
    // There is a late file: the capture stays under its own name.
    let kept = claim_and_delete(dir, "r", &reading, WAIT, writers).unwrap();
    assert_eq!(kept, Deletion::Kept(Kept::LateExists));
    assert_eq!(read_one(dir, "r").1, "A\nB\nC\n");
    assert_eq!(clear(dir, "r", WAIT).unwrap(), 2);
    assert!(read_one(dir, "r").0.root.is_none());
}

/// Waits until somebody waits for a lock on the file: the kernel lists them with `->`.
fn wait_for_blocked_lock(path: &Path) {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
    let started = std::time::Instant::now();
    while !fs::read_to_string("/proc/locks")
        .unwrap()
        .lines()
        .any(|line| line.contains("-> FLOCK") && line.contains(&inode))
    {
        assert!(started.elapsed() < WAIT * 10, "nobody waits for the lock");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_foreign_writer_that_waits_for_the_lock_is_seen() {
    let scratch = Scratch::new();
    let dir = &scratch.0;
    for _ in 0..20 {
        scratch.writer().append("r", &[b"A"]).unwrap();
        let (reading, _) = read_one(dir, "r");
        let path = capture_path(dir, "r");
        let holder = fs::File::open(&path).unwrap();
        assert!(acquire(&holder, LockMode::Shared, WAIT).locked());
        let foreign = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
                file.lock().unwrap();
                std::io::Write::write_all(&mut file, b"B\n").unwrap();
            }
        });
        wait_for_blocked_lock(&path);
        drop(holder);
        let outcome = claim_and_delete(dir, "r", &reading, WAIT, writers).unwrap();
        foreign.join().unwrap();
        assert!(
            matches!(outcome, Deletion::Kept(Kept::Late | Kept::Grown)),
            "{outcome:?}"
        );
        assert_eq!(read_one(dir, "r").1, "A\nB\n");
        clear(dir, "r", WAIT).unwrap();
    }
}
