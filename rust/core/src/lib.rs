//! Folds a rollout's captured model calls into its record. No Python in here.
#![forbid(unsafe_code)]

pub mod call;
pub mod capture;
pub mod content;
pub mod convert;
pub mod error;
pub mod exchange;
pub mod fold;
pub mod history;
pub mod intern;
pub mod item;
pub mod json;
pub mod log;
pub mod names;
pub mod observe;
pub mod pack;
pub mod parts;
pub mod perf;
pub mod render;
pub mod resume;
pub mod sink;
pub mod store;
pub mod stream;
pub mod trajectory;
pub mod turns;
mod typed;
pub mod usage;
pub mod value;
