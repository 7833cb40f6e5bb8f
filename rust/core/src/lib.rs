//! Folds a rollout's captured model calls into its record. No Python in here.

pub mod call;
pub mod content;
pub mod error;
pub mod exchange;
pub mod history;
pub mod intern;
pub mod json;
pub mod log;
pub mod pack;
pub mod render;
pub mod sink;
pub mod store;
pub mod stream;
pub mod usage;
pub mod value;
