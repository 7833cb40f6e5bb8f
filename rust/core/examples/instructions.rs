//! One stage of the core over one capture, again and again: the subject of the
//! instruction-count check (`tests/test_instructions.py`).
//!
//!     instructions scan CAPTURE REPEATS
//!
//! The difference between two numbers of repeats is what the stage itself costs.

use std::hint::black_box;

use rollfold_core::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, stage, path, repeats] = arguments.as_slice() else {
        return Err("usage: instructions scan CAPTURE REPEATS".into());
    };
    let capture = std::fs::read(path)?;
    let once = match stage.as_str() {
        "scan" => scan,
        _ => return Err(format!("no stage {stage}").into()),
    };
    for _ in 0..repeats.parse()? {
        once(black_box(&capture))?;
    }
    Ok(())
}

/// Strict JSON, line by line.
fn scan(capture: &[u8]) -> Result<(), json::Fault> {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', capture) {
        black_box(json::parse(&capture[start..end])?);
        start = end + 1;
    }
    Ok(())
}
