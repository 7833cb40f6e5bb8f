//! The projection: what the agent sent, what was observed and what was captured become
//! one trajectory (contract, section 7).

mod calls;
pub mod came_from;
mod producer;
mod tools;

use std::borrow::Cow;

use hashbrown::HashSet;

use crate::call::CallRecord;
use crate::observe::{Bundle, GapExtras, INVOCATION, Record, TOOL_CALL, UniqueGaps};
use crate::value::{Gap, Key, Members, Value};

pub use calls::{ProjectedCalls, project_calls};
pub use producer::{MODEL_CALL, Producer, TURN};

/// What became of the observations.
#[derive(Debug)]
pub enum Observations<'i, 'a> {
    /// There were none.
    None,
    /// They were malformed.
    Malformed,
    /// They were joined.
    Good(&'i Bundle<'a>),
}

/// What became of the trajectory the agent sent.
#[derive(Debug)]
pub enum Sent<'a> {
    /// It sent none.
    Nothing,
    /// It was malformed: it counts as sent, so no turns are derived.
    Malformed,
    /// It was read.
    Good(Box<Producer<'a>>),
}

/// A trajectory in the making: everything but the turns that come from captures.
#[derive(Debug)]
pub struct Projection<'a> {
    /// Ours, or null where it is not known.
    pub task_id: Option<Cow<'a, str>>,
    /// Ours.
    pub rollout_id: Cow<'a, str>,
    /// The invocations: the agent's own, then those observed.
    pub invocations: Vec<Record<'a>>,
    /// The model calls.
    pub calls: ProjectedCalls<'a>,
    /// The tool calls.
    pub tool_calls: Vec<Record<'a>>,
    /// The turns that the agent sent; none where turns come from captures.
    pub sent_turns: Option<Vec<Record<'a>>>,
    well_formed: bool,
    gaps: UniqueGaps<'a>,
    gap_extras: GapExtras<'a>,
}

impl<'a> Projection<'a> {
    /// Projects what is known, before the turns.
    ///
    /// `earlier` are the codes of gaps that an earlier enrichment wrote: they are dropped
    /// from what the agent sent.
    #[must_use]
    pub fn new(
        task_id: Option<Cow<'a, str>>,
        rollout_id: Cow<'a, str>,
        sent: Sent<'a>,
        observations: &Observations<'_, 'a>,
        calls: &[CallRecord<'a>],
    ) -> Self {
        let mut gaps = UniqueGaps::default();
        let mut own = Producer::default();
        let mut well_formed = false;
        let mut sent_turns = None;
        match sent {
            Sent::Nothing => {}
            Sent::Malformed => {
                sent_turns = Some(Vec::new());
                gaps.push(validation_gap("producer_trajectory_invalid"));
            }
            Sent::Good(producer) => {
                own = *producer;
                well_formed = !own
                    .gaps
                    .iter()
                    .any(|gap| gap.code == "producer_trajectory_invalid");
                sent_turns = Some(std::mem::take(&mut own.turns));
                if let Some(detail) = own.mismatch(task_id.as_deref(), &rollout_id) {
                    let code = "producer_trajectory_identity_mismatch";
                    gaps.push(Gap::new(code, Some(Cow::Owned(detail))));
                }
                gaps.extend(std::mem::take(&mut own.gaps));
            }
        }
        let mut invocations = own.invocations;
        let mut tool_calls = own.tool_calls;
        match observations {
            Observations::None => {}
            Observations::Malformed => gaps.push(validation_gap("agent_observations_invalid")),
            Observations::Good(bundle) => {
                add_invocations(&mut invocations, bundle);
                gaps.extend(bundle.gaps.iter().cloned());
                let observed: Vec<_> = bundle.of(&TOOL_CALL).collect();
                tools::merge_tool_calls(&mut tool_calls, &observed, &invocations, &mut gaps);
            }
        }
        Self {
            task_id,
            rollout_id,
            invocations,
            calls: project_calls(&own.model_calls, own.places, calls),
            tool_calls,
            sent_turns,
            well_formed,
            gaps,
            gap_extras: own.gap_extras,
        }
    }

    /// How many tool calls the trajectory's invocations have.
    #[must_use]
    pub fn invoked_tool_calls(&self) -> usize {
        let ids: HashSet<Cow<'a, str>> =
            self.invocations.iter().map(Record::invocation_id).collect();
        let invoked = |tool: &&Record<'a>| ids.contains(&tool.invocation_id());
        self.tool_calls.iter().filter(invoked).count()
    }

    /// The finished trajectory.
    ///
    /// `later_gaps` come after the observations': the verifiers' where there are no good
    /// observations, the unconverted turns', the capture's.
    #[must_use]
    pub fn finish(
        self,
        turns: Vec<Value<'a>>,
        later_gaps: impl IntoIterator<Item = Gap<'a>>,
    ) -> Value<'a> {
        let mut gaps = self.gaps;
        gaps.extend(later_gaps);
        let has_conversation = |record: &Record<'_>| {
            let items = record
                .field("conversation")
                .and_then(crate::observe::Field::raw);
            items.is_some_and(|items| items.elements().next().is_some())
        };
        let missing = [
            ("model_calls_unavailable", self.calls.values.is_empty()),
            ("turns_unavailable", turns.is_empty() && !self.well_formed),
            (
                "conversation_unavailable",
                !self.invocations.iter().any(has_conversation),
            ),
        ];
        for (code, applies) in missing {
            if applies {
                gaps.push(Gap::new(code, None));
            }
        }
        let values = |records: &[Record<'a>]| {
            Value::Array(records.iter().map(|record| record.to_value(true)).collect())
        };
        let version = if self.task_id.is_some() { "1.0" } else { "1.1" };
        Value::object([
            ("schema_version", Value::Str(Cow::Borrowed(version))),
            ("task_id", Value::text(self.task_id)),
            ("rollout_id", Value::Str(self.rollout_id)),
            ("invocations", values(&self.invocations)),
            ("turns", Value::Array(turns)),
            ("model_calls", Value::Array(self.calls.values)),
            ("tool_calls", values(&self.tool_calls)),
            ("gaps", self.gap_extras.to_value(&gaps.into_vec())),
        ])
    }
}

/// A turn that the agent sent, with our ids.
#[must_use]
pub fn sent_turn<'a>(
    turn: &Record<'a>,
    task_id: Option<&Cow<'a, str>>,
    rollout_id: &Cow<'a, str>,
) -> Value<'a> {
    match turn.to_value(true) {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(key, value)| match key {
                    Key::Name("task_id") => (key, Value::text(task_id.cloned())),
                    Key::Name("rollout_id") => (key, Value::Str(rollout_id.clone())),
                    _ => (key, value),
                })
                .collect(),
        ),
        other => other,
    }
}

fn validation_gap(code: &'static str) -> Gap<'static> {
    Gap::new(code, Some(Cow::Borrowed("ValidationError")))
}

/// Observed invocations that are not there yet; their unknown keys stay behind.
fn add_invocations<'a>(invocations: &mut Vec<Record<'a>>, bundle: &Bundle<'a>) {
    let known: HashSet<Cow<'a, str>> = invocations.iter().map(Record::invocation_id).collect();
    for record in bundle.of(&INVOCATION) {
        if !known.contains(&record.invocation_id()) {
            let mut record = Record {
                extra: Members::new(),
                ..record.clone()
            };
            for reference in record.references_mut().into_iter().flatten() {
                reference.extra.clear();
            }
            invocations.push(record);
        }
    }
}
