//! Folds a rollout's captured model calls into its record. No Python in here.

pub mod json;
