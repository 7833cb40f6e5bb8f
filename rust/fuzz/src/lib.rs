//! Slow references: what the core does at speed, done again byte by byte from the
//! contract's words, sharing no line with it.

pub mod capture;
pub mod json;
