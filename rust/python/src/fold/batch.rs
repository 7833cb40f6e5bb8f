//! Many rollouts to JSON or packed text, on threads that live as long as one call.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use rollfold_core::intern::Interner;
use rollfold_core::log::{Form, Prepared, RecordKey, Shape};
use rollfold_core::pack::pack_value;
use rollfold_core::render::{exact_len, render};
use rollfold_core::sink::Short;
use rollfold_core::store::InflightProbe;
use rollfold_core::value::Value;

use super::convert::convert_json;
use super::report::Report;
use super::request::{Buffer, Files, Request, wait_limit};
use super::text::Body;
use crate::fresh_bytes::fresh_bytes;
use crate::log::{LogFrames, shape_named};

/// Bytes of records that one call makes at a time and thread: the caller has the first ones
/// before the last ones are made.
const HELD: usize = 2 << 20;

/// A full record up to this size is written once and copied. Of a larger one the size is
/// counted first, which costs less than copying it would.
const SHORT: usize = 128 << 10;

/// A thread keeps no larger buffer than this.
const KEPT: usize = 1 << 20;

thread_local! {
    /// The memory that records are written in before they become objects.
    static TEXT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends `write` this thread's buffer, empty.
fn with_text<T>(write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut text = TEXT.take();
    text.clear();
    let made = write(&mut text);
    if text.capacity() <= KEPT {
        TEXT.set(text);
    }
    made
}

/// A rollout of a batch: what the caller gave.
struct Item {
    request: Option<Py<Request>>,
    body: Py<Body>,
}

/// A record, and what was met on its way; no report where nothing was folded.
type Output = PyResult<(Text, Option<Report>)>;

/// A rollout's record.
enum Text {
    /// Its text, and how long that is.
    Bytes(Py<PyBytes>, usize),
    Frames(Py<LogFrames>),
}

impl Text {
    fn copied(text: &[u8]) -> Self {
        let bytes = Python::attach(|py| PyBytes::new(py, text).unbind());
        Self::Bytes(bytes, text.len())
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(_, len) => *len,
            Self::Frames(_) => 0,
        }
    }

    fn into_any(self) -> Py<PyAny> {
        match self {
            Self::Bytes(text, _) => text.into_any(),
            Self::Frames(frames) => frames.into_any(),
        }
    }
}

/// What is to be made of the records.
enum Wanted {
    Full,
    Packed,
    /// What a log's file is to get, and whose each record is.
    Frames(Shape, Vec<RecordKey>),
}

/// Enriches results into JSON (`form` is `full`) or packed text (`packed`).
///
/// `items` holds tuples of a request (none: identity alone) and a result. Gives for the
/// first items, as many as fit in memory, the text of each with what is to be told of it, if
/// anything, or the exception that it cost.
///
/// All of them together wait `wait_s` seconds at most, for calls and for locks.
///
/// With `log`, the level of compression (none: plain lines) and for each item the rollout
/// id and whether it never started, what a log's file is to get comes in the text's place.
#[pyfunction]
#[pyo3(signature = (items, form, threads, converter, wait_s = None, log = None))]
fn fold_batch<'py>(
    py: Python<'py>,
    items: &Bound<'py, PyList>,
    form: &str,
    threads: NonZeroUsize,
    converter: &Bound<'py, PyAny>,
    wait_s: Option<f64>,
    log: Option<(Option<i32>, Vec<(Option<String>, bool)>)>,
) -> PyResult<Bound<'py, PyList>> {
    let taken = items.iter().map(|item| take(&item));
    let taken = taken.collect::<PyResult<Vec<Item>>>()?;
    let wanted = match log {
        Some((level, keys)) => {
            let key = |(id, never_started)| RecordKey { id, never_started };
            Wanted::Frames(
                shape_named(form, level)?,
                keys.into_iter().map(key).collect(),
            )
        }
        None if form == "packed" => Wanted::Packed,
        None => Wanted::Full,
    };
    let work = Work {
        wanted,
        waits: Waits(Mutex::new(wait_limit(wait_s))),
        converter: converter.as_unbound(),
    };
    let outputs = py.detach(|| work.run(taken, threads.get()));
    let list = PyList::empty(py);
    for output in outputs {
        match output {
            Ok((text, report)) => {
                let told = report
                    .map(|report| report.count_and_tell(py))
                    .transpose()?
                    .flatten();
                list.append((text.into_any(), told))?;
            }
            Err(error) => list.append(error.into_value(py))?,
        }
    }
    Ok(list)
}

fn take(item: &Bound<'_, PyAny>) -> PyResult<Item> {
    let item = item.cast::<PyTuple>()?;
    let request = item.get_item(0)?;
    Ok(Item {
        request: if request.is_none() {
            None
        } else {
            Some(request.extract()?)
        },
        body: item.get_item(1)?.extract()?,
    })
}

/// What is left of the time that a batch may wait in all.
struct Waits(Mutex<Duration>);

impl Waits {
    /// Reads files within what is left, and takes off what that waited.
    fn spend(&self, read: impl FnOnce(Duration) -> Files) -> Files {
        let left = |wait: &Mutex<Duration>| wait.lock().map_or(Duration::ZERO, |left| *left);
        let files = read(left(&self.0));
        if let Ok(mut left) = self.0.lock() {
            *left = left.saturating_sub(files.waited);
        }
        files
    }
}

/// Runs `work` on the elements in order, on up to `threads` threads, on this one where that is
/// one, until `more` says of an element's index that it and what follows wait.
fn parallel<T: Send>(
    threads: usize,
    elements: &mut [T],
    more: impl Fn(usize) -> bool + Sync,
    work: impl Fn(&mut T) + Sync,
) {
    // Whether there is more is decided in order, by one thread at a time: no element is begun
    // that comes after one that was not.
    let next = Mutex::new(Some(elements.iter_mut().enumerate()));
    let take = || {
        let mut next = next.lock().ok()?;
        let element = next.as_mut()?.next().filter(|(at, _)| more(*at));
        if element.is_none() {
            *next = None;
        }
        element
    };
    let drain = || {
        while let Some((_, element)) = take() {
            work(element);
        }
    };
    if threads <= 1 {
        return drain();
    }
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(drain);
        }
        drain();
    });
}

/// What is the same for all rollouts of a call.
struct Work<'c> {
    wanted: Wanted,
    waits: Waits,
    converter: &'c Py<PyAny>,
}

impl Work<'_> {
    /// The outputs of the first items, each made from its files to its text by one thread: what
    /// was just read is still at hand. The interpreter is taken for what needs it.
    fn run(&self, items: Vec<Item>, threads: usize) -> Vec<Output> {
        let held = AtomicUsize::new(0);
        let mut slots: Vec<_> = items
            .into_iter()
            .enumerate()
            .map(|(at, item)| (at, item, None))
            .collect();
        let threads = threads.min(slots.len());
        // A whole turn of the threads or none: who has made the last one waits for nobody long.
        let more = |at| at % threads != 0 || held.load(Ordering::Relaxed) < HELD * threads;
        parallel(threads, &mut slots, more, |(at, item, output)| {
            let made = self.one(*at, item);
            if let Ok((text, _)) = &made {
                held.fetch_add(text.len(), Ordering::Relaxed);
            }
            *output = Some(made);
        });
        slots
            .into_iter()
            .map_while(|(_, _, output)| output)
            .collect()
    }

    fn one(&self, at: usize, item: &Item) -> Output {
        let body = item.body.get();
        let parsed = body.parsed();
        let Some(request) = &item.request else {
            let record = parsed.record(body.identity(), None);
            let text = self.text(at, &record, &Interner::default())?;
            return Ok((text, None));
        };
        let request = request.get();
        let mut buffer = Buffer::take();
        let files = self
            .waits
            .spend(|limit| request.read(&mut InflightProbe::new(), &mut buffer.0, limit));
        let mut fold = request.scan(&files, &buffer.0, parsed.sections());
        let mut report = request.report(&files, &buffer.0, &fold);
        let outcomes = convert_json(&mut fold, self.converter)?;
        let (folded, shared) = fold.finish(&outcomes);
        let keep_files = folded.keep_files;
        let record = parsed.record(body.identity(), Some(folded));
        let text = self.text(at, &record, &shared)?;
        // The record is there: its files may go.
        request.delete(&files, keep_files, &mut report);
        Ok((text, Some(report)))
    }

    fn text(&self, at: usize, record: &Value<'_>, shared: &Interner<'_>) -> PyResult<Text> {
        match &self.wanted {
            Wanted::Full => with_text(|text| {
                let mut short = Short::new(text, SHORT);
                render(record, shared, &mut short);
                match short.finish() {
                    Ok(text) => Ok(Text::copied(text)),
                    Err(len) => Python::attach(|py| {
                        let text = fresh_bytes(py, len, |slots| render(record, shared, slots))?;
                        Ok(Text::Bytes(text.unbind(), len))
                    }),
                }
            }),
            Wanted::Packed => with_text(|text| {
                pack_value(record, shared, text);
                Ok(Text::copied(text))
            }),
            Wanted::Frames(shape, keys) => {
                let key = keys.get(at).cloned().unwrap_or_default();
                let frames = Prepared::rendered(key, *shape, |out| {
                    match shape.form {
                        Form::Packed => pack_value(record, shared, out),
                        Form::Full => {
                            out.reserve(exact_len(record, shared) + 1);
                            render(record, shared, out);
                        }
                    }
                    Ok(())
                })
                .map_err(|error| PyValueError::new_err(error.to_string()))?;
                let frames = Python::attach(|py| Py::new(py, LogFrames(frames)))?;
                Ok(Text::Frames(frames))
            }
        }
    }
}

/// Adds this file's function.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(fold_batch, module)?)
}
