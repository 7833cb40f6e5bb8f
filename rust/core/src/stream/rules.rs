//! What each event of a responses stream does to its output item.

/// What an event of some type does to its item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The item's type where the stream never said it.
    pub(super) item: &'static str,
    pub(super) place: Place,
    pub(super) step: Step,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// A string member of the item.
    Member(&'static str),
    /// A string member of the item's operation.
    Operation(&'static str),
    /// The string `member` of an entry of the list, addressed by the event's `index`.
    Entry {
        list: &'static str,
        index: &'static str,
        kind: &'static str,
        member: &'static str,
    },
    /// A whole entry of a list.
    Part {
        list: &'static str,
        index: &'static str,
    },
    Annotation,
    Command,
    CommandOutput,
    /// A member that each event brings whole.
    Latest(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Delta,
    Whole,
}

const SUMMARY: Place = Place::Entry {
    list: "summary",
    index: "summary_index",
    kind: "summary_text",
    member: "text",
};

const fn content(kind: &'static str, member: &'static str) -> Place {
    Place::Entry {
        list: "content",
        index: "content_index",
        kind,
        member,
    }
}

/// Event types without their last word, the item each belongs to and the place it fills.
/// Older spellings that servers still send stand beside the documented ones.
const PLACES: [(&str, &str, Place); 19] = [
    (
        "response.output_text",
        "message",
        content("output_text", "text"),
    ),
    ("response.refusal", "message", content("refusal", "refusal")),
    (
        "response.content_part",
        "message",
        Place::Part {
            list: "content",
            index: "content_index",
        },
    ),
    (
        "response.output_text.annotation",
        "message",
        Place::Annotation,
    ),
    (
        "response.output_text_annotation",
        "message",
        Place::Annotation,
    ),
    (
        "response.reasoning_text",
        "reasoning",
        content("reasoning_text", "text"),
    ),
    (
        "response.reasoning",
        "reasoning",
        content("reasoning_text", "text"),
    ),
    (
        "response.reasoning_part",
        "reasoning",
        Place::Part {
            list: "content",
            index: "content_index",
        },
    ),
    ("response.reasoning_summary_text", "reasoning", SUMMARY),
    ("response.reasoning_summary", "reasoning", SUMMARY),
    (
        "response.reasoning_summary_part",
        "reasoning",
        Place::Part {
            list: "summary",
            index: "summary_index",
        },
    ),
    (
        "response.function_call_arguments",
        "function_call",
        Place::Member("arguments"),
    ),
    (
        "response.custom_tool_call_input",
        "custom_tool_call",
        Place::Member("input"),
    ),
    (
        "response.mcp_call_arguments",
        "mcp_call",
        Place::Member("arguments"),
    ),
    (
        "response.mcp_call.arguments",
        "mcp_call",
        Place::Member("arguments"),
    ),
    (
        "response.code_interpreter_call_code",
        "code_interpreter_call",
        Place::Member("code"),
    ),
    (
        "response.code_interpreter_call.code",
        "code_interpreter_call",
        Place::Member("code"),
    ),
    (
        "response.apply_patch_call_operation_diff",
        "apply_patch_call",
        Place::Operation("diff"),
    ),
    ("response.shell_call_command", "shell_call", Place::Command),
];

impl Rule {
    pub(super) fn is_delta(self) -> bool {
        self.step == Step::Delta
    }

    /// What an event of this type does to its item; `None` where no item is concerned.
    pub(super) fn of(kind: &str) -> Option<Self> {
        match kind {
            "response.image_generation_call.partial_image" => {
                return Some(Self {
                    item: "image_generation_call",
                    place: Place::Latest("partial_image_b64"),
                    step: Step::Whole,
                });
            }
            "response.shell_call_output_content.delta"
            | "response.shell_call_output_content.done" => {
                let step = if kind.ends_with("delta") {
                    Step::Delta
                } else {
                    Step::Whole
                };
                return Some(Self {
                    item: "shell_call_output",
                    place: Place::CommandOutput,
                    step,
                });
            }
            _ => {}
        }
        let (subject, word) = kind.rsplit_once('.')?;
        let step = match word {
            "delta" => Step::Delta,
            "done" | "added" => Step::Whole,
            _ => return None,
        };
        let (_, item, place) = PLACES.iter().find(|(name, ..)| *name == subject)?;
        Some(Self {
            item,
            place: *place,
            step,
        })
    }
}
