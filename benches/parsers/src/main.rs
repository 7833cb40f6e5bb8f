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

/// One thing to time: a name of a row, and what is done with a line.
struct Pass<'a> {
    row: &'a str,
    action: Box<dyn FnMut(&[u8]) + 'a>,
    seconds: Vec<f64>,
}

impl Pass<'_> {
    fn median(&mut self) -> f64 {
        self.seconds.sort_by(f64::total_cmp);
        self.seconds[self.seconds.len() / 2]
    }
}

fn speed(path: &str) {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines: Vec<&[u8]> = file
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .collect();
    let bytes: usize = lines.iter().map(|line| line.len()).sum();
    let wanted: Vec<_> = lines
        .iter()
        .map(|line| (CANDIDATES[0].slice)(line).unwrap())
        .collect();
    let mut copy = vec![0_u8; bytes];
    let pass = |row, action| Pass {
        row,
        action,
        seconds: Vec::new(),
    };
    let mut passes = vec![
        pass(
            "memcpy",
            Box::new(|line: &[u8]| {
                black_box(&mut copy)[..line.len()].copy_from_slice(line);
            }),
        ),
        pass(
            "UTF-8 check alone",
            Box::new(|line| {
                black_box(simdutf8::basic::from_utf8(black_box(line)).is_ok());
            }),
        ),
    ];
    for Candidate { name, skip, slice } in CANDIDATES {
        for (line, wanted) in lines.iter().zip(&wanted) {
            assert_eq!(
                slice(line).as_ref(),
                Ok(wanted),
                "{name} finds other slices"
            );
        }
        passes.push(pass(name, Box::new(|line| skip(black_box(line)).unwrap())));
        passes.push(pass(
            name,
            Box::new(|line| drop(black_box(slice(black_box(line)).unwrap()))),
        ));
    }
    // In turns, so that what else the machine does falls on all of them alike.
    let until = Instant::now() + Duration::from_secs(3);
    while passes[0].seconds.len() < 9 || Instant::now() < until {
        for pass in &mut passes {
            let start = Instant::now();
            lines.iter().for_each(|line| (pass.action)(line));
            pass.seconds.push(start.elapsed().as_secs_f64());
        }
    }
    println!(
        "\n{path}: {} lines, {} bytes a line\n",
        lines.len(),
        bytes / lines.len()
    );
    println!("| parser | skip, us a line | GB/s | slice, us a line | GB/s |");
    println!("|---|---|---|---|---|");
    let columns = |seconds: f64| {
        let each = seconds * 1e6 / lines.len() as f64;
        format!("{each:.2} | {:.2}", bytes as f64 / seconds / 1e9)
    };
    for pass in &mut passes[..2] {
        let median = pass.median();
        println!("| {} | {} | | |", pass.row, columns(median));
    }
    for pair in passes[2..].chunks_mut(2) {
        let (skip, slice) = (pair[0].median(), pair[1].median());
        println!(
            "| {} | {} | {} |",
            pair[0].row,
            columns(skip),
            columns(slice)
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
