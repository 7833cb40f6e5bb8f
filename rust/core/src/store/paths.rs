//! File names from rollout ids.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The longest rollout id, suffix included (contract, section 2).
pub const MAX_ID: usize = 200;

/// Whether `id` may become a file name: `[A-Za-z0-9][A-Za-z0-9._-]*`, whole.
#[must_use]
pub fn valid_rollout_id(id: &str) -> bool {
    let bytes = id.as_bytes();
    bytes.len() <= MAX_ID
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// # Errors
/// [`Error::RolloutId`] where the id is not valid.
pub fn check_rollout_id(id: &str) -> Result<()> {
    if valid_rollout_id(id) {
        Ok(())
    } else {
        Err(Error::RolloutId { id: id.to_owned() })
    }
}

/// The exchanges of a rollout attempt. The id must have been checked.
#[must_use]
pub fn capture_path(root: &Path, id: &str) -> PathBuf {
    named(root, id, ".capture.jsonl")
}

/// The marker of an attempt some exchange of which could not be written.
#[must_use]
pub fn incomplete_path(root: &Path, id: &str) -> PathBuf {
    named(root, id, ".capture.incomplete")
}

/// What a deletion found grown and kept (contract, section 12).
#[must_use]
pub fn late_path(root: &Path, id: &str) -> PathBuf {
    named(root, id, ".capture.late.jsonl")
}

fn named(root: &Path, id: &str, suffix: &str) -> PathBuf {
    debug_assert!(valid_rollout_id(id));
    let mut name = String::with_capacity(id.len() + suffix.len());
    name.push_str(id);
    name.push_str(suffix);
    root.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_whole_and_bounded() {
        for good in ["0-0", "a", "A.b_c-d", "0-0-a3", &"x".repeat(200)] {
            assert!(valid_rollout_id(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "-a",
            "_a",
            "a/b",
            "a\n",
            "a\0",
            "ä",
            "a b",
            &"x".repeat(201),
        ] {
            assert!(!valid_rollout_id(bad), "{bad:?}");
        }
    }

    #[test]
    fn no_two_ids_share_a_file() {
        let root = Path::new("/r");
        assert_eq!(late_path(root, "x"), Path::new("/r/x.capture.late.jsonl"));
        assert_ne!(late_path(root, "x"), capture_path(root, "x.capture.late"));
        assert_eq!(
            incomplete_path(root, "0-1-a2"),
            Path::new("/r/0-1-a2.capture.incomplete")
        );
    }
}
