//! The fold from Python: results as dicts, as JSON, packed; one and many.

mod batch;
mod content;
mod convert;
mod objects;
mod report;
mod request;
mod text;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rollfold_core::fold::{Change, Sections, Source};
use rollfold_core::json::Raw;
use rollfold_core::observe::NonFinite;
use rollfold_core::store::InflightProbe;

use crate::json::{Builder, Origin, Serialized, serialize_traced};
use convert::convert;
use objects::Objects;
pub use request::Request;
use request::{Buffer, wait_limit};

/// The keys of a result that the fold reads as JSON, in the order of [`Sections`].
pub(crate) const READ: [&str; 4] = [
    "ng_agent_observations",
    "ng_trajectory",
    "ng_verifier_invocations",
    "ng_model_call_capture",
];
pub(crate) const PERF: &str = "ng_perf";
pub(crate) const SOURCE: &str = "_ng_trajectory_source";

pub(crate) fn source_of(text: Option<&str>) -> Option<Source> {
    match text? {
        "captures" => Some(Source::Captures),
        "agent" => Some(Source::Agent),
        _ => None,
    }
}

pub(crate) fn source_name(source: Source) -> &'static str {
    match source {
        Source::Captures => "captures",
        Source::Agent => "agent",
    }
}

/// The parts of a dict result as text, with the objects they came from.
#[derive(Default)]
struct DictSections {
    text: Serialized,
    spans: [Option<(usize, usize)>; 4],
    source: Option<Source>,
    resolved: Option<bool>,
}

impl DictSections {
    fn read(result: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut parts = Self::default();
        for (index, key) in READ.iter().enumerate() {
            let Some(value) = result.get_item(key)?.filter(|value| !value.is_none()) else {
                continue;
            };
            let start = parts.text.text.len();
            if serialize_traced(&value, &mut parts.text).is_err() {
                // What JSON has no word for is malformed, as anything that is no object.
                parts.text.text.truncate(start);
                parts.text.containers.retain(|(at, _, _)| *at < start);
                parts.text.non_finite.retain(|at| *at < start);
                parts.text.text.extend_from_slice(b"false");
            }
            parts.spans[index] = Some((start, parts.text.text.len()));
        }
        if let Some(source) = result.get_item(SOURCE)?
            && let Ok(source) = source.cast::<PyString>()
        {
            parts.source = source_of(source.to_str().ok());
        }
        parts.resolved = result
            .get_item("resolved")?
            .and_then(|flag| flag.extract().ok());
        Ok(parts)
    }

    fn sections(&self) -> Sections<'_> {
        let text = &self.text.text;
        let part = |at: usize| self.spans[at].map(|(start, end)| Raw::new(&text[start..end]));
        Sections {
            observations: part(0),
            trajectory: part(1),
            verifiers: part(2),
            capture: part(3),
            source: self.source,
            resolved: self.resolved,
            non_finite: NonFinite {
                text,
                offsets: &self.text.non_finite,
            },
        }
    }
}

/// Enriches a dict in place; only top-level keys are set.
///
/// Gives what is to be told of it, if anything. `converter` is `convert_batch` of the Messages dialect;
/// `wait_s` bounds what is waited, for a batch that has less left than the request allows.
#[pyfunction]
#[pyo3(signature = (request, result, converter, wait_s = None))]
fn fold_dict<'py>(
    py: Python<'py>,
    request: &Request,
    result: &Bound<'py, PyDict>,
    converter: &Bound<'py, PyAny>,
    wait_s: Option<f64>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let parts = DictSections::read(result)?;
    let mut buffer = Buffer::take();
    let limit = wait_limit(wait_s);
    let files = py.detach(|| request.read(&mut InflightProbe::new(), &mut buffer.0, limit));
    let mut fold = py.detach(|| request.scan(&files, &buffer.0, parts.sections()));
    let mut report = request.report(&files, &buffer.0, &fold);
    let builder = Builder::with_origin(py, Origin(&parts.text));
    let mut objects = Objects::new(py, builder);
    let outcomes = convert(&mut fold, &mut objects, converter)?;
    let (folded, shared) = py.detach(|| fold.finish(&outcomes));

    let changes = [
        (READ[3], &folded.capture),
        (READ[0], &folded.observations),
        (READ[1], &folded.trajectory),
        (PERF, &folded.perf),
    ];
    // All is built before anything is set: a result is enriched or it is not.
    let mut built = Vec::with_capacity(changes.len());
    for (key, change) in changes {
        built.push(match change {
            Change::Keep => None,
            Change::Remove => Some((key, None)),
            Change::Set(value) => Some((key, Some(objects.value(value, &shared)?))),
        });
    }
    // As any mapping: an OrderedDict keeps an order of its own.
    let result = result.as_any();
    for (key, value) in built.into_iter().flatten() {
        match value {
            Some(value) => result.set_item(key, value)?,
            None if result.contains(key)? => result.del_item(key)?,
            None => {}
        }
    }
    if let (Change::Set(_), Some(source)) = (&folded.trajectory, folded.source) {
        result.set_item(SOURCE, source_name(source))?;
    }
    py.detach(|| request.delete(&files, folded.keep_files, &mut report));
    report.count_and_tell(py)
}

/// Whether calls of a rollout are in flight, and for how long to sleep before asking
/// again: none once it is quiet.
#[pyclass(module = "rollfold._core")]
struct Watch {
    request: Py<Request>,
    quiet: rollfold_core::store::QuietWatch,
    probe: InflightProbe,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(request: Py<Request>, timeout_s: f64, settle_s: f64) -> Self {
        let seconds = |s: f64| std::time::Duration::try_from_secs_f64(s).unwrap_or_default();
        let quiet = rollfold_core::store::QuietWatch::new(seconds(timeout_s), seconds(settle_s));
        Self {
            request,
            quiet,
            probe: InflightProbe::new(),
        }
    }

    /// Seconds to sleep before the next step, or whether calls are still in flight.
    fn step(&mut self, py: Python<'_>) -> (Option<f64>, bool) {
        use rollfold_core::store::{Quiet, Step};
        let request = self.request.get();
        let (quiet, probe) = (&mut self.quiet, &mut self.probe);
        match py.detach(|| quiet.step(&request.dirs, &request.rollout_id, probe)) {
            Step::Sleep(pause) => (Some(pause.as_secs_f64()), true),
            Step::Done(done) => (None, done.quiet == Quiet::InFlight),
        }
    }
}

/// Adds this topic's functions.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Request>()?;
    module.add_class::<Watch>()?;
    module.add_function(wrap_pyfunction!(fold_dict, module)?)?;
    report::register(module)?;
    text::register(module)?;
    batch::register(module)?;
    convert::register(module)?;
    content::register(module)
}
