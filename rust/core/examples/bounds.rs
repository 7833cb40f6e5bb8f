//! The least that a fold can cost: reading a capture, checking its UTF-8, copying it out.
//!
//!     bounds CAPTURE BYTES_OUT [REPEATS]
//!
//! Prints one JSON object of medians in seconds: `read` into a buffer used before, `utf8` of
//! all of it, `copy_touched` of `BYTES_OUT` bytes into memory used before, `copy_fresh` into
//! pages that the process has to be given first.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("no capture given")?;
    let bytes_out: usize = arguments.next().ok_or("no size given")?.parse()?;
    let repeats: usize = arguments.next().map_or(Ok(9), |text| text.parse())?;

    let size = std::fs::read(&path)?.len();
    let mut memory = vec![0; size + 64];
    // Where a read is fast: see the core's `ReadBuffer`.
    let start = memory.as_ptr().align_offset(64);
    let capture = &mut memory[start..start + size];
    let read = median(repeats, || {
        let read = File::open(&path).and_then(|mut file| file.read_exact(capture));
        assert!(read.is_ok(), "the capture could be read before");
    });
    let capture = &*capture;
    let utf8 = median(repeats, || {
        assert!(simdutf8::basic::from_utf8(black_box(capture)).is_ok());
    });
    let mut output = Vec::with_capacity(bytes_out + capture.len());
    let copy_touched = median(repeats, || copy(capture, bytes_out, &mut output));
    let copy_fresh = median(repeats, || {
        copy(
            capture,
            bytes_out,
            &mut Vec::with_capacity(bytes_out + capture.len()),
        );
    });
    println!(
        "{{\"read\":{read},\"utf8\":{utf8},\"copy_touched\":{copy_touched},\"copy_fresh\":{copy_fresh}}}"
    );
    Ok(())
}

fn copy(from: &[u8], bytes_out: usize, output: &mut Vec<u8>) {
    output.clear();
    while output.len() < bytes_out {
        let left = bytes_out - output.len();
        output.extend_from_slice(&from[..left.min(from.len())]);
    }
    black_box(output);
}

fn median(repeats: usize, mut action: impl FnMut()) -> f64 {
    action();
    let mut seconds: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = Instant::now();
            action();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[repeats / 2]
}
