//! The parsers, each asked for the same two things.
//!
//! `skip`: is this line strict JSON? No value is built. `slice`: the same, and the slices that a
//! fold needs: every field of the line, every field of its request, every message or input item.

use std::collections::HashMap;

use jiter::Jiter;
use rollfold_core::json::{self, Fault, Scanner};
use serde_json::value::RawValue;
use sonic_rs::{JsonValueTrait, LazyValue};

/// One parser under test.
pub struct Candidate {
    pub name: &'static str,
    pub skip: fn(&[u8]) -> Result<(), String>,
    pub slice: fn(&[u8]) -> Result<Slices, String>,
}

/// How many slices were found, and their bytes in all: equal for all parsers, or one is wrong.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Slices {
    pub count: usize,
    pub bytes: usize,
}

impl Slices {
    fn add(&mut self, slice: &[u8]) {
        self.count += 1;
        self.bytes += slice.len();
    }
}

pub const CANDIDATES: &[Candidate] = &[
    Candidate {
        name: "jiter + simdutf8",
        skip: jiter_skip,
        slice: jiter_slice,
    },
    Candidate {
        name: "serde_json RawValue",
        skip: serde_skip,
        slice: serde_slice,
    },
    Candidate {
        name: "sonic-rs LazyValue",
        skip: sonic_skip,
        slice: sonic_slice,
    },
    Candidate {
        name: "rollfold",
        skip: own_skip,
        slice: own_slice,
    },
];

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

/// Histories: the key under which each dialect's request holds them.
fn is_history(key: &[u8]) -> bool {
    key == b"messages" || key == b"input"
}

fn jiter_skip(line: &[u8]) -> Result<(), String> {
    simdutf8::basic::from_utf8(line).map_err(text)?;
    let mut parser = Jiter::new(line);
    parser.next_skip().map_err(text)?;
    parser.finish().map_err(text)
}

fn jiter_slice(line: &[u8]) -> Result<Slices, String> {
    simdutf8::basic::from_utf8(line).map_err(text)?;
    let mut parser = Jiter::new(line);
    let mut slices = Slices::default();
    jiter_object(&mut parser, &mut slices, 0)?;
    parser.finish().map_err(text)?;
    Ok(slices)
}

fn jiter_object(parser: &mut Jiter, slices: &mut Slices, level: u8) -> Result<(), String> {
    let mut key = parser
        .next_object_bytes()
        .map_err(text)?
        .map(<[u8]>::to_vec);
    while let Some(name) = key {
        let peek = parser.peek().map_err(text)?;
        let start = parser.current_index();
        if level == 0 && name == b"request" {
            jiter_object(parser, slices, 1)?;
        } else if level == 1 && is_history(&name) {
            let mut item = parser.next_array().map_err(text)?;
            while let Some(peek) = item {
                let start = parser.current_index();
                parser.known_skip(peek).map_err(text)?;
                slices.add(parser.slice_to_current(start));
                item = parser.array_step().map_err(text)?;
            }
        } else {
            parser.known_skip(peek).map_err(text)?;
        }
        slices.add(parser.slice_to_current(start));
        key = parser.next_key_bytes().map_err(text)?.map(<[u8]>::to_vec);
    }
    Ok(())
}

fn serde_skip(line: &[u8]) -> Result<(), String> {
    serde_json::from_slice::<&RawValue>(line)
        .map(drop)
        .map_err(text)
}

fn serde_slice(line: &[u8]) -> Result<Slices, String> {
    let mut slices = Slices::default();
    let fields: HashMap<String, &RawValue> = serde_json::from_slice(line).map_err(text)?;
    for (name, field) in &fields {
        slices.add(field.get().as_bytes());
        if name == "request" {
            let parts: HashMap<String, &RawValue> =
                serde_json::from_str(field.get()).map_err(text)?;
            for (name, part) in &parts {
                slices.add(part.get().as_bytes());
                if is_history(name.as_bytes()) {
                    let items: Vec<&RawValue> = serde_json::from_str(part.get()).map_err(text)?;
                    items
                        .iter()
                        .for_each(|item| slices.add(item.get().as_bytes()));
                }
            }
        }
    }
    Ok(slices)
}

fn sonic_skip(line: &[u8]) -> Result<(), String> {
    sonic_rs::from_slice::<LazyValue>(line)
        .map(drop)
        .map_err(text)
}

fn sonic_slice(line: &[u8]) -> Result<Slices, String> {
    let mut slices = Slices::default();
    let whole: LazyValue = sonic_rs::from_slice(line).map_err(text)?;
    for field in whole.into_object_iter().ok_or("no object")? {
        let (name, field) = field.map_err(text)?;
        slices.add(field.as_raw_str().as_bytes());
        if name == "request" && field.is_object() {
            for part in field.into_object_iter().ok_or("no object")? {
                let (name, part) = part.map_err(text)?;
                slices.add(part.as_raw_str().as_bytes());
                if is_history(name.as_bytes()) && part.is_array() {
                    for item in part.into_array_iter().ok_or("no array")? {
                        slices.add(item.map_err(text)?.as_raw_str().as_bytes());
                    }
                }
            }
        }
    }
    Ok(slices)
}

fn own_skip(line: &[u8]) -> Result<(), String> {
    json::parse(line).map(drop).map_err(text)
}

fn own_slice(line: &[u8]) -> Result<Slices, String> {
    json::check_utf8(line, 0).map_err(text)?;
    let mut scanner = Scanner::new(line);
    let mut slices = Slices::default();
    own_object(&mut scanner, &mut slices, 0).map_err(text)?;
    if scanner.at_end() {
        Ok(slices)
    } else {
        Err("trailing bytes".to_string())
    }
}

fn own_object(scanner: &mut Scanner, slices: &mut Slices, level: u8) -> Result<(), Fault> {
    scanner.object(|scanner, key| {
        let start = scanner.pos();
        if level == 0 && key.is_str("request") {
            own_object(scanner, slices, 1)?;
        } else if level == 1 && (key.is_str("messages") || key.is_str("input")) {
            scanner.array(|scanner| {
                slices.add(scanner.value()?.bytes());
                Ok(())
            })?;
        } else {
            scanner.value()?;
        }
        slices.add(scanner.slice(start, scanner.pos()));
        Ok(())
    })
}
