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

mod lines {
    use super::super::*;
    use crate::json;
    use crate::stream::Dialect;
    use proptest::prelude::*;

    fn body(text: &[u8]) -> Body {
        let mut body = Body::new(None);
        body.push(text);
        body
    }

    fn facts() -> Facts<'static> {
        Facts {
            model_call_id: "c\"1",
            dialect: "chat",
            server_name: Some("policy"),
            started_at: 1_700_000_000.25,
            completed_at: 1_700_000_001.5,
            latency_ms: 1250.0,
            status_code: Some(200),
            ..Facts::default()
        }
    }

    fn line(facts: &Facts<'_>, request: &[u8], response: &[u8]) -> Vec<u8> {
        compose(facts, body(request), Response::Whole(body(response))).joined()
    }

    fn get(line: &[u8], key: &str) -> String {
        let value = json::parse(line).expect("strict").get(key);
        value.map_or_else(
            || "absent".into(),
            |v| String::from_utf8_lossy(v.bytes()).into_owned(),
        )
    }

    #[test]
    fn good_bodies_keep_their_bytes() {
        let written = line(
            &facts(),
            b" {\"n\": 18446744073709551616,\r\n \"f\": 1.10} ",
            b"{}\n",
        );
        let expected = concat!(
            r#"{"model_call_id":"c\"1","dialect":"chat","model_ref":{"type":"responses_api_models","#,
            r#""name":"policy"},"started_at":1700000000.25,"completed_at":1700000001.5,"#,
            r#""latency_ms":1250.0,"latency_ttft_ms":null,"status_code":200,"error_category":null,"#,
            r#""request":{"n": 18446744073709551616,   "f": 1.10},"response":{}}"#
        );
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    #[test]
    fn what_json_does_not_know_is_mended_and_kept_as_it_came() {
        let odd = [
            (
                &br#"{"p":NaN,"q":[-Infinity,1e999]}"#[..],
                r#"{"p":null,"q":[null,null]}"#,
            ),
            (br#"{"t":"a\ud83d"}"#, "{\"t\":\"a\u{fffd}\"}"),
            (b"{\"t\":\"\xff\"}", "{\"t\":\"\u{fffd}\"}"),
        ];
        for (text, mended) in odd {
            let written = line(&facts(), text, text);
            for side in ["request", "response"] {
                assert_eq!(get(&written, side), mended);
                let raw = json::parse(&written)
                    .unwrap()
                    .get(&format!("{side}_raw"))
                    .unwrap();
                assert_eq!(raw.as_str().unwrap(), String::from_utf8_lossy(text));
            }
            assert_eq!(get(&written, "error_category"), "null");
        }
    }

    #[test]
    fn what_is_no_object_is_kept_raw() {
        let deep = [b"{\"a\":".repeat(1023), b"[]".to_vec(), b"}".repeat(1023)].concat();
        for text in [&b"<html>"[..], b"[1]", b"{},{}", b"{}]", b"{\"a\":", &deep] {
            let written = line(&facts(), b"{}", text);
            assert_eq!(get(&written, "response"), "null");
            assert_eq!(get(&written, "error_category"), "\"capture_parse_error\"");
            let raw = json::parse(&written).unwrap().get("response_raw").unwrap();
            assert_eq!(raw.as_str().unwrap().as_bytes(), text);
        }
        let written = line(
            &Facts {
                status_code: Some(502),
                ..facts()
            },
            b"{}",
            b"<html>",
        );
        assert_eq!(get(&written, "error_category"), "\"upstream_error\"");
        let written = line(&facts(), b"", b"");
        assert_eq!(get(&written, "request_raw"), "absent");
        assert_eq!(get(&written, "error_category"), "null");
        let just = [b"{\"a\":".repeat(1022), b"[]".to_vec(), b"}".repeat(1022)].concat();
        assert_ne!(get(&line(&facts(), b"{}", &just), "response"), "null");
    }

    #[test]
    fn bounds_keep_the_beginning() {
        let mut request = Body::new(Some(4));
        request.push(b"{\"a\"");
        request.push(b":1}");
        let mut stream = Stream::new(Some(Dialect::Chat), Some(10));
        assert_eq!(
            stream.push(b"data: {\"choices\":[]}\n\n").terminal_offset,
            None
        );
        assert_eq!(
            stream.push(b"data: x\n\ndata: [DONE]\n\n").terminal_offset,
            Some(9)
        );
        let written = compose(&facts(), request, Response::Stream(Box::new(stream))).joined();
        assert_eq!(get(&written, "truncated"), r#"["request","response"]"#);
        assert_eq!(get(&written, "request_raw"), r#""{\"a\"""#);
        assert_eq!(get(&written, "response_raw"), r#""data: {\"ch""#);
        assert_eq!(
            get(&written, "response") + &get(&written, "request"),
            "nullnull"
        );
        assert_eq!(get(&written, "error_category"), "null");
    }

    #[test]
    fn a_stream_without_its_content_type_is_seen() {
        let text = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let written = line(&facts(), b"{}", text);
        assert!(get(&written, "response").contains("\"hi\""));
        assert_eq!(get(&written, "error_category"), "null");
    }

    proptest! {
        #[test]
        fn any_bodies_make_one_strict_line(
            request in prop::collection::vec(any::<u8>(), 0..60),
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
            bound in prop::option::of(0usize..50),
        ) {
            let mut stream = Stream::new(Some(Dialect::Messages), bound);
            for chunk in &chunks {
                stream.push(chunk);
            }
            let written =
                compose(&facts(), body(&request), Response::Stream(Box::new(stream))).joined();
            prop_assert!(json::parse(&written).is_ok());
            prop_assert!(!written.contains(&b'\n'));
            let whole = chunks.concat();
            if bound.is_none() && !whole.is_empty() {
                let raw = json::parse(&written).unwrap().get("response_raw").unwrap();
                let raw = raw.as_str().unwrap().into_owned();
                prop_assert_eq!(raw, String::from_utf8_lossy(&whole));
            }
        }

        #[test]
        fn text_cut_anywhere_is_the_text(text in "\\PC{0,30}", cuts in prop::collection::vec(1usize..5, 40)) {
            let mut stream = Stream::new(None, None);
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (chunk, left) = rest.split_at(cut.min(rest.len()));
                stream.push(chunk);
                rest = left;
            }
            stream.push(rest);
            let written =
                compose(&facts(), body(b"{}"), Response::Stream(Box::new(stream))).joined();
            let raw = json::parse(&written).unwrap().get("response_raw");
            let raw = raw.map(|raw| raw.as_str().unwrap().into_owned()).unwrap_or_default();
            prop_assert_eq!(raw, text);
        }
    }
}
