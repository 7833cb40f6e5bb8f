//! Many rollouts to JSON or packed text, on threads that live as long as one call.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use rollfold_core::fold::Fold;
use rollfold_core::intern::Interner;
use rollfold_core::log::{Form, Prepared, RecordKey, Shape};
use rollfold_core::pack::pack_value;
use rollfold_core::render::{exact_len, render};
use rollfold_core::store::InflightProbe;
use rollfold_core::turns::Outcome;
use rollfold_core::value::Value;

use super::convert::convert;
use super::objects::Objects;
use super::request::{Buffer, Files, Report, Request, wait_limit};
use super::text::{Body, Identity, Parsed, identity};
use crate::fresh_bytes::fresh_batch;
use crate::json::Builder;
use crate::log::{LogFrames, shape_named};

/// Bytes of captures that one call holds at a time and thread.
const HELD: usize = 8 << 20;

/// A rollout of a batch: what the caller gave.
struct Item {
    request: Option<Py<Request>>,
    body: Py<Body>,
    identity: Identity,
}

/// Its files.
struct Source {
    buffer: Buffer,
    files: Option<Files>,
}

type Output = PyResult<(Text, Report)>;

/// A rollout's record.
#[derive(IntoPyObject)]
enum Text {
    Bytes(Py<PyBytes>),
    Frames(Py<LogFrames>),
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
/// `items` holds tuples of a request (none: identity alone), a result (a `Body`)
/// and the row's identity keys as a dict. Gives for the first items, as many as fit in
/// memory, the text and the report of each, or the exception that it cost.
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
    let taken: Vec<PyResult<Item>> = items.iter().map(|item| take(&item)).collect();
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
    let waits = Waits(Mutex::new(wait_limit(wait_s)));
    let outputs = run(py, &taken, &wanted, threads.get(), &waits, converter)?;
    let list = PyList::empty(py);
    for output in outputs {
        match output {
            Ok((text, report)) => list.append((text, report.to_dict(py)?))?,
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
        identity: identity(item.get_item(2)?.cast::<PyDict>()?)?,
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

/// Runs `work` on every element, on up to `threads` threads; on this one where that is one.
fn parallel<T: Send>(threads: usize, elements: &mut [T], work: impl Fn(&mut T) + Sync) {
    if threads <= 1 || elements.len() <= 1 {
        elements.iter_mut().for_each(work);
        return;
    }
    let next = Mutex::new(elements.iter_mut());
    let drain = || {
        loop {
            let element = next.lock().ok().and_then(|mut next| next.next());
            let Some(element) = element else { break };
            work(element);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(drain);
        }
        drain();
    });
}

fn run(
    py: Python<'_>,
    items: &[PyResult<Item>],
    wanted: &Wanted,
    threads: usize,
    waits: &Waits,
    converter: &Bound<'_, PyAny>,
) -> PyResult<Vec<Output>> {
    let good = |at: usize| items[at].as_ref().ok();

    // Read, until enough is held.
    let (sources, parsed) = py.detach(|| {
        let held = AtomicUsize::new(0);
        let mut sources: Vec<(usize, Option<Source>)> =
            (0..items.len()).map(|at| (at, None)).collect();
        parallel(threads, &mut sources, |(at, source)| {
            if held.load(Ordering::Relaxed) >= HELD * threads {
                return;
            }
            let mut buffer = Buffer::take();
            let request = good(*at).and_then(|item| item.request.as_ref());
            let files = request.map(|request| {
                let probe = &mut InflightProbe::new();
                waits.spend(|limit| request.get().read(probe, &mut buffer.0, limit))
            });
            held.fetch_add(buffer.0.len(), Ordering::Relaxed);
            *source = Some(Source { buffer, files });
        });
        let sources: Vec<Source> = sources
            .into_iter()
            .map_while(|(_, source)| source)
            .collect();
        let parsed: Vec<_> = (0..sources.len())
            .map(|at| good(at).map(|item| item.body.get().parsed()))
            .collect();
        (sources, parsed)
    });

    // Scan, join, project.
    let scanned = py.detach(|| {
        let mut scanned: Vec<(usize, Option<Fold<'_>>)> =
            (0..sources.len()).map(|at| (at, None)).collect();
        parallel(threads, &mut scanned, |(at, fold)| {
            let (Some(item), Some(parsed)) = (good(*at), &parsed[*at]) else {
                return;
            };
            let (Some(request), Some(files)) = (&item.request, &sources[*at].files) else {
                return;
            };
            *fold = Some(
                request
                    .get()
                    .scan(files, &sources[*at].buffer.0, parsed.sections()),
            );
        });
        scanned
    });

    // Convert, here: the one step that needs the interpreter.
    let mut works: Vec<Work<'_>> = Vec::with_capacity(scanned.len());
    for (at, fold) in scanned {
        let mut work = Work {
            at,
            fold: None,
            outcomes: Vec::new(),
            report: Report::default(),
            failed: None,
            done: None,
        };
        if let (Some(mut fold), Some(item)) = (fold, good(at)) {
            if let (Some(request), Some(files)) = (&item.request, &sources[at].files) {
                work.report = request.get().report(files, &sources[at].buffer.0, &fold);
            }
            if !fold.jobs().is_empty() {
                let mut objects = Objects::new(py, Builder::new(py));
                match convert(&mut fold, &mut objects, converter) {
                    Ok(outcomes) => work.outcomes = outcomes,
                    Err(error) => work.failed = Some(error),
                }
            }
            if work.failed.is_none() {
                work.fold = Some(fold);
            }
        }
        works.push(work);
    }

    // Put together.
    let works = py.detach(|| {
        let mut works = works;
        parallel(threads, &mut works, |work| {
            let (Some(item), Some(parsed)) = (good(work.at), &parsed[work.at]) else {
                return;
            };
            work.finish(item, parsed, sources[work.at].files.as_ref(), wanted);
        });
        works
    });
    let mut works = works;
    let outputs = write(py, &mut works, items, threads);
    // Thousands of small pieces: nobody waits for the interpreter meanwhile.
    py.detach(move || drop(works));
    outputs
}

/// One rollout on its way.
struct Work<'a> {
    at: usize,
    fold: Option<Fold<'a>>,
    outcomes: Vec<Outcome>,
    report: Report,
    /// A converter that broke: it costs this rollout alone.
    failed: Option<PyErr>,
    done: Option<Done<'a>>,
}

enum Done<'a> {
    Full(Value<'a>, Interner<'a>, usize),
    Packed(Vec<u8>),
    Framed(Result<Prepared, rollfold_core::error::Error>),
}

impl<'a> Work<'a> {
    fn finish(
        &mut self,
        item: &'a Item,
        parsed: &Parsed<'a>,
        files: Option<&Files>,
        wanted: &Wanted,
    ) {
        let (folded, shared) = match self.fold.take() {
            Some(fold) => {
                let (folded, shared) = fold.finish(&self.outcomes);
                (Some(folded), shared)
            }
            None => (None, Interner::default()),
        };
        if let (Some(folded), Some(request), Some(files)) = (&folded, &item.request, files) {
            request.get().delete(files, folded, &mut self.report);
        }
        let record = parsed.record(&item.identity, folded);
        self.done = Some(match wanted {
            Wanted::Packed => {
                let mut text = Vec::new();
                pack_value(&record, &shared, &mut text);
                Done::Packed(text)
            }
            Wanted::Full => {
                let len = exact_len(&record, &shared);
                Done::Full(record, shared, len)
            }
            Wanted::Frames(shape, keys) => {
                let key = keys.get(self.at).cloned().unwrap_or_default();
                Done::Framed(Prepared::rendered(key, *shape, |out| {
                    match shape.form {
                        Form::Packed => pack_value(&record, &shared, out),
                        Form::Full => {
                            out.reserve(exact_len(&record, &shared) + 1);
                            render(&record, &shared, out);
                        }
                    }
                    Ok(())
                }))
            }
        });
    }
}

/// The texts as `bytes`, written once, in memory of their size.
fn write(
    py: Python<'_>,
    works: &mut [Work<'_>],
    items: &[PyResult<Item>],
    threads: usize,
) -> PyResult<Vec<Output>> {
    let lens: Vec<usize> = works
        .iter()
        .map(|work| match &work.done {
            Some(Done::Full(_, _, len)) => *len,
            _ => 0,
        })
        .collect();
    let texts = fresh_batch(py, &lens, |slots| {
        let mut pairs: Vec<_> = works.iter().zip(slots).collect();
        parallel(threads, &mut pairs, |(work, slots)| {
            if let Some(Done::Full(record, shared, _)) = &work.done {
                render(record, shared, *slots);
            }
        });
    })?;
    let mut outputs = Vec::with_capacity(works.len());
    for (work, text) in works.iter_mut().zip(texts) {
        if let Some(error) = work.failed.take() {
            outputs.push(Err(error));
            continue;
        }
        // A tree of values is dropped later, detached.
        let done = work.done.take_if(|done| !matches!(done, Done::Full(..)));
        outputs.push(match (&items[work.at], done) {
            (Err(error), _) => Err(error.clone_ref(py)),
            (_, Some(Done::Packed(text))) => Ok((
                Text::Bytes(PyBytes::new(py, &text).unbind()),
                std::mem::take(&mut work.report),
            )),
            (_, Some(Done::Framed(Ok(frames)))) => Ok((
                Text::Frames(Py::new(py, LogFrames(frames))?),
                std::mem::take(&mut work.report),
            )),
            (_, Some(Done::Framed(Err(error)))) => Err(PyValueError::new_err(error.to_string())),
            _ => Ok((Text::Bytes(text.unbind()), std::mem::take(&mut work.report))),
        });
    }
    Ok(outputs)
}

/// Adds this file's function.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(fold_batch, module)?)
}
