//! One stage of the core over one capture, again and again: the subject of the
//! instruction-count check (`tests/test_instructions.py`).
//!
//!     instructions scan|calls CAPTURE REPEATS
//!
//! The difference between two numbers of repeats is what the stage itself costs.

use std::hint::black_box;

use rollfold_core::call::CallRecord;
use rollfold_core::exchange::{Record, ScanState, each_record};
use rollfold_core::json;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, stage, path, repeats] = arguments.as_slice() else {
        return Err("usage: instructions scan|calls CAPTURE REPEATS".into());
    };
    let capture = std::fs::read(path)?;
    let once = match stage.as_str() {
        "scan" => scan,
        "calls" => calls,
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

/// Exchanges, their distinct values, and a call record of each.
fn calls(capture: &[u8]) -> Result<(), json::Fault> {
    let mut state = ScanState::default();
    let mut index = 0;
    each_record(capture, &mut state, |_, record, state| {
        if let Record::Good(mut exchange) = record {
            let call = CallRecord::derive(index, &mut exchange, &state.tape, &mut state.shared);
            if let Some(request) = exchange.request.take() {
                state.histories.remember(request);
            }
            black_box(call);
        }
        index += 1;
    });
    black_box(state);
    Ok(())
}
