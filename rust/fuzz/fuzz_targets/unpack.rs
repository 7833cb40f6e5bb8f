//! Any bytes as a packed record: no panic, strict JSON of the promised size, and the same
//! again after another packing. Any JSON as a record: back byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rollfold_core::json::{MAX_RECORD_DEPTH, parse_to_depth};
use rollfold_core::log::record_key;
use rollfold_core::pack::{Unpacked, pack_json, unpack_json};

/// Small enough to run often, large enough for runs of runs.
const LIMIT: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    if let Ok(unpacked) = Unpacked::read(data, LIMIT)
        && let Ok(len) = unpacked.full_len()
    {
        let full = unpack_json(data, LIMIT).expect("read before");
        assert_eq!(full.len(), len);
        let record = parse_to_depth(&full, MAX_RECORD_DEPTH).expect("strict JSON");
        let again = unpack_json(&pack_json(record), u64::MAX).expect("our own");
        assert!(again.len() <= full.len());
        assert_eq!(record_key(data).is_ok(), record.is_object());
    }
    let Ok(record) = parse_to_depth(data, MAX_RECORD_DEPTH) else {
        return;
    };
    let packed = pack_json(record);
    assert!(!packed.contains(&b'\n'));
    let back = unpack_json(&packed, u64::MAX).expect("our own");
    if !data.iter().any(u8::is_ascii_whitespace) {
        assert_eq!(back, record.bytes());
    }
});
