//! A trajectory that the agent itself sent (contract, section 7).

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use crate::json::{Raw, Tape};
use crate::observe::{
    Field, FieldType, GapExtras, INVOCATION, Malformed, NonFinite, Part, Record, Schema,
    TIMING_SOURCE, TOOL_CALL, TOOL_STATUS, check_tree, list, parse_gaps,
};
use crate::value::Gap;

use FieldType::{
    Amount, Any, Count, Flag, Integer, ModelRef, Nested, Number, References, RequiredCount,
    RequiredNumber, RequiredText, Status, Text, Word,
};

/// One model call of a trajectory.
pub static MODEL_CALL: Schema = Schema {
    kind: None,
    fields: &[
        ("model_call_id", Text),
        ("started_at", Number),
        ("completed_at", Number),
        ("duration_ms", Amount),
        ("request", Any),
        ("response", Any),
        ("response_metadata", Nested(&RESPONSE_METADATA)),
        ("token_stats", Nested(&TOKEN_STATS)),
    ],
};

static RESPONSE_METADATA: Schema = Schema {
    kind: None,
    fields: &[
        ("response_id", Text),
        ("model_ref", ModelRef),
        ("model", Text),
        ("dialect", Text),
        ("status_code", Integer),
        ("response_status", Text),
        ("finish_reason", Text),
        ("upstream_attempted", Flag),
        ("response_source", Word(&["upstream", "local"])),
        ("upstream_status_code", Integer),
        ("local_response_reason", Text),
        ("error_category", Text),
        ("latency_ttft_ms", Amount),
    ],
};

static TOKEN_STATS: Schema = Schema {
    kind: None,
    fields: &[
        ("prompt_tokens", Count),
        ("completion_tokens", Count),
        ("reasoning_tokens", Count),
        ("total_tokens", Count),
        ("cached_tokens", Count),
    ],
};

/// One turn of a trajectory.
pub static TURN: Schema = Schema {
    kind: None,
    fields: &[
        ("invocation_id", RequiredText),
        ("task_id", Text),
        ("rollout_id", Text),
        ("turn_no", RequiredCount(1)),
        ("timestamp", RequiredNumber),
        ("question", Any),
        ("answer", Any),
        ("reasoning_content", Any),
        ("resolved", Flag),
        ("step_count", RequiredCount(0)),
        ("model_calls", References),
    ],
};

/// One tool call of a trajectory: as observed, with what came out of it.
pub static EXECUTED: Schema = Schema {
    kind: TOOL_CALL.kind,
    fields: &[
        ("invocation_id", RequiredText),
        ("tool_call_id", RequiredText),
        ("sandbox_id", Text),
        ("tool_name", Text),
        ("started_at", Number),
        ("completed_at", Number),
        ("duration_ms", Amount),
        ("timing_source", Word(TIMING_SOURCE)),
        ("status", Status(TOOL_STATUS)),
        ("error_type", Text),
        ("output", Any),
    ],
};

/// A well-formed trajectory of the agent's.
#[derive(Clone, Debug, Default)]
pub struct Producer<'a> {
    /// The task it says it is of.
    pub task_id: Option<Cow<'a, str>>,
    /// The rollout it says it is.
    pub rollout_id: Option<Cow<'a, str>>,
    /// Its parts, in its order; turns sorted.
    pub invocations: Vec<Record<'a>>,
    /// By timestamp, invocation id, turn number.
    pub turns: Vec<Record<'a>>,
    /// Model calls.
    pub model_calls: Vec<Record<'a>>,
    /// Which of them are captured calls without an id that an earlier enrichment put
    /// there: places by call index.
    pub places: HashMap<i64, usize>,
    /// Tool calls.
    pub tool_calls: Vec<Record<'a>>,
    /// Gaps.
    pub gaps: Vec<Gap<'a>>,
    /// What gaps hold beside the keys that the contract knows.
    pub gap_extras: GapExtras<'a>,
}

impl<'a> Producer<'a> {
    /// Reads a trajectory.
    ///
    /// One that an earlier enrichment merged ours into is `merged`: what the two sides say
    /// of one another (parents, a tool call's times) was good before it met.
    ///
    /// # Errors
    /// Any rule that it breaks makes the whole of it malformed.
    pub fn parse(raw: Raw<'a>, non_finite: NonFinite<'_>, merged: bool) -> Result<Self, Malformed> {
        let mut tape = Tape::default();
        let whole = Part::scan(&mut tape, raw).filter(|part| part.raw().is_object());
        let whole = whole.ok_or(Malformed("ng_trajectory"))?;
        let text = |name: &'static str| match whole
            .get(name)
            .map(Part::raw)
            .filter(|value| !value.is_null() || non_finite.holds(*value))
        {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(Malformed(name)),
        };
        let records = |name: &'static str, schema: &'static Schema| {
            let records = list(whole.get(name), name, non_finite)?;
            let read = if merged { Record::read } else { Record::parse };
            records
                .map(|part| read(schema, part, non_finite))
                .collect::<Result<Vec<_>, _>>()
        };
        let version = text("schema_version")?;
        if version.is_some_and(|version| !["1.0", "1.1"].contains(&&*version)) {
            return Err(Malformed("schema_version"));
        }
        let (gaps, gap_extras) = parse_gaps(whole.get("gaps"), non_finite)?;
        let mut producer = Self {
            task_id: text("task_id")?,
            rollout_id: text("rollout_id")?,
            invocations: records("invocations", &INVOCATION)?,
            turns: records("turns", &TURN)?,
            model_calls: records("model_calls", &MODEL_CALL)?,
            tool_calls: records("tool_calls", &EXECUTED)?,
            places: HashMap::new(),
            gaps,
            gap_extras,
        };
        if !merged {
            check_tree(producer.invocations.iter())?;
        }
        producer.check_unique()?;
        producer.turns.sort_by(|left, right| {
            let number = |turn: &Record<'_>, name| turn.number(name).unwrap_or(0.0);
            number(left, "timestamp")
                .total_cmp(&number(right, "timestamp"))
                .then_with(|| left.invocation_id().cmp(&right.invocation_id()))
                .then_with(|| number(left, "turn_no").total_cmp(&number(right, "turn_no")))
        });
        Ok(producer)
    }

    fn check_unique(&self) -> Result<(), Malformed> {
        let mut ids = HashSet::new();
        for call in &self.model_calls {
            if let Some(id) = call.text("model_call_id").filter(|id| !id.is_empty())
                && !ids.insert(id)
            {
                return Err(Malformed("model_call_id"));
            }
        }
        let mut numbers = HashSet::new();
        for turn in &self.turns {
            let number = turn.field("turn_no").and_then(Field::raw);
            if !numbers.insert((turn.invocation_id(), number)) {
                return Err(Malformed("turn_no"));
            }
        }
        Ok(())
    }

    /// The fields in which it says it is another rollout than ours, comma-joined.
    #[must_use]
    pub fn mismatch(&self, task_id: Option<&str>, rollout_id: &str) -> Option<String> {
        let differs = |theirs: &Option<Cow<'_, str>>, ours: Option<&str>| {
            theirs.as_deref().is_some_and(|theirs| Some(theirs) != ours)
        };
        let fields = [
            ("task_id", differs(&self.task_id, task_id)),
            ("rollout_id", differs(&self.rollout_id, Some(rollout_id))),
        ];
        let names: Vec<_> = fields
            .iter()
            .filter(|(_, differs)| *differs)
            .map(|(name, _)| *name)
            .collect();
        (!names.is_empty()).then(|| names.join(","))
    }
}
