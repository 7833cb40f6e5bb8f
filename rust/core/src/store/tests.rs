use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// A directory of its own under the build's scratch space, gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rollfold-store-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn writer(&self) -> Writer {
        Writer::new(
            self.0.clone(),
            WriterOptions {
                durability: Durability::None,
                ..Default::default()
            },
        )
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WAIT: Duration = Duration::from_secs(2);

fn read_one(dir: &Path, id: &str) -> (Reading, String) {
    let mut buf = ReadBuffer::with_capacity(9);
    buf.memory().extend_from_slice(b"left over");
    let reading = read(&[dir.to_path_buf()], id, WAIT, &mut buf);
    (reading, String::from_utf8(buf.to_vec()).unwrap())
}

#[test]
fn what_is_appended_is_read() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("new/deep");
    let writer = Writer::new(dir.clone(), WriterOptions::default());
    writer.append("0-0", &[b"{\"a\":1}"]).unwrap();
    writer.append("0-0", &[b"{\"a\":2}"]).unwrap();
    let (reading, text) = read_one(&dir, "0-0");
    assert_eq!(text, "{\"a\":1}\n{\"a\":2}\n");
    assert!(reading.has_capture && !reading.has_late && !reading.incomplete);
    assert!(!reading.lock_unavailable && reading.unreadable.is_none());
    assert_eq!(reading.identity.unwrap().len, 16);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&dir), mode(&capture_path(&dir, "0-0"))),
        (0o700, 0o600)
    );
}

#[test]
fn nothing_is_nothing() {
    let scratch = Scratch::new();
    let (reading, text) = read_one(&scratch.0.join("absent"), "0-0");
    assert!(reading.root.is_none() && text.is_empty() && reading.unreadable.is_none());
    let (reading, _) = read_one(&scratch.0, "../x");
    assert!(matches!(
        reading.unreadable,
        Some(crate::error::Error::RolloutId { .. })
    ));
}

#[test]
fn a_torn_tail_costs_itself_alone() {
    let scratch = Scratch::new();
    fs::write(capture_path(&scratch.0, "r"), "A\n{\"torn").unwrap();
    assert!(scratch.writer().append("r", &[b"C"]).unwrap().healed);
    assert_eq!(read_one(&scratch.0, "r").1, "A\n{\"torn\nC\n");
}

#[test]
fn a_newline_inside_a_line_is_refused() {
    let scratch = Scratch::new();
    assert!(scratch.writer().append("r", &[b"{\n}"]).is_err());
    assert!(!capture_path(&scratch.0, "r").exists());
}

#[test]
fn the_first_directory_by_capture_file_then_by_marker() {
    let (a, b) = (Scratch::new(), Scratch::new());
    let dirs = [a.0.clone(), b.0.clone()];
    a.writer().mark_incomplete("r").unwrap();
    let mut buf = ReadBuffer::default();
    let reading = read(&dirs, "r", WAIT, &mut buf);
    assert_eq!(
        (reading.root, reading.incomplete, reading.has_capture),
        (Some(0), true, false)
    );
    b.writer().append("r", &[b"B"]).unwrap();
    let reading = read(&dirs, "r", WAIT, &mut buf);
    assert_eq!(
        (reading.root, reading.incomplete, reading.has_capture),
        (Some(1), false, true)
    );
}

#[test]
fn what_is_no_file_is_unreadable() {
    let scratch = Scratch::new();
    fs::create_dir(capture_path(&scratch.0, "d")).unwrap();
    assert!(read_one(&scratch.0, "d").0.unreadable.is_some());
    let fifo = capture_path(&scratch.0, "f");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let started = Instant::now();
    assert!(read_one(&scratch.0, "f").0.unreadable.is_some());
    assert!(started.elapsed() < WAIT);
    assert!(scratch.writer().append("d", &[b"x"]).is_err());
    assert!(incomplete_path(&scratch.0, "d").exists());
}

#[test]
fn a_large_file_is_read_into_a_small_buffer() {
    let scratch = Scratch::new();
    let body = "0123456789abcdef\n".repeat(300_000);
    fs::write(capture_path(&scratch.0, "big"), &body).unwrap();
    let mut buf = ReadBuffer::default();
    let reading = read(std::slice::from_ref(&scratch.0), "big", WAIT, &mut buf);
    assert!(*buf == *body.as_bytes() && reading.identity.unwrap().len == body.len() as u64);
}

#[test]
fn a_held_lock_neither_hangs_nor_loses() {
    let scratch = Scratch::new();
    let path = capture_path(&scratch.0, "r");
    fs::write(&path, "A\n").unwrap();
    let holder = fs::File::open(&path).unwrap();
    assert!(acquire(&holder, LockMode::Exclusive, WAIT).locked());
    let mut buf = ReadBuffer::default();
    let reading = read(
        std::slice::from_ref(&scratch.0),
        "r",
        Duration::from_millis(20),
        &mut buf,
    );
    assert!(reading.lock_unavailable && reading.waited >= Duration::from_millis(20));
    assert_eq!(&buf[..], b"A\n");
    let options = WriterOptions {
        lock_wait: Duration::from_millis(200),
        durability: Durability::None,
        ..Default::default()
    };
    let writer = Writer::new(scratch.0.clone(), options);
    assert_eq!(writer.append("r", &[b"B"]).unwrap().lock, Held::TimedOut);
    let started = Instant::now();
    writer.append("r", &[b"C"]).unwrap();
    assert!(
        started.elapsed() < Duration::from_millis(200),
        "the second wait is shorter"
    );
    drop(holder);
    let (reading, text) = read_one(&scratch.0, "r");
    assert_eq!(text, "A\nB\nC\n");
    assert!(reading.incomplete);
}

#[test]
fn what_is_in_flight_is_waited_for_and_nothing_else() {
    let scratch = Scratch::new();
    let dirs = [scratch.0.clone()];
    let mut probe = InflightProbe::new();
    let quiet = |probe: &mut InflightProbe, ms| {
        wait_quiet(&dirs, "r", Duration::from_millis(ms), Duration::ZERO, probe)
    };
    let none = quiet(&mut probe, 1000);
    assert_eq!((none.quiet, none.waited), (Quiet::Quiet, Duration::ZERO));
    let announcer = Announcer::new(scratch.0.clone(), 0o600, 0o700);
    announcer.enter("r").unwrap();
    announcer.enter("r").unwrap();
    announcer.enter("other").unwrap();
    announcer.leave("r");
    let busy = quiet(&mut probe, 30);
    assert_eq!(busy.quiet, Quiet::InFlight);
    assert!(busy.waited >= Duration::from_millis(30));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            announcer.leave("r");
        });
        let ended = quiet(&mut probe, 10_000);
        assert_eq!(ended.quiet, Quiet::Quiet);
        assert!(ended.waited < Duration::from_secs(5));
    });
    assert_eq!(announcer.count(), 1);
    assert!(probe.in_flight(&dirs, "other"));
    drop(announcer);
    assert!(!probe.in_flight(&dirs, "other"));
}

#[test]
fn an_emptied_directory_is_announced_in_anew() {
    let scratch = Scratch::new();
    let announcer = Announcer::new(scratch.0.clone(), 0o600, 0o700);
    announcer.enter("a").unwrap();
    fs::remove_dir_all(&scratch.0).unwrap();
    announcer.enter("b").unwrap();
    let mut probe = InflightProbe::new();
    let dirs = [scratch.0.clone()];
    assert!(probe.in_flight(&dirs, "a") && probe.in_flight(&dirs, "b"));
}

#[test]
fn probes_of_a_process_follow_a_directory_that_moves() {
    let scratch = Scratch::new();
    let (dir, elsewhere) = (scratch.0.join("captures"), scratch.0.join("old"));
    let dirs = [dir.clone()];
    let before = Announcer::new(dir.clone(), 0o600, 0o700);
    before.enter("a").unwrap();
    assert!(InflightProbe::new().in_flight(&dirs, "a"));
    fs::rename(&dir, &elsewhere).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert!(!InflightProbe::new().in_flight(&dirs, "a"));
    Announcer::new(dir, 0o600, 0o700).enter("b").unwrap();
    let held = Announcer::new(dirs[0].clone(), 0o600, 0o700);
    held.enter("c").unwrap();
    assert!(InflightProbe::new().in_flight(&dirs, "c"));
    assert!(
        !InflightProbe::new().in_flight(&dirs, "b"),
        "its announcer is gone"
    );
}

#[test]
fn a_foreign_file_must_rest() {
    let scratch = Scratch::new();
    let dirs = [scratch.0.clone()];
    fs::write(capture_path(&scratch.0, "r"), "A\n").unwrap();
    let settle = Duration::from_millis(60);
    let fresh = wait_quiet(&dirs, "r", WAIT, settle, &mut InflightProbe::new());
    assert_eq!(fresh.quiet, Quiet::Quiet);
    assert!(fresh.waited >= Duration::from_millis(20) && fresh.waited < WAIT);
    std::thread::sleep(settle);
    let rested = wait_quiet(&dirs, "r", WAIT, settle, &mut InflightProbe::new());
    assert_eq!(rested.waited, Duration::ZERO);
}

#[test]
fn a_write_that_fails_half_way_is_taken_back() {
    let scratch = Scratch::new();
    let path = capture_path(&scratch.0, "r");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let error = scratch
        .writer()
        .append("r", &[b"A"])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("r.capture.jsonl") && !error.contains('\n'),
        "{error}"
    );
    assert!(incomplete_path(&scratch.0, "r").exists());
}

mod deletion;
mod lines;
