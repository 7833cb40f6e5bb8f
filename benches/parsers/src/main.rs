//! Compares JSON parsers on capture lines.
//!
//!     parser-bench speed CAPTURE...    nanoseconds and GB/s per line, medians
//!     parser-bench strict              which of them takes what, each case in its own process
//!     parser-bench one PARSER CASE     one case of the table, for its exit status

mod candidates;
mod strictness;

use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use candidates::{CANDIDATES, Candidate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["speed", captures @ ..] if !captures.is_empty() => {
            captures.iter().for_each(|path| speed(path));
            ExitCode::SUCCESS
        }
        ["strict"] => {
            strict();
            ExitCode::SUCCESS
        }
        ["one", parser, case] => one(parser.parse().unwrap(), case.parse().unwrap()),
        _ => {
            eprintln!("usage: parser-bench speed CAPTURE... | strict");
            ExitCode::FAILURE
        }
    }
}

/// The median seconds that one pass over `lines` takes, of passes that fill half a second.
fn median(lines: &[&[u8]], mut pass: impl FnMut(&[u8])) -> f64 {
    let mut seconds = Vec::new();
    let until = Instant::now() + Duration::from_millis(500);
    while seconds.len() < 5 || (Instant::now() < until && seconds.len() < 2000) {
        let start = Instant::now();
        lines.iter().for_each(|line| pass(line));
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn speed(path: &str) {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines: Vec<&[u8]> = file
        .split(|&byte| byte == b'\n')
        .filter(|l| !l.is_empty())
        .collect();
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    let average = bytes / lines.len();
    println!("\n{path}: {} lines, {average} bytes a line\n", lines.len());
    println!("| parser | skip, us a line | GB/s | slice, us a line | GB/s |");
    println!("|---|---|---|---|---|");
    let report = |name: &str, skip: f64, slice: Option<f64>| {
        let columns = |seconds: f64| {
            let each = seconds * 1e6 / lines.len() as f64;
            format!("{each:.2} | {:.2}", bytes as f64 / seconds / 1e9)
        };
        println!(
            "| {name} | {} | {} |",
            columns(skip),
            slice.map_or_else(|| "| ".to_string(), columns)
        );
    };
    let mut copy = vec![0_u8; bytes];
    report(
        "memcpy",
        median(&lines, |line| {
            black_box(&mut copy)[..line.len()].copy_from_slice(line);
        }),
        None,
    );
    report(
        "UTF-8 check alone",
        median(&lines, |line| {
            black_box(simdutf8::basic::from_utf8(black_box(line)).is_ok());
        }),
        None,
    );
    let wanted: Vec<_> = lines
        .iter()
        .map(|line| (CANDIDATES[0].slice)(line).unwrap())
        .collect();
    for Candidate { name, skip, slice } in CANDIDATES {
        for (line, wanted) in lines.iter().zip(&wanted) {
            assert_eq!(
                slice(line).as_ref(),
                Ok(wanted),
                "{name} finds other slices"
            );
        }
        report(
            name,
            median(&lines, |line| skip(black_box(line)).unwrap()),
            Some(median(&lines, |line| {
                drop(black_box(slice(black_box(line)).unwrap()))
            })),
        );
    }
}

fn one(parser: usize, case: usize) -> ExitCode {
    let case = &strictness::cases()[case];
    let answer = (CANDIDATES[parser].skip)(&case.text);
    ExitCode::from(if answer.is_ok() { 0 } else { 1 })
}

fn strict() {
    let names: Vec<_> = CANDIDATES.iter().map(|candidate| candidate.name).collect();
    println!("| case | wanted | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    let mut wrong = vec![0; names.len()];
    for (number, case) in strictness::cases().iter().enumerate() {
        let wanted = if case.valid { "takes" } else { "refuses" };
        let answers: Vec<_> = (0..names.len())
            .map(|parser| {
                let answer = answer_of(parser, number);
                if answer == wanted {
                    answer.to_string()
                } else {
                    wrong[parser] += 1;
                    format!("**{answer}**")
                }
            })
            .collect();
        println!("| {} | {wanted} | {} |", case.name, answers.join(" | "));
    }
    let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    println!("| *wrong answers* | | {} |", wrong.join(" | "));
}

/// Runs one case in a process of its own: a stack that overflows ends the process.
fn answer_of(parser: usize, case: usize) -> &'static str {
    let status = Command::new(std::env::current_exe().expect("own path"))
        .args(["one", &parser.to_string(), &case.to_string()])
        .stderr(Stdio::null())
        .status()
        .expect("a process");
    match status.code() {
        Some(0) => "takes",
        Some(1) => "refuses",
        _ => "crashes",
    }
}
