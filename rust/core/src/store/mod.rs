//! The capture store: paths from ids, locks, reading, quiescence, deletion, writing.
//!
//! A directory holds, per rollout attempt, `<id>.capture.jsonl` (one exchange a line),
//! `<id>.capture.incomplete` (an empty marker) and, where a consumer met a writer,
//! `<id>.capture.late.jsonl`; and, for all of them, one `.rollfold-inflight` file on
//! which writers announce calls in flight (contract, sections 3, 10 and 12).

mod body;
mod buffer;
mod compose;
mod delete;
mod inflight;
mod lock;
mod paths;
mod queue;
mod quiet;
mod read;
mod write;

pub use body::{Body, Stream};
pub use buffer::ReadBuffer;
pub use compose::{Facts, Line, Response, compose};
pub use delete::{
    AskWriters, Claim, Claimed, Deletion, Kept, Writers, claim, claim_and_delete, clear,
};
pub use inflight::{Announcer, INFLIGHT_FILE, InflightProbe};
pub use lock::{Held, LockMode, acquire};
pub use paths::{
    MAX_ID, capture_path, check_rollout_id, incomplete_path, late_path, valid_rollout_id,
};
pub use queue::Queue;
pub use quiet::{Quiescence, Quiet, QuietWatch, Step, wait_quiet};
pub use read::{FileIdentity, Reading, read};
pub use write::{Appended, Durability, Writer, WriterOptions};

#[cfg(test)]
mod tests;
