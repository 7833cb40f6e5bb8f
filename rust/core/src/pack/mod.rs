//! The packed record: each distinct message, tool list, block and long string once.
//!
//! One line of strict JSON, `{"rollfold_packed":1,"parts":[...],"record":...}`.
//! `{"$p":17}` stands for `parts[17]`, in an array `{"$p":[17,5]}` for five parts from
//! 17 on, in place; a part refers to parts before it. A key `$p` of data gets one more
//! `$`. `docs/packed.md` defines it for readers in other languages.

mod nodes;
mod plan;
mod sketch;
mod unpack;
mod value;

pub use unpack::{Form, MAX_UNPACKED, Part, Unpacked, form_of, is_packed, unpack_json};
pub use value::pack_value;

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::json::{MAX_RECORD_DEPTH, Raw, parse_to_depth};
use plan::Plan;

const HEAD: &[u8] = b"{\"rollfold_packed\":1,\"parts\":[";
const MIDDLE: &[u8] = b"],\"record\":";

/// Packs a record that is there as JSON text.
#[must_use]
pub fn pack_json(record: Raw<'_>) -> Vec<u8> {
    let mut plan = Plan::default();
    let root = plan.add(Cow::Borrowed(record.bytes()));
    plan.link(root);
    plan.number();
    let mut out = Vec::with_capacity(plan.size() + 4096);
    out.extend_from_slice(HEAD);
    plan.write_parts(&mut out);
    out.extend_from_slice(MIDDLE);
    plan.write_inside(root, &mut out);
    out.push(b'}');
    out
}

/// Packs a record whose text is not checked yet.
///
/// # Errors
/// It is not strict JSON: what is wrong and where.
pub fn pack_text(record: &[u8]) -> Result<Vec<u8>> {
    let record = parse_to_depth(record, MAX_RECORD_DEPTH)
        .map_err(|fault| Error::json(fault.kind.text(), fault.at))?;
    Ok(pack_json(record))
}
