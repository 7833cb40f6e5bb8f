//! The whole way for one rollout: what was read and reported becomes what its record
//! says.
//!
//! Two steps with the converters between them: [`Fold::scan`] reads, joins and projects,
//! and says what is to be converted; [`Fold::finish`] puts the record together. Both run
//! without an interpreter.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::call::CallRecord;
use crate::capture::{self, Capture, Circumstances};
use crate::exchange::ScanState;
use crate::intern::Interner;
use crate::json::{Raw, Tape};
use crate::observe::{
    Bundle, CallIndex, INVOCATION, Joined, Malformed, NonFinite, Part, Record, attach_compactions,
    join, parse_gaps, parse_verifiers, resolve_verifiers,
};
use crate::perf::perf;
use crate::resume::{Held, without_bodies, without_ours};
use crate::trajectory::{Observations, Producer, Projection, Sent, sent_turn};
use crate::turns::{Outcome, Owner, TurnPlan};
use crate::value::{Gap, Value};

/// The parts of a result that the fold reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sections<'a> {
    /// `ng_agent_observations`
    pub observations: Option<Raw<'a>>,
    /// `ng_trajectory`
    pub trajectory: Option<Raw<'a>>,
    /// `ng_verifier_invocations`
    pub verifiers: Option<Raw<'a>>,
    /// `ng_model_call_capture`, of an earlier enrichment.
    pub capture: Option<Raw<'a>>,
    /// `_ng_trajectory_source`, of an earlier enrichment.
    pub source: Option<Source>,
    /// `resolved`, where it is a bool.
    pub resolved: Option<bool>,
    /// Where numbers were not finite before they became text.
    pub non_finite: NonFinite<'a>,
}

/// Whose trajectory a result holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Ours, built from captures.
    Captures,
    /// The agent's, which ours was merged into.
    Agent,
}

/// Where a rollout's calls come from, and how far it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// From the files, the whole way.
    #[default]
    Files,
    /// From the files, the merge alone: calls keep their bodies.
    Merge,
    /// From the capture that the result holds: the stages after the merge.
    Record,
}

/// One rollout to be folded.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // the interface's flags
pub struct Task<'a> {
    /// The capture key.
    pub rollout_id: &'a str,
    /// The task, where it is known.
    pub task_id: Option<&'a str>,
    /// Where the calls come from.
    pub mode: Mode,
    /// The late file's text, then the capture file's.
    pub texts: [&'a [u8]; 2],
    /// Whether capture directories were given at all.
    pub captured: bool,
    /// Whether a file was there.
    pub has_files: bool,
    /// What else is known of the files.
    pub facts: Circumstances,
    /// The result's parts.
    pub sections: Sections<'a>,
    /// Exchanges that started earlier are stale; Unix seconds.
    pub not_before: Option<f64>,
    /// Whether calls keep their bodies.
    pub payloads: bool,
    /// Whether the run failed.
    pub failed: bool,
    /// What row and result disagree on.
    pub identity_conflict: Option<&'a str>,
    /// Whether perf is wanted.
    pub observability: bool,
    /// Milliseconds from dispatch to result.
    pub latency_ms: Option<f64>,
}

/// What happens to a key of the result.
#[derive(Debug)]
pub enum Change<'a> {
    /// It stays as it is.
    Keep,
    /// It goes, where it is there.
    Remove,
    /// It gets this value.
    Set(Value<'a>),
}

/// What a rollout's record says.
#[derive(Debug)]
pub struct Folded<'a> {
    /// `ng_model_call_capture`
    pub capture: Change<'a>,
    /// `ng_agent_observations`
    pub observations: Change<'a>,
    /// `ng_trajectory`
    pub trajectory: Change<'a>,
    /// `ng_perf`
    pub perf: Change<'a>,
    /// `_ng_trajectory_source`, where there is a trajectory.
    pub source: Option<Source>,
    /// Why the capture's files must stay, where they must (contract, section 12).
    pub keep_files: Option<&'static str>,
    /// How many calls were read.
    pub calls: usize,
}

/// A rollout between its two steps.
#[derive(Debug)]
pub struct Fold<'a> {
    task: Task<'a>,
    /// The distinct values; converters' outcomes are added to them.
    pub shared: Interner<'a>,
    /// What the files hold.
    pub capture: Capture<'a>,
    stage: Stage<'a>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one of them exists at a time
enum Stage<'a> {
    /// An earlier enrichment knows more: it stays, with this many late records.
    Kept(Held<'a>, usize),
    /// The run failed and left nothing.
    Bare(Vec<Gap<'a>>),
    /// All of it.
    Whole(Whole<'a>),
}

#[derive(Debug)]
struct Whole<'a> {
    gaps: Vec<Gap<'a>>,
    payloads: bool,
    bundle: Option<Bundle<'a>>,
    verifiers: Vec<Record<'a>>,
    verifier_gaps: Vec<Gap<'a>>,
    projection: Option<Projection<'a>>,
    plan: TurnPlan<'a>,
}

impl<'a> Fold<'a> {
    /// Reads, joins and projects.
    #[must_use]
    pub fn scan(task: Task<'a>) -> Self {
        let mut state = ScanState::default();
        let mut captured = Capture::default();
        for text in task.texts {
            captured.read(text, &mut state, task.not_before);
        }
        if task.mode == Mode::Record {
            let calls = task.sections.capture.and_then(|held| held.get("calls"));
            for call in calls.into_iter().flat_map(Raw::elements) {
                captured
                    .calls
                    .extend(CallRecord::from_record(call, &mut state));
            }
        }
        let mut shared = state.shared;
        let stage = Self::stage(&task, &mut captured, &mut shared);
        Self {
            task,
            shared,
            capture: captured,
            stage,
        }
    }

    fn stage(task: &Task<'a>, read: &mut Capture<'a>, shared: &mut Interner<'a>) -> Stage<'a> {
        let sections = &task.sections;
        // Without a directory there is no file either: what an earlier enrichment made of calls
        // may be all that is left of them.
        if task.mode != Mode::Record
            && let Some(held) = sections.capture.and_then(Held::parse)
            && (task.captured || (sections.source.is_some() && held.has_calls))
            && let Some(late) = held.outlives(&read.calls, task.has_files)
        {
            return Stage::Kept(held, late);
        }
        let conflict = task.identity_conflict.map(Cow::Borrowed);
        let mut gaps = Vec::new();
        if task.captured {
            gaps = capture::gaps(read, task.facts, conflict);
        }
        if task.mode == Mode::Record {
            let held = sections.capture.and_then(|held| held.get("gaps"));
            let mut tape = Tape::default();
            let held = held.and_then(|held| Part::scan(&mut tape, held));
            gaps = parse_gaps(held, sections.non_finite)
                .map(|(gaps, _)| gaps)
                .unwrap_or_default();
        }
        if task.failed && read.calls.is_empty() && read.unreadable == 0 {
            return Stage::Bare(gaps);
        }
        let observations = sections.observations.filter(|raw| !raw.is_null());
        let parsed = observations.map(|raw| Bundle::parse(raw, sections.non_finite));
        let payloads = task.payloads && !is_redacted(parsed.as_ref(), sections);
        if !payloads {
            read.calls
                .iter_mut()
                .for_each(CallRecord::withhold_payloads);
        }
        if task.mode == Mode::Merge {
            return Stage::Whole(Whole::merged(gaps, payloads));
        }
        let verifiers = parse_verifiers(sections.verifiers, sections.non_finite);

        // What an earlier enrichment made of the observations, before the join renews it.
        let earlier = match &parsed {
            Some(Ok(bundle)) if sections.source == Some(Source::Agent) => Some(bundle.clone()),
            _ => None,
        };
        let (mut bundle, mut joined) = (None, Joined::default());
        let malformed = matches!(parsed, Some(Err(_)));
        if let Some(Ok(mut good)) = parsed {
            if task.captured {
                if payloads {
                    attach_compactions(&mut good, &read.calls);
                }
                joined = join(&mut good, &verifiers, &read.calls);
            }
            bundle = Some(good);
        }
        let mut verifier_gaps = Vec::new();
        if task.captured && bundle.is_none() {
            verifier_gaps = resolve_verifiers(&verifiers, &CallIndex::new(&read.calls)).1;
        }
        if malformed && task.captured {
            gaps.push(Gap::new("agent_observation_join_failed", None));
        }

        let sent = sent_by_agent(sections, earlier.as_ref());
        let attached = task.captured || observations.is_some() || !matches!(sent, Sent::Nothing);
        let projection = attached.then(|| {
            let observed = match (&bundle, malformed) {
                (Some(bundle), _) => Observations::Good(bundle),
                (None, true) => Observations::Malformed,
                (None, false) => Observations::None,
            };
            let task_id = task.task_id.map(Cow::Borrowed);
            let rollout_id = Cow::Borrowed(task.rollout_id);
            Projection::new(task_id, rollout_id, sent, &observed, &read.calls)
        });
        let wanted = payloads && projection.as_ref().is_some_and(|p| p.sent_turns.is_none());
        let owners = if wanted {
            owners(bundle.as_ref(), &joined, read)
        } else {
            Vec::new()
        };
        let plan = TurnPlan::new(owners, &read.calls, shared);
        Stage::Whole(Whole {
            gaps,
            payloads,
            bundle,
            verifiers,
            verifier_gaps,
            projection,
            plan,
        })
    }

    /// What is to be converted.
    #[must_use]
    pub fn jobs(&self) -> &[crate::turns::Job<'a>] {
        match &self.stage {
            Stage::Whole(whole) => &whole.plan.jobs,
            _ => &[],
        }
    }

    /// Puts the record together; `outcomes` are the jobs', in their order.
    #[must_use]
    pub fn finish(mut self, outcomes: &[Outcome]) -> (Folded<'a>, Interner<'a>) {
        let keep_files = self.keep_files();
        let calls = self.capture.calls.len();
        let mut folded = Folded {
            capture: Change::Keep,
            observations: Change::Keep,
            trajectory: Change::Keep,
            perf: Change::Keep,
            source: self.task.sections.source,
            keep_files,
            calls,
        };
        match self.stage {
            Stage::Kept(held, late) => {
                if self.task.captured {
                    folded.capture = Change::Set(held.with_late_records(late));
                }
            }
            Stage::Bare(gaps) => {
                if self.task.captured {
                    let value = capture::take_value(self.task.rollout_id, &mut [], &gaps, false);
                    folded.capture = Change::Set(value);
                }
            }
            Stage::Whole(whole) => {
                let read = &mut self.capture;
                whole.finish(&self.task, read, outcomes, &mut self.shared, &mut folded);
            }
        }
        (folded, self.shared)
    }

    fn keep_files(&self) -> Option<&'static str> {
        let facts = self.task.facts;
        let withheld = match &self.stage {
            Stage::Whole(whole) => !whole.payloads,
            _ => !self.task.payloads,
        };
        let held_back = matches!(&self.stage, Stage::Kept(_, late) if *late > 0);
        let reasons = [
            (
                "a record is unreadable",
                self.capture.unreadable > 0 || facts.unreadable,
            ),
            ("a record is stale", self.capture.stale > 0),
            ("a duplicate record differs", self.capture.duplicate_differs),
            ("calls were still in flight", facts.in_flight),
            ("the lock was unavailable", facts.lock_unavailable),
            ("payloads were withheld", withheld),
            (
                "row and result disagree on the rollout",
                self.task.identity_conflict.is_some(),
            ),
            ("records came late", held_back),
        ];
        reasons
            .iter()
            .find(|(_, applies)| *applies)
            .map(|(reason, _)| *reason)
    }
}

impl<'a> Whole<'a> {
    /// A merge and nothing after it.
    fn merged(gaps: Vec<Gap<'a>>, payloads: bool) -> Self {
        Self {
            gaps,
            payloads,
            bundle: None,
            verifiers: Vec::new(),
            verifier_gaps: Vec::new(),
            projection: None,
            plan: TurnPlan::default(),
        }
    }

    fn finish(
        self,
        task: &Task<'a>,
        read: &mut Capture<'a>,
        outcomes: &[Outcome],
        shared: &mut Interner<'a>,
        folded: &mut Folded<'a>,
    ) {
        if task.captured {
            // The trajectory holds the bodies.
            let payloads = self.payloads && self.projection.is_none();
            folded.capture = match task.sections.capture {
                Some(held) if task.mode == Mode::Record => Change::Set(without_bodies(held)),
                _ => Change::Set(capture::take_value(
                    task.rollout_id,
                    &mut read.calls,
                    &self.gaps,
                    payloads,
                )),
            };
            if let Some(bundle) = &self.bundle {
                folded.observations = Change::Set(bundle.to_value());
            }
        }
        let Some(projection) = self.projection else {
            return;
        };
        let ids = (task.task_id, task.rollout_id);
        let mut turn_counts: HashMap<Cow<'_, str>, usize> = HashMap::new();
        let (turns, unconverted) = if let Some(sent) = &projection.sent_turns {
            for turn in sent {
                *turn_counts.entry(turn.invocation_id()).or_default() += 1;
            }
            let turn = |turn| sent_turn(turn, projection.task_id.as_ref(), &projection.rollout_id);
            (sent.iter().map(turn).collect(), Vec::new())
        } else {
            for (id, count) in self.plan.counts() {
                turn_counts.insert(Cow::Borrowed(id), count);
            }
            self.plan
                .finish(&read.calls, outcomes, shared, ids, task.sections.resolved)
        };
        folded.source = Some(match projection.sent_turns {
            Some(_) => Source::Agent,
            None => Source::Captures,
        });
        let perf = task.observability.then(|| {
            perf(
                &projection.invocations,
                projection.calls.merged.as_deref().unwrap_or(&read.calls),
                &turn_counts,
                projection.invoked_tool_calls(),
                &self.verifiers,
                task.latency_ms.map(Value::Float),
            )
        });
        folded.perf = match perf.flatten() {
            Some(perf) => Change::Set(perf),
            None if task.sections.source.is_some() => Change::Remove,
            None => Change::Keep,
        };
        let later = self
            .verifier_gaps
            .into_iter()
            .chain(unconverted)
            .chain(self.gaps);
        folded.trajectory = Change::Set(projection.finish(turns, later));
    }
}

/// Whether the record's own parts say that bodies must not be kept (contract, section
/// 13); malformed ones are asked too.
fn is_redacted(bundle: Option<&Result<Bundle<'_>, Malformed>>, sections: &Sections<'_>) -> bool {
    const CODE: &str = "multimodal_history_redacted";
    let says_so = |part: Option<Raw<'_>>| {
        let gaps = part.and_then(|part| part.get("gaps"));
        gaps.into_iter()
            .flat_map(Raw::elements)
            .any(|gap| gap.get("code").is_some_and(|code| code.is_str(CODE)))
    };
    let observed = match bundle {
        Some(Ok(bundle)) => bundle.gaps.iter().any(|gap| gap.code == CODE),
        _ => says_so(sections.observations),
    };
    observed || says_so(sections.trajectory)
}

fn sent_by_agent<'a>(sections: &Sections<'a>, earlier: Option<&Bundle<'a>>) -> Sent<'a> {
    let sent = sections.trajectory.filter(|raw| !raw.is_null());
    match (sent, sections.source) {
        (None, _) | (_, Some(Source::Captures)) => Sent::Nothing,
        (Some(raw), source) => {
            let merged = source == Some(Source::Agent);
            match Producer::parse(raw, sections.non_finite, merged) {
                Err(_) => Sent::Malformed,
                Ok(producer) if merged => {
                    let producer = without_ours(producer, earlier, sections.capture);
                    Sent::Good(Box::new(producer))
                }
                Ok(producer) => Sent::Good(Box::new(producer)),
            }
        }
    }
}

/// The calls that become turns, in call order, and the invocations that own them.
fn owners<'a>(bundle: Option<&Bundle<'a>>, joined: &Joined, read: &Capture<'a>) -> Vec<Owner<'a>> {
    let Some(bundle) = bundle else {
        return Vec::new();
    };
    let ids: Vec<Cow<'a, str>> = bundle.of(&INVOCATION).map(Record::invocation_id).collect();
    let calls = read.calls.iter().enumerate().zip(&joined.owners);
    let turns = calls.filter(|((at, call), _)| {
        call.decision.is_some() && !joined.compaction_calls[*at] && !joined.verifier_calls[*at]
    });
    turns
        .filter_map(|((call, _), owner)| {
            Some(Owner {
                call,
                invocation_id: ids[(*owner)?].clone(),
            })
        })
        .collect()
}
