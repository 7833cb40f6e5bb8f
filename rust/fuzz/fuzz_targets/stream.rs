//! Any bytes as a stream, in any dialect, cut anywhere: no panic, strict JSON that a
//! reader of the store takes, and the same as the whole.
//!
//! The first byte picks the dialect, the second how long the chunks are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rollfold_core::stream::{Assembler, Dialect, assemble};

fuzz_target!(|data: &[u8]| {
    let [dialect, step, body @ ..] = data else {
        return;
    };
    let dialect = match dialect % 4 {
        0 => Some(Dialect::Chat),
        1 => Some(Dialect::Messages),
        2 => Some(Dialect::Responses),
        _ => None,
    };
    let whole = assemble(dialect, body, Some(200));
    if let Some(response) = &whole.response {
        let text = response.contiguous();
        let parsed = rollfold_core::json::parse(&text).expect("strict JSON");
        assert!(parsed.is_object());
    }
    let mut assembler = Assembler::new(dialect);
    let (mut first_tokens, mut terminals) = (0, 0);
    for chunk in body.chunks(usize::from(*step) + 1) {
        let progress = assembler.feed(chunk);
        first_tokens += usize::from(progress.first_token);
        if let Some(offset) = progress.terminal_offset {
            assert!(offset <= chunk.len());
            terminals += 1;
        }
    }
    assert!(first_tokens <= 1 && terminals <= 1);
    assert_eq!(assembler.finish(Some(200)), whole);
});
