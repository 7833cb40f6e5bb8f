//! Turns: one for each owned call that holds a decision (contract, section 8).
//!
//! Responses and Chat need no new content, so they are selected here, by slices. Messages
//! need a converter: [`TurnPlan::jobs`] says which distinct values it must take, each
//! once, and [`TurnPlan::finish`] puts what came of them into the turns.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::call::{CallRecord, amount, list_ids};
use crate::content::{Decision, is_empty};
use crate::intern::{Interner, SharedId};
use crate::item::Item;
use crate::json::Raw;
use crate::typed::Typed;
use crate::value::{Gap, Value, push_gap};

/// What a converter is to take.
#[derive(Clone, Debug)]
pub enum Job<'a> {
    /// A request's `system`.
    System(SharedId),
    /// One entry of `messages`.
    Message(SharedId),
    /// A response's `content`, a list: what a message with the role assistant would hold.
    Content(Value<'a>),
}

/// What a converter made of it.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The items of a system prompt or a message.
    Items(Vec<SharedId>),
    /// A response's answer, reasoning (none where there is none) and tool calls.
    Decided {
        /// All of its items in order: what the message is in the questions that follow.
        items: Vec<SharedId>,
        /// The answer's items.
        answer: Vec<SharedId>,
        /// The reasoning items.
        reasoning: Option<Vec<SharedId>>,
        /// How many tool calls the answer makes.
        tool_calls: usize,
    },
    /// It could not be converted: the type of the first block at fault.
    Unconverted(String),
}

impl Outcome {
    /// The outcome that has these items; `said`: they are a response's.
    #[must_use]
    pub fn of(items: Vec<(SharedId, Item)>, said: bool) -> Self {
        let ids = |wanted: &dyn Fn(Item) -> bool| -> Vec<SharedId> {
            let chosen = items.iter().filter(|(_, item)| wanted(*item));
            chosen.map(|(id, _)| *id).collect()
        };
        let all = ids(&|_| true);
        if !said {
            return Self::Items(all);
        }
        let reasoning = ids(&|item| item == Item::Reasoning);
        Self::Decided {
            items: all,
            answer: ids(&|item| item != Item::Reasoning),
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            tool_calls: ids(&|item| item == Item::FunctionCall).len(),
        }
    }
}

/// Who owns a turn.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The call: an index.
    pub call: usize,
    /// The invocation's id.
    pub invocation_id: Cow<'a, str>,
}

/// The turns to be made, and the jobs they wait for.
#[derive(Debug, Default)]
pub struct TurnPlan<'a> {
    owners: Vec<Owner<'a>>,
    /// Per turn: its jobs, where its dialect needs a converter.
    waits: Vec<Option<Waits>>,
    /// The distinct jobs, in the order of their outcomes.
    pub jobs: Vec<Job<'a>>,
}

#[derive(Debug)]
struct Waits {
    system: Option<usize>,
    messages: Vec<usize>,
    content: usize,
}

/// A job's place by the distinct value that it is about: ids are dense.
#[derive(Default)]
struct Places(Vec<Option<usize>>);

impl Places {
    #[inline]
    fn get_or_make(&mut self, id: SharedId, make: impl FnOnce() -> usize) -> usize {
        let at = id.0 as usize;
        match self.0.get(at) {
            Some(Some(place)) => *place,
            known => {
                if known.is_none() {
                    self.0.resize(at + 1, None);
                }
                *self.0[at].insert(make())
            }
        }
    }
}

/// The question of the turn at hand: mostly the one before with more behind it.
#[derive(Default)]
struct Question {
    items: Vec<SharedId>,
    /// The jobs it is made of, and how many items there are after each.
    jobs: Vec<(usize, usize)>,
}

impl Question {
    /// Makes it what these jobs came to; what it has in common with them stays.
    fn become_of<'j>(
        &mut self,
        mut jobs: impl Iterator<Item = &'j usize>,
        outcomes: &[Outcome],
    ) -> Result<(), String> {
        let mut same = 0;
        let mut next = jobs.next();
        while let (Some((known, _)), Some(job)) = (self.jobs.get(same), next)
            && known == job
        {
            same += 1;
            next = jobs.next();
        }
        self.jobs.truncate(same);
        self.items
            .truncate(self.jobs.last().map_or(0, |(_, end)| *end));
        for job in next.into_iter().chain(jobs) {
            match &outcomes[*job] {
                Outcome::Items(items) | Outcome::Decided { items, .. } => {
                    self.items.extend_from_slice(items);
                }
                Outcome::Unconverted(kind) => return Err(kind.clone()),
            }
            self.jobs.push((*job, self.items.len()));
        }
        Ok(())
    }
}

/// A turn's content.
struct Content<'a> {
    question: Value<'a>,
    answer: Value<'a>,
    reasoning: Value<'a>,
    tool_calls: usize,
    unconverted: Option<String>,
}

impl<'a> TurnPlan<'a> {
    /// Plans the turns of calls that hold a decision; `owners` in call order.
    #[must_use]
    pub fn new(
        owners: Vec<Owner<'a>>,
        calls: &[CallRecord<'a>],
        shared: &mut Interner<'a>,
    ) -> Self {
        let mut plan = Self {
            owners,
            ..Self::default()
        };
        let (mut systems, mut messages_known) = (Places::default(), Places::default());
        // What the model said is asked again in the next call: converted once.
        let mut said: HashMap<Raw<'a>, usize> = HashMap::new();
        for at in 0..plan.owners.len() {
            let call = &calls[plan.owners[at].call];
            let Some(Decision::Blocks { content, .. }) = &call.decision else {
                plan.waits.push(None);
                continue;
            };
            let system = system_asked(call, shared).and_then(|system| match system {
                Value::Shared(id) => Some(*id),
                Value::Raw(raw) => Some(shared.intern(*raw)),
                _ => None,
            });
            // What is no list is one entry, and malformed or not as any other.
            let alone;
            let messages = match call.asked("messages") {
                Some(Value::Raw(raw)) if !raw.is_null() => {
                    alone = [shared.intern(*raw)];
                    &alone[..]
                }
                Some(Value::Shared(id)) => {
                    alone = [*id];
                    &alone[..]
                }
                messages => messages.and_then(list_ids).map_or(&[][..], |ids| ids),
            };
            let jobs = &mut plan.jobs;
            let mut add = |job| {
                jobs.push(job);
                jobs.len() - 1
            };
            let system = system.map(|id| systems.get_or_make(id, || add(Job::System(id))));
            let message = |id: &SharedId| {
                messages_known.get_or_make(*id, || {
                    let content = shared.noted(*id).said;
                    let known = content.and_then(|content| said.get(&content));
                    known.copied().unwrap_or_else(|| add(Job::Message(*id)))
                })
            };
            let messages = messages.iter().map(message).collect();
            plan.jobs.push(Job::Content(content.clone()));
            let job = plan.jobs.len() - 1;
            if let Value::Parted(raw, _) = content {
                said.insert(*raw, job);
            }
            plan.waits.push(Some(Waits {
                system,
                messages,
                content: job,
            }));
        }
        plan
    }

    /// The turns as values, and the gaps of those that could not be converted.
    #[must_use]
    pub fn finish(
        &self,
        calls: &[CallRecord<'a>],
        outcomes: &[Outcome],
        shared: &mut Interner<'a>,
        ids: (Option<&'a str>, &'a str),
        resolved: Option<bool>,
    ) -> (Vec<Value<'a>>, Vec<Gap<'a>>) {
        let mut gaps = Vec::new();
        let mut turns = Vec::with_capacity(self.owners.len());
        let mut progress: HashMap<&str, (i128, usize)> = HashMap::new();
        let mut typed = Typed::default();
        let mut question = Question::default();
        for (at, (owner, waits)) in self.owners.iter().zip(&self.waits).enumerate() {
            let call = &calls[owner.call];
            let content = match (waits, &call.decision) {
                (Some(waits), Some(Decision::Blocks { content, tool_uses })) => {
                    converted(waits, outcomes, &mut question).unwrap_or_else(|unconverted| {
                        Content {
                            question: raw_question(call, shared),
                            answer: content.clone(),
                            reasoning: Value::Null,
                            tool_calls: *tool_uses,
                            unconverted: Some(unconverted),
                        }
                    })
                }
                (_, Some(decision)) => selected(call, decision, shared, &mut typed),
                _ => continue,
            };
            if let Some(detail) = content.unconverted {
                let gap = Gap {
                    code: Cow::Borrowed("turn_content_unconverted"),
                    invocation_id: Some(owner.invocation_id.clone()),
                    detail: Some(Cow::Owned(detail)),
                };
                push_gap(&mut gaps, gap);
            }
            let (turn_no, steps) = progress.entry(&owner.invocation_id).or_insert((0, 0));
            *turn_no += 1;
            let last = at + 1 == self.owners.len();
            let resolved = resolved.filter(|_| last).map_or(Value::Null, Value::Bool);
            turns.push(Value::object([
                ("invocation_id", Value::Str(owner.invocation_id.clone())),
                ("task_id", Value::text(ids.0)),
                ("rollout_id", Value::Str(Cow::Borrowed(ids.1))),
                ("turn_no", Value::Int(*turn_no)),
                ("timestamp", timestamp(call)),
                ("question", content.question),
                ("answer", content.answer),
                ("reasoning_content", content.reasoning),
                ("resolved", resolved),
                ("step_count", Value::Int(*steps as i128)),
                (
                    "model_calls",
                    Value::Array(vec![call.reference().to_value(false)]),
                ),
            ]));
            *steps += content.tool_calls;
        }
        (turns, gaps)
    }

    /// How many turns each invocation has, by its id.
    #[must_use]
    pub fn counts(&self) -> HashMap<&str, usize> {
        let mut counts = HashMap::new();
        for owner in &self.owners {
            *counts.entry(&*owner.invocation_id).or_default() += 1;
        }
        counts
    }
}

/// The content of one call's turn, for who has no converter to wait for.
///
/// # Errors
/// The call's decision needs a converter.
pub fn content_of<'a>(
    call: &CallRecord<'a>,
    shared: &mut Interner<'a>,
) -> Option<(Value<'a>, Value<'a>, Value<'a>, usize)> {
    let decision = call.decision.as_ref()?;
    if matches!(decision, Decision::Blocks { .. }) {
        return None;
    }
    let content = selected(call, decision, shared, &mut Typed::default());
    Some((
        content.question,
        content.answer,
        content.reasoning,
        content.tool_calls,
    ))
}

fn timestamp<'a>(call: &CallRecord<'a>) -> Value<'a> {
    let known = amount(call.started_at).or(amount(call.completed_at));
    known.map_or(Value::Float(0.0), Value::Raw)
}

/// A turn of converted messages, or the first block that could not be.
fn converted<'a>(
    waits: &Waits,
    outcomes: &[Outcome],
    question: &mut Question,
) -> Result<Content<'a>, String> {
    question.become_of(waits.system.iter().chain(&waits.messages), outcomes)?;
    match &outcomes[waits.content] {
        Outcome::Decided {
            answer,
            reasoning,
            tool_calls,
            ..
        } => Ok(Content {
            question: Value::SharedList(question.items.as_slice().into()),
            answer: Value::SharedList(answer.as_slice().into()),
            reasoning: reasoning.as_ref().map_or(Value::Null, |items| {
                Value::SharedList(items.as_slice().into())
            }),
            tool_calls: *tool_calls,
            unconverted: None,
        }),
        Outcome::Unconverted(kind) => Err(kind.clone()),
        Outcome::Items(_) => Err("unknown".to_owned()),
    }
}

/// A request's system prompt, where it has one that is not empty.
fn system_asked<'c, 'a>(call: &'c CallRecord<'a>, shared: &Interner<'a>) -> Option<&'c Value<'a>> {
    call.asked("system").filter(|system| match system {
        Value::Raw(raw) => !is_empty(*raw),
        Value::Shared(id) => !shared.raw(*id).is_some_and(is_empty),
        _ => true,
    })
}

/// What was asked, as it came: the system prompt as a message, then the messages.
fn raw_question<'a>(call: &CallRecord<'a>, shared: &Interner<'a>) -> Value<'a> {
    let mut question = Vec::new();
    if let Some(system) = system_asked(call, shared) {
        question.push(Value::object([
            ("role", Value::Str(Cow::Borrowed("system"))),
            ("content", system.clone()),
        ]));
    }
    if let Some(messages) = call.asked("messages") {
        match list_ids(messages) {
            Some(ids) if question.is_empty() => return Value::SharedList(Arc::clone(ids)),
            Some(ids) => question.extend(ids.iter().map(|id| Value::Shared(*id))),
            None => question.extend(match messages {
                Value::Raw(raw) if raw.is_null() => None,
                messages => Some(messages.clone()),
            }),
        }
    }
    Value::Array(question)
}

/// A turn of Responses or Chat.
fn selected<'a>(
    call: &CallRecord<'a>,
    decision: &Decision<'a>,
    shared: &mut Interner<'a>,
    typed: &mut Typed,
) -> Content<'a> {
    match decision {
        Decision::Choice {
            answer,
            reasoning,
            tool_calls,
        } => Content {
            question: call.asked("messages").cloned().unwrap_or(Value::Null),
            answer: answer.clone(),
            reasoning: reasoning.clone(),
            tool_calls: *tool_calls,
            unconverted: None,
        },
        Decision::Output(items) => {
            let of =
                |wanted: &dyn Fn(Item) -> bool, shared: &mut Interner<'a>, typed: &mut Typed| {
                    let chosen = items.iter().filter(|(_, item)| wanted(*item));
                    chosen
                        .map(|(id, item)| typed.item(*id, *item, shared))
                        .collect::<Vec<_>>()
                };
            let answer = of(&|item| item != Item::Reasoning, shared, typed);
            let reasoning = of(&|item| item == Item::Reasoning, shared, typed);
            let list = |ids: Vec<SharedId>| Value::SharedList(ids.into());
            Content {
                question: typed.question(call, shared),
                answer: list(answer),
                reasoning: if reasoning.is_empty() {
                    Value::Null
                } else {
                    list(reasoning)
                },
                tool_calls: items
                    .iter()
                    .filter(|(_, item)| *item == Item::FunctionCall)
                    .count(),
                unconverted: None,
            }
        }
        Decision::Blocks { content, tool_uses } => Content {
            question: raw_question(call, shared),
            answer: content.clone(),
            reasoning: Value::Null,
            tool_calls: *tool_uses,
            unconverted: None,
        },
    }
}
