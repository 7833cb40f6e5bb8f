//! Claude Code's hidden summary calls, tied to their compactions by exact evidence
//! (contract, section 6, Claude Code compaction).

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::Bundle;
use super::field::{Field, Reference};
use super::join::CallIndex;
use super::record::{COMPACTION, INVOCATION, Record};
use crate::call::CallRecord;
use crate::json::{Kind, Raw};
use crate::value::{Gap, push_gap};

const SOURCE: &str = "claude_code";
const AMBIGUOUS: &str = "compaction_model_call_match_ambiguous";
const UNAVAILABLE: &str = "compaction_model_call_reference_unavailable";

// What the harness writes around a compaction, as its transcripts show it.
const INSTRUCTIONS: [&str; 3] = [
    "Your task is to create a detailed summary of this conversation.",
    "Your task is to create a detailed summary of the conversation so far",
    "Your task is to create a detailed summary of the RECENT portion of the conversation",
];
const PREAMBLE: &str = "This session is being continued from a previous conversation that ran out \
                        of context. The summary below covers the earlier portion of the \
                        conversation.\n\n";
const TRANSCRIPT_TAIL: &str = "\n\nIf you need specific details from before compaction (like exact \
                               code snippets, error messages, or content you generated), read the \
                               full transcript at: ";
const TAILS: [&str; 3] = [
    "\n\nRecent messages are preserved verbatim.",
    "\n\nYour REPL VM state has been cleared as part of this compaction. Variables defined in REPL \
     calls before this point are no longer accessible — redefine any you still need.",
    "\n\nContinue the conversation from where it left off without asking the user any further \
     questions. Resume directly — do not acknowledge the summary, do not recap what was happening, \
     do not preface with \"I'll continue\" or similar. Pick up the last task as if the break never \
     happened.",
];

/// Ties summary calls to the bundle's compactions, in place, before the join.
pub fn attach_compactions<'a>(bundle: &mut Bundle<'a>, calls: &[CallRecord<'a>]) {
    if bundle.source != SOURCE {
        return;
    }
    bundle.gaps.retain(|gap| gap.code != AMBIGUOUS);
    let index = CallIndex::new(calls);
    let named: HashSet<usize> = bundle
        .of(&INVOCATION)
        .flat_map(|invocation| index.named_by(invocation))
        .collect();
    let known: HashSet<Cow<'a, str>> = bundle.of(&INVOCATION).map(Record::invocation_id).collect();
    let summaries = summaries(calls, &named);

    let found: Vec<Option<Vec<usize>>> = bundle
        .of(&COMPACTION)
        .map(|compaction| candidates(compaction, &known, &summaries, calls, &index))
        .collect();
    let mut wanted: HashMap<usize, usize> = HashMap::new();
    for call in found.iter().flatten().flatten() {
        *wanted.entry(*call).or_default() += 1;
    }

    let mut tied = Vec::new();
    let mut gaps = std::mem::take(&mut bundle.gaps);
    for (compaction, found) in bundle.of_mut(&COMPACTION).zip(&found) {
        let id = compaction.invocation_id();
        match found.as_deref() {
            None | Some([]) => {}
            Some([call]) if wanted[call] == 1 => {
                let around = ["before_model_call", "after_model_call"].map(|name| {
                    compaction
                        .reference(name)
                        .and_then(|r| index.resolve(r).ok())
                });
                if let Some(references) = compaction.references_mut() {
                    references.push(index.reference(*call));
                }
                tied.push((id, *call, around));
            }
            Some(several) => {
                let detail = Some(Cow::Owned(format!("candidate_count={}", several.len())));
                let code = Cow::Borrowed(AMBIGUOUS);
                push_gap(
                    &mut gaps,
                    Gap {
                        code,
                        invocation_id: Some(id),
                        detail,
                    },
                );
            }
        }
    }
    bundle.gaps = gaps;
    for (id, call, around) in tied {
        let invocation = bundle
            .of_mut(&INVOCATION)
            .find(|record| record.invocation_id() == id);
        if let Some(references) = invocation.and_then(Record::references_mut) {
            let at = place(references, around, &index);
            references.insert(at, index.reference(call));
        }
    }
    settle_unavailable(bundle);
}

/// Right before the call after, else right after the call before, else at the end.
fn place(
    references: &[Reference<'_>],
    [before, after]: [Option<usize>; 2],
    index: &CallIndex<'_, '_>,
) -> usize {
    let of = |call: Option<usize>| {
        let call = call?;
        references
            .iter()
            .position(|reference| index.resolve(reference) == Ok(call))
    };
    of(after)
        .or_else(|| of(before).map(|at| at + 1))
        .unwrap_or(references.len())
}

/// The gap goes once no compaction of its invocation is without calls.
fn settle_unavailable(bundle: &mut Bundle<'_>) {
    let open: HashSet<Cow<'_, str>> = bundle
        .of(&COMPACTION)
        .filter(|compaction| compaction.references().is_empty())
        .map(Record::invocation_id)
        .collect();
    let concerned: HashSet<Cow<'_, str>> =
        bundle.of(&COMPACTION).map(Record::invocation_id).collect();
    bundle.gaps.retain(|gap| {
        let id = gap.invocation_id.as_ref();
        gap.code != UNAVAILABLE || id.is_none_or(|id| open.contains(id) || !concerned.contains(id))
    });
}

/// The calls that could be a summary's, by the text the harness made of their response.
fn summaries(calls: &[CallRecord<'_>], named: &HashSet<usize>) -> HashMap<String, Vec<usize>> {
    let mut summaries: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, call) in calls.iter().enumerate() {
        if !named.contains(&at)
            && is_summary_call(call)
            && let Some(response) = &call.response
        {
            let text = response_text(response.raw);
            // Nothing said is no evidence.
            if !text.is_empty() {
                summaries.entry(normalise(&text)).or_default().push(at);
            }
        }
    }
    summaries
}

fn is_summary_call(call: &CallRecord<'_>) -> bool {
    let identified = call
        .model_call_id
        .as_deref()
        .is_some_and(|id| !id.is_empty())
        || (call.model_ref.is_some() && call.response_id.is_some());
    let status = call.status_code.and_then(Raw::as_i64);
    identified
        && call.dialect.is_some_and(|name| name.is_str("messages"))
        && status.is_some_and(|status| (200..300).contains(&status))
        && call.error_category.is_none()
        && call.last_message.is_some_and(asks_for_summary)
}

fn asks_for_summary(message: Raw<'_>) -> bool {
    let asks = |text: Raw<'_>| {
        text.as_str()
            .is_some_and(|text| INSTRUCTIONS.iter().any(|words| text.contains(words)))
    };
    let content = message.get("content").unwrap_or(Raw::NULL);
    message.get("role").is_some_and(|role| role.is_str("user"))
        && match content.kind() {
            Kind::String => asks(content),
            _ => text_blocks(content).any(asks),
        }
}

fn text_blocks(content: Raw<'_>) -> impl Iterator<Item = Raw<'_>> {
    content
        .elements()
        .filter(|block| block.get("type").is_some_and(|kind| kind.is_str("text")))
        .filter_map(|block| block.get("text"))
}

fn response_text(response: Raw<'_>) -> String {
    let content = response.get("content").unwrap_or(Raw::NULL);
    text_blocks(content).filter_map(Raw::as_str).collect()
}

/// The calls whose response a compaction's summary was made of; none where it cannot be
/// told at all.
fn candidates<'a>(
    compaction: &Record<'a>,
    known: &HashSet<Cow<'a, str>>,
    summaries: &HashMap<String, Vec<usize>>,
    calls: &[CallRecord<'a>],
    index: &CallIndex<'_, 'a>,
) -> Option<Vec<usize>> {
    let summary = compaction
        .text("summary")
        .filter(|summary| !summary.is_empty())?;
    if compaction.text("outcome").as_deref() != Some("completed")
        || !compaction.references().is_empty()
        || !known.contains(&compaction.invocation_id())
    {
        return None;
    }
    let end = |name| match compaction.field(name) {
        Some(Field::Reference(Some(reference))) => index.resolve(reference).map(Some).ok(),
        _ => Some(None),
    };
    let (before, after) = (end("before_model_call")?, end("after_model_call")?);
    let text = summary.strip_prefix(PREAMBLE)?;
    let lies_between = |call: &usize| {
        let at = calls[*call].call_index;
        before.is_none_or(|before| calls[before].call_index < at)
            && after.is_none_or(|after| at < calls[after].call_index)
            && [before, after].into_iter().flatten().all(|end| {
                let theirs = &calls[end].model_ref;
                theirs.is_none() || *theirs == calls[*call].model_ref
            })
    };
    let mut found: Vec<usize> = bodies(text)
        .filter_map(|body| summaries.get(body))
        .flatten()
        .copied()
        .filter(lies_between)
        .collect();
    found.sort_unstable();
    found.dedup();
    Some(found)
}

/// A summary's text without any run of the known tails, in their order.
fn bodies(text: &str) -> impl Iterator<Item = &str> {
    let mut bodies = vec![text];
    for tail in TAILS.iter().rev() {
        let shorter: Vec<_> = bodies
            .iter()
            .filter_map(|body| body.strip_suffix(tail))
            .collect();
        bodies.extend(shorter);
    }
    let mut without_path = Vec::new();
    for body in &bodies {
        if let Some((before, path)) = body.rsplit_once(TRANSCRIPT_TAIL)
            && !path.is_empty()
            && !path.contains('\n')
        {
            without_path.push(before);
        }
    }
    bodies.extend(without_path);
    bodies.into_iter()
}

/// What the harness makes of a summary call's response.
fn normalise(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some((start, end, _)) = element(&text, "<analysis>", "</analysis>") {
        text.replace_range(start..end, "");
    }
    if let Some((start, end, inner)) = element(&text, "<summary>", "</summary>") {
        let inner = format!("Summary:\n{}", inner.trim());
        text.replace_range(start..end, &inner);
    }
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text.trim().to_owned()
}

/// The first element of a tag: where it starts and ends, and what is in it.
fn element<'t>(text: &'t str, open: &str, close: &str) -> Option<(usize, usize, &'t str)> {
    let start = text.find(open)?;
    let inner = start + open.len();
    let end = inner + text[inner..].find(close)?;
    Some((start, end + close.len(), &text[inner..end]))
}
